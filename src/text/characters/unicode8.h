// SPDX-License-Identifier: MIT
#pragma once
// Character classes as of Unicode 8.0 (2015). The package `tokenizers` takes punctuation and Bert's
// classes from tables of that version, whatever Unicode has added since, and ids depend on them.

#include <cstdint>

namespace moe {

bool is_punctuation(uint32_t code);      // general category P, and ASCII's symbols
bool is_nonspacing_mark(uint32_t code);  // general category Mn
bool is_other(uint32_t code);            // general categories Cc, Cf and Co

}  // namespace moe
