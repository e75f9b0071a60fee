// SPDX-License-Identifier: MIT
#pragma once
// A file or a pipe that is read to its end. Ctrl-C and SIGTERM end the wait for a pipe.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace moe_cli {

class InputFile {
 public:
  /// "-" is stdin. Throws CallError if the file cannot be opened.
  explicit InputFile(const std::string& path);
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;
  ~InputFile();

  /// The path or "stdin", for messages.
  const std::string& name() const { return name_; }
  /// 0 unless it is a regular file.
  uint64_t size() const;

  /// True if reading would not wait: a byte or the end has arrived.
  bool ready() const;
  /// The next byte; false at the end. Throws CallError, as next() does.
  bool get(char* c) {
    if (used_ == filled_ && !fill()) return false;
    *c = part_[used_++];
    return true;
  }
  /// The next bytes, valid until the next call; empty at the end.
  std::string_view next();

 private:
  bool fill();
  [[noreturn]] void fail() const;

  std::string name_;
  std::vector<char> part_;
  int fd_;
  size_t used_ = 0;
  size_t filled_ = 0;
  bool ended_ = false;  // a terminal could be read again
};

}  // namespace moe_cli
