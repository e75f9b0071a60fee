// SPDX-License-Identifier: MIT
#pragma once
// The queue of texts, and the thread that evaluates them together, step by step.

#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "src/serve/expert_counts.h"
#include "src/serve/reuse.h"
#include "src/serve/service_request.h"
#include "src/serve/slot.h"

namespace moe_serve {

struct SchedulerLimits {
  int32_t max_waiting = 64;    // texts
  int32_t slice = 16;          // prompt tokens in a step while texts are generated
  int32_t max_seconds = 0;     // of a request; 0: any
  bool whole_prompts = false;  // an expert capacity counts the tokens of a call
  bool reuse = true;           // what prompts have in common with texts in the slots
};

class Scheduler {
 public:
  /// The sessions are the model's. folder: where texts are kept, or null.
  Scheduler(const moe_model* model, std::vector<Session> sessions, const SchedulerLimits& limits,
            std::unique_ptr<StateFolder> folder);
  /// Ends all requests.
  ~Scheduler();
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  // Any thread.
  /// Throws Refusal if there is no room for its texts.
  void add(const std::shared_ptr<ServiceRequest>& request);
  void cancel(uint64_t number);
  /// Waits at most `seconds`, below 0 any time, until all requests have ended and the folder has
  /// their texts.
  bool drain(double seconds);
  moe_service_stats stats();
  ExpertCounts& experts() { return experts_; }

 private:
  using Requests = std::vector<std::shared_ptr<ServiceRequest>>;

  void run();
  bool wait_for_work();
  Slot* unsaved();
  void save(Slot& slot);
  void admit();
  std::optional<std::pair<Place, Reuse>> next_place();
  std::optional<Reuse> place_for(const Text& text);
  void enter(Place place, const Reuse& reuse);
  bool take_over(const Reuse& reuse);
  void end_stopped();
  void end_all(const Refusal& why);
  void step();
  std::vector<Slot*> parts_of_step();
  void share_slice(const std::vector<Slot*>& reading, int32_t budget);
  void evaluate(const std::vector<Slot*>& parts);
  void evaluate_alone(Slot& slot);
  void advance(Slot& slot);
  bool go_on(Slot& slot);
  void sample(Slot& slot);
  void fail(ServiceRequest& request, const Refusal& refusal);
  void leave(const ServiceRequest& request);
  void take_out(const ServiceRequest& request);
  uint64_t n_positions() const;
  void count_step(double seconds);

  const SchedulerLimits limits_;
  ExpertCounts experts_;
  std::vector<Slot> slots_;  // used by the thread alone, like the next two
  uint64_t n_steps_ = 0;
  const std::unique_ptr<StateFolder> folder_;

  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::deque<Place> waiting_;
  std::map<uint64_t, std::shared_ptr<ServiceRequest>> requests_;  // not ended
  size_t n_running_ = 0;
  bool draining_ = false;
  bool stopping_ = false;
  bool settled_ = true;            // the folder has the texts
  moe_session* saving_ = nullptr;  // being written to it
  moe_service_stats stats_{};

  std::thread thread_;  // the last member: it uses all others
};

}  // namespace moe_serve
