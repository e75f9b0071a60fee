// SPDX-License-Identifier: MIT
#pragma once
// Files that a command writes its results to.

#include <memory>
#include <ostream>
#include <streambuf>
#include <string>
#include <vector>

#include "cli/common.h"

namespace moe_cli {

/// Opens a file that is no regular one, such as a named pipe or a device. A pipe without a reader
/// is waited for, which is said on stderr; after Ctrl-C this throws. A reader that goes away later
/// is an error of writing. Throws CallError.
int open_special(const std::string& path);
/// Waits for a pipe's reader, so that Ctrl-C ends it, which throws CallError. False if writing
/// failed: errno is the reason.
bool write_all(int file, const char* bytes, size_t n);

/// Streams to a file descriptor, which it does not own.
class DescriptorBuffer : public std::streambuf {
 public:
  DescriptorBuffer();
  /// Drops what is not written yet.
  void use(int file);
  /// Throws CallError with the reason of the failed write, or after Ctrl-C.
  [[noreturn]] void fail(const std::string& path) const;

 protected:
  int_type overflow(int_type c) override;
  int sync() override;

 private:
  int file_ = -1;
  int error_ = 0;  // errno of the failed write
  std::vector<char> part_;
};

/// A file that is replaced when its new content is complete, as moe_c.h says (section 12). No other
/// moe writes it meanwhile.
class ReplacedFile {
 public:
  /// Throws CallError if it cannot be written, or is being written.
  explicit ReplacedFile(const std::string& path);
  ReplacedFile(const ReplacedFile&) = delete;
  ReplacedFile& operator=(const ReplacedFile&) = delete;
  /// Begins new content, in place of what is not committed. Throws CallError.
  std::ostream& begin();
  /// Throws CallError if not everything could be written; the old file is then unchanged.
  void commit();

 private:
  struct Free {
    void operator()(moe_replacement* p) const { moe_replacement_free(p); }
  };
  const std::string path_;
  std::unique_ptr<moe_replacement, Free> file_;
  DescriptorBuffer buffer_;
  std::ostream stream_{&buffer_};
};

/// Checked to be writable before the computation. Its old content remains until finish(); a failure
/// leaves it unchanged. What is no regular file is written directly.
class OutputFile {
 public:
  /// Empty: no file.
  explicit OutputFile(const std::string& path);
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;
  ~OutputFile();
  /// The stream to write to, until finish().
  std::ostream& begin();
  void finish();

 private:
  const std::string path_;
  std::unique_ptr<ReplacedFile> file_;
  int special_ = -1;
  DescriptorBuffer buffer_;
  std::ostream stream_{&buffer_};
};

/// Throws UsageError if the file to write is `input`, which is `what`: "the model".
void keep_input(const std::string& written, const std::string& input, const std::string& what);

}  // namespace moe_cli
