// SPDX-License-Identifier: MIT
// Loads an expert at its first use, under one of a few locks, so that experts are read side by
// side.
#include "src/model/resident_experts.h"

#include <atomic>

#include "src/model/bind.h"

namespace moe {

Status ResidentExperts::open(const BlobLoader& loader, int32_t layer, int32_t n_sublayers,
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

Status ResidentExperts::acquire(int32_t expert, const ExpertWait&, Expert* out) {
  MOE_TRY(check_expert(expert, experts_.size()));
  const auto e = static_cast<size_t>(expert);
  if (!std::atomic_ref(experts_[e].ready).load(std::memory_order_acquire)) MOE_TRY(load(e));
  *out = {&networks_[e * n_networks_], n_sublayers_, 0, 0};
  return {};
}

Status ResidentExperts::load(size_t expert) {
  LockGuard guard(locks_[expert % kLocks]);
  Slot& slot = experts_[expert];
  if (std::atomic_ref(slot.ready).load(std::memory_order_relaxed)) return {};
  MOE_TRY(slot.blob.load(*loader_, *slot.segment));
  bind_expert(loader_->file.layout(*slot.segment), slot.blob.base(), norm_,
              &networks_[expert * n_networks_]);
  std::atomic_ref(slot.ready).store(true, std::memory_order_release);
  return {};
}

}  // namespace moe
