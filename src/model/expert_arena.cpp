// SPDX-License-Identifier: MIT
// Allocates equal slots in at most 64 blocks, so that parts of the memory can be given back.
#include "src/model/expert_arena.h"

#include "src/base/checked.h"
#include "src/base/os/memory.h"

namespace moe {

// About 64 blocks per model: small enough to release a fraction, large enough for large pages.
ExpertArena::ExpertArena(const Allocator& allocator, size_t slot_bytes, size_t most)
    : allocator_(allocator),
      slot_bytes_(slot_bytes),
      per_block_(std::max<size_t>(1, (most + 63) / 64)),
      blocks_(allocator) {}

ExpertArena::~ExpertArena() {
  while (!blocks_.empty()) remove(blocks_.size() - 1);
}

Status ExpertArena::add(size_t n_slots) {
  MOE_TRY(blocks_.reserve(blocks_.size() + 1));
  size_t bytes = 0;
  if (!checked_mul(n_slots, slot_bytes_, &bytes)) return out_of_memory("expert cache", ~0ULL);
  void* memory = allocate(allocator_, bytes, kAlign);
  if (memory == nullptr) return out_of_memory("expert cache", bytes);
  prefer_large_pages(memory, bytes);
  Block block;
  block.memory = static_cast<uint8_t*>(memory);
  block.n_slots = n_slots;
  for (size_t i = n_slots; i-- > 0;) {
    void* slot = block.memory + i * slot_bytes_;
    std::memcpy(slot, &block.free, sizeof block.free);
    block.free = slot;
  }
  n_slots_ += n_slots;
  return blocks_.push(block);
}

void ExpertArena::remove(size_t block) {
  Block& b = blocks_[block];
  deallocate(allocator_, b.memory, b.n_slots * slot_bytes_);
  n_slots_ -= b.n_slots;
  n_leaving_ -= b.leaving ? 1 : 0;
  b = blocks_.back();
  blocks_.pop();
}

Status ExpertArena::resize(size_t n_slots) {
  size_t staying = 0;
  for (size_t i = blocks_.size(); i-- > 0;) {
    if (blocks_[i].leaving && blocks_[i].n_used == 0) remove(i);
  }
  for (const Block& b : blocks_) staying += b.leaving ? 0 : b.n_slots;
  for (size_t i = blocks_.size(); i-- > 0 && staying > n_slots;) {
    if (blocks_[i].leaving) continue;
    staying -= blocks_[i].n_slots;
    blocks_[i].leaving = true;
    ++n_leaving_;
    if (blocks_[i].n_used == 0) remove(i);
  }
  while (n_leaving_ == 0 && n_slots_ < n_slots) {
    MOE_TRY(add(std::min(per_block_, n_slots - n_slots_)));
  }
  return {};
}

ExpertArena::Block* ExpertArena::block_of(const void* slot) {
  const auto* at = static_cast<const uint8_t*>(slot);
  for (Block& b : blocks_) {
    if (at >= b.memory && at < b.memory + b.n_slots * slot_bytes_) return &b;
  }
  return nullptr;
}

bool ExpertArena::leaves(const void* slot) const {
  const Block* block = const_cast<ExpertArena*>(this)->block_of(slot);
  return block != nullptr && block->leaving;
}

Status ExpertArena::alloc(size_t, void** out) {
  for (Block& b : blocks_) {
    if (b.leaving || b.free == nullptr) continue;
    *out = b.free;
    std::memcpy(&b.free, *out, sizeof b.free);
    ++b.n_used;
    return {};
  }
  return Status::error(MOE_ERR_BUDGET, "expert cache: all %zu slots are in use", n_slots_);
}

void ExpertArena::free(void* slot, size_t) {
  Block* block = block_of(slot);
  std::memcpy(slot, &block->free, sizeof block->free);
  block->free = slot;
  --block->n_used;
}

bool ExpertArena::full() const {
  for (const Block& b : blocks_) {
    if (!b.leaving && b.free != nullptr) return false;
  }
  return true;
}

Status ExpertArena::load(void* slot, const HostFill& fill, Arrival* arrival) {
  *arrival = 0;
  return fill.write(fill.user, slot);
}

}  // namespace moe
