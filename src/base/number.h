#pragma once
// Numbers in text, whatever the locale is.

#include <string_view>

namespace moe {

/// Decimal number with optional sign, fraction and exponent ("-1.5e3"), all of `text`. False for
/// anything else, also for names such as nan and inf; then `out` is untouched.
bool parse_number(std::string_view text, double* out);

}  // namespace moe
