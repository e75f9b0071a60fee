// SPDX-License-Identifier: MIT
// Opens, maps and reads the bytes of a model file, with direct input and output where the file
// system allows it.
#include "formats/moe/file_source.h"

#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <cstring>

#include "src/base/checked.h"
#include "src/base/os/file.h"
#include "src/base/system_error.h"

namespace moe {
namespace {

// Larger reads are slower on some machines: nothing of a read is available before all of it.
constexpr size_t kBlock = size_t{1} << 20;

Status io_error(const char* what, const char* path, int error) {
  return system_error(is_missing(error) ? MOE_ERR_NOT_FOUND : MOE_ERR_IO, what, path, error);
}

// A symbolic link whose target is gone is there, unlike a file of a mistyped name.
Status open_error(const char* path, int error) {
  char target[256];
  if (!is_missing(error) || !link_target(path, target, sizeof target)) {
    return io_error("open", path, error);
  }
  return Status::error(MOE_ERR_NOT_FOUND, "%s: a link to %s, which is not there", path, target);
}

bool aligned(uint64_t n) { return n % kDirectAlign == 0; }

// Some file systems accept the flag and then reject every read.
bool reads_directly(int file) {
  alignas(kDirectAlign) uint8_t page[kDirectAlign];
  size_t got = 0;
  return read_at(file, 0, page, sizeof page, &got) == 0;
}

}  // namespace

Result<FileSource> FileSource::open_path(const char* path) {
  FileSource source;
  int error = open_to_read(path, ReadMode::kBuffered, &source.fd_);
  if (error != 0) return open_error(path, error);
  FileInfo info;
  error = file_info(source.fd_, &info);
  if (error != 0) return io_error("look at", path, error);
  if (info.kind != FileKind::kRegular) {
    const bool folder = info.kind == FileKind::kFolder;
    return Status::error(MOE_ERR_IO, "%s: not a regular file%s", path,
                         folder ? "; moe convert converts a folder" : "");
  }
  source.size_ = info.size;
  source.written_ns_ = info.written_ns;
  return source;
}

FileSource FileSource::from_memory(const void* data, size_t n) {
  FileSource source;
  source.data_ = static_cast<const uint8_t*>(data);
  source.size_ = n;
  return source;
}

FileSource FileSource::from_callbacks(const ReadCallbacks& callbacks) {
  FileSource source;
  source.callbacks_ = callbacks;
  source.size_ = callbacks.size;
  return source;
}

FileSource::~FileSource() {
  if (mapped_) unmap_file(data_, static_cast<size_t>(size_));
  if (direct_fd_ >= 0) close_file(direct_fd_);
  if (fd_ >= 0) close_file(fd_);
}

void FileSource::swap(FileSource& other) noexcept {
  std::swap(size_, other.size_);
  std::swap(written_ns_, other.written_ns_);
  std::swap(fd_, other.fd_);
  std::swap(direct_fd_, other.direct_fd_);
  std::swap(mapped_, other.mapped_);
  std::swap(data_, other.data_);
  std::swap(callbacks_, other.callbacks_);
}

Status FileSource::map() {
  if (fd_ < 0 || mapped_ || size_ == 0) return {};
  if (size_ > SIZE_MAX) {
    return Status::error(MOE_ERR_UNSUPPORTED, "a file of %" PRIu64 " bytes cannot be mapped here",
                         size_);
  }
  const int error = map_file(fd_, static_cast<size_t>(size_), &data_);
  if (error != 0) return io_error("map", "model file", error);
  mapped_ = true;
  return {};
}

Status FileSource::go_direct(const char* path) {
  int file = -1;
  const int error = open_to_read(path, ReadMode::kDirect, &file);
  if (error != 0 && error != EINVAL) return io_error("open", path, error);
  if (error == 0) {
    FileInfo ours;
    FileInfo opened;
    const bool same =
        file_info(fd_, &ours) == 0 && file_info(file, &opened) == 0 && ours.is_same_file(opened);
    if (same && reads_directly(file)) {
      direct_fd_ = file;
      return {};
    }
    close_file(file);
    if (!same) {
      return Status::error(MOE_ERR_IO, "%s: replaced by another file while it was opened", path);
    }
  }
  return Status::error(MOE_ERR_UNSUPPORTED,
                       "%s: its file system cannot bypass the page cache (O_DIRECT)", path);
}

bool FileSource::changed() const {
  FileInfo info;
  return fd_ >= 0 && file_info(fd_, &info) == 0 &&
         (info.written_ns != written_ns_ || info.size != size_);
}

Status FileSource::read(uint64_t offset, void* buffer, size_t n, size_t room) const {
  if (offset > size_ || n > size_ - offset) {
    return Status::error(MOE_ERR_IO,
                         "model file: %zu bytes at %" PRIu64 " are outside its %" PRIu64 " bytes",
                         n, offset, size_);
  }
  if (n == 0) return {};
  if (data_ != nullptr) {
    std::memcpy(buffer, data_ + offset, n);
    return {};
  }
  if (callbacks_.read != nullptr) {
    if (callbacks_.read(callbacks_.user, offset, buffer, n)) return {};
    return Status::error(
        MOE_ERR_IO, "model file: the caller's read of %zu bytes at %" PRIu64 " failed", n, offset);
  }
  const bool fits = aligned(offset) && aligned(reinterpret_cast<uintptr_t>(buffer)) &&
                    room >= round_up(uint64_t{n}, kDirectAlign);
  return read_file(offset, static_cast<uint8_t*>(buffer), n, direct() && fits);
}

Status FileSource::read_file(uint64_t offset, uint8_t* out, size_t n, bool direct) const {
  while (n > 0) {
    size_t part = std::min(n, kBlock);
    if (direct) part = round_up(part, size_t{kDirectAlign});
    size_t got = 0;
    const int error = read_at(direct ? direct_fd_ : fd_, offset, out, part, &got);
    if (error == EINVAL && direct) {  // rejected: retry buffered
      direct = false;
      continue;
    }
    if (error != 0) return io_error("read", "model file", error);
    if (got == 0) {
      return Status::error(MOE_ERR_IO,
                           "model file: ends at %" PRIu64 ", %" PRIu64
                           " bytes when it was opened (cut off meanwhile)",
                           offset, size_);
    }
    const size_t taken = std::min(n, got);
    out += taken;
    offset += taken;
    n -= taken;
    direct = direct && aligned(offset);  // after a short read the rest is buffered
  }
  return {};
}

}  // namespace moe
