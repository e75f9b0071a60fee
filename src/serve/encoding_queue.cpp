// SPDX-License-Identifier: MIT
// Evaluates the texts of requests for vectors and scores.
#include "src/serve/encoding_queue.h"

#include <algorithm>
#include <new>
#include <vector>

#include "src/serve/queue.h"

namespace moe_serve {

EncodingQueue::EncodingQueue(const moe_model* model, Session session, const SchedulerLimits& limits)
    : limits_(limits), session_(std::move(session)), experts_(model, {session_.get()}) {
  stats_.n_slots = 1;
  stats_.context = moe_session_context(session_.get());
  thread_ = std::thread([this] { run(); });
}

EncodingQueue::~EncodingQueue() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void EncodingQueue::add(const Request& request) {
  {
    const std::lock_guard lock(mutex_);
    if (draining_ || stopping_) throw service_ending();
    if (requests_.size() > static_cast<size_t>(limits_.max_waiting)) {
      throw Refusal(kTooMany,
                    "no room for a request: " + std::to_string(requests_.size() - 1) +
                        " of at most " + std::to_string(limits_.max_waiting) + " are waiting",
                    "", "queue_full");
    }
    turns_.push_back(request);
    try {
      requests_[request->number()] = request;
    } catch (const std::bad_alloc&) {
      turns_.pop_back();
      throw;
    }
    ++stats_.n_requests;
  }
  changed_.notify_all();
}

void EncodingQueue::cancel(uint64_t number) {
  const std::lock_guard lock(mutex_);
  const auto at = requests_.find(number);
  if (at != requests_.end()) at->second->cancel();
}

bool EncodingQueue::drain(double seconds) {
  std::unique_lock lock(mutex_);
  draining_ = true;
  return wait_at_most(changed_, lock, seconds, [this] { return requests_.empty(); });
}

moe_service_stats EncodingQueue::stats() {
  const std::lock_guard lock(mutex_);
  moe_service_stats stats = stats_;
  stats.n_running = requests_.size() > turns_.size() ? 1 : 0;
  stats.n_waiting = static_cast<int32_t>(turns_.size());
  stats.draining = draining_ ? 1 : 0;
  return stats;
}

void EncodingQueue::run() {
  while (const Request request = take()) work_on(request);
  for (;;) {  // the service ends
    Request request;
    {
      const std::lock_guard lock(mutex_);
      if (requests_.empty()) return;
      request = requests_.begin()->second;
    }
    request->fail(ending_);
    end(*request, &moe_service_stats::n_failed);
  }
}

// The request whose turn it is; null when the service ends.
EncodingQueue::Request EncodingQueue::take() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return stopping_ || !turns_.empty(); });
  if (stopping_) return nullptr;
  const Request request = turns_.front();
  turns_.pop_front();
  return request;
}

void EncodingQueue::work_on(const Request& request) {
  const bool late =
      limits_.max_seconds > 0 && seconds_since(request->submitted()) >= limits_.max_seconds;
  if (request->cancelled() || late) {
    request->fail(request->cancelled() ? cancelled_ : late_);
    return end(*request, &moe_service_stats::n_cancelled);
  }
  try {
    evaluate(*request);
    if (!request->done()) {
      const std::lock_guard lock(mutex_);
      turns_.push_back(request);
      return;
    }
    request->answer();
    end(*request, &moe_service_stats::n_answered);
  } catch (const CallError& e) {
    request->fail(failure_of(e));
    end(*request, &moe_service_stats::n_failed);
  } catch (const std::exception&) {  // of memory
    request->fail(no_memory_);
    end(*request, &moe_service_stats::n_failed);
  }
}

Refusal EncodingQueue::failure_of(const CallError& error) const {
  try {
    return evaluation_failure(error);
  } catch (const std::bad_alloc&) {
    return no_memory_;
  }
}

void EncodingQueue::evaluate(EncodingRequest& request) {
  const Clock::time_point start = Clock::now();
  const size_t n_tokens = request.next(session_.get());
  experts_.refresh(request.done());
  const std::lock_guard lock(mutex_);
  ++stats_.n_steps;
  stats_.prompt_tokens += n_tokens;
  stats_.step_seconds += seconds_since(start);
  read_memory(session_.get(), stats_);
}

void EncodingQueue::end(const EncodingRequest& request, uint64_t moe_service_stats::*count) {
  {
    const std::lock_guard lock(mutex_);
    ++(stats_.*count);
    std::erase_if(turns_, [&](const Request& r) { return r.get() == &request; });
    requests_.erase(request.number());
  }
  changed_.notify_all();
}

}  // namespace moe_serve
