// SPDX-License-Identifier: MIT
#pragma once
// Formats text without the C library: with a decimal point in every locale, and on machines whose C
// library has no printf.

#include <cstdarg>
#include <cstddef>

/// The compiler checks arguments against the format; on Windows it would expect the C library's.
#if defined(__MINGW32__)
#define MOE_FORMAT(format_at, first_at) __attribute__((format(gnu_printf, format_at, first_at)))
#else
#define MOE_FORMAT(format_at, first_at) __attribute__((format(printf, format_at, first_at)))
#endif

namespace moe {

/// As snprintf in the C locale, for the conversions d i u x X c s p e f g with the flags 0 and -,
/// widths, precisions and the lengths hh h l ll z j t. Floating-point numbers are rounded exactly,
/// to even in a tie; more than 300 digits after the point are cut off to 300. Returns the length of
/// the whole text, of which n_bytes - 1 are written at most.
MOE_FORMAT(3, 4) int format(char* text, size_t n_bytes, const char* format, ...);
MOE_FORMAT(3, 0)
int vformat(char* text, size_t n_bytes, const char* format, va_list args);

}  // namespace moe
