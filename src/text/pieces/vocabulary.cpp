// SPDX-License-Identifier: MIT
// Checks the pieces of a file, marks added tokens, and builds the hash table from piece to id.
#include "src/text/pieces/vocabulary.h"

#include "src/text/characters/utf8.h"

namespace moe {
namespace {

constexpr uint32_t kMaxTokens = 1U << 24;
constexpr size_t kMaxAddedBytes = 1024;  // bounds the search per character

// Pieces of the kind "bytes" if the file has no table: each byte, zero-terminated.
struct ByteTable {
  uint8_t bytes[512];
  uint32_t ends[256];
};
constexpr ByteTable make_byte_table() {
  ByteTable t{};
  for (uint32_t i = 0; i < 256; ++i) {
    t.bytes[2 * i] = static_cast<uint8_t>(i);
    t.ends[i] = 2 * i + 2;
  }
  return t;
}
constexpr ByteTable kByteTable = make_byte_table();

}  // namespace

Status Vocabulary::create(const TokenizerSpec& spec, bool bytes) {
  MOE_TRY(check_table(spec, bytes));
  MOE_TRY(mark_added(spec));
  return index();
}

Status Vocabulary::check_table(const TokenizerSpec& spec, bool bytes) {
  bytes_ = spec.token_bytes.data();
  ends_ = spec.token_ends.data();
  size_t n = spec.token_ends.size();
  size_t n_bytes = spec.token_bytes.size();
  if (bytes && n == 0 && n_bytes == 0) {
    bytes_ = kByteTable.bytes;
    ends_ = kByteTable.ends;
    n = 256;
    n_bytes = sizeof kByteTable.bytes;
  }
  if (n == 0 || n > kMaxTokens) {
    return Status::error(MOE_ERR_FORMAT, "tokenizer: expected 1 to %u tokens, found %zu",
                         kMaxTokens, n);
  }
  if (spec.model_vocab != 0 && n > spec.model_vocab) {
    return Status::error(MOE_ERR_FORMAT,
                         "tokenizer: has %zu tokens, the model's vocabulary only %u", n,
                         spec.model_vocab);
  }
  MOE_TRY(flags_.resize(n));
  uint32_t begin = 0;
  for (size_t i = 0; i < n; ++i) {
    if (ends_[i] <= begin || ends_[i] > n_bytes || bytes_[ends_[i] - 1] != 0) {
      return Status::error(MOE_ERR_FORMAT, "tokenizer: token %zu has a bad offset", i);
    }
    begin = ends_[i];
    const std::string_view p = piece(static_cast<uint32_t>(i));
    if (bytes && i < 256 && (p.size() != 1 || static_cast<uint8_t>(p[0]) != i)) {
      return Status::error(MOE_ERR_FORMAT, "tokenizer: token %zu of kind bytes must be that byte",
                           i);
    }
    if (!bytes && !utf8_is_valid(p)) {
      return Status::error(MOE_ERR_FORMAT, "tokenizer: token %zu is not UTF-8", i);
    }
    flags_[i] = p.empty() ? 0 : kTokenInModel;
  }
  if (begin != n_bytes || (bytes && n < 256)) {
    return Status::error(MOE_ERR_FORMAT, "tokenizer: %zu tokens end at byte %u of %zu", n, begin,
                         n_bytes);
  }
  return {};
}

Status Vocabulary::mark_added(const TokenizerSpec& spec) {
  if (spec.added_ids.size() != spec.added_flags.size()) {
    return Status::error(MOE_ERR_FORMAT, "tokenizer: %zu added tokens, but flags for %zu",
                         spec.added_ids.size(), spec.added_flags.size());
  }
  Array<uint8_t> seen(flags_.allocator());
  MOE_TRY(seen.resize(flags_.size()));
  for (size_t i = 0; i < spec.added_ids.size(); ++i) {
    const uint32_t id = spec.added_ids[i];
    const uint8_t flags = spec.added_flags[i];
    if (id >= size()) {
      return Status::error(MOE_ERR_FORMAT, "tokenizer: added token %zu has id %u of %u", i, id,
                           size());
    }
    if (seen[id] != 0) {
      return Status::error(MOE_ERR_FORMAT, "tokenizer: id %u is added twice", id);
    }
    const size_t n = piece(id).size();
    if (n == 0 || n > kMaxAddedBytes) {
      return Status::error(MOE_ERR_FORMAT,
                           "tokenizer: added token %u: expected 1 to %zu bytes, found %zu", id,
                           kMaxAddedBytes, n);
    }
    const bool decodes_only = (flags & kAddedDecodesOnly) != 0;
    const bool bad = flags >= kTokenInModel ||
                     (decodes_only && (flags & ~(kAddedDecodesOnly | kAddedSpecial)) != 0);
    if (bad || !utf8_is_valid(piece(id))) {
      return Status::error(MOE_ERR_FORMAT, "tokenizer: added token %u: bad flags or text", id);
    }
    seen[id] = 1;
    flags_[id] = static_cast<uint8_t>(flags | ((flags & kAddedInModel) != 0 ? kTokenInModel : 0));
  }
  return {};
}

Status Vocabulary::index() {
  size_t n_slots = 64;
  while (n_slots < 2 * flags_.size()) n_slots *= 2;
  MOE_TRY(slots_.resize(n_slots));
  const size_t mask = n_slots - 1;
  for (uint32_t id = 0; id < size(); ++id) {
    const std::string_view p = piece(id);
    if (p.empty() || (flags_[id] & kAddedDecodesOnly) != 0) continue;
    size_t slot = static_cast<size_t>(hash_bytes(p)) & mask;
    for (uint32_t probes = 0; slots_[slot] != 0; slot = (slot + 1) & mask) {
      if (piece(slots_[slot] - 1) == p) {
        const bool found_in_model = (flags_[slots_[slot] - 1] & kTokenInModel) != 0;
        const bool in_model = (flags_[id] & kTokenInModel) != 0;
        if (found_in_model && !in_model) break;  // an added token beside one of the model
        if (!found_in_model && in_model) {
          slots_[slot] = id + 1;
          break;
        }
        return Status::error(MOE_ERR_FORMAT, "tokenizer: tokens %u and %u are the same, \"%.*s\"",
                             slots_[slot] - 1, id, static_cast<int>(std::min<size_t>(p.size(), 64)),
                             p.data());
      }
      if (++probes > kMaxProbes) {
        return Status::error(MOE_ERR_FORMAT, "tokenizer: tokens made to collide in the hash table");
      }
    }
    if (slots_[slot] == 0) slots_[slot] = id + 1;
  }
  return {};
}

int32_t Vocabulary::find(std::string_view text) const {
  if (text.empty()) return -1;
  const size_t mask = slots_.size() - 1;
  size_t slot = static_cast<size_t>(hash_bytes(text)) & mask;
  for (uint32_t probes = 0; slots_[slot] != 0 && probes <= kMaxProbes; ++probes) {
    const uint32_t id = slots_[slot] - 1;
    if (piece(id) == text) return static_cast<int32_t>(id);
    slot = (slot + 1) & mask;
  }
  return -1;
}

}  // namespace moe
