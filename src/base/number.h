// SPDX-License-Identifier: MIT
#pragma once
// Parses numbers independent of the locale. By hand, since std::from_chars for double is a function
// of libstdc++, which libmoe does not link.

#include <string_view>

namespace moe {

/// Parses all of `text` as a decimal number with optional sign, fraction and exponent ("-1.5e3").
/// False for anything else, including names such as nan and inf; `out` is then unchanged. The
/// relative error is at most 1e-14: enough for floats.
bool parse_number(std::string_view text, double* out);

}  // namespace moe
