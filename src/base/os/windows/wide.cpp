// SPDX-License-Identifier: MIT
// Names and errors of Windows.
#include "src/base/os/windows/wide.h"

#include <cerrno>

namespace moe {

WidePath::WidePath(const char* path) {
  const int n = MultiByteToWideChar(CP_UTF8, MB_ERR_INVALID_CHARS, path, -1, nullptr, 0);
  if (n <= 0 || n > kWidePath) return;
  auto* text = static_cast<wchar_t*>(
      HeapAlloc(GetProcessHeap(), 0, static_cast<size_t>(n) * sizeof(wchar_t)));
  if (text == nullptr) return;
  MultiByteToWideChar(CP_UTF8, MB_ERR_INVALID_CHARS, path, -1, text, n);
  text_ = text;
}

WidePath::~WidePath() {
  if (text_ != nullptr) HeapFree(GetProcessHeap(), 0, text_);
}

bool narrow_name(const wchar_t* name, char* out, size_t n) {
  return WideCharToMultiByte(CP_UTF8, 0, name, -1, out, static_cast<int>(n), nullptr, nullptr) > 0;
}

int error_number(DWORD error) {
  switch (error) {
    case ERROR_SUCCESS:
      return 0;
    case ERROR_FILE_NOT_FOUND:
    case ERROR_PATH_NOT_FOUND:
    case ERROR_INVALID_NAME:
    case ERROR_BAD_NETPATH:
      return ENOENT;
    case ERROR_ACCESS_DENIED:
    case ERROR_SHARING_VIOLATION:
    case ERROR_LOCK_VIOLATION:
    case ERROR_WRITE_PROTECT:
      return EACCES;
    case ERROR_FILE_EXISTS:
    case ERROR_ALREADY_EXISTS:
      return EEXIST;
    case ERROR_NOT_ENOUGH_MEMORY:
    case ERROR_OUTOFMEMORY:
      return ENOMEM;
    case ERROR_DISK_FULL:
    case ERROR_HANDLE_DISK_FULL:
      return ENOSPC;
    case ERROR_INVALID_PARAMETER:
      return EINVAL;
    case ERROR_TOO_MANY_OPEN_FILES:
      return EMFILE;
    default:
      return EIO;
  }
}

}  // namespace moe
