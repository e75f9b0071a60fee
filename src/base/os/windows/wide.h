// SPDX-License-Identifier: MIT
#pragma once
// Names and files of Windows: its names are UTF-16, the library's UTF-8.

#include <io.h>
#include <windows.h>

#include <cstddef>

namespace moe {

/// The longest path that Windows takes, in UTF-16 with the zero.
constexpr int kWidePath = 32768;

/// A path in UTF-16, from the process's heap.
class WidePath {
 public:
  /// ok() is false if the name is not UTF-8, too long, or there is no memory.
  explicit WidePath(const char* path);
  WidePath(const WidePath&) = delete;
  WidePath& operator=(const WidePath&) = delete;
  ~WidePath();
  bool ok() const { return text_ != nullptr; }
  const wchar_t* get() const { return text_; }

 private:
  wchar_t* text_ = nullptr;
};

/// UTF-8 of a name. False if it does not fit.
bool narrow_name(const wchar_t* name, char* out, size_t n);

/// The handle that Windows has for an open file.
inline HANDLE handle_of(int file) { return reinterpret_cast<HANDLE>(_get_osfhandle(file)); }

/// errno's number for one of GetLastError().
int error_number(DWORD error);

}  // namespace moe
