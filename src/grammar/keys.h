// SPDX-License-Identifier: MIT
#pragma once
// Numbers for lists of numbers and for names, equal ones the same.

#include <string_view>

#include "src/base/array.h"
#include "src/text/pieces/vocabulary.h"

namespace moe::grammar {

inline uint64_t mix(uint64_t h, uint64_t v) {
  h = (h ^ v) * 0x9E3779B97F4A7C15ULL;
  return h ^ (h >> 29);
}

/// Numbers for lists of numbers.
class Keys {
 public:
  explicit Keys(const Allocator& a) : pool_(a), ends_(a), slots_(a) {}

  Status find(std::span<const uint32_t> key, uint32_t* id, bool* fresh) {
    if (2 * ends_.size() >= slots_.size()) MOE_TRY(grow());
    uint32_t& slot = find_slot(key);
    *fresh = slot == 0;
    if (slot == 0) {
      MOE_TRY(pool_.append(key.data(), key.size()));
      MOE_TRY(ends_.push(pool_.size()));
      slot = static_cast<uint32_t>(ends_.size());
    }
    *id = slot - 1;
    return {};
  }
  std::span<const uint32_t> operator[](uint32_t id) const {
    const size_t begin = id == 0 ? 0 : ends_[id - 1];
    return {pool_.data() + begin, ends_[id] - begin};
  }
  uint32_t size() const { return static_cast<uint32_t>(ends_.size()); }

 private:
  uint32_t& find_slot(std::span<const uint32_t> key) {
    uint64_t h = key.size();
    for (const uint32_t k : key) h = mix(h, k);
    size_t i = static_cast<size_t>(h) & (slots_.size() - 1);
    while (slots_[i] != 0) {
      const std::span<const uint32_t> other = (*this)[slots_[i] - 1];
      if (std::equal(key.begin(), key.end(), other.begin(), other.end())) break;
      i = (i + 1) & (slots_.size() - 1);
    }
    return slots_[i];
  }
  Status grow() {
    const size_t n = std::max<size_t>(64, 4 * slots_.size());
    slots_.clear();
    MOE_TRY(slots_.resize(n));
    for (uint32_t i = 0; i < ends_.size(); ++i) find_slot((*this)[i]) = i + 1;
    return {};
  }

  Array<uint32_t> pool_;
  Array<size_t> ends_;
  Array<uint32_t> slots_;
};

/// Names that collide (kMaxProbes) were chosen so that a text of some megabytes takes hours.
inline Status too_alike() {
  return Status::error(MOE_ERR_TOO_LONG, "too many names with the same hash value");
}

/// Numbers for names, whose texts must outlive them.
class Names {
 public:
  explicit Names(const Allocator& a) : names_(a), slots_(a) {}

  Status add(std::string_view name, uint32_t* id, bool* fresh) {
    if (2 * names_.size() >= slots_.size()) MOE_TRY(grow());
    uint32_t& slot = find_slot(name);
    if (n_probes_ > kMaxProbes) return too_alike();
    *fresh = slot == 0;
    if (slot == 0) {
      MOE_TRY(names_.push(name));
      slot = static_cast<uint32_t>(names_.size());
    }
    *id = slot - 1;
    return {};
  }

 private:
  uint32_t& find_slot(std::string_view name) {
    size_t i = static_cast<size_t>(hash_bytes(name)) & (slots_.size() - 1);
    n_probes_ = 0;
    while (slots_[i] != 0 && names_[slots_[i] - 1] != name && n_probes_++ < kMaxProbes) {
      i = (i + 1) & (slots_.size() - 1);
    }
    return slots_[i];
  }
  Status grow() {
    const size_t n = std::max<size_t>(64, 4 * slots_.size());
    slots_.clear();
    MOE_TRY(slots_.resize(n));
    for (uint32_t i = 0; i < names_.size(); ++i) {
      uint32_t& slot = find_slot(names_[i]);
      if (n_probes_ > kMaxProbes) return too_alike();
      slot = i + 1;
    }
    return {};
  }

  Array<std::string_view> names_;
  Array<uint32_t> slots_;
  size_t n_probes_ = 0;  // of the last find_slot()
};

}  // namespace moe::grammar
