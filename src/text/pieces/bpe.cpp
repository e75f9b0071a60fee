// SPDX-License-Identifier: MIT
// Indexes the merges by pair, and merges short pieces by scanning, long ones with a heap.
#include "src/text/pieces/bpe.h"

#include "src/base/string.h"
#include "src/text/characters/utf8.h"

namespace moe {
namespace {

constexpr uint32_t kNoRank = ~0U;
constexpr size_t kSmallEnd = 0x800;
constexpr size_t kShort = 48;  // up to this many symbols a linear search beats a heap
constexpr size_t kMaxMerges = size_t{1} << 24;
constexpr size_t kMaxAffixBytes = 64;
constexpr std::string_view kSpaceMark = "\u2581";

size_t pair_hash(uint32_t left, uint32_t right) {
  uint64_t h = (uint64_t{left} << 32 | right) * 0x9E3779B97F4A7C15ULL;
  h ^= h >> 32;
  return static_cast<size_t>(h * 0xD6E8FEB86659FD93ULL >> 20);
}

bool worse(const BpeScratch::Candidate& a, const BpeScratch::Candidate& b) {
  return a.rank != b.rank ? a.rank > b.rank : a.position > b.position;
}

}  // namespace

void find_byte_tokens(const Vocabulary& vocabulary, int32_t ids[256]) {
  constexpr char kHex[] = "0123456789ABCDEF";
  for (size_t b = 0; b < 256; ++b) {
    const char name[] = {'<', '0', 'x', kHex[b >> 4], kHex[b & 15], '>'};
    ids[b] = vocabulary.find_in_model({name, sizeof name});
  }
}

Status Bpe::create(const TokenizerSpec& spec, const Vocabulary& vocabulary) {
  vocabulary_ = &vocabulary;
  byte_fallback_ = spec.byte_fallback;
  fuse_unk_ = spec.fuse_unk;
  ignore_merges_ = spec.ignore_merges;
  unk_id_ = spec.unk_id;
  prefix_ = spec.continuing_prefix;
  suffix_ = spec.end_suffix;
  if (prefix_.size() > kMaxAffixBytes || suffix_.size() > kMaxAffixBytes) {
    return Status::error(MOE_ERR_FORMAT, "tokenizer: prefix or suffix longer than %zu bytes",
                         kMaxAffixBytes);
  }
  find_byte_tokens(vocabulary, byte_ids_);
  MOE_TRY(small_.resize(kSmallEnd));
  for (uint32_t c = 0; c < kSmallEnd; ++c) {
    char text[4];
    small_[c] = vocabulary.find_in_model({text, utf8_write(c, text)});
  }
  const size_t n = spec.merges.size() / 3;
  if (spec.merges.size() % 3 != 0 || n > kMaxMerges) {
    return Status::error(MOE_ERR_FORMAT, "tokenizer: %zu numbers are no table of merges",
                         spec.merges.size());
  }
  size_t n_slots = 16;
  while (n_slots < 2 * n) n_slots *= 2;
  MOE_TRY(pairs_.resize(n_slots));
  for (size_t i = 0; i < n; ++i) {
    const uint32_t* m = spec.merges.data() + 3 * i;
    MOE_TRY(add_pair(m[0], m[1], static_cast<uint32_t>(i), m[2]));
  }
  splits_words_ = finds_words();
  return {};
}

// True if merges stay within words. The mark must be a token itself, so that it also ends a run of
// unknown characters.
bool Bpe::finds_words() const {
  if (ignore_merges_ || !prefix_.empty() || !suffix_.empty()) return false;
  if (vocabulary_->find_in_model(kSpaceMark) < 0) return false;
  for (const Pair& pair : pairs_) {
    if (pair.rank == kNoRank) continue;
    if (vocabulary_->piece(pair.right).starts_with(kSpaceMark) &&
        !vocabulary_->piece(pair.left).ends_with(kSpaceMark)) {
      return false;
    }
  }
  return true;
}

size_t Bpe::word_end(std::string_view piece, size_t begin) {
  bool in_word = false;
  for (size_t i = begin; i < piece.size();) {
    const bool mark = slice(piece, i, kSpaceMark.size()) == kSpaceMark;
    if (mark && in_word) return i;
    if (mark) {
      i += kSpaceMark.size();
      continue;
    }
    in_word = true;
    const void* next = std::memchr(piece.data() + i + 1, kSpaceMark[0], piece.size() - i - 1);
    if (next == nullptr) break;
    i = static_cast<size_t>(static_cast<const char*>(next) - piece.data());
  }
  return piece.size();
}

Status Bpe::add_pair(uint32_t left, uint32_t right, uint32_t rank, uint32_t merged) {
  const uint32_t n = vocabulary_->size();
  if (left >= n || right >= n || merged >= n) {
    return Status::error(MOE_ERR_FORMAT, "tokenizer: merge %u (%u, %u to %u) beyond the %u tokens",
                         rank, left, right, merged, n);
  }
  const std::string_view a = vocabulary_->piece(left);
  const std::string_view b = vocabulary_->piece(right);
  const std::string_view c = vocabulary_->piece(merged);
  const bool fits = !a.empty() && b.size() > prefix_.size() &&
                    c.size() == a.size() + b.size() - prefix_.size() &&
                    slice(c, 0, a.size()) == a && slice(c, a.size()) == slice(b, prefix_.size());
  if (!fits) {
    return Status::error(MOE_ERR_FORMAT, "tokenizer: merge %u: token %u is not %u followed by %u",
                         rank, merged, left, right);
  }
  const size_t mask = pairs_.size() - 1;
  size_t slot = pair_hash(left, right) & mask;
  for (uint32_t probes = 0; pairs_[slot].rank != kNoRank; slot = (slot + 1) & mask) {
    if (pairs_[slot].left == left && pairs_[slot].right == right) {
      return Status::error(MOE_ERR_FORMAT, "tokenizer: merges %u and %u are the same",
                           pairs_[slot].rank, rank);
    }
    if (++probes > kMaxProbes) {
      return Status::error(MOE_ERR_FORMAT, "tokenizer: merges made to collide in the hash table");
    }
  }
  pairs_[slot] = {left, right, rank, merged};
  return {};
}

const Bpe::Pair* Bpe::find_pair(int32_t left, int32_t right) const {
  const auto l = static_cast<uint32_t>(left);
  const auto r = static_cast<uint32_t>(right);
  const size_t mask = pairs_.size() - 1;
  size_t slot = pair_hash(l, r) & mask;
  for (uint32_t probes = 0; pairs_[slot].rank != kNoRank && probes <= kMaxProbes; ++probes) {
    if (pairs_[slot].left == l && pairs_[slot].right == r) return &pairs_[slot];
    slot = (slot + 1) & mask;
  }
  return nullptr;
}

// A character with the prefix or suffix for its position in the word.
Status Bpe::affix(std::string_view character, bool first, bool last, BpeScratch& scratch,
                  std::string_view* symbol) const {
  *symbol = character;
  const bool prefixed = !first && !prefix_.empty();
  const bool suffixed = last && !suffix_.empty();
  if (!prefixed && !suffixed) return {};
  scratch.text.clear();
  if (prefixed) MOE_TRY(scratch.text.append(prefix_.data(), prefix_.size()));
  MOE_TRY(scratch.text.append(character.data(), character.size()));
  if (suffixed) MOE_TRY(scratch.text.append(suffix_.data(), suffix_.size()));
  *symbol = {scratch.text.data(), scratch.text.size()};
  return {};
}

Status Bpe::to_symbols(std::string_view piece, BpeScratch& scratch) const {
  Array<BpeScratch::Symbol>& symbols = scratch.symbols;
  symbols.clear();
  const auto add = [&](int32_t id) { return symbols.push({id, kNoRank, 0, 0, 0}); };
  bool unknown = false;  // an unknown token is pending
  for (size_t i = 0; i < piece.size();) {
    const Utf8Char c = utf8_next(piece.data() + i);
    const bool last = i + c.length == piece.size();
    std::string_view symbol;
    MOE_TRY(affix(slice(piece, i, c.length), i == 0, last, scratch, &symbol));
    i += c.length;
    const bool plain = symbol.size() == c.length;
    const int32_t id =
        plain && c.code < kSmallEnd ? small_[c.code] : vocabulary_->find_in_model(symbol);
    if (id >= 0) {
      if (std::exchange(unknown, false)) MOE_TRY(add(unk_id_));
      MOE_TRY(add(id));
      continue;
    }
    const auto byte_id = [&](char b) { return byte_ids_[static_cast<uint8_t>(b)]; };
    if (byte_fallback_ &&
        std::all_of(symbol.begin(), symbol.end(), [&](char b) { return byte_id(b) >= 0; })) {
      for (const char b : symbol) MOE_TRY(add(byte_id(b)));
      continue;
    }
    if (unk_id_ < 0) continue;
    if (unknown && !fuse_unk_) MOE_TRY(add(unk_id_));
    unknown = true;
  }
  return unknown ? add(unk_id_) : Status();
}

void Bpe::rank_symbol(BpeScratch& scratch, size_t i, size_t next) const {
  BpeScratch::Symbol& s = scratch.symbols[i];
  const Pair* pair = find_pair(s.id, scratch.symbols[next].id);
  s.rank = pair == nullptr ? kNoRank : pair->rank;
  s.merged = pair == nullptr ? 0 : static_cast<int32_t>(pair->merged);
}

// Repeatedly merges the best pair, leftmost first.
void Bpe::merge_short(BpeScratch& scratch) const {
  BpeScratch::Symbol* s = scratch.symbols.data();
  size_t n = scratch.symbols.size();
  for (size_t i = 0; i + 1 < n; ++i) rank_symbol(scratch, i, i + 1);
  while (n > 1) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < n; ++i) {
      if (s[i].rank < s[best].rank) best = i;
    }
    if (s[best].rank == kNoRank) break;
    s[best].id = s[best].merged;
    std::copy(s + best + 2, s + n, s + best + 1);
    scratch.symbols.pop();
    --n;
    s[n - 1].rank = kNoRank;
    if (best + 1 < n) rank_symbol(scratch, best, best + 1);
    if (best > 0) rank_symbol(scratch, best - 1, best);
  }
}

// The same with a heap of candidates; stale ones are skipped.
Status Bpe::merge_long(BpeScratch& scratch) const {
  Array<BpeScratch::Symbol>& s = scratch.symbols;
  Array<BpeScratch::Candidate>& heap = scratch.heap;
  heap.clear();
  if (s.size() > INT32_MAX) {
    return Status::error(MOE_ERR_TEXT, "text: %zu symbols in one piece", s.size());
  }
  const auto offer = [&](int32_t at) -> Status {
    const auto i = static_cast<size_t>(at);
    rank_symbol(scratch, i, static_cast<size_t>(s[i].next));
    if (s[i].rank == kNoRank) return {};
    MOE_TRY(heap.push({s[i].rank, at, s[i].merged}));
    std::push_heap(heap.begin(), heap.end(), worse);
    return {};
  };
  const auto n = static_cast<int32_t>(s.size());
  for (int32_t i = 0; i < n; ++i) {
    s[static_cast<size_t>(i)].previous = i - 1;
    s[static_cast<size_t>(i)].next = i + 1 < n ? i + 1 : -1;
    if (i > 0) MOE_TRY(offer(i - 1));
  }
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), worse);
    const BpeScratch::Candidate c = heap.back();
    heap.pop();
    BpeScratch::Symbol& left = s[static_cast<size_t>(c.position)];
    if (left.id < 0 || left.next < 0 || left.rank != c.rank) continue;
    BpeScratch::Symbol& right = s[static_cast<size_t>(left.next)];
    left.id = left.merged;
    left.rank = kNoRank;
    left.next = right.next;
    right.id = -1;
    if (left.next >= 0) {
      s[static_cast<size_t>(left.next)].previous = c.position;
      MOE_TRY(offer(c.position));
    }
    if (left.previous >= 0) MOE_TRY(offer(left.previous));
  }
  return {};
}

Status Bpe::encode(std::string_view piece, BpeScratch& scratch, Array<int32_t>& ids) const {
  if (ignore_merges_) {
    const int32_t id = vocabulary_->find_in_model(piece);
    if (id >= 0) return ids.push(id);
  }
  MOE_TRY(to_symbols(piece, scratch));
  if (scratch.symbols.size() <= kShort) {
    merge_short(scratch);
  } else {
    MOE_TRY(merge_long(scratch));
  }
  for (const BpeScratch::Symbol& s : scratch.symbols) {
    if (s.id >= 0) MOE_TRY(ids.push(s.id));
  }
  return {};
}

}  // namespace moe
