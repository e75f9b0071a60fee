// SPDX-License-Identifier: MIT
// A library to preload before the C library, which fakes the machine's size: /proc/meminfo is the
// file FAKE_MEMINFO, and disks have FAKE_FREE_BYTES free.

#include <fcntl.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdarg>
#include <cstdlib>
#include <cstring>

extern "C" int open(const char* path, int flags, ...) {
  va_list args;
  va_start(args, flags);
  const int mode = (flags & O_CREAT) != 0 ? va_arg(args, int) : 0;
  va_end(args);
  const char* fake = std::getenv("FAKE_MEMINFO");
  if (fake != nullptr && std::strcmp(path, "/proc/meminfo") == 0) path = fake;
  return static_cast<int>(syscall(SYS_openat, AT_FDCWD, path, flags, mode));
}

extern "C" int statvfs(const char*, struct statvfs* disk) noexcept {
  const char* fake = std::getenv("FAKE_FREE_BYTES");
  std::memset(disk, 0, sizeof *disk);
  disk->f_frsize = 1;
  disk->f_bavail = fake == nullptr ? fsblkcnt_t{1} << 50 : std::strtoull(fake, nullptr, 10);
  return 0;
}
