// SPDX-License-Identifier: MIT
// Rounds rows of log-probabilities to 16 bits, and reads them back from a file that may be damaged.
#include "cli/compare/base_file.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "cli/common.h"

namespace moe_cli {
namespace {

constexpr char kMagic[] = {'_', 'l', 'o', 'g', 'i', 't', 's', '_'};
constexpr int32_t kMostWindow = 1 << 24;
constexpr int32_t kMostVocab = 1 << 24;
constexpr float kRange = 16;  // nats below the best token that are kept
constexpr float kMostCode = 65535;

size_t codes_of(int32_t vocab_size) { return (static_cast<size_t>(vocab_size) + 1) / 2 * 2; }

uint64_t file_bytes(const Windows& w, uint64_t n_windows) {
  const auto n = static_cast<uint64_t>(w.length);
  const uint64_t rows = n - 1 - static_cast<uint64_t>(w.first_scored());
  const uint64_t row = 2 * sizeof(float) + 2 * uint64_t{codes_of(w.vocab_size)};
  return sizeof kMagic + 3 * sizeof(int32_t) + n_windows * (n * sizeof(int32_t) + rows * row);
}

}  // namespace

bool is_base_file(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return false;
  char magic[sizeof kMagic] = {};
  std::ifstream in(path, std::ios::binary);
  in.read(magic, sizeof magic);
  return in && std::memcmp(magic, kMagic, sizeof magic) == 0;
}

BaseReader::BaseReader(const std::string& path) : file_(path) {
  char magic[sizeof kMagic];
  int32_t n_windows = 0;
  read(magic, sizeof magic);
  if (std::memcmp(magic, kMagic, sizeof magic) != 0) fail("expected \"_logits_\" at its begin");
  read(&windows_.length, sizeof windows_.length);
  read(&windows_.vocab_size, sizeof windows_.vocab_size);
  read(&n_windows, sizeof n_windows);
  const auto within = [&](const char* what, int32_t value, int32_t least, int32_t most) {
    if (value >= least && value <= most) return;
    fail(std::string(what) + ": expected " + std::to_string(least) + ".." + std::to_string(most) +
         ", found " + std::to_string(value));
  };
  within("tokens of a window", windows_.length, 3, kMostWindow);
  within("vocabulary", windows_.vocab_size, 1, kMostVocab);
  within("number of windows", n_windows, 1, INT32_MAX);
  const uint64_t expected = file_bytes(windows_, static_cast<uint64_t>(n_windows));
  if (file_.size() != expected) {
    fail("expected " + std::to_string(expected) + " bytes, found " + std::to_string(file_.size()));
  }
  windows_.tokens.resize(static_cast<size_t>(windows_.length) * static_cast<size_t>(n_windows));
  read(windows_.tokens.data(), windows_.tokens.size() * sizeof(int32_t));
  for (const int32_t token : windows_.tokens) within("token", token, 0, windows_.vocab_size - 1);
  codes_.resize(codes_of(windows_.vocab_size));
}

void BaseReader::read_row(float* row) {
  float head[2];
  read(head, sizeof head);
  read(codes_.data(), codes_.size() * sizeof codes_[0]);
  if (!(head[0] >= 0) || !std::isfinite(head[0]) || !std::isfinite(head[1])) {
    fail("log-probabilities that are not finite");
  }
  for (size_t i = 0; i < static_cast<size_t>(windows_.vocab_size); ++i) {
    row[i] = head[0] * static_cast<float>(codes_[i]) + head[1];
  }
}

void BaseReader::read(void* to, size_t n) {
  for (auto* at = static_cast<char*>(to); n > 0;) {
    if (part_.empty()) part_ = file_.next();
    if (part_.empty()) fail("ends early");
    const size_t taken = std::min(n, part_.size());
    std::memcpy(at, part_.data(), taken);
    part_.remove_prefix(taken);
    at += taken;
    n -= taken;
  }
}

void BaseReader::fail(const std::string& why) const {
  throw CallError(MOE_ERR_CORRUPT, file_.name() + ": no file of log-probabilities: " + why);
}

BaseWriter::BaseWriter(std::ostream& out, const Windows& windows)
    : out_(out),
      vocab_size_(static_cast<size_t>(windows.vocab_size)),
      codes_(codes_of(windows.vocab_size)) {
  const int32_t head[] = {windows.length, windows.vocab_size,
                          static_cast<int32_t>(windows.count())};
  out_.write(kMagic, sizeof kMagic);
  out_.write(reinterpret_cast<const char*>(head), sizeof head);
  out_.write(reinterpret_cast<const char*>(windows.tokens.data()),
             static_cast<std::streamsize>(windows.tokens.size() * sizeof(int32_t)));
}

void BaseWriter::write_row(const float* row) {
  const auto [low, high] = std::minmax_element(row, row + vocab_size_);
  const float least = std::max(*low, *high - kRange);
  const float step = (*high - least) / kMostCode;
  for (size_t i = 0; i < vocab_size_; ++i) {
    const float code = step > 0 && row[i] > least ? std::nearbyint((row[i] - least) / step) : 0;
    codes_[i] = static_cast<uint16_t>(std::min(code, kMostCode));
  }
  const float head[] = {step, least};
  out_.write(reinterpret_cast<const char*>(head), sizeof head);
  out_.write(reinterpret_cast<const char*>(codes_.data()),
             static_cast<std::streamsize>(codes_.size() * sizeof codes_[0]));
}

}  // namespace moe_cli
