#pragma once
// A regular file opened for reading at any offset.

#include <cstdint>
#include <string>
#include <vector>

namespace moe {

/// Move-only; closes on destruction. Reads are positioned, so threads may share it.
class InputFile {
 public:
  /// Throws a Failure: MOE_ERR_NOT_FOUND, MOE_ERR_IO naming the path and errno, or MOE_ERR_FORMAT
  /// for a Git LFS pointer.
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

/// True if `path` exists.
bool path_exists(const std::string& path);

/// The sorted names in a folder without "." and ".."; empty if `path` is not a folder.
std::vector<std::string> names_in_folder(const std::string& path);

/// The whole file as text; MOE_ERR_FORMAT if longer than `max_bytes`.
std::string read_text_file(const std::string& path, uint64_t max_bytes);

}  // namespace moe
