// SPDX-License-Identifier: MIT
#pragma once
// Offloaded experts of one layer; one cache serves all layers.

#include "src/model/blob.h"
#include "src/model/expert_cache.h"

namespace moe {

/// After a failed acquire this object is unchanged: any expert can be acquired again.
class OffloadedExperts final : public ExpertSource, private CachedExpert::Loader {
 public:
  explicit OffloadedExperts(const Allocator& allocator)
      : experts_(allocator), networks_(allocator) {}
  OffloadedExperts(const OffloadedExperts&) = delete;
  OffloadedExperts& operator=(const OffloadedExperts&) = delete;
  /// No reader may be active.
  ~OffloadedExperts();

  /// `loader`, the objects it refers to, and `cache` must outlive this. n_sublayers as in
  /// MoeConfig.
  Status open(const BlobLoader& loader, ExpertCache& cache, int32_t layer, int32_t n_sublayers,
              const Norm& norm);

  bool all_stay() const override { return !cache_->scarce(); }
  Status acquire(int32_t expert, const ExpertWait& wait, Expert* out) override;
  void release(int32_t expert) override { cache_->release(at(expert)); }
  void retain(int32_t expert) override { cache_->retain(at(expert)); }
  bool fit_in(uint64_t free, uint64_t more) override;
  bool make_room(uint64_t bytes) override { return cache_->make_room(bytes); }
  bool at_hand(int32_t expert) override;
  bool would_evict(int32_t expert) override;
  bool on_host(int32_t expert, HostExpert* out) override;
  Status read_on_host(int32_t expert, uint8_t* room, HostExpert* out) override;
  void prefetch(const int32_t* experts, int32_t n, ExpertStats* stats) override {
    cache_->prefetch(experts_.data(), experts, n, stats);
  }
  void cancel_prefetch(const int32_t* experts, int32_t n) override {
    cache_->cancel_prefetch(experts_.data(), experts, n);
  }

 private:
  CachedExpert& at(int32_t expert) { return experts_[static_cast<size_t>(expert)]; }
  Status load(CachedExpert& expert, bool check, const std::atomic<bool>* cancelled,
              uint8_t* scratch) override;

  const BlobLoader* loader_ = nullptr;
  ExpertCache* cache_ = nullptr;
  Norm norm_;
  int32_t n_sublayers_ = 0;
  size_t n_networks_ = 1;        // per expert
  uint64_t bytes_ = 0;           // of all experts
  Array<CachedExpert> experts_;  // (n_experts)
  Array<Ffn> networks_;          // (n_experts, n_networks_)
};

}  // namespace moe
