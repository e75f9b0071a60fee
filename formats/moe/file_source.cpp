#include "formats/moe/file_source.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <cstring>

namespace moe {
namespace {

Status io_error(const char* what, const char* path, int error) {
  char text[128];
  const char* reason = text;
#if defined(__GLIBC__) && defined(_GNU_SOURCE)
  reason = strerror_r(error, text, sizeof text);
#else
  if (strerror_r(error, text, sizeof text) != 0) std::strcpy(text, "unknown error");
#endif
  const bool missing = error == ENOENT || error == ENOTDIR;
  return Status::error(missing ? MOE_ERR_NOT_FOUND : MOE_ERR_IO, "%s: cannot %s: %s", path, what,
                       reason);
}

}  // namespace

Result<FileSource> FileSource::open_path(const char* path) {
  FileSource source;
  do {
    source.fd_ = ::open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // a named pipe must not hang
  } while (source.fd_ < 0 && errno == EINTR);
  if (source.fd_ < 0) return io_error("open", path, errno);
  struct stat info;
  if (fstat(source.fd_, &info) != 0) return io_error("look at", path, errno);
  if (!S_ISREG(info.st_mode)) {
    return Status::error(MOE_ERR_IO, "%s: not a regular file%s", path,
                         S_ISDIR(info.st_mode) ? "; moe convert makes one of a folder" : "");
  }
  source.size_ = static_cast<uint64_t>(info.st_size);
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
  if (fd_ >= 0) ::close(fd_);
}

void FileSource::swap(FileSource& other) noexcept {
  std::swap(size_, other.size_);
  std::swap(fd_, other.fd_);
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

Status FileSource::read(uint64_t offset, void* buffer, size_t n) const {
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
    const int code = callbacks_.read(callbacks_.user, offset, buffer, n);
    if (code == 0) return {};
    return Status::error(MOE_ERR_IO,
                         "model file: the caller's read of %zu bytes at %" PRIu64 " failed (%d)", n,
                         offset, code);
  }
  auto* out = static_cast<uint8_t*>(buffer);
  while (n > 0) {
    const size_t part = std::min<size_t>(n, size_t{1} << 30);
    const ssize_t got = pread(fd_, out, part, static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return io_error("read", "model file", errno);
    if (got == 0) {
      return Status::error(MOE_ERR_IO,
                           "model file: ends at %" PRIu64 ", %" PRIu64
                           " bytes when it was opened (cut off meanwhile)",
                           offset, size_);
    }
    out += got;
    offset += static_cast<uint64_t>(got);
    n -= static_cast<size_t>(got);
  }
  return {};
}

}  // namespace moe
