// SPDX-License-Identifier: MIT
// Viterbi search from left to right; characters without a piece become byte tokens or the unknown
// token.
#include "src/text/pieces/unigram.h"

#include <cmath>

#include "src/base/string.h"
#include "src/text/characters/utf8.h"
#include "src/text/pieces/bpe.h"

namespace moe {
namespace {

constexpr double kUnkPenalty = 10.0;  // below the lowest score, as in SentencePiece

}  // namespace

Status Unigram::create(const TokenizerSpec& spec, const Vocabulary& vocabulary) {
  vocabulary_ = &vocabulary;
  scores_ = spec.scores.data();
  unk_id_ = spec.unk_id;
  byte_fallback_ = spec.byte_fallback;
  if (spec.scores.size() != vocabulary.size()) {
    return Status::error(MOE_ERR_FORMAT, "tokenizer: %zu scores for %u tokens", spec.scores.size(),
                         vocabulary.size());
  }
  if (reinterpret_cast<uintptr_t>(scores_) % alignof(double) != 0) {  // FlatBuffers permits it
    return Status::error(MOE_ERR_FORMAT, "tokenizer: the scores are not aligned");
  }
  double lowest = HUGE_VAL;
  Array<TrieEntry> entries(trie_.allocator());
  for (uint32_t id = 0; id < vocabulary.size(); ++id) {
    if ((vocabulary.flags(id) & kTokenInModel) == 0) continue;
    if (!std::isfinite(scores_[id])) {
      return Status::error(MOE_ERR_FORMAT, "tokenizer: the score of token %u is not finite", id);
    }
    if (vocabulary.piece(id).size() > kMaxPieceBytes) {
      return Status::error(MOE_ERR_FORMAT, "tokenizer: token %u is longer than %zu bytes", id,
                           kMaxPieceBytes);
    }
    lowest = std::min(lowest, scores_[id]);
    MOE_TRY(entries.push({vocabulary.piece(id), id}));
  }
  unk_score_ = lowest - kUnkPenalty;
  find_byte_tokens(vocabulary, byte_ids_);
  return trie_.build(entries);
}

// Viterbi from left to right; the first of equal scores wins.
Status Unigram::search(std::string_view piece, UnigramScratch& scratch) const {
  scratch.best.clear();
  MOE_TRY(scratch.best.resize(piece.size() + 1));
  UnigramScratch::Best* best = scratch.best.data();
  const auto offer = [&](size_t from, size_t to, double score, int32_t id) {
    if (best[to].start == ~0U || score > best[to].score) {
      best[to] = {score, id, static_cast<uint32_t>(from)};
    }
  };
  for (size_t at = 0; at < piece.size();) {
    const uint32_t length = utf8_next(piece.data() + at).length;
    bool has_single = false;
    uint32_t node = ByteTrie::kRoot;
    for (size_t end = at; end < piece.size();) {
      node = trie_.empty() ? ByteTrie::kNone : trie_.step(node, static_cast<uint8_t>(piece[end]));
      if (node == ByteTrie::kNone) break;
      ++end;
      const uint32_t id = trie_.value(node);
      if (id == ByteTrie::kNone) continue;
      offer(at, end, scores_[id] + best[at].score, static_cast<int32_t>(id));
      has_single = has_single || end == at + length;
    }
    if (!has_single) {
      if (unk_id_ < 0) {
        return Status::error(MOE_ERR_TEXT,
                             "text: \"%.*s\" has no token, and there is no unknown one",
                             static_cast<int>(length), piece.data() + at);
      }
      offer(at, at + length, unk_score_ + best[at].score, unk_id_);
    }
    at += length;
  }
  return {};
}

Status Unigram::put(std::string_view text, Array<int32_t>& ids) const {
  const int32_t id = vocabulary_->find_in_model(text);
  if (id >= 0) return ids.push(id);
  const bool all = byte_fallback_ && std::all_of(text.begin(), text.end(), [&](char b) {
                     return byte_ids_[static_cast<uint8_t>(b)] >= 0;
                   });
  if (!all) return ids.push(unk_id_);
  for (const char b : text) MOE_TRY(ids.push(byte_ids_[static_cast<uint8_t>(b)]));
  return {};
}

Status Unigram::encode(std::string_view piece, UnigramScratch& scratch, Array<int32_t>& ids) const {
  MOE_TRY(search(piece, scratch));
  Array<UnigramScratch::Part>& parts = scratch.parts;  // last to first
  parts.clear();
  bool in_unknown = false;
  for (auto end = static_cast<uint32_t>(piece.size()); end > 0;) {
    const UnigramScratch::Best& b = scratch.best[end];
    const bool unknown = b.id == unk_id_;
    if (unknown && in_unknown) {
      parts.back().begin = b.start;
    } else {
      MOE_TRY(parts.push({b.start, end}));
    }
    in_unknown = unknown;
    end = b.start;
  }
  for (size_t i = parts.size(); i-- > 0;) {
    MOE_TRY(put(slice(piece, parts[i].begin, parts[i].end - parts[i].begin), ids));
  }
  return {};
}

}  // namespace moe
