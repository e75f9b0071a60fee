#include "src/model/expert_store.h"

#include <atomic>

#include "src/model/bind.h"

namespace moe {

Status ExpertCache::add(ExpertStore* store) { return stores_.append(&store, 1); }

bool ExpertCache::evict(uint64_t* freed) {
  ExpertStore::Slot* oldest = nullptr;
  for (ExpertStore* store : stores_) {
    ExpertStore::Slot* slot = store->oldest();
    if (slot != nullptr && (oldest == nullptr || slot->last_use < oldest->last_use)) oldest = slot;
  }
  if (oldest == nullptr) return false;
  std::atomic_ref(oldest->ready).store(0, std::memory_order_relaxed);
  oldest->blob = Blob();
  if (freed != nullptr) *freed += oldest->segment->raw;
  return true;
}

ExpertStore::~ExpertStore() {
  if (cache_ != nullptr) cache_->device().forget(*this);
}

Status ExpertStore::open(const BlobLoader& loader, ExpertCache& cache, int32_t layer,
                         int32_t n_sublayers, const Norm& norm) {
  loader_ = &loader;
  MOE_TRY(cache.add(this));
  cache_ = &cache;
  norm_ = norm;
  n_sublayers_ = n_sublayers;
  n_networks_ = n_sublayers == 0 ? 1 : static_cast<size_t>(n_sublayers);
  const auto n = static_cast<size_t>(loader.n_experts);
  MOE_TRY(experts_.resize(n));
  MOE_TRY(networks_.resize(n * n_networks_));
  for (size_t e = 0; e < n; ++e) {
    experts_[e].segment = loader.file.find(Part::kExperts, layer, static_cast<int32_t>(e));
  }
  return {};
}

Status ExpertStore::acquire(int32_t expert, Expert* out) {
  const auto e = static_cast<size_t>(expert);
  if (expert < 0 || e >= experts_.size()) {
    return Status::error(MOE_ERR_RANGE, "expert: expected 0..%zu, found %d", experts_.size() - 1,
                         expert);
  }
  if (cache_->evicts()) {
    MOE_TRY(hold(e));
  } else if (std::atomic_ref(experts_[e].ready).load(std::memory_order_acquire) == 0) {
    MOE_TRY(load(e));
  }
  *out = {&networks_[e * n_networks_], n_sublayers_};
  return {};
}

void ExpertStore::release(int32_t expert) {
  if (!cache_->evicts()) return;
  LockGuard guard(cache_->mutex);
  --experts_[static_cast<size_t>(expert)].holds;
}

Status ExpertStore::hold(size_t expert) {
  LockGuard guard(cache_->mutex);
  Slot& slot = experts_[expert];
  while (slot.ready == 0) {
    const Status status = load_once(expert);
    const bool full = status.code() == MOE_ERR_BUDGET || status.code() == MOE_ERR_MEMORY;
    if (full && cache_->evict()) continue;
    MOE_TRY(status);
  }
  ++slot.holds;
  slot.last_use = ++cache_->clock;
  return {};
}

ExpertStore::Slot* ExpertStore::oldest() {
  Slot* found = nullptr;
  for (Slot& slot : experts_) {
    if (slot.ready == 0 || slot.holds > 0) continue;
    if (found == nullptr || slot.last_use < found->last_use) found = &slot;
  }
  return found;
}

Status ExpertStore::load(size_t expert) {
  LockGuard guard(locks_[expert % kLocks]);
  if (std::atomic_ref(experts_[expert].ready).load(std::memory_order_relaxed) != 0) return {};
  return load_once(expert);
}

Status ExpertStore::load_once(size_t expert) {
  Slot& slot = experts_[expert];
  MOE_TRY(slot.blob.load(*loader_, *slot.segment));
  bind_expert(loader_->file.layout(*slot.segment), slot.blob.base(), norm_,
              &networks_[expert * n_networks_]);
  std::atomic_ref(slot.ready).store(1, std::memory_order_release);
  return {};
}

}  // namespace moe
