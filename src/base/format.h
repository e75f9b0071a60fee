#pragma once
// Text with numbers in it, with a decimal point whatever locale the program has chosen.

#include <cstdarg>
#include <cstddef>

namespace moe {

/// As vsnprintf and snprintf.
int vformat(char* text, size_t n_bytes, const char* format, va_list args);
__attribute__((format(printf, 3, 4))) int format(char* text, size_t n_bytes, const char* format,
                                                 ...);

}  // namespace moe
