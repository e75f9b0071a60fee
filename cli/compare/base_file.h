// SPDX-License-Identifier: MIT
#pragma once
// A model's log-probabilities of a text in a file, so that another model can be compared with it
// later: the format that llama.cpp's llama-perplexity writes and reads (--kl-divergence-base).
//
// "_logits_", then as little-endian int32 the tokens of a window n, the size of the vocabulary and
// the number of windows, then the tokens of all windows. Then for each window a row for every
// position from n / 2 to n - 2, which predicts the token after it: as float32 a step and the least
// log-probability, then a uint16 for each token of the vocabulary and, if their number is odd, one
// more. A log-probability is step * number + least; what is 16 nats or more below the best is 0.

#include <cstdint>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "cli/io/input_file.h"

namespace moe_cli {

/// The reader leaves out log-probabilities up to this, as llama.cpp does: they were cut off.
inline constexpr double kBaseFloor = -16;

/// The text that both models read.
struct Windows {
  int32_t length = 0;  // tokens of a window
  int32_t vocab_size = 0;
  std::vector<int32_t> tokens;  // of all windows

  size_t count() const { return tokens.size() / static_cast<size_t>(length); }
  const int32_t* window(size_t i) const { return tokens.data() + i * static_cast<size_t>(length); }
  /// The first position whose prediction is scored; the last is length - 2.
  int32_t first_scored() const { return length / 2; }
};

/// True for a regular file that begins as such a file does.
bool is_base_file(const std::string& path);

/// Reads the header on construction. Throws CallError naming the file for whatever is wrong.
class BaseReader {
 public:
  explicit BaseReader(const std::string& path);
  const Windows& windows() const { return windows_; }
  /// The next row as log-probabilities, (vocab_size).
  void read_row(float* row);

 private:
  void read(void* to, size_t n);
  [[noreturn]] void fail(const std::string& why) const;

  InputFile file_;
  std::string_view part_;  // read from the file and not used yet
  Windows windows_;
  std::vector<uint16_t> codes_;
};

class BaseWriter {
 public:
  BaseWriter(std::ostream& out, const Windows& windows);
  /// The next row of log-probabilities, (vocab_size).
  void write_row(const float* row);

 private:
  std::ostream& out_;
  size_t vocab_size_;
  std::vector<uint16_t> codes_;
};

}  // namespace moe_cli
