// SPDX-License-Identifier: MIT
#pragma once
// Code in files: where this library lies, and libraries that are loaded while the program runs.

#include <cstddef>

namespace moe {

/// The folder of libmoe.so or, if libmoe is linked statically, of the program: an absolute path.
/// The loader's name may be relative to a folder that the process has left. False, and `folder`
/// empty, if the system does not tell or the name does not fit.
bool code_folder(char* folder, size_t n);

/// Loads a library. Nullptr if it cannot be; `reason` (if not null, of n bytes) then says why. With
/// `stays` it remains in memory after close_module(), as libraries must that start threads or
/// drivers. Unless `name` is a path the loader searches its folders.
struct ModuleOptions {
  bool stays = false;
};
void* open_module(const char* name, const ModuleOptions& options, char* reason, size_t n);
/// A function of the library, or nullptr.
void* module_symbol(void* module, const char* name);
void close_module(void* module);

}  // namespace moe
