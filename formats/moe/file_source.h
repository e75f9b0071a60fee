#pragma once
// Where the bytes of a model file come from: a path, memory, or the caller's functions.

#include <cstddef>
#include <cstdint>
#include <utility>

#include "src/base/status.h"

namespace moe {

/// A caller's own storage. `read` fills exactly n bytes and returns 0, or anything else on failure.
/// Any thread.
struct ReadCallbacks {
  uint64_t size = 0;
  int (*read)(void* user, uint64_t offset, void* buffer, size_t n) = nullptr;
  void* user = nullptr;
};

/// What O_DIRECT wants: offsets, sizes and addresses that are multiples of this.
inline constexpr uint64_t kDirectAlign = 4096;

/// Random access to a file of known size. Move-only; reading is safe from any thread.
class FileSource final {
 public:
  /// Opens a regular file for reading. MOE_ERR_NOT_FOUND, MOE_ERR_IO.
  static Result<FileSource> open_path(const char* path);
  /// `data` must stay valid and unchanged for the life of the source.
  static FileSource from_memory(const void* data, size_t n);
  static FileSource from_callbacks(const ReadCallbacks& callbacks);

  FileSource(FileSource&& other) noexcept { swap(other); }
  FileSource& operator=(FileSource&& other) noexcept {
    swap(other);
    return *this;
  }
  FileSource(const FileSource&) = delete;
  FileSource& operator=(const FileSource&) = delete;
  ~FileSource();

  uint64_t size() const { return size_; }
  /// Maps a file that was opened by path, whole and read-only; nothing for other sources. A file
  /// that shrinks while it is mapped kills the process with SIGBUS: that is the caller's choice to
  /// make.
  Status map();
  /// All bytes, or null where only read() works.
  const uint8_t* data() const { return data_; }
  /// From now on read() passes the system's page cache where it can. `path` is that of open_path().
  /// MOE_ERR_UNSUPPORTED when the file system refuses that: read() then works as before.
  Status go_direct(const char* path);
  bool direct() const { return direct_fd_ >= 0; }
  /// Whether a file that was opened by path has been written to since.
  bool changed() const;

  /// Fills n bytes of a `buffer` that has `room`; what lies behind the n bytes may be overwritten.
  /// Passes the page cache when direct(), offset and buffer are multiples of kDirectAlign, and
  /// there is room up to the next multiple. MOE_ERR_IO when the bytes are not there any more or the
  /// device fails.
  Status read(uint64_t offset, void* buffer, size_t n, size_t room) const;
  Status read(uint64_t offset, void* buffer, size_t n) const { return read(offset, buffer, n, n); }

 private:
  FileSource() = default;
  void swap(FileSource& other) noexcept;

  Status read_file(uint64_t offset, uint8_t* out, size_t n, bool direct) const;

  uint64_t size_ = 0;
  int64_t written_ns_ = 0;  // when the file was last written to
  int fd_ = -1;
  int direct_fd_ = -1;
  bool mapped_ = false;  // data_ is ours to unmap
  const uint8_t* data_ = nullptr;
  ReadCallbacks callbacks_;
};

}  // namespace moe
