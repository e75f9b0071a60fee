// SPDX-License-Identifier: MIT
#pragma once
// Decoding of WordPiece tokens.

#include "src/base/string.h"

namespace moe {

/// Writes the text of a token that follows another (`first`: that does not): without `prefix`, or
/// after a space. clean_up: and without the spaces that English does not put before punctuation and
/// contractions.
Status decode_wordpiece(std::string_view token, std::string_view prefix, bool first, bool clean_up,
                        String& out);

}  // namespace moe
