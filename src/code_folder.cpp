// SPDX-License-Identifier: MIT
#include "src/code_folder.h"

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace moe {
namespace {

// The path of a line "begin-end rights offset device inode /path" whose range contains the address.
char* path_of(char* line, uintptr_t address) {
  char* rest = nullptr;
  const unsigned long long begin = std::strtoull(line, &rest, 16);
  if (*rest != '-') return nullptr;
  const unsigned long long end = std::strtoull(rest + 1, &rest, 16);
  return address >= begin && address < end ? std::strchr(rest, '/') : nullptr;
}

}  // namespace

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
  const char* slash = path != nullptr ? std::strrchr(path, '/') : nullptr;
  if (slash == nullptr || static_cast<size_t>(slash - path) >= n) return false;
  const auto length = static_cast<size_t>(slash - path);
  std::memcpy(folder, path, length);
  folder[length] = '\0';
  return true;
}

}  // namespace moe
