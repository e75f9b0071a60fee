#include "src/model/expert_store.h"

#include <algorithm>
#include <atomic>

#include "src/model/bind.h"

namespace moe {

void ExpertCache::add(uint64_t bytes) {
  all_bytes_ += bytes;
  largest_ = std::max(largest_, bytes);
}

uint64_t ExpertCache::evict() {
  if (idle_.newer == &idle_) return 0;
  auto* slot = static_cast<ExpertStore::Slot*>(idle_.newer);
  const uint64_t bytes = slot->blob.bytes();
  take_idle(slot, bytes);
  slot->state = ExpertStore::kAbsent;
  slot->blob = Blob();
  return bytes;
}

bool ExpertCache::make_room(uint64_t bytes) {
  uint64_t freed = 0;
  while (freed < bytes) {
    const uint64_t more = evict();
    if (more == 0) break;
    freed += more;
  }
  return freed > 0;
}

void ExpertCache::add_idle(Idle* slot, uint64_t bytes) {
  slot->older = idle_.older;
  slot->newer = &idle_;
  slot->older->newer = slot;
  idle_.older = slot;
  idle_bytes_ += bytes;
}

void ExpertCache::take_idle(Idle* slot, uint64_t bytes) {
  slot->older->newer = slot->newer;
  slot->newer->older = slot->older;
  slot->older = slot->newer = nullptr;
  idle_bytes_ -= bytes;
}

bool ExpertCache::fit_in(uint64_t free, uint64_t missing, uint64_t all) const {
  const uint64_t rest = all_bytes_ - kept_bytes - all;
  return missing + std::min(rest, largest_) <= free + idle_bytes_;
}

void ExpertCache::wait_in_line(Waiter* waiter, const std::atomic<bool>* cancelled) {
  if (!waiter->in_line) {
    Waiter** last = &first_;
    while (*last != nullptr) last = &(*last)->next;
    waiter->next = nullptr;
    *last = waiter;
    waiter->in_line = true;
  }
  changed.wait_unless(mutex, cancelled);
}

void ExpertCache::leave_line(Waiter* waiter) {
  if (!waiter->in_line) return;
  Waiter** at = &first_;
  while (*at != waiter) at = &(*at)->next;
  *at = waiter->next;
  waiter->in_line = false;
  changed.notify_all();
}

ExpertStore::~ExpertStore() {
  if (cache_ != nullptr) cache_->device().forget(*this);
}

Status ExpertStore::open(const BlobLoader& loader, ExpertCache& cache, int32_t layer,
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
    experts_[e].segment = loader.file.find(Part::kExperts, layer, static_cast<int32_t>(e));
    cache.add(experts_[e].segment->raw);
    bytes_ += experts_[e].segment->raw;
  }
  return {};
}

Status ExpertStore::find(int32_t expert) const {
  if (expert >= 0 && static_cast<size_t>(expert) < experts_.size()) return {};
  return Status::error(MOE_ERR_RANGE, "expert: expected 0..%zu, found %d", experts_.size() - 1,
                       expert);
}

void ExpertStore::describe(size_t expert, Expert* out) const {
  const Slot& slot = experts_[expert];
  *out = {&networks_[expert * n_networks_], n_sublayers_, slot.blob.arrival(), slot.blob.bytes()};
}

Status ExpertStore::acquire(int32_t expert, Expert* out) {
  MOE_TRY(find(expert));
  const auto e = static_cast<size_t>(expert);
  if (cache_->evicts()) {
    LockGuard guard(cache_->mutex);
    MOE_TRY(hold(e, false, {}));
    describe(e, out);
    return {};
  }
  if (std::atomic_ref(experts_[e].state).load(std::memory_order_acquire) != kReady) {
    MOE_TRY(load(e));
  }
  describe(e, out);
  return {};
}

void ExpertStore::release(int32_t expert) {
  if (!cache_->evicts()) return;
  LockGuard guard(cache_->mutex);
  let_go(expert);
}

Status ExpertStore::borrow(int32_t expert, const ExpertWait& wait, Expert* out) {
  if (!cache_->evicts()) return acquire(expert, out);
  MOE_TRY(find(expert));
  const auto e = static_cast<size_t>(expert);
  LockGuard guard(cache_->mutex);
  MOE_TRY(hold(e, true, wait));
  describe(e, out);
  return {};
}

void ExpertStore::give_back(int32_t expert) {
  if (!cache_->evicts()) return;
  LockGuard guard(cache_->mutex);
  --cache_->n_passing;
  let_go(expert);
}

void ExpertStore::keep(int32_t expert) {
  if (!cache_->evicts()) return;
  LockGuard guard(cache_->mutex);
  --cache_->n_passing;
  cache_->kept_bytes += experts_[static_cast<size_t>(expert)].blob.bytes();
  cache_->changed.notify_all();
}

bool ExpertStore::fit_in(uint64_t free, uint64_t more) {
  if (!cache_->evicts()) return true;
  LockGuard guard(cache_->mutex);
  return cache_->fit_in(free, bytes_ - held_bytes_ + more, bytes_);
}

bool ExpertStore::make_room(uint64_t bytes) {
  LockGuard guard(cache_->mutex);
  return cache_->make_room(bytes);
}

bool ExpertStore::at_hand(int32_t expert) {
  if (!cache_->evicts()) return true;
  LockGuard guard(cache_->mutex);
  return experts_[static_cast<size_t>(expert)].state == kReady;
}

bool ExpertStore::on_host(int32_t expert, HostExpert* out) {
  if (n_sublayers_ != 0) return false;
  const Slot& slot = experts_[static_cast<size_t>(expert)];
  const MoeFile& file = loader_->file;
  bind_expert(file.layout(*slot.segment), nullptr, norm_, &out->ffn);
  out->bytes = slot.segment->raw;
  out->in_place = file.in_place(*slot.segment) != nullptr;
  LockGuard guard(cache_->mutex);
  out->known = slot.checked;
  out->n_reads = slot.n_reads;
  return true;
}

Status ExpertStore::read_on_host(int32_t expert, uint8_t* room, HostExpert* out) {
  Slot& slot = experts_[static_cast<size_t>(expert)];
  const FileSegment& segment = *slot.segment;
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
  slot.checked = true;
  ++slot.n_reads;
  return {};
}

Status ExpertStore::hold(size_t expert, bool borrowed, const ExpertWait& wait) {
  MOE_TRY(make_ready(expert, borrowed, wait));
  Slot& slot = experts_[expert];
  const uint64_t bytes = slot.blob.bytes();
  if (slot.newer != nullptr) cache_->take_idle(&slot, bytes);
  if (slot.holds++ == 0) held_bytes_ += bytes;
  if (borrowed) ++cache_->n_passing;
  return {};
}

void ExpertStore::let_go(int32_t expert) {
  Slot& slot = experts_[static_cast<size_t>(expert)];
  if (--slot.holds == 0) {
    held_bytes_ -= slot.blob.bytes();
    cache_->add_idle(&slot, slot.blob.bytes());
  }
  cache_->changed.notify_all();
}

// Who waits holds nothing, so that those whom it waits for can go on.
Status ExpertStore::make_ready(size_t expert, bool borrowed, const ExpertWait& wait) {
  Slot& slot = experts_[expert];
  ExpertCache::Waiter waiter;
  Status status;
  while (slot.state != kReady) {
    if (wait.cancelled != nullptr && wait.cancelled->load()) {
      status = Status::error(MOE_ERR_CANCELLED, "cancelled");
      break;
    }
    if (slot.state == kComing) {
      cache_->leave_line(&waiter);  // others need not wait for this
      cache_->changed.wait_unless(cache_->mutex, wait.cancelled);
      continue;
    }
    const bool turn = !borrowed || cache_->may_take(waiter);
    status = turn ? reserve(&slot) : Status::error(MOE_ERR_BUDGET, "others wait for room");
    if (status.ok()) {
      cache_->leave_line(&waiter);
      status = bring(expert, wait.cancelled);
      if (!status.ok()) break;
      continue;
    }
    const bool full = status.code() == MOE_ERR_BUDGET || status.code() == MOE_ERR_MEMORY;
    if (!full || !wait.for_room || (turn && cache_->n_passing == 0)) break;
    cache_->wait_in_line(&waiter, wait.cancelled);
    status = {};
  }
  cache_->leave_line(&waiter);
  return status;
}

Status ExpertStore::reserve(Slot* slot) {
  for (;;) {
    const Status status = slot->blob.reserve(*loader_, *slot->segment);
    const bool full = status.code() == MOE_ERR_BUDGET || status.code() == MOE_ERR_MEMORY;
    if (!full || cache_->evict() == 0) return status;
  }
}

// Others go on meanwhile.
Status ExpertStore::bring(size_t expert, const std::atomic<bool>* cancelled) {
  Slot& slot = experts_[expert];
  slot.state = kComing;
  ++cache_->n_passing;
  const bool check = !slot.checked;
  cache_->mutex.unlock();
  const Status status = slot.blob.bring(*loader_, *slot.segment, check, cancelled);
  if (status.ok()) {
    bind_expert(loader_->file.layout(*slot.segment), slot.blob.base(), norm_,
                &networks_[expert * n_networks_]);
  }
  cache_->mutex.lock();
  --cache_->n_passing;
  slot.state = status.ok() ? kReady : kAbsent;
  if (status.ok()) {
    slot.checked = true;
    slot.n_reads = 0;
  } else {
    slot.blob = Blob();
  }
  cache_->changed.notify_all();
  return status;
}

Status ExpertStore::load(size_t expert) {
  LockGuard guard(locks_[expert % kLocks]);
  Slot& slot = experts_[expert];
  if (std::atomic_ref(slot.state).load(std::memory_order_relaxed) == kReady) return {};
  MOE_TRY(slot.blob.load(*loader_, *slot.segment));
  bind_expert(loader_->file.layout(*slot.segment), slot.blob.base(), norm_,
              &networks_[expert * n_networks_]);
  std::atomic_ref(slot.state).store(kReady, std::memory_order_release);
  return {};
}

}  // namespace moe
