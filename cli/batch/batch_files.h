// SPDX-License-Identifier: MIT
#pragma once
// Input and output of moe batch: lines of requests, and lines of results.

#include <sys/types.h>

#include <cstdint>
#include <string>

#include "cli/io/input_file.h"
#include "include/moe_c.h"

namespace moe_cli {

inline constexpr size_t kMostLineBytes = size_t{4} << 20;

/// Lines of a file, at most kMostLineBytes of each. A line of 16 times as many bytes is an error.
class LineReader {
 public:
  explicit LineReader(const std::string& path) : in_(path) {}
  /// True if next() would not wait for more of a pipe.
  bool ready();
  /// False at the end. *whole: false for too long a line, of which `line` is the beginning.
  bool next(std::string* line, bool* whole);
  uint64_t at() const { return at_; }
  uint64_t size() const { return in_.size(); }  // 0 for a pipe

 private:
  void read_byte();

  InputFile in_;
  std::string line_;  // what has arrived of the next one
  bool whole_ = true;
  bool arrived_ = false;  // a line, or the end
  uint64_t start_ = 0;
  uint64_t at_ = 0;
};

/// The results so far, locked against other writers. A file gets lines whole or not at all.
class ResultFile {
 public:
  /// "-" is stdout, which is not locked and holds no results; nor does a pipe, whose reader is
  /// waited for, or a device.
  explicit ResultFile(const std::string& path);
  ResultFile(const ResultFile&) = delete;
  ResultFile& operator=(const ResultFile&) = delete;
  ~ResultFile();

  /// The number of whole results, of which the last may lack its newline; changes nothing.
  /// CallError for a file with other content. A device or a pipe has no lines.
  size_t count();
  /// Drops what follows the last whole result that count() found, or ends its line: add() continues
  /// there.
  void resume();
  /// Throws CallError, also after Ctrl-C while a pipe is not read.
  void add(const std::string& line);

 private:
  void check_result(const std::string& head, size_t n) const;
  bool is_whole(off_t end) const;
  [[noreturn]] void fail() const;

  std::string path_;
  int fd_;
  off_t end_ = 0;         // of the last whole result
  bool unended_ = false;  // it lacks its newline
};

/// Both files of a run.
struct BatchFiles {
  BatchFiles(const std::string& from, const std::string& to);
  /// Lines without a result, at most `most`; `most` for a pipe, which can be read only once.
  int lines_left(int most) const;
  /// Skips the lines with results of earlier runs. CallError if these are of another input; OUT is
  /// unchanged then.
  void skip_answered(const moe_model* model);

  std::string in_path;
  std::string out_path;
  LineReader in;
  ResultFile out;
  size_t n_written;  // lines of earlier runs

 private:
  void check_answered(const moe_model* model);
};

}  // namespace moe_cli
