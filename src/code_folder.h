// SPDX-License-Identifier: MIT
#pragma once
// Locates the file that contains this code.

#include <stddef.h>

namespace moe {

/// The folder of libmoe.so or, if libmoe is linked statically, of the program: absolute, from the
/// kernel's table of mappings. The loader's name may be relative to a folder that the process has
/// left. False, and `folder` empty, if the table cannot be read or the name does not fit.
bool code_folder(char* folder, size_t n);

}  // namespace moe
