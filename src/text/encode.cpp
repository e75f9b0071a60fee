// SPDX-License-Identifier: MIT
// Checks a text and sends it to the encoder of its tokenizer's kind; the kind "bytes" is encoded
// here.
#include "src/text/characters/utf8.h"
#include "src/text/parts.h"

namespace moe {
namespace {

Status encode_bytes(const TokenizerParts& parts, std::string_view text, const SpecialRule& rule,
                    Array<int32_t>& ids) {
  const auto put = [&](std::string_view part, bool) -> Status {
    const size_t n = ids.size();
    MOE_TRY(ids.resize(n + part.size()));
    for (size_t i = 0; i < part.size(); ++i) ids[n + i] = static_cast<uint8_t>(part[i]);
    return {};
  };
  return between_tokens(parts.added, text, rule, ids, put);
}

}  // namespace

Status encode_text(const TokenizerParts& parts, std::string_view text, bool parse_special,
                   std::span<const uint8_t> marks, Array<int32_t>& ids) {
  constexpr size_t kMaxBytes = size_t{1} << 29;
  if (text.size() > kMaxBytes) {
    return Status::error(MOE_ERR_TOO_LONG, "text: %zu bytes, at most %zu at once", text.size(),
                         kMaxBytes);
  }
  if (!marks.empty() && (marks.size() != text.size() || !utf8_is_valid(text))) {
    return Status::error(MOE_ERR_TEXT, "text: expected UTF-8 and %zu marks, found %zu marks",
                         text.size(), marks.size());
  }
  const SpecialRule rule{parse_special, marks};
  if (parts.kind == TokenizerParts::kBytes) return encode_bytes(parts, text, rule, ids);
  return encode_subwords(parts, text, rule, ids);
}

}  // namespace moe
