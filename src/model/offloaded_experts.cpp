// SPDX-License-Identifier: MIT
// Passes one layer's requests to the cache and reads an expert's segment into its slot.
#include "src/model/offloaded_experts.h"

#include "src/model/bind.h"

namespace moe {

OffloadedExperts::~OffloadedExperts() {
  if (cache_ == nullptr) return;
  cache_->memory().forget(*this);
  for (CachedExpert& expert : experts_) cache_->forget(expert);
}

Status OffloadedExperts::open(const BlobLoader& loader, ExpertCache& cache, int32_t layer,
                              int32_t n_sublayers, const Norm& norm) {
  loader_ = &loader;
  cache_ = &cache;
  norm_ = norm;
  n_sublayers_ = n_sublayers;
  n_networks_ = n_sublayers == 0 ? 1 : static_cast<size_t>(n_sublayers);
  const auto n = static_cast<size_t>(loader.n_experts);
  MOE_TRY(experts_.resize(n));
  MOE_TRY(networks_.resize(n * n_networks_));
  for (size_t e = 0; e < n; ++e) {
    experts_[e].loader = this;
    experts_[e].segment = loader.file.find(Part::kExperts, layer, static_cast<int32_t>(e));
    cache.add(experts_[e]);
    bytes_ += cache.taken_by(experts_[e]);
  }
  return {};
}

Status OffloadedExperts::acquire(int32_t expert, const ExpertWait& wait, Expert* out) {
  MOE_TRY(check_expert(expert, experts_.size()));
  CachedExpert& found = at(expert);
  MOE_TRY(cache_->acquire(found, wait));
  *out = {&networks_[static_cast<size_t>(expert) * n_networks_], n_sublayers_, found.arrival,
          found.segment->raw};
  return {};
}

bool OffloadedExperts::fit_in(uint64_t free, uint64_t more) {
  LockGuard guard(cache_->mutex);
  uint64_t missing = more;
  for (const CachedExpert& e : experts_) missing += e.n_holds == 0 ? cache_->taken_by(e) : 0;
  return cache_->fit_in(free, missing, bytes_);
}

bool OffloadedExperts::at_hand(int32_t expert) {
  LockGuard guard(cache_->mutex);
  return at(expert).ready();
}

bool OffloadedExperts::would_evict(int32_t expert) {
  LockGuard guard(cache_->mutex);
  return at(expert).absent() && cache_->memory().full();
}

bool OffloadedExperts::on_host(int32_t expert, HostExpert* out) {
  if (n_sublayers_ != 0) return false;
  const CachedExpert& found = at(expert);
  const MoeFile& file = loader_->file;
  bind_expert(file.layout(*found.segment), nullptr, norm_, &out->ffn);
  out->bytes = found.segment->raw;
  out->in_place = file.in_place(*found.segment) != nullptr;
  LockGuard guard(cache_->mutex);
  out->known = found.checked;
  out->n_reads = found.n_reads;
  return true;
}

Status OffloadedExperts::read_on_host(int32_t expert, uint8_t* room, HostExpert* out) {
  CachedExpert& found = at(expert);
  const FileSegment& segment = *found.segment;
  const MoeFile& file = loader_->file;
  const uint8_t* base = file.in_place(segment);
  if (base == nullptr) {
    MOE_TRY(file.read(segment, loader_->verify, room));
    base = room;
  } else if (!out->known && loader_->verify) {
    MOE_TRY(file.check(segment, base));
  }
  if (!out->known) MOE_TRY(check_values(file, segment, base, loader_->n_experts));
  bind_expert(file.layout(segment), base, norm_, &out->ffn);
  LockGuard guard(cache_->mutex);
  found.checked = true;
  ++found.n_reads;
  return {};
}

Status OffloadedExperts::load(CachedExpert& expert, bool check, const std::atomic<bool>* cancelled,
                              uint8_t* scratch) {
  struct Source {
    const BlobLoader& loader;
    const FileSegment& segment;
    bool check;
    const SegmentRoom& room;
    static Status write(void* user, void* host) {
      const Source& s = *static_cast<const Source*>(user);
      const MoeFile& file = s.loader.file;
      SegmentRoom room = s.room;
      room.out = static_cast<uint8_t*>(host);
      // Mapped segments were verified in place; a fetched copy can be damaged anew.
      const bool fetched = file.in_place(s.segment) == nullptr;
      MOE_TRY(file.read(s.segment, s.loader.verify && (s.check || fetched), room));
      return s.check ? check_values(file, s.segment, room.out, s.loader.n_experts) : Status();
    }
  };
  const auto bytes = static_cast<size_t>(expert.segment->raw);
  const SegmentRoom room{nullptr, cache_->memory().room_bytes(bytes), scratch};
  Source source{*loader_, *expert.segment, check, room};
  const HostFill fill{Source::write, &source, bytes, !check, cancelled};
  MOE_TRY(cache_->memory().load(expert.memory, fill, &expert.arrival));
  const auto index = static_cast<size_t>(&expert - experts_.data());
  bind_expert(loader_->file.layout(*expert.segment), static_cast<const uint8_t*>(expert.memory),
              norm_, &networks_[index * n_networks_]);
  return {};
}

}  // namespace moe
