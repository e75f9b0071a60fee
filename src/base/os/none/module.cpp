// SPDX-License-Identifier: MIT
// No loader.
#include "src/base/os/module.h"

namespace moe {

bool code_folder(char* folder, size_t) {
  folder[0] = '\0';
  return false;
}

void* open_module(const char*, const ModuleOptions&, char* reason, size_t n) {
  if (reason != nullptr && n != 0) reason[0] = '\0';
  return nullptr;
}

void* module_symbol(void*, const char*) { return nullptr; }
void close_module(void*) {}

}  // namespace moe
