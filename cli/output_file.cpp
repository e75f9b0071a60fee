#include "cli/output_file.h"

#include <filesystem>

namespace moe_cli {

OutputFile::OutputFile(const std::string& path) : path_(path) {
  if (path.empty()) return;
  std::error_code ignored;
  remove_ = !std::filesystem::exists(path, ignored);
  file_.open(path, std::ios::binary | std::ios::app);
  if (!file_) fail();
}

OutputFile::~OutputFile() {
  std::error_code ignored;
  if (remove_ && std::filesystem::is_regular_file(path_, ignored)) {
    std::filesystem::remove(path_, ignored);
  }
}

std::ostream& OutputFile::begin() {
  file_.close();
  file_.open(path_, std::ios::binary | std::ios::trunc);
  remove_ = true;
  return file_;
}

void OutputFile::finish() {
  file_.close();
  if (!file_) fail();
  remove_ = false;
}

void keep_input(const std::string& written, const std::string& input, const std::string& what) {
  std::error_code ignored;  // there is no such file
  if (!std::filesystem::equivalent(input == "-" ? "/dev/stdin" : input, written, ignored)) return;
  throw UsageError(written + ": this is " + what + "; expected another file");
}

}  // namespace moe_cli
