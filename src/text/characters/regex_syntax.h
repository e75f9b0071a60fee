// SPDX-License-Identifier: MIT
#pragma once
// Translates Oniguruma's regular expressions to PCRE2.

#include <string_view>

#include "src/base/array.h"

namespace moe {

/// Tokenizer files contain Oniguruma patterns (`tokenizers` uses it). Most mean the same in PCRE2;
/// the rest is rewritten: \s \S \w \W \b \B (Unicode's White_Space, and Alphabetic + M + Nd + Pc),
/// \h \H \v \uHHHH \xHH \O, classes (regex_class.h), \p{Script} (the script itself, without
/// extensions), {,n}, an interval followed by + or ? (neither possessive nor lazy in Oniguruma),
/// (?m) (dot matches newlines), (?i) in the middle. ^ is also prevented from matching after a final
/// newline, so that PCRE2_ALT_CIRCUMFLEX can be set (without it partial matching does not report a
/// ^ at the end). MOE_ERR_UNSUPPORTED for constructs that PCRE2 lacks. `is_script` tells if PCRE2
/// knows a script.
Status to_pcre2(std::string_view pattern, bool (*is_script)(void* user, std::string_view name),
                void* user, Array<char>& out);

}  // namespace moe
