#pragma once
// Where the file lies that this code came from.

#include <stddef.h>

namespace moe {

/// The folder of libmoe.so or, where libmoe is linked into a program, of the program: absolute,
/// from the kernel's table of mappings. The loader's own name for the file may be relative, to a
/// folder that the process has left since. False, and `folder` empty, where the table cannot be
/// read or the name does not fit.
bool code_folder(char* folder, size_t n);

}  // namespace moe
