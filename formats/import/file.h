// SPDX-License-Identifier: MIT
#pragma once
// A regular file opened for reading at any offset.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace moe {

/// Move-only; closes on destruction. Reads are positioned, so threads may share it.
class InputFile {
 public:
  /// Throws a Failure: MOE_ERR_NOT_FOUND (naming the target of a symbolic link), MOE_ERR_IO naming
  /// the path and errno, or MOE_ERR_FORMAT for a Git LFS pointer.
  explicit InputFile(std::string path);
  InputFile(InputFile&& other) noexcept;
  InputFile& operator=(InputFile&&) = delete;
  InputFile(const InputFile&) = delete;
  ~InputFile();

  const std::string& path() const { return path_; }
  uint64_t size() const { return size_; }

  /// Reads exactly `bytes` bytes at `offset` to `buffer`; MOE_ERR_IO if the file was truncated.
  void read(uint64_t offset, void* buffer, size_t bytes) const;

 private:
  void refuse_pointer() const;

  std::string path_;
  int fd_ = -1;
  uint64_t size_ = 0;
};

/// The description of a file that stands in place of a binary one, to follow "PATH is": nothing, a
/// Git LFS pointer, or text (of a web page or an error). Empty if it does not look like one of
/// these.
std::string foreign_start(const InputFile& file);
/// The same of a file that begins with `text`, which is not empty.
std::string foreign_start(std::string_view text);

/// The description of an archive or a compressed file, to follow "PATH is"; empty for any other.
/// Only for files that are refused anyway: a safetensors file may begin with the same bytes.
std::string archive_kind(const InputFile& file);

/// Throws MOE_ERR_FORMAT: of the `whole` bytes that the file describes it has `size`.
[[noreturn]] void fail_cut_off(const std::string& path, uint64_t size, uint64_t whole);

/// True if `path` exists. Throws MOE_ERR_NOT_FOUND for a symbolic link to a missing file.
bool path_exists(const std::string& path);

/// The sorted names in a folder without "." and ".."; empty if `path` is not a folder.
std::vector<std::string> names_in_folder(const std::string& path);

/// The whole file as text; MOE_ERR_FORMAT if longer than `max_bytes`.
std::string read_text_file(const std::string& path, uint64_t max_bytes);

}  // namespace moe
