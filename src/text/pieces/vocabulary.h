// SPDX-License-Identifier: MIT
#pragma once
// The pieces of a tokenizer: id to piece, piece to id.

#include "src/text/spec.h"

namespace moe {

/// Bits of Vocabulary::flags(): AddedTokenFlag and
inline constexpr uint8_t kTokenInModel = 128;  // a piece of the model's own vocabulary
/// The longest piece of a model that searches all pieces at each character: bounds its work.
inline constexpr size_t kMaxPieceBytes = 1024;

/// Refers to the pieces in the model file. Immutable after create().
class Vocabulary final {
 public:
  explicit Vocabulary(const Allocator& allocator) : slots_(allocator), flags_(allocator) {}

  /// Checks offsets, terminators, duplicates, added tokens and sizes. `bytes`: an empty table means
  /// the 256 bytes.
  Status create(const TokenizerSpec& spec, bool bytes);

  uint32_t size() const { return static_cast<uint32_t>(flags_.size()); }
  std::string_view piece(uint32_t id) const {  // id < size()
    const uint32_t begin = id == 0 ? 0 : ends_[id - 1];
    return {reinterpret_cast<const char*>(bytes_) + begin, ends_[id] - begin - 1};
  }
  uint8_t flags(uint32_t id) const { return flags_[id]; }

  /// Id of a piece, or -1.
  int32_t find(std::string_view piece) const;
  /// The same, only among the model's own pieces.
  int32_t find_in_model(std::string_view piece) const {
    const int32_t id = find(piece);
    return id >= 0 && (flags_[static_cast<size_t>(id)] & kTokenInModel) != 0 ? id : -1;
  }

 private:
  Status check_table(const TokenizerSpec& spec, bool bytes);
  Status mark_added(const TokenizerSpec& spec);
  Status index();

  const uint8_t* bytes_ = nullptr;
  const uint32_t* ends_ = nullptr;
  Array<uint32_t> slots_;  // open addressing; id + 1, 0 = free
  Array<uint8_t> flags_;
};

/// A hash with well-mixed bits; not secret, so tables bound their probes.
inline uint64_t hash_bytes(std::string_view text) {
  uint64_t h = 0x9E3779B97F4A7C15ULL ^ (text.size() * 0xFF51AFD7ED558CCDULL);
  const auto mix = [&h](uint64_t v) {
    h = (h ^ v) * 0xC2B2AE3D27D4EB4FULL;
    h ^= h >> 29;
  };
  size_t i = 0;
  for (; i + 8 <= text.size(); i += 8) {
    uint64_t v;
    std::memcpy(&v, text.data() + i, 8);
    mix(v);
  }
  uint64_t rest = 0;
  if (i < text.size()) std::memcpy(&rest, text.data() + i, text.size() - i);
  mix(rest);
  h *= 0x165667B19E3779F9ULL;
  return h ^ (h >> 32);
}

/// Maximum probes of a table: exceeded only by keys chosen to collide. Searches stop there too,
/// since chosen keys can leave no free slot for long.
inline constexpr uint32_t kMaxProbes = 500;

}  // namespace moe
