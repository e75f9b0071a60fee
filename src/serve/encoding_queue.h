// SPDX-License-Identifier: MIT
#pragma once
// The queue of requests for vectors and scores, and the thread that evaluates their texts, one of
// each request in turn.

#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <thread>

#include "src/serve/encoding_request.h"
#include "src/serve/expert_counts.h"
#include "src/serve/scheduler.h"

namespace moe_serve {

class EncodingQueue {
 public:
  EncodingQueue(const moe_model* model, Session session, const SchedulerLimits& limits);
  /// Ends all requests.
  ~EncodingQueue();
  EncodingQueue(const EncodingQueue&) = delete;
  EncodingQueue& operator=(const EncodingQueue&) = delete;

  // Any thread. As of Scheduler; max_waiting counts requests here.
  void add(const std::shared_ptr<EncodingRequest>& request);
  void cancel(uint64_t number);
  bool drain(double seconds);
  moe_service_stats stats();
  ExpertCounts& experts() { return experts_; }

 private:
  using Request = std::shared_ptr<EncodingRequest>;

  void run();
  Request take();
  void work_on(const Request& request);
  void evaluate(EncodingRequest& request);
  Refusal failure_of(const CallError& error) const;
  void end(const EncodingRequest& request, uint64_t moe_service_stats::*count);

  const SchedulerLimits limits_;
  // Made while there is memory.
  const Refusal no_memory_ = out_of_memory();
  const Refusal ending_ = service_ending();
  const Refusal cancelled_ = request_cancelled();
  const Refusal late_ = request_late(limits_.max_seconds);
  const Session session_;
  ExpertCounts experts_;

  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::deque<Request> turns_;             // without the one whose text is being evaluated
  std::map<uint64_t, Request> requests_;  // not ended
  bool draining_ = false;
  bool stopping_ = false;
  moe_service_stats stats_{};

  std::thread thread_;  // the last member: it uses all others
};

}  // namespace moe_serve
