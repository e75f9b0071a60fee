// SPDX-License-Identifier: MIT
#pragma once
// Character classes and normal forms (utf8proc's tables).

#include <string_view>

#include "src/base/array.h"

namespace moe {

bool is_white_space(uint32_t code);  // the property White_Space
bool is_number(uint32_t code);       // general category N
bool is_mark(uint32_t code);         // general category M
/// \w of Rust's regular expressions: Alphabetic, M, Nd, Pc, Join_Control.
bool is_word(uint32_t code);

/// Full lower case of one character; returns the number of characters written (1 or 2).
uint32_t lower_case(uint32_t code, uint32_t out[2]);

enum class NormalForm { kNfc, kNfd, kNfkc, kNfkd };

/// Appends the normal form of valid UTF-8. Linear time for any order of combining marks.
Status normal_form(NormalForm form, std::string_view text, Array<char>& out);

}  // namespace moe
