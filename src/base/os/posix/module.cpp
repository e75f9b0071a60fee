// SPDX-License-Identifier: MIT
// The dynamic loader of POSIX.
#include "src/base/os/module.h"

#include <dlfcn.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#if defined(__APPLE__) || defined(__FreeBSD__)
#include <limits.h>
#endif

namespace moe {
namespace {

// The path up to its last slash.
bool put_folder(const char* path, char* folder, size_t n) {
  const char* slash = path != nullptr ? std::strrchr(path, '/') : nullptr;
  if (slash == nullptr || static_cast<size_t>(slash - path) >= n) return false;
  const auto length = static_cast<size_t>(slash - path);
  std::memcpy(folder, path, length);
  folder[length] = '\0';
  return true;
}

#if !defined(__APPLE__) && !defined(__FreeBSD__)
// The path of a line "begin-end rights offset device inode /path" whose range contains the address.
char* path_of(char* line, uintptr_t address) {
  char* rest = nullptr;
  const unsigned long long begin = std::strtoull(line, &rest, 16);
  if (*rest != '-') return nullptr;
  const unsigned long long end = std::strtoull(rest + 1, &rest, 16);
  return address >= begin && address < end ? std::strchr(rest, '/') : nullptr;
}
#endif

}  // namespace

#if defined(__APPLE__) || defined(__FreeBSD__)

// The loader's name, made absolute.
bool code_folder(char* folder, size_t n) {
  folder[0] = '\0';
  Dl_info info;
  char path[PATH_MAX];
  if (dladdr(reinterpret_cast<void*>(&code_folder), &info) == 0) return false;
  return realpath(info.dli_fname, path) != nullptr && put_folder(path, folder, n);
}

#else

// The kernel's table of mappings: the program's folder may have changed since the loader's name.
bool code_folder(char* folder, size_t n) {
  folder[0] = '\0';
  std::FILE* maps = std::fopen("/proc/self/maps", "re");
  if (maps == nullptr) return false;
  char line[4096 + 128];
  const char* path = nullptr;
  while (path == nullptr && std::fgets(line, sizeof line, maps) != nullptr) {
    path = path_of(line, reinterpret_cast<uintptr_t>(&code_folder));
  }
  std::fclose(maps);
  return put_folder(path, folder, n);
}

#endif

void* open_module(const char* name, const ModuleOptions& options, char* reason, size_t n) {
  void* module = dlopen(name, RTLD_NOW | RTLD_LOCAL | (options.stays ? RTLD_NODELETE : 0));
  if (module != nullptr || reason == nullptr) return module;
  const char* why = dlerror();
  if (why == nullptr) why = name;
  const size_t length = std::strlen(why) < n ? std::strlen(why) : n - 1;
  std::memcpy(reason, why, length);
  reason[length] = '\0';
  return nullptr;
}

void* module_symbol(void* module, const char* name) { return dlsym(module, name); }
void close_module(void* module) { dlclose(module); }

}  // namespace moe
