#pragma once
// Input and output of moe batch: lines of requests, and lines of results.

#include <cstdint>
#include <string>

#include "cli/input_file.h"
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

/// The results so far, locked against other writers. Lines are written whole or not at all.
class ResultFile {
 public:
  /// "-" is stdout, which is not locked and holds no results.
  explicit ResultFile(const std::string& path);
  ResultFile(const ResultFile&) = delete;
  ResultFile& operator=(const ResultFile&) = delete;
  ~ResultFile();

  /// Drops everything after the last whole line; returns the number of lines. A file with other
  /// content is not changed. A device or a pipe has no lines.
  size_t resume();
  void add(const std::string& line);

 private:
  void check_result(const std::string& head, size_t n, bool whole) const;
  [[noreturn]] void fail() const;

  std::string path_;
  int fd_;
};

/// Both files of a run.
struct BatchFiles {
  BatchFiles(const std::string& from, const std::string& to);
  /// Lines without a result, at most `most`; `most` for a pipe, which can be read only once.
  int lines_left(int most) const;
  /// Skips the lines with results of earlier runs. CallError if these are of another input.
  void skip_answered(const moe_model* model);

  std::string in_path;
  std::string out_path;
  LineReader in;
  ResultFile out;
  size_t n_written;  // lines of earlier runs
};

}  // namespace moe_cli
