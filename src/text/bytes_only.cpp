// SPDX-License-Identifier: MIT
// Stands in for subword_text.cpp in builds with MOE_TEXT=OFF: every kind of tokenizer but "bytes"
// is refused.
#include "src/text/parts.h"

namespace moe {

Status SubwordText::check_kind(std::string_view kind) {
  return Status::error(MOE_ERR_UNSUPPORTED,
                       "tokenizer: this build has only the kind \"bytes\", the file has \"%.*s\"",
                       static_cast<int>(kind.size()), kind.data());
}

Status SubwordText::create(const TokenizerSpec&, TokenizerParts*) { return {}; }
std::string_view SubwordText::piece(uint32_t) const { return {}; }
Status encode_subwords(const TokenizerParts&, std::string_view, const SpecialRule&,
                       Array<int32_t>&) {
  return {};
}
bool match_surroundings(uint8_t, std::string_view, size_t, AddedTokens::Match*) { return true; }

}  // namespace moe
