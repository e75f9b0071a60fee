#pragma once
// A file that a command writes its result to.

#include <fstream>
#include <string>

#include "cli/common.h"

namespace moe_cli {

/// Checked to be writable before the computation. Its old content remains until begin(); a failure
/// leaves no new or partial file.
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
  [[noreturn]] void fail() const { throw write_error(path_); }
  std::string path_;
  std::ofstream file_;
  bool remove_ = false;
};

/// Throws UsageError if the file to write is `input`, which is `what`: "the model".
void keep_input(const std::string& written, const std::string& input, const std::string& what);

}  // namespace moe_cli
