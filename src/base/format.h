// SPDX-License-Identifier: MIT
#pragma once
// Formats text with a decimal point, independent of the program's locale.

#include <cstdarg>
#include <cstddef>

namespace moe {

/// As vsnprintf and snprintf.
int vformat(char* text, size_t n_bytes, const char* format, va_list args);
__attribute__((format(printf, 3, 4))) int format(char* text, size_t n_bytes, const char* format,
                                                 ...);

}  // namespace moe
