// SPDX-License-Identifier: MIT
#pragma once
// Characters and numbers, independent of the locale. By hand, since std::from_chars for double is a
// function of libstdc++, which libmoe does not link.

#include <string_view>

namespace moe {

constexpr bool is_digit(char c) { return c >= '0' && c <= '9'; }
constexpr char ascii_lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}
/// True for the letters of ASCII.
constexpr bool is_letter(char c) { return ascii_lower(c) >= 'a' && ascii_lower(c) <= 'z'; }

/// The value of a hexadecimal digit, -1 for another character.
constexpr int hex_value(char c) {
  if (is_digit(c)) return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

/// Parses all of `text` as a decimal number with optional sign, fraction and exponent ("-1.5e3").
/// False for anything else, including names such as nan and inf; `out` is then unchanged. The
/// relative error is at most 1e-14: enough for floats.
bool parse_number(std::string_view text, double* out);

}  // namespace moe
