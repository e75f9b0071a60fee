// SPDX-License-Identifier: MIT
#include "formats/moe/file_source.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <cstring>

#include "src/base/checked.h"
#include "src/base/system_error.h"

namespace moe {
namespace {

// Larger reads are slower on some machines: nothing of a read is available before all of it.
constexpr size_t kBlock = size_t{1} << 20;

Status io_error(const char* what, const char* path, int error) {
  const bool missing = error == ENOENT || error == ENOTDIR;
  return system_error(missing ? MOE_ERR_NOT_FOUND : MOE_ERR_IO, what, path, error);
}

int open_file(const char* path, int flags) {
  int fd = -1;
  do {
    fd = ::open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | flags);  // a named pipe must not block
  } while (fd < 0 && errno == EINTR);
  return fd;
}

// A symbolic link whose target is gone is there, unlike a file of a mistyped name.
Status open_error(const char* path, int error) {
  char target[256];
  const ssize_t n = error == ENOENT ? readlink(path, target, sizeof target - 1) : -1;
  if (n <= 0) return io_error("open", path, error);
  target[n] = '\0';
  return Status::error(MOE_ERR_NOT_FOUND, "%s: a link to %s, which is not there", path, target);
}

int64_t written_ns(const struct stat& info) {
  return int64_t{info.st_mtim.tv_sec} * 1000000000 + info.st_mtim.tv_nsec;
}

bool aligned(uint64_t n) { return n % kDirectAlign == 0; }

// Some file systems accept the flag and then reject every read.
bool reads_directly(int fd) {
  alignas(kDirectAlign) uint8_t page[kDirectAlign];
  ssize_t got = 0;
  do {
    got = pread(fd, page, sizeof page, 0);
  } while (got < 0 && errno == EINTR);
  return got >= 0;
}

}  // namespace

Result<FileSource> FileSource::open_path(const char* path) {
  FileSource source;
  source.fd_ = open_file(path, 0);
  if (source.fd_ < 0) return open_error(path, errno);
  struct stat info;
  if (fstat(source.fd_, &info) != 0) return io_error("look at", path, errno);
  if (!S_ISREG(info.st_mode)) {
    return Status::error(MOE_ERR_IO, "%s: not a regular file%s", path,
                         S_ISDIR(info.st_mode) ? "; moe convert converts a folder" : "");
  }
  source.size_ = static_cast<uint64_t>(info.st_size);
  source.written_ns_ = written_ns(info);
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
  if (mapped_) munmap(const_cast<uint8_t*>(data_), static_cast<size_t>(size_));
  if (direct_fd_ >= 0) ::close(direct_fd_);
  if (fd_ >= 0) ::close(fd_);
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
  void* memory = mmap(nullptr, static_cast<size_t>(size_), PROT_READ, MAP_PRIVATE, fd_, 0);
  if (memory == MAP_FAILED) return io_error("map", "model file", errno);
  data_ = static_cast<const uint8_t*>(memory);
  mapped_ = true;
  return {};
}

Status FileSource::go_direct(const char* path) {
#if defined(O_DIRECT)
  const int fd = open_file(path, O_DIRECT);
  struct stat ours;
  struct stat opened;
  const bool same = fd >= 0 && fstat(fd_, &ours) == 0 && fstat(fd, &opened) == 0 &&
                    ours.st_dev == opened.st_dev && ours.st_ino == opened.st_ino;
  if (same && reads_directly(fd)) {
    direct_fd_ = fd;
    return {};
  }
  const int reason = fd < 0 ? errno : 0;
  if (fd >= 0) ::close(fd);
  if (fd >= 0 && !same) {
    return Status::error(MOE_ERR_IO, "%s: replaced by another file while it was opened", path);
  }
  if (reason != 0 && reason != EINVAL) return io_error("open", path, reason);
#endif
  return Status::error(MOE_ERR_UNSUPPORTED,
                       "%s: its file system cannot bypass the page cache (O_DIRECT)", path);
}

bool FileSource::changed() const {
  struct stat info;
  return fd_ >= 0 && fstat(fd_, &info) == 0 &&
         (written_ns(info) != written_ns_ || static_cast<uint64_t>(info.st_size) != size_);
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
    const ssize_t got = pread(direct ? direct_fd_ : fd_, out, part, static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EINVAL && direct) {  // rejected: retry buffered
      direct = false;
      continue;
    }
    if (got < 0) return io_error("read", "model file", errno);
    if (got == 0) {
      return Status::error(MOE_ERR_IO,
                           "model file: ends at %" PRIu64 ", %" PRIu64
                           " bytes when it was opened (cut off meanwhile)",
                           offset, size_);
    }
    const size_t taken = std::min(n, static_cast<size_t>(got));
    out += taken;
    offset += taken;
    n -= taken;
    direct = direct && aligned(offset);  // after a short read the rest is buffered
  }
  return {};
}

}  // namespace moe
