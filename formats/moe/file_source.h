// SPDX-License-Identifier: MIT
#pragma once
// The bytes of a model file: from a path, memory, or the caller's functions.

#include <cstddef>
#include <cstdint>
#include <utility>

#include "src/base/status.h"

namespace moe {

/// Caller-provided storage. `read` reads exactly n bytes, or returns false. Any thread.
struct ReadCallbacks {
  uint64_t size = 0;
  bool (*read)(void* user, uint64_t offset, void* buffer, size_t n) = nullptr;
  void* user = nullptr;
};

/// O_DIRECT needs offsets, sizes and addresses that are multiples of this.
inline constexpr uint64_t kDirectAlign = 4096;

/// Random access to a file of known size. Move-only; reading is safe from any thread.
class FileSource final {
 public:
  /// Opens a regular file for reading. MOE_ERR_NOT_FOUND, MOE_ERR_IO.
  static Result<FileSource> open_path(const char* path);
  /// `data` must remain valid and unchanged during the source's life.
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
  /// Maps a whole file opened by path, read-only; no effect on other sources. If the file is
  /// truncated while mapped, access kills the process with SIGBUS: the caller accepts this risk.
  Status map();
  /// All bytes, or null if only read() works.
  const uint8_t* data() const { return data_; }
  /// Makes read() bypass the page cache where possible. `path` as in open_path().
  /// MOE_ERR_UNSUPPORTED if the file system refuses; read() then works as before.
  Status go_direct(const char* path);
  bool direct() const { return direct_fd_ >= 0; }
  /// True if a file opened by path has been written to since.
  bool changed() const;

  /// Reads n bytes to `buffer` of size `room`; bytes after the first n may be overwritten. Bypasses
  /// the page cache if direct(), offset and buffer are multiples of kDirectAlign, and `room` covers
  /// the next multiple. MOE_ERR_IO if the bytes no longer exist or the device fails.
  Status read(uint64_t offset, void* buffer, size_t n, size_t room) const;
  Status read(uint64_t offset, void* buffer, size_t n) const { return read(offset, buffer, n, n); }

 private:
  FileSource() = default;
  void swap(FileSource& other) noexcept;

  Status read_file(uint64_t offset, uint8_t* out, size_t n, bool direct) const;

  uint64_t size_ = 0;
  int64_t written_ns_ = 0;  // last modification time
  int fd_ = -1;
  int direct_fd_ = -1;
  bool mapped_ = false;  // data_ must be unmapped
  const uint8_t* data_ = nullptr;
  ReadCallbacks callbacks_;
};

}  // namespace moe
