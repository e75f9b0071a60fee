// SPDX-License-Identifier: MIT
#pragma once
// Numbers with a fraction, as Python reads, writes and divides them.

#include <string_view>

#include "src/text/chat/jinja/value.h"

namespace moe::jinja {

/// Parses "12", "1_000", "0x1f", "0o17" or "0b11". False for anything else, a
/// decimal number that begins with 0 ("007") and beyond 18 digits.
bool read_integer(std::string_view text, int64_t* out);
/// Parses digits with a fraction, an exponent or underscores ("1_000.5e-3"), at most 40 digits.
bool read_float(std::string_view text, double* out);

/// Writes Python's repr(): the shortest text that reads back as the same value. Returns its length.
inline constexpr size_t kMaxFloatText = 32;
size_t write_float(double value, char out[kMaxFloatText]);

/// -1, 0 or 1 as a is less than, equal to or greater than b, exactly; 2 if either is not a number
/// (NaN).
int compare_numbers(Value a, Value b);

/// Python's a // b and a % b; b is not 0.
double floor_divide(double a, double b);
double modulo(double a, double b);

/// Python's round(value, digits), digits in -20..20.
double round_to(double value, int digits);
/// The largest integer not above `value`.
double floor_of(double value);

}  // namespace moe::jinja
