// SPDX-License-Identifier: MIT
// Creates the parts of a subword tokenizer from its specification, and says which white space an
// added token takes along.
#include "src/text/subword_text.h"

#include <algorithm>

#include "src/text/characters/unicode.h"
#include "src/text/characters/utf8.h"
#include "src/text/parts.h"
#include "src/text/spec.h"
#include "src/text/steps/text_step.h"

namespace moe {
namespace {

bool inside_word(std::string_view text, size_t begin, size_t end) {
  if (begin > 0) {
    const uint32_t n = utf8_previous_length(text.data() + begin);
    if (is_word(utf8_next(text.data() + begin - n).code)) return true;
  }
  return end < text.size() && is_word(utf8_next(text.data() + end).code);
}

size_t skip_space_left(std::string_view text, size_t begin, size_t floor) {
  if (floor > begin) return floor;  // the token is within white space consumed by the previous one
  while (begin > floor) {
    const uint32_t n = utf8_previous_length(text.data() + begin);
    if (!is_white_space(utf8_next(text.data() + begin - n).code)) break;
    begin -= n;
  }
  return begin;
}

size_t skip_space_right(std::string_view text, size_t end) {
  while (end < text.size()) {
    const Utf8Char c = utf8_next(text.data() + end);
    if (!is_white_space(c.code)) break;
    end += c.length;
  }
  return end;
}

// Added tokens searched in the normalised text are normalised themselves.
Status create_normalized(const TokenizerSpec& spec, const Vocabulary& vocabulary,
                         const Allocator& allocator, SubwordText& subwords) {
  RegexSearch search;
  MOE_TRY(search.create(subwords.library));
  Array<char> buffers[2] = {Array<char>(allocator), Array<char>(allocator)};
  for (size_t i = 0; i < spec.added_ids.size(); ++i) {
    if ((spec.added_flags[i] & kAddedNormalized) == 0) continue;
    const uint32_t id = spec.added_ids[i];
    std::string_view text;
    bool at_start = true;
    MOE_TRY(subwords.normalizer.run(vocabulary.piece(id), search, buffers, &text, &at_start));
    if (text.empty()) {
      return Status::error(MOE_ERR_FORMAT, "tokenizer: added token %u is empty when normalised",
                           id);
    }
    const size_t begin = subwords.texts.size();
    MOE_TRY(append(subwords.texts, text));
    MOE_TRY(subwords.pieces.push(
        {id, static_cast<uint32_t>(begin), static_cast<uint32_t>(subwords.texts.size())}));
  }
  std::sort(subwords.pieces.begin(), subwords.pieces.end(),
            [](const auto& a, const auto& b) { return a.id < b.id; });
  Array<TrieEntry> entries(allocator);
  for (const auto& p : subwords.pieces) MOE_TRY(entries.push({subwords.piece(p.id), p.id}));
  return subwords.added.create(entries, vocabulary);
}

}  // namespace

Status SubwordText::check_kind(std::string_view) { return {}; }

Status SubwordText::create(const TokenizerSpec& spec, TokenizerParts* parts) {
  SubwordText& subwords = parts->subwords;
  MOE_TRY(subwords.library.create(*parts->allocator));
  MOE_TRY(subwords.normalizer.create(spec.normalizers, subwords.library));
  MOE_TRY(subwords.pre_tokenizer.create(spec.pre_tokenizers, subwords.library));
  MOE_TRY(parts->decoder.create(spec.decoders));
  MOE_TRY(create_normalized(spec, parts->vocabulary, *parts->allocator, subwords));
  if (parts->kind == TokenizerParts::kBpe) return subwords.bpe.create(spec, parts->vocabulary);
  if (parts->kind == TokenizerParts::kWordPiece) {
    return subwords.wordpiece.create(spec, parts->vocabulary);
  }
  return subwords.unigram.create(spec, parts->vocabulary);
}

std::string_view SubwordText::piece(uint32_t id) const {
  const auto* p = std::lower_bound(pieces.begin(), pieces.end(), id,
                                   [](const Piece& piece, uint32_t i) { return piece.id < i; });
  return {texts.data() + p->begin, p->end - p->begin};
}

bool match_surroundings(uint8_t flags, std::string_view text, size_t floor,
                        AddedTokens::Match* match) {
  if ((flags & kAddedSingleWord) != 0 && inside_word(text, match->begin, match->end)) return false;
  if ((flags & kAddedLstrip) != 0) match->begin = skip_space_left(text, match->begin, floor);
  // Inside white space consumed by the previous token, it ends with that.
  if ((flags & kAddedRstrip) != 0) {
    match->end = floor > match->end ? floor : skip_space_right(text, match->end);
  }
  return true;
}

}  // namespace moe
