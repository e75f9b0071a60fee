#pragma once
// Parses numbers independent of the locale.

#include <string_view>

namespace moe {

/// Parses all of `text` as a decimal number with optional sign, fraction and exponent ("-1.5e3").
/// False for anything else, including names such as nan and inf; `out` is then unchanged.
bool parse_number(std::string_view text, double* out);

}  // namespace moe
