// SPDX-License-Identifier: MIT
#pragma once
// The parts of Bert's normaliser (BertNormalizer of `tokenizers`) that no other has.

#include <string_view>

#include "src/base/array.h"

namespace moe {

/// Removes control characters, U+0000 and U+FFFD; white space becomes a space. *at_start becomes
/// false if the first character was removed.
Status clean_text(std::string_view text, Array<char>& out, bool* at_start);
/// Puts a space on each side of every CJK ideograph.
Status space_ideographs(std::string_view text, Array<char>& out);
/// Removes nonspacing marks.
Status strip_nonspacing(std::string_view text, Array<char>& out, bool* at_start);

}  // namespace moe
