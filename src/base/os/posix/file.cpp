// SPDX-License-Identifier: MIT
// Files of POSIX.
#include "src/base/os/file.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace moe {
namespace {

constexpr size_t kMostAtOnce = size_t{1} << 30;

int error_of(bool ok) { return ok ? 0 : errno; }

FileInfo read_info(const struct stat& info) {
#if defined(__APPLE__)
  const timespec& written = info.st_mtimespec;
#else
  const timespec& written = info.st_mtim;
#endif
  FileInfo out;
  out.kind = S_ISREG(info.st_mode)    ? FileKind::kRegular
             : S_ISDIR(info.st_mode)  ? FileKind::kFolder
             : S_ISFIFO(info.st_mode) ? FileKind::kPipe
                                      : FileKind::kOther;
  out.size = static_cast<uint64_t>(info.st_size);
  out.written_ns = int64_t{written.tv_sec} * 1'000'000'000 + written.tv_nsec;
  out.disk = static_cast<uint64_t>(info.st_dev);
  out.number = static_cast<uint64_t>(info.st_ino);
  return out;
}

// Repeats a transfer at a position that a signal has interrupted.
template <class F>
int transfer(size_t* done, const F& f) {
  ssize_t n = 0;
  do {
    n = f();
  } while (n < 0 && errno == EINTR);
  *done = n < 0 ? 0 : static_cast<size_t>(n);
  return error_of(n >= 0);
}

}  // namespace

int open_to_read(const char* path, ReadMode mode, int* file) {
  int flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK;
  if (mode == ReadMode::kDirect) {
#if defined(O_DIRECT)
    flags |= O_DIRECT;
#elif !defined(F_NOCACHE)
    return EINVAL;
#endif
  }
  do {
    *file = ::open(path, flags);
  } while (*file < 0 && errno == EINTR);
  if (*file < 0) return errno;
#if !defined(O_DIRECT) && defined(F_NOCACHE)
  if (mode == ReadMode::kDirect) (void)fcntl(*file, F_NOCACHE, 1);
#endif
  return 0;
}

void close_file(int file) { ::close(file); }

int file_info(int file, FileInfo* out) {
  struct stat info;
  if (fstat(file, &info) != 0) return errno;
  *out = read_info(info);
  return 0;
}

int path_info(const char* path, FileInfo* out) {
  struct stat info;
  if (stat(path, &info) != 0) return errno;
  *out = read_info(info);
  return 0;
}

bool is_missing(int error) { return error == ENOENT || error == ENOTDIR; }

int read_at(int file, uint64_t offset, void* bytes, size_t n, size_t* done) {
  return transfer(done, [&] {
    return pread(file, bytes, std::min(n, kMostAtOnce), static_cast<off_t>(offset));
  });
}

int write_at(int file, uint64_t offset, const void* bytes, size_t n, size_t* done) {
  return transfer(done, [&] {
    return pwrite(file, bytes, std::min(n, kMostAtOnce), static_cast<off_t>(offset));
  });
}

int resize_file(int file, uint64_t size) {
  return error_of(ftruncate(file, static_cast<off_t>(size)) == 0);
}

int remove_file(const char* path) { return error_of(::unlink(path) == 0); }

int map_file(int file, size_t n, const uint8_t** memory) {
  void* mapped = mmap(nullptr, n, PROT_READ, MAP_PRIVATE, file, 0);
  if (mapped == MAP_FAILED) return errno;
  *memory = static_cast<const uint8_t*>(mapped);
  return 0;
}

void unmap_file(const uint8_t* memory, size_t n) { munmap(const_cast<uint8_t*>(memory), n); }

bool link_target(const char* path, char* target, size_t n) {
  const ssize_t length = readlink(path, target, n - 1);
  if (length <= 0) return false;
  target[length] = '\0';
  return true;
}

int list_folder(const char* path, bool (*f)(void* user, const char* name), void* user) {
  DIR* folder = opendir(path);
  if (folder == nullptr) return errno;
  int error = 0;
  for (;;) {
    errno = 0;
    const dirent* entry = readdir(folder);
    if (entry == nullptr) {
      error = errno;
      break;
    }
    const char* name = entry->d_name;
    if (std::strcmp(name, ".") == 0 || std::strcmp(name, "..") == 0) continue;
    if (!f(user, name)) break;
  }
  closedir(folder);
  return error;
}

const char* error_reason(int error, char (&text)[kReasonBytes]) {
#if defined(__GLIBC__) && defined(_GNU_SOURCE)
  return strerror_r(error, text, sizeof text);
#else
  if (strerror_r(error, text, sizeof text) != 0) std::strcpy(text, "unknown error");
  return text;
#endif
}

}  // namespace moe
