// SPDX-License-Identifier: MIT
// Prints the logits of guessed tokens, a line each, for tests/parity/run.py.
// Usage: guess_logits MODEL f32|f16 N ID...

#include <cstdio>
#include <fstream>
#include <iterator>

#include "tests/run/guesses.h"

int main(int argc, char** argv) {
  using namespace moe;
  if (argc < 6) return 2;
  std::ifstream file(argv[1], std::ios::binary);
  const std::vector<char> bytes{std::istreambuf_iterator<char>(file), {}};
  MemorySink sink;
  if (bytes.empty() || !sink.write(0, bytes.data(), bytes.size()).ok()) return 2;
  const auto n = static_cast<size_t>(std::stoi(argv[3]));
  Tokens tokens;
  for (int i = 4; i < argc; ++i) tokens.push_back(std::stoi(argv[i]));
  Machine machine(sink);
  if (!machine.status().ok()) {
    std::fprintf(stderr, "%s\n", machine.status().text());
    return 1;
  }
  SessionOptions options;
  if (std::string(argv[2]) == "f32") options.kv = KvType::kF32;
  const Floats logits = guess_logits(*machine.session(options), tokens, n);
  const auto width = static_cast<size_t>(machine.vocab_size());
  for (size_t i = 0; i < logits.size(); ++i) {
    std::printf("%.9g%c", static_cast<double>(logits[i]), (i + 1) % width == 0 ? '\n' : ' ');
  }
  return logits.size() == n * width ? 0 : 1;
}
