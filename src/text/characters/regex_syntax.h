#pragma once
// Oniguruma's regular expressions in PCRE2's words.

#include <string_view>

#include "src/base/array.h"

namespace moe {

/// Tokenizer files carry patterns for Oniguruma (`tokenizers` runs them with it). Nearly all of
/// them mean the same to PCRE2; what does not is rewritten: \s \S \w \W \b \B (Unicode's
/// White_Space, and Alphabetic + M + Nd + Pc), \h \H \v \uHHHH \O, \p{Script} (the script itself,
/// not its extensions), {,n}, an interval followed by + or ? (there neither possessive nor lazy),
/// (?m) (dot matches newlines). ^ also says that it does not match at the end of a text behind a
/// newline, so that PCRE2_ALT_CIRCUMFLEX may be set (without it partial matching does not notice
/// that ^ was at the end). MOE_ERR_UNSUPPORTED for set operations in a class and for what
/// PCRE2 cannot say. `is_script` answers whether PCRE2 knows a script of that name.
Status to_pcre2(std::string_view pattern, bool (*is_script)(void* user, std::string_view name),
                void* user, Array<char>& out);

}  // namespace moe
