// SPDX-License-Identifier: MIT
// tokenize_lines TOKENIZER LINES.json: prints the ids and texts of each line as JSON, for
// compare_with_tokenizers.py; with a third argument, the speed of encoding the first line in MB/s.
// TOKENIZER is a tokenizer.json, or a folder with one and the files beside it, whose warnings then
// go to stderr. The tokenizer goes through a FlatBuffer, as in a model file. A line {"bytes":
// [...]} is not UTF-8.
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <iostream>

#include "formats/import/failure.h"
#include "src/c_api/load_tokenizer.h"
#include "src/convert/tokenizer/tokenizer_write.h"

namespace moe {
namespace {

Json encode(const Tokenizer& tokenizer, const std::string& text, bool add, bool parse) {
  Array<int32_t> ids;
  check(tokenizer.encode(text, add, parse, ids));
  return std::vector<int32_t>(ids.begin(), ids.end());
}

Json decode(const Tokenizer& tokenizer, const Json& list, bool skip_special) {
  const auto ids = list.get<std::vector<int32_t>>();
  String text;
  check(tokenizer.decode({ids.data(), ids.size()}, skip_special, text));
  return std::string(text.view());
}

std::string line_text(const Json& line) {
  if (line.is_string()) return line.get<std::string>();
  const auto bytes = line.at("bytes").get<std::vector<uint8_t>>();
  return {bytes.begin(), bytes.end()};
}

// The best of five runs in CPU time, since other programs can only slow a run down.
void measure(const Tokenizer& tokenizer, const std::string& text) {
  double best = 0;
  for (int i = 0; i < 5; ++i) {
    Array<int32_t> ids;
    const std::clock_t start = std::clock();
    check(tokenizer.encode(text, false, false, ids));
    const double seconds = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
    best = std::max(best, static_cast<double>(text.size()) * 1e-6 / seconds);
  }
  std::printf("%.1f MB/s\n", best);
}

void run(const char* tokenizer_path, const char* lines_path, bool timed) {
  const TokenizerData data = std::filesystem::is_directory(tokenizer_path)
                                 ? read_tokenizer(tokenizer_path)
                                 : parse_tokenizer(read_json_file(tokenizer_path), tokenizer_path);
  for (const std::string& text : data.warnings) std::cerr << "warning: " << text << "\n";
  flatbuffers::FlatBufferBuilder builder;
  builder.Finish(write_tokenizer(builder, data));
  const auto* table = flatbuffers::GetRoot<fbs::Tokenizer>(builder.GetBufferPointer());
  const Box<Tokenizer> tokenizer = take(load_tokenizer(*table, 0, system_allocator()));
  const Json lines = read_json_file(lines_path);
  if (timed) return measure(*tokenizer, line_text(*lines.begin()));
  Json out = Json::array();
  for (const Json& line : lines) {
    const std::string text = line_text(line);
    const Json ids = encode(*tokenizer, text, true, true);
    out.push_back({{"ids", ids},
                   {"plain", encode(*tokenizer, text, false, false)},
                   {"text", decode(*tokenizer, ids, true)},
                   {"full", decode(*tokenizer, ids, false)}});
  }
  std::cout << out.dump() << "\n";
}

}  // namespace
}  // namespace moe

int main(int argc, char** argv) {
  if (argc != 3 && argc != 4) return 2;
  const moe::Status status = moe::guarded([&] { moe::run(argv[1], argv[2], argc == 4); });
  if (!status.ok()) std::cerr << status.text() << "\n";
  return status.ok() ? 0 : 1;
}
