// SPDX-License-Identifier: MIT
#pragma once
// Numbers with a fraction, as Python reads, writes and divides them.

#include <string_view>

#include "src/text/chat/jinja/value.h"

namespace moe::jinja {

enum class Reading : uint8_t { kDone, kNotOne, kTooLong };
/// Parses an integer. Base 0: "12", "1_000", "0x1f", "0o17" or "0b11", but not "007". Other bases
/// (2 to 36): digits, behind the prefix of the base or alone. kTooLong: beyond about 10^18.
Reading read_integer(std::string_view text, int base, int64_t* out);
/// Parses digits with a fraction, an exponent or underscores ("1_000.5e-3"), at most 40 digits.
Reading read_float(std::string_view text, double* out);

/// Writes Python's repr(): the shortest text that reads back as the same value. Returns its length.
inline constexpr size_t kMaxFloatText = 32;
size_t write_float(double value, char out[kMaxFloatText]);

/// -1, 0 or 1 as a is less than, equal to or greater than b, exactly; 2 if either is not a number
/// (NaN).
int compare_numbers(Value a, Value b);

/// Python's a // b and a % b; b is not 0.
double floor_divide(double a, double b);
double modulo(double a, double b);

/// Whether `product` is a b, without rounding. False also if it is too small or large to tell.
bool is_product(double a, double b, double product);

/// Python's round(value, digits), digits in -20..20.
double round_to(double value, int digits);
/// The largest integer not above `value`.
double floor_of(double value);

}  // namespace moe::jinja
