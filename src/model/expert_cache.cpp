// SPDX-License-Identifier: MIT
// The list of experts by last use, the queue of reads, eviction, and growing and shrinking with the
// budget; all under the cache's lock.
#include "src/model/expert_cache.h"

#include <algorithm>
#include <utility>

#include "formats/moe/reader.h"

namespace moe {
namespace {

bool is_full(const Status& status) {
  return status.code() == MOE_ERR_BUDGET || status.code() == MOE_ERR_MEMORY;
}

bool is_set(const std::atomic<bool>* cancelled) {
  return cancelled != nullptr && cancelled->load();
}

}  // namespace

// --- Use -----------------------------------------------------------------------------------------

void ExpertCache::add(CachedExpert& expert) {
  const uint64_t bytes = taken_by(expert);
  all_bytes_ += bytes;
  largest_ = std::max(largest_, bytes);
  (first_listed_ == nullptr ? first_listed_ : last_listed_->after) = &expert;
  last_listed_ = &expert;
}

Status ExpertCache::acquire(CachedExpert& expert, const ExpertWait& wait) {
  LockGuard guard(mutex);
  const bool wanted = expert.n_wants > 0;
  const CachedExpert::State found = expert.state;
  MOE_TRY(make_ready(expert, wait));
  if (!wanted) {
    count_use(expert, found, wait.stats);
  } else if (expert.n_wants > 0) {
    --expert.n_wants;
  }
  return {};
}

void ExpertCache::release(CachedExpert& expert) {
  LockGuard guard(mutex);
  --n_passing_;
  if (--expert.n_holds == 0) place(expert);
  notify();
}

void ExpertCache::retain(CachedExpert& expert) {
  LockGuard guard(mutex);
  --n_passing_;
  resident_bytes_ += taken_by(expert);
  notify();
}

void ExpertCache::prefetch(CachedExpert* experts, const int32_t* chosen, int32_t n,
                           ExpertStats* stats) {
  LockGuard guard(mutex);
  for (int32_t i = 0; i < n; ++i) {
    CachedExpert& expert = experts[chosen[i]];
    count_use(expert, expert.state, stats);
    join_read(expert);
    ++expert.n_wants;
    if (expert.ready() && expert.n_holds == 0) place(expert);
    (void)take_failure(expert);
    if (expert.state == CachedExpert::kAbsent && readers_.count() > 0) enqueue(expert);
  }
  if (queue_.first != nullptr) readers_.wake();
}

void ExpertCache::cancel_prefetch(CachedExpert* experts, const int32_t* chosen, int32_t n) {
  LockGuard guard(mutex);
  for (int32_t i = 0; i < n; ++i) {
    CachedExpert& expert = experts[chosen[i]];
    if (expert.n_wants == 0 || --expert.n_wants > 0) continue;
    if (!awaited(expert)) dequeue(expert);
    if (expert.ready() && expert.n_holds == 0) place(expert);
    (void)take_failure(expert);
  }
  notify();
}

bool ExpertCache::make_room(uint64_t bytes) {
  LockGuard guard(mutex);
  const uint64_t before = idle_bytes_;
  while (before - idle_bytes_ < bytes && evict(false)) {
  }
  return idle_bytes_ < before;
}

void ExpertCache::forget(CachedExpert& expert) {
  if (expert.memory != nullptr) remove(expert);
}

uint64_t ExpertCache::taken_by(const CachedExpert& expert) const {
  return memory_.taken_by(expert.segment->raw);
}

bool ExpertCache::fit_in(uint64_t free, uint64_t missing, uint64_t all) const {
  const uint64_t rest = all_bytes_ - resident_bytes_ - all;
  return missing + std::min(rest, largest_) <= free + idle_bytes_;
}

ExpertStats ExpertCache::stats() {
  LockGuard guard(mutex);
  return stats_;
}

void ExpertCache::count_use(const CachedExpert& expert, CachedExpert::State found,
                            ExpertStats* stats) {
  for (ExpertStats* s : {&stats_, stats}) {
    if (s == nullptr) continue;
    ++s->n_uses;
    s->n_hits += found == CachedExpert::kReady ? 1 : 0;
  }
  if (stats != nullptr && CachedExpert::is_absent(found)) {
    stats->read_bytes += expert.segment->stored;
  }
}

void ExpertCache::notify() {
  changed_.notify_all();
  if (urgent_.first != nullptr || queue_.first != nullptr) readers_.wake();
}

// --- Contents ------------------------------------------------------------------------------------

void ExpertCache::hold(CachedExpert& expert) {
  unlink(expert);
  ++expert.n_holds;
  ++n_passing_;
}

// Appends it as the most recently used.
void ExpertCache::place(CachedExpert& expert) {
  unlink(expert);
  link(expert, (expert.n_wants > 0 ? wanted_ : idle_).ends.older);
}

// As the least recently used.
void ExpertCache::place_oldest(CachedExpert& expert) {
  unlink(expert);
  link(expert, &idle_.ends);
}

void ExpertCache::link(CachedExpert& expert, IdleLink* older) {
  expert.older = older;
  expert.newer = older->newer;
  expert.older->newer = &expert;
  expert.newer->older = &expert;
  idle_bytes_ += taken_by(expert);
}

void ExpertCache::unlink(CachedExpert& expert) {
  if (expert.newer == nullptr) return;
  expert.older->newer = expert.newer;
  expert.newer->older = expert.older;
  expert.older = expert.newer = nullptr;
  idle_bytes_ -= taken_by(expert);
}

void ExpertCache::remove(CachedExpert& expert) {
  unlink(expert);
  if (expert.ready()) ready_bytes_ -= expert.segment->raw;
  memory_.wait_for(expert.arrival);
  memory_.free(expert.memory, static_cast<size_t>(expert.segment->raw));
  expert.leave();
}

bool ExpertCache::evict(bool urgent) {
  IdleLink* link = idle_.ends.newer;
  if (link == &idle_.ends) {
    link = wanted_.ends.older;  // the prefetch needed last
    if (!urgent || link == &wanted_.ends) return false;
  }
  remove(*static_cast<CachedExpert*>(link));
  return true;
}

Status ExpertCache::reserve(CachedExpert& expert, bool urgent) {
  const uint64_t raw = expert.segment->raw;
  if (raw > SIZE_MAX) return out_of_memory("weights", raw);  // 32-bit machines
  expert.arrival = 0;
  for (;;) {
    const Status status = memory_.alloc(static_cast<size_t>(raw), &expert.memory);
    if (!is_full(status) || !evict(urgent)) return status;
  }
}

// --- Waiting -------------------------------------------------------------------------------------

Status ExpertCache::make_ready(CachedExpert& expert, const ExpertWait& wait) {
  if (expert.ready()) {
    hold(expert);
    return {};
  }
  if (wait.patience == ExpertWait::kReady) {
    return Status::error(MOE_ERR_BUDGET, "the expert is not in memory");
  }
  const uint64_t begin = clock_.nanoseconds();
  const Status status =
      readers_.count() > 0 ? wait_for_reader(expert, wait.cancelled) : read_here(expert, wait);
  const uint64_t waited = clock_.nanoseconds() - begin;
  stats_.wait_ns += waited;
  if (wait.stats != nullptr) wait.stats->wait_ns += waited;
  return status;
}

Status ExpertCache::wait_for_reader(CachedExpert& expert, const std::atomic<bool>* cancelled) {
  MOE_TRY(take_failure(expert));
  join_read(expert);
  const bool first = !awaited(expert);
  Wish wish;
  wish.expert = &expert;
  wish.next = wishes_;
  wishes_ = &wish;
  if (first && expert.absent()) {
    dequeue(expert);  // it becomes urgent
    enqueue(expert);
    readers_.wake();
  }
  while (!wish.done && !is_set(cancelled)) changed_.wait_unless(mutex, cancelled);
  if (wish.done) return wish.status;
  Wish** at = &wishes_;
  while (*at != &wish) at = &(*at)->next;
  *at = wish.next;
  if (!awaited(expert)) dequeue(expert);
  return Status::error(MOE_ERR_CANCELLED, "cancelled");
}

// Deadlock rule: a waiting thread holds no expert, so the threads it waits for can proceed.
Status ExpertCache::read_here(CachedExpert& expert, const ExpertWait& wait) {
  Waiter waiter;
  Status status;
  while (!expert.ready()) {
    if (is_set(wait.cancelled)) {
      status = Status::error(MOE_ERR_CANCELLED, "cancelled");
      break;
    }
    if (expert.reading()) {
      leave_line(&waiter);  // others need not wait for this read
      changed_.wait_unless(mutex, wait.cancelled);
      continue;
    }
    const bool for_room = wait.patience == ExpertWait::kRoom;
    const bool turn = may_take(waiter);
    status =
        turn ? reserve(expert, for_room) : Status::error(MOE_ERR_BUDGET, "others wait for room");
    if (status.ok()) {
      leave_line(&waiter);
      status = read(expert, wait.cancelled, nullptr);
      if (!status.ok()) break;
      continue;
    }
    if (!is_full(status) || !for_room || (turn && n_passing_ == 0 && n_reshapes_ == 0)) break;
    wait_in_line(&waiter, wait.cancelled);
    status = {};
  }
  leave_line(&waiter);
  if (status.ok()) hold(expert);
  return status;
}

void ExpertCache::wait_in_line(Waiter* waiter, const std::atomic<bool>* cancelled) {
  if (!waiter->in_line) {
    Waiter** last = &first_;
    while (*last != nullptr) last = &(*last)->next;
    waiter->next = nullptr;
    *last = waiter;
    waiter->in_line = true;
  }
  changed_.wait_unless(mutex, cancelled);
}

void ExpertCache::leave_line(Waiter* waiter) {
  if (!waiter->in_line) return;
  Waiter** at = &first_;
  while (*at != waiter) at = &(*at)->next;
  *at = waiter->next;
  waiter->in_line = false;
  changed_.notify_all();
}

// --- Reading -------------------------------------------------------------------------------------

void ExpertCache::Queue::push(CachedExpert* expert) {
  expert->next = nullptr;
  (first == nullptr ? first : last->next) = expert;
  last = expert;
}

bool ExpertCache::Queue::remove(CachedExpert* expert) {
  CachedExpert* before = nullptr;
  for (CachedExpert* at = first; at != nullptr; before = at, at = at->next) {
    if (at != expert) continue;
    (before == nullptr ? first : before->next) = at->next;
    if (last == at) last = before;
    return true;
  }
  return false;
}

bool ExpertCache::awaited(const CachedExpert& expert) const {
  const Wish* wish = wishes_;
  while (wish != nullptr && wish->expert != &expert) wish = wish->next;
  return wish != nullptr;
}

// Before somebody wants it or waits for it.
void ExpertCache::join_read(CachedExpert& expert) {
  if (expert.reading() && expert.n_wants == 0 && !awaited(expert)) expert.rejoin();
}

void ExpertCache::enqueue(CachedExpert& expert) {
  (awaited(expert) ? urgent_ : queue_).push(&expert);
  expert.queue();
}

// Does nothing if it is not queued.
void ExpertCache::dequeue(CachedExpert& expert) {
  if (expert.state != CachedExpert::kQueued) return;
  if (!urgent_.remove(&expert)) queue_.remove(&expert);
  expert.unqueue();
}

CachedExpert* ExpertCache::next_read() {
  for (;;) {
    const bool urgent = urgent_.first != nullptr;
    CachedExpert* expert = urgent ? urgent_.first : queue_.first;
    if (expert == nullptr) return next_fill();
    const Status status = reserve(*expert, urgent);
    // Wait for room if an expert in use will free some.
    if (is_full(status) && (!urgent || n_passing_ > 0 || n_reshapes_ > 0)) return nullptr;
    dequeue(*expert);
    if (status.ok()) return expert;
    grant(*expert, status);
  }
}

// Null while anything else is read, and when the memory is full.
CachedExpert* ExpertCache::next_fill() {
  if (!fills_ || n_reading_ > 0 || n_reshapes_ > 0 || memory_.full()) return nullptr;
  while (unfilled_ != nullptr) {
    CachedExpert& expert = *unfilled_;
    unfilled_ = expert.after;
    if (expert.state != CachedExpert::kAbsent) continue;
    if (!reserve(expert, false).ok()) return nullptr;
    expert.fill();
    return &expert;
  }
  return nullptr;
}

Status ExpertCache::read(CachedExpert& expert, const std::atomic<bool>* cancelled,
                         uint8_t* scratch) {
  const bool fills = expert.state == CachedExpert::kFilling;
  expert.begin_read();
  ++n_passing_;
  ++n_reading_;
  const bool check = !expert.checked;
  mutex.unlock();
  const Status status = expert.loader->load(expert, check, cancelled, scratch);
  mutex.lock();
  --n_passing_;
  --n_reading_;
  const bool rejoined = expert.state == CachedExpert::kRejoined;
  (fills ? filled_bytes_ : stats_.read_bytes) += expert.segment->stored;
  if (status.ok()) {
    expert.arrive();
    ready_bytes_ += expert.segment->raw;
    if (fills && expert.n_wants == 0) {
      place_oldest(expert);
    } else {
      place(expert);
    }
  } else {
    remove(expert);
    if (rejoined && readers_.count() > 0 && (awaited(expert) || expert.n_wants > 0)) {
      enqueue(expert);  // it failed for a call that has ended, or for none
      notify();
      return status;
    }
  }
  grant(expert, status);
  return status;
}

// Wakes the threads that wait for the expert.
void ExpertCache::grant(CachedExpert& expert, const Status& status) {
  const bool waited_for = awaited(expert);
  for (Wish** at = &wishes_; *at != nullptr;) {
    Wish* wish = *at;
    if (wish->expert != &expert) {
      at = &wish->next;
      continue;
    }
    *at = wish->next;
    wish->done = true;
    wish->status = status;
    if (status.ok()) hold(expert);
  }
  if (!status.ok() && !waited_for && expert.n_wants > 0) {
    failures_[next_failure_] = {&expert, status};
    next_failure_ = (next_failure_ + 1) % kFailures;
  }
  notify();
}

Status ExpertCache::take_failure(CachedExpert& expert) {
  for (Failure& failure : failures_) {
    if (failure.expert != &expert) continue;
    failure.expert = nullptr;
    return failure.status;
  }
  return {};
}

}  // namespace moe
