// SPDX-License-Identifier: MIT
// The loader of Windows.
#include "src/base/os/module.h"

#include <windows.h>

#include <cstring>
#include <cwchar>

#include "src/base/format.h"
#include "src/base/os/windows/wide.h"

namespace moe {

bool code_folder(char* folder, size_t n) {
  folder[0] = '\0';
  HMODULE self = nullptr;
  const auto* here = reinterpret_cast<const wchar_t*>(&code_folder);
  constexpr DWORD kOfAddress =
      GET_MODULE_HANDLE_EX_FLAG_FROM_ADDRESS | GET_MODULE_HANDLE_EX_FLAG_UNCHANGED_REFCOUNT;
  wchar_t path[1024];
  if (GetModuleHandleExW(kOfAddress, here, &self) == 0) return false;
  const DWORD length = GetModuleFileNameW(self, path, 1024);
  if (length == 0 || length >= 1024) return false;
  wchar_t* last = std::wcsrchr(path, L'\\');
  if (last == nullptr) return false;
  *last = L'\0';
  if (narrow_name(path, folder, n)) return true;
  folder[0] = '\0';
  return false;
}

// Only the named file's own folder and the system's are searched for what it needs in turn.
void* open_module(const char* name, const ModuleOptions& options, char* reason, size_t n) {
  const WidePath wide(name);
  const bool path = std::strchr(name, '/') != nullptr || std::strchr(name, '\\') != nullptr;
  const DWORD flags = path ? LOAD_LIBRARY_SEARCH_DLL_LOAD_DIR | LOAD_LIBRARY_SEARCH_DEFAULT_DIRS
                           : LOAD_LIBRARY_SEARCH_DEFAULT_DIRS;
  HMODULE module = wide.ok() ? LoadLibraryExW(wide.get(), nullptr, flags) : nullptr;
  if (module == nullptr) {
    if (reason != nullptr) format(reason, n, "%s: error %lu of Windows", name, GetLastError());
    return nullptr;
  }
  HMODULE pinned = nullptr;
  if (options.stays) {
    (void)GetModuleHandleExW(GET_MODULE_HANDLE_EX_FLAG_PIN | GET_MODULE_HANDLE_EX_FLAG_FROM_ADDRESS,
                             reinterpret_cast<const wchar_t*>(module), &pinned);
  }
  return module;
}

void* module_symbol(void* module, const char* name) {
  return reinterpret_cast<void*>(GetProcAddress(static_cast<HMODULE>(module), name));
}

void close_module(void* module) { FreeLibrary(static_cast<HMODULE>(module)); }

}  // namespace moe
