// SPDX-License-Identifier: MIT
// Files of Windows, with the descriptors of its C library.
#include "src/base/os/file.h"

#include <fcntl.h>
#include <io.h>
#include <windows.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "src/base/os/windows/wide.h"

namespace moe {
namespace {

constexpr size_t kMostAtOnce = size_t{1} << 30;

int last_error() { return error_number(GetLastError()); }
uint64_t whole(DWORD high, DWORD low) { return uint64_t{high} << 32 | low; }

int info_of(HANDLE handle, FileInfo* out) {
  if (GetFileType(handle) == FILE_TYPE_PIPE) {
    out->kind = FileKind::kPipe;
    return 0;
  }
  BY_HANDLE_FILE_INFORMATION info;
  if (GetFileInformationByHandle(handle, &info) == 0) return last_error();
  const bool folder = (info.dwFileAttributes & FILE_ATTRIBUTE_DIRECTORY) != 0;
  const bool disk = GetFileType(handle) == FILE_TYPE_DISK;
  out->kind = folder ? FileKind::kFolder : disk ? FileKind::kRegular : FileKind::kOther;
  out->size = whole(info.nFileSizeHigh, info.nFileSizeLow);
  const uint64_t ticks =
      whole(info.ftLastWriteTime.dwHighDateTime, info.ftLastWriteTime.dwLowDateTime);
  constexpr int64_t kTo1970 = 116'444'736'000'000'000;  // of 100 ns, from 1601
  out->written_ns = (static_cast<int64_t>(ticks) - kTo1970) * 100;
  out->disk = info.dwVolumeSerialNumber;
  out->number = whole(info.nFileIndexHigh, info.nFileIndexLow);
  return 0;
}

// Others may still read, write, rename and delete it, as elsewhere.
HANDLE open_handle(const char* path, DWORD access, DWORD flags) {
  const WidePath wide(path);
  if (!wide.ok()) {
    SetLastError(ERROR_INVALID_NAME);
    return INVALID_HANDLE_VALUE;
  }
  return CreateFileW(wide.get(), access, FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE,
                     nullptr, OPEN_EXISTING, flags, nullptr);
}

OVERLAPPED at_offset(uint64_t offset) {
  OVERLAPPED at;
  std::memset(&at, 0, sizeof at);
  at.Offset = static_cast<DWORD>(offset);
  at.OffsetHigh = static_cast<DWORD>(offset >> 32);
  return at;
}

}  // namespace

// Folders can be opened, so that file_info() tells what was found.
int open_to_read(const char* path, ReadMode mode, int* file) {
  *file = -1;
  const DWORD flags =
      FILE_FLAG_BACKUP_SEMANTICS | (mode == ReadMode::kDirect ? FILE_FLAG_NO_BUFFERING : 0);
  const HANDLE handle = open_handle(path, GENERIC_READ, flags);
  if (handle == INVALID_HANDLE_VALUE) return last_error();
  *file = _open_osfhandle(reinterpret_cast<intptr_t>(handle), _O_RDONLY | _O_BINARY);
  if (*file >= 0) return 0;
  CloseHandle(handle);
  return errno;
}

void close_file(int file) { _close(file); }

int file_info(int file, FileInfo* out) { return info_of(handle_of(file), out); }

int path_info(const char* path, FileInfo* out) {
  const HANDLE handle = open_handle(path, 0, FILE_FLAG_BACKUP_SEMANTICS);
  if (handle == INVALID_HANDLE_VALUE) return last_error();
  const int error = info_of(handle, out);
  CloseHandle(handle);
  return error;
}

bool is_missing(int error) { return error == ENOENT || error == ENOTDIR; }

int read_at(int file, uint64_t offset, void* bytes, size_t n, size_t* done) {
  OVERLAPPED at = at_offset(offset);
  DWORD got = 0;
  const auto most = static_cast<DWORD>(std::min(n, kMostAtOnce));
  const bool ok = ReadFile(handle_of(file), bytes, most, &got, &at) != 0;
  *done = got;
  return ok || GetLastError() == ERROR_HANDLE_EOF ? 0 : last_error();
}

int write_at(int file, uint64_t offset, const void* bytes, size_t n, size_t* done) {
  OVERLAPPED at = at_offset(offset);
  DWORD put = 0;
  const auto most = static_cast<DWORD>(std::min(n, kMostAtOnce));
  const bool ok = WriteFile(handle_of(file), bytes, most, &put, &at) != 0;
  *done = put;
  return ok ? 0 : last_error();
}

int resize_file(int file, uint64_t size) {
  FILE_END_OF_FILE_INFO end;
  end.EndOfFile.QuadPart = static_cast<LONGLONG>(size);
  const bool ok =
      SetFileInformationByHandle(handle_of(file), FileEndOfFileInfo, &end, sizeof end) != 0;
  return ok ? 0 : last_error();
}

int remove_file(const char* path) {
  const WidePath wide(path);
  if (!wide.ok()) return ENOENT;
  return DeleteFileW(wide.get()) != 0 ? 0 : last_error();
}

// The view keeps the mapping alive.
int map_file(int file, size_t n, const uint8_t** memory) {
  const HANDLE mapping = CreateFileMappingW(handle_of(file), nullptr, PAGE_READONLY, 0, 0, nullptr);
  if (mapping == nullptr) return last_error();
  const void* view = MapViewOfFile(mapping, FILE_MAP_READ, 0, 0, n);
  const int error = view == nullptr ? last_error() : 0;
  CloseHandle(mapping);
  *memory = static_cast<const uint8_t*>(view);
  return error;
}

void unmap_file(const uint8_t* memory, size_t) { UnmapViewOfFile(memory); }

// Where a link leads is not read: an error names the link alone.
bool link_target(const char*, char*, size_t) { return false; }

int list_folder(const char* path, bool (*f)(void* user, const char* name), void* user) {
  char pattern[4096];
  const size_t n = std::strlen(path);
  if (n + 3 > sizeof pattern) return ENAMETOOLONG;
  std::memcpy(pattern, path, n);
  std::memcpy(pattern + n, "/*", 3);
  const WidePath wide(pattern);
  if (!wide.ok()) return ENOENT;
  WIN32_FIND_DATAW found;
  const HANDLE search = FindFirstFileW(wide.get(), &found);
  if (search == INVALID_HANDLE_VALUE) return last_error();
  do {
    char name[1024];
    if (!narrow_name(found.cFileName, name, sizeof name)) continue;
    if (std::strcmp(name, ".") == 0 || std::strcmp(name, "..") == 0) continue;
    if (!f(user, name)) break;
  } while (FindNextFileW(search, &found) != 0);
  FindClose(search);
  return 0;
}

const char* error_reason(int error, char (&text)[kReasonBytes]) {
  if (strerror_s(text, sizeof text, error) != 0) std::strcpy(text, "unknown error");
  return text;
}

}  // namespace moe
