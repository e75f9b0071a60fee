#include "src/model/expert_store.h"

#include <atomic>

#include "src/model/bind.h"

namespace moe {

Status ExpertStore::open(const BlobLoader& loader, int32_t layer, int32_t n_sublayers,
                         const Norm& norm) {
  loader_ = &loader;
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
  if (std::atomic_ref(experts_[e].ready).load(std::memory_order_acquire) == 0) MOE_TRY(load(e));
  *out = {&networks_[e * n_networks_], n_sublayers_};
  return {};
}

Status ExpertStore::load(size_t expert) {
  LockGuard guard(locks_[expert % kLocks]);
  Slot& slot = experts_[expert];
  std::atomic_ref ready(slot.ready);
  if (ready.load(std::memory_order_relaxed) != 0) return {};  // another thread was faster
  MOE_TRY(slot.blob.load(*loader_, *slot.segment));
  bind_expert(loader_->file.layout(*slot.segment), slot.blob.base(), norm_,
              &networks_[expert * n_networks_]);
  ready.store(1, std::memory_order_release);
  return {};
}

}  // namespace moe
