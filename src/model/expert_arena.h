// SPDX-License-Identifier: MIT
#pragma once
// Host memory for experts.

#include "kernels/expert_memory.h"
#include "src/base/array.h"

namespace moe {

/// Slots of equal size, each for any expert of the model. They lie in a few allocations, so that
/// some can be released; nothing is allocated between resizes. The caller serialises calls.
class ExpertArena final : public ExpertMemory {
 public:
  static constexpr size_t kAlign = 4096;  // required by direct reads

  /// `most`: upper bound of resize().
  ExpertArena(const Allocator& allocator, size_t slot_bytes, size_t most);
  ExpertArena(const ExpertArena&) = delete;
  ExpertArena& operator=(const ExpertArena&) = delete;
  ~ExpertArena();

  size_t slot_bytes() const { return slot_bytes_; }
  size_t n_slots() const { return n_slots_; }

  /// Grows at once. To shrink it stops using the slots of some allocations and frees these when
  /// they are empty: until then leaves() tells which experts must be evicted. Call again after
  /// evicting. MOE_ERR_MEMORY if it could not grow completely.
  Status resize(size_t n_slots);
  bool shrinking() const { return n_leaving_ > 0; }
  bool leaves(const void* slot) const;

  uint64_t room_bytes(uint64_t) const override { return slot_bytes_; }
  Status alloc(size_t bytes, void** out) override;
  void free(void* slot, size_t bytes) override;
  bool full() const override;
  Status load(void* slot, const HostFill& fill, Arrival* arrival) override;

 private:
  struct Block {
    uint8_t* memory = nullptr;
    size_t n_slots = 0;
    size_t n_used = 0;
    bool leaving = false;
    void* free = nullptr;  // the first free slot, which stores the address of the next
  };
  Block* block_of(const void* slot);
  Status add(size_t n_slots);
  void remove(size_t block);

  const Allocator& allocator_;
  size_t slot_bytes_;
  size_t per_block_;
  size_t n_slots_ = 0;
  size_t n_leaving_ = 0;  // blocks to be freed
  Array<Block> blocks_;
};

}  // namespace moe
