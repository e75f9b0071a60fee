// SPDX-License-Identifier: MIT
// Gives texts slots, evaluates them together with slices of prompts between, and ends them.
#include "src/serve/scheduler.h"

#include <algorithm>
#include <iterator>
#include <new>
#include <utility>

#include "src/serve/queue.h"

namespace moe_serve {
namespace {

Refusal no_room(size_t wanted, size_t waiting, int32_t most) {
  return {kTooMany,
          "no room for " + std::to_string(wanted) + (wanted == 1 ? " text: " : " texts: ") +
              std::to_string(waiting) + " of at most " + std::to_string(most) + " are waiting",
          "", "queue_full"};
}

std::vector<moe_session*> pointers(const std::vector<Session>& sessions) {
  std::vector<moe_session*> all;
  for (const Session& session : sessions) all.push_back(session.get());
  return all;
}

}  // namespace

Scheduler::Scheduler(const moe_model* model, std::vector<Session> sessions,
                     const SchedulerLimits& limits, std::unique_ptr<StateFolder> folder)
    : limits_(limits), experts_(model, pointers(sessions)), folder_(std::move(folder)) {
  slots_.resize(sessions.size());
  for (size_t i = 0; i < sessions.size(); ++i) slots_[i].session = std::move(sessions[i]);
  stats_.n_slots = static_cast<int32_t>(slots_.size());
  stats_.context = moe_session_context(slots_[0].session.get());
  if (folder_ != nullptr) stats_.cache_bytes = folder_->n_bytes();
  thread_ = std::thread([this] { run(); });
}

Scheduler::~Scheduler() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    if (saving_ != nullptr) moe_session_cancel(saving_);
  }
  changed_.notify_all();
  thread_.join();
}

void Scheduler::add(const std::shared_ptr<ServiceRequest>& request) {
  {
    const std::lock_guard lock(mutex_);
    if (draining_ || stopping_) throw service_ending();
    const size_t most = static_cast<size_t>(limits_.max_waiting) + slots_.size();
    if (request->texts().size() > most) {
      throw Refusal(kBadRequest, "expected at most " + std::to_string(most) + " texts, found " +
                                     std::to_string(request->texts().size()));
    }
    if (waiting_.size() + n_running_ + request->texts().size() > most) {
      throw no_room(request->texts().size(), waiting_.size(), limits_.max_waiting);
    }
    try {
      requests_[request->number()] = request;
      for (const auto& text : request->texts()) waiting_.push_back({request, text.get()});
    } catch (const std::bad_alloc&) {
      take_out(*request);
      throw;
    }
    ++stats_.n_requests;
    settled_ = folder_ == nullptr;
    if (saving_ != nullptr) moe_session_cancel(saving_);  // it is tried again later
  }
  changed_.notify_all();
}

void Scheduler::cancel(uint64_t number) {
  const std::lock_guard lock(mutex_);
  const auto at = requests_.find(number);
  if (at != requests_.end()) at->second->cancel();
}

bool Scheduler::drain(double seconds) {
  std::unique_lock lock(mutex_);
  draining_ = true;
  const auto empty = [this] { return requests_.empty() && settled_; };
  return wait_at_most(changed_, lock, seconds, empty);
}

moe_service_stats Scheduler::stats() {
  const std::lock_guard lock(mutex_);
  moe_service_stats stats = stats_;
  stats.n_running = static_cast<int32_t>(n_running_);
  stats.n_waiting = static_cast<int32_t>(waiting_.size());
  stats.draining = draining_ ? 1 : 0;
  return stats;
}

void Scheduler::run() {
  const Refusal no_memory = out_of_memory();  // made while there is some
  const Refusal end = service_ending();
  while (wait_for_work()) {
    try {
      end_stopped();
      admit();
      step();
    } catch (const std::exception&) {  // of memory, which no one text is to blame for
      end_all(no_memory);
    }
  }
  end_all(end);
}

// False when the service ends. What is to be written to the folder is written while there is
// nothing else to do.
bool Scheduler::wait_for_work() {
  std::unique_lock lock(mutex_);
  if (requests_.empty()) experts_.refresh(true);
  while (!stopping_ && requests_.empty()) {
    Slot* const slot = unsaved();
    if (slot == nullptr) {
      settled_ = true;
      changed_.notify_all();
      changed_.wait(lock, [this] { return stopping_ || !requests_.empty(); });
      continue;
    }
    saving_ = slot->session.get();
    lock.unlock();
    save(*slot);
    lock.lock();
    saving_ = nullptr;
  }
  return !stopping_;
}

Slot* Scheduler::unsaved() {
  if (folder_ == nullptr) return nullptr;
  constexpr size_t kLeast = 64;  // fewer tokens are sooner evaluated than read
  for (Slot& slot : slots_) {
    if (!slot.free() || slot.saved || slot.held.size() < kLeast) continue;
    if (!folder_->holds(slot.held)) return &slot;
    slot.saved = true;
  }
  return nullptr;
}

void Scheduler::save(Slot& slot) {
  bool failed = false;
  try {
    folder_->save(slot.session.get(), slot.held);
    slot.saved = true;
  } catch (const CallError& e) {
    failed = e.code != MOE_ERR_CANCELLED;
  } catch (const std::exception&) {  // of memory
    failed = true;
  }
  slot.saved |= failed;  // not tried again
  const std::lock_guard lock(mutex_);
  stats_.cache_errors += failed ? 1 : 0;
  stats_.cache_bytes = folder_->n_bytes();
}

// Ends the requests that were cancelled or take too long.
void Scheduler::end_stopped() {
  Requests stopped;
  const bool limited = limits_.max_seconds > 0;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [number, request] : requests_) {
      const bool late = limited && seconds_since(request->submitted()) >= limits_.max_seconds;
      if (request->cancelled() || late) stopped.push_back(request);
    }
  }
  for (const auto& request : stopped) {
    fail(*request, request->cancelled() ? request_cancelled() : request_late(limits_.max_seconds));
  }
}

// Allocates nothing: there may be no memory.
void Scheduler::end_all(const Refusal& why) {
  for (;;) {
    std::shared_ptr<ServiceRequest> request;
    {
      const std::lock_guard lock(mutex_);
      if (requests_.empty()) return;
      request = requests_.begin()->second;
    }
    fail(*request, why);
  }
}

void Scheduler::admit() {
  while (auto next = next_place()) enter(std::move(next->first), next->second);
}

std::optional<Reuse> Scheduler::place_for(const Text& text) {
  if (limits_.reuse) return find_reuse(slots_, text.prompt(), folder_.get());
  const auto free = std::find_if(slots_.begin(), slots_.end(), [](Slot& s) { return s.free(); });
  return Reuse{&*free, &*free, 0, 0};
}

// The first waiting text that has a place now.
std::optional<std::pair<Place, Reuse>> Scheduler::next_place() {
  if (std::none_of(slots_.begin(), slots_.end(), [](Slot& s) { return s.free(); })) return {};
  constexpr size_t kMost = 64;  // texts to compare with those in the slots
  const std::lock_guard lock(mutex_);
  for (size_t i = 0; i < std::min(waiting_.size(), kMost); ++i) {
    const std::optional<Reuse> reuse = place_for(*waiting_[i].text);
    if (!reuse) continue;
    std::pair<Place, Reuse> next = {std::move(waiting_[i]), *reuse};
    waiting_.erase(waiting_.begin() + static_cast<std::ptrdiff_t>(i));
    ++n_running_;
    return next;
  }
  return {};
}

// Gives the target the beginning of its prompt.
bool Scheduler::take_over(const Reuse& reuse) {
  moe_session* const session = reuse.target->session.get();
  const auto n = static_cast<int32_t>(reuse.n_tokens);
  moe_error error;
  if (reuse.source == nullptr) {
    const bool loaded = folder_->load(reuse.file, session);
    return loaded && moe_session_rewind(session, n, &error) == MOE_OK;
  }
  if (reuse.source != reuse.target) {
    return moe_session_copy(reuse.source->session.get(), n, session, &error) == MOE_OK;
  }
  return moe_session_rewind(session, n, &error) == MOE_OK;
}

void Scheduler::enter(Place place, const Reuse& reuse) {
  Slot& slot = *reuse.target;
  slot.take(std::move(place));
  const size_t n_held = take_over(reuse) ? reuse.n_tokens : 0;
  if (n_held == 0) slot.forget();  // the prompt is evaluated whole
  moe_error ignored;               // a slot's session is in no other call
  (void)moe_session_expect_drafts(slot.session.get(), slot.place.text->drafts(), &ignored);
  const std::vector<int32_t>& prompt = slot.place.text->prompt();
  slot.held.assign(prompt.begin(), prompt.begin() + static_cast<std::ptrdiff_t>(n_held));
  slot.n_read = n_held;
  slot.place.request->count_reused(*slot.place.text, n_held);
  const std::lock_guard lock(mutex_);
  stats_.reused_tokens += n_held;
}

// Ends a request that goes no further, and takes its texts out.
void Scheduler::fail(ServiceRequest& request, const Refusal& refusal) {
  const bool stopped = refusal.status == kCancelled || refusal.status == kTimeout;
  for (Slot& slot : slots_) {
    if (slot.place.request.get() != &request) continue;
    slot.clear(n_steps_);
    if (!stopped) slot.forget();
    const std::lock_guard lock(mutex_);
    --n_running_;
  }
  request.fail(refusal);
  {
    const std::lock_guard lock(mutex_);
    ++(stopped ? stats_.n_cancelled : stats_.n_failed);
  }
  leave(request);
}

void Scheduler::leave(const ServiceRequest& request) {
  {
    const uint64_t positions = n_positions();
    const std::lock_guard lock(mutex_);
    stats_.kv_positions = positions;
    take_out(request);
  }
  changed_.notify_all();
}

// With the mutex locked, by a caller that keeps the request.
void Scheduler::take_out(const ServiceRequest& request) {
  std::erase_if(waiting_, [&](const Place& p) { return p.request.get() == &request; });
  requests_.erase(request.number());
}

// Divides the budget equally; what one prompt does not need goes to the others.
void Scheduler::share_slice(const std::vector<Slot*>& reading, int32_t budget) {
  std::vector<Slot*> shortest_first = reading;
  std::stable_sort(shortest_first.begin(), shortest_first.end(),
                   [](const Slot* a, const Slot* b) { return a->n_unread() < b->n_unread(); });
  size_t rest = static_cast<size_t>(budget);
  size_t n_left = reading.size();
  for (Slot* slot : shortest_first) {
    slot->n_step = std::min(slot->n_unread(), std::max<size_t>(1, rest / n_left--));
    rest -= std::min(rest, slot->n_step);
  }
}

std::vector<Slot*> Scheduler::parts_of_step() {
  std::vector<Slot*> parts;
  std::vector<Slot*> reading;
  for (Slot& slot : slots_) {
    if (slot.free()) continue;
    slot.n_step = 1;
    (slot.generating ? parts : reading).push_back(&slot);
  }
  if (limits_.whole_prompts) {
    for (Slot* slot : reading) slot->n_step = slot->n_unread();
  } else {
    constexpr int32_t kAlone = 256;  // nobody waits for a token meanwhile
    share_slice(reading, parts.empty() ? std::max(limits_.slice, kAlone) : limits_.slice);
  }
  parts.insert(parts.end(), reading.begin(), reading.end());
  return parts;
}

void Scheduler::step() {
  const std::vector<Slot*> parts = parts_of_step();
  if (parts.empty()) return;
  const Clock::time_point start = Clock::now();
  ++n_steps_;
  // With others a pass of its own would hold them up for longer than a draft saves.
  const bool alone = parts.size() == 1 && parts[0]->generating;
  parts[0]->advances = alone && parts[0]->place.text->drafts();
  if (!parts[0]->advances) evaluate(parts);
  for (Slot* slot : parts) {
    if (!slot->free()) advance(*slot);
  }
  count_step(seconds_since(start));
}

void Scheduler::evaluate(const std::vector<Slot*>& parts) {
  std::vector<moe_session*> sessions;
  std::vector<size_t> counts;
  std::vector<int32_t> tokens;
  for (const Slot* slot : parts) {
    sessions.push_back(slot->session.get());
    counts.push_back(slot->n_step);
    tokens.insert(tokens.end(), slot->tokens(), slot->tokens() + slot->n_step);
  }
  moe_error error;
  const moe_status status = moe_sessions_eval(sessions.data(), tokens.data(), counts.data(),
                                              sessions.size(), nullptr, &error);
  if (status != MOE_OK) {
    for (Slot* slot : parts) evaluate_alone(*slot);  // to find the one to blame
  }
  for (Slot* slot : parts) {
    if (slot->free()) continue;
    slot->held.insert(slot->held.end(), slot->tokens(), slot->tokens() + slot->n_step);
  }
}

// After a failure for all together: a session may have advanced by a part of its tokens.
void Scheduler::evaluate_alone(Slot& slot) {
  if (slot.free()) return;  // its request has failed with another text
  const auto position = static_cast<size_t>(moe_session_position(slot.session.get()));
  const size_t n_done = position - slot.held.size();
  moe_error error;
  const moe_status status = moe_session_eval(slot.session.get(), slot.tokens() + n_done,
                                             slot.n_step - n_done, MOE_ROWS_NONE, nullptr, &error);
  if (status == MOE_OK) return;
  const std::shared_ptr<ServiceRequest> request = slot.place.request;
  fail(*request, evaluation_failure(CallError(status, error.text)));
}

// After its tokens were evaluated.
void Scheduler::advance(Slot& slot) {
  const std::shared_ptr<ServiceRequest> request = slot.place.request;
  try {
    sample(slot);
  } catch (const CallError& e) {
    fail(*request, evaluation_failure(e));
  } catch (const std::bad_alloc&) {
    fail(*request, out_of_memory());
  } catch (const std::exception& e) {
    fail(*request, {kInternal, e.what()});
  }
}

// Samples a token, or several with a draft. False at the end of the text.
bool Scheduler::go_on(Slot& slot) {
  Text& text = *slot.place.text;
  const int32_t n_before = text.n_made();
  const auto count = [&] {
    const std::lock_guard lock(mutex_);
    stats_.generated_tokens += static_cast<uint64_t>(text.n_made() - n_before);
  };
  const bool advances = std::exchange(slot.advances, false);
  bool goes_on = false;
  try {
    goes_on = advances ? text.advance() : text.next();
  } catch (const std::exception&) {  // a draft may have been right up to there
    count();
    slot.place.request->report(text);
    throw;
  }
  count();
  if (advances) slot.hold_advanced();
  slot.token = text.next_token();
  return goes_on;
}

void Scheduler::sample(Slot& slot) {
  ServiceRequest& request = *slot.place.request;
  Text& text = *slot.place.text;
  if (!slot.generating) {
    slot.n_read += slot.n_step;
    {
      const std::lock_guard lock(mutex_);
      stats_.prompt_tokens += slot.n_step;
    }
    if (slot.n_unread() > 0) return;
    text.begin(slot.session.get(), request.chat());
    slot.generating = true;
    request.begin(text);
  }
  const bool first = text.n_made() == 0;
  const bool goes_on = go_on(slot);
  if (first) {
    const std::lock_guard lock(mutex_);
    ++stats_.n_first_tokens;
    stats_.first_token_seconds += seconds_since(request.submitted());
  }
  if (goes_on) return request.report(text);
  const bool last = request.finish(text);
  const std::shared_ptr<ServiceRequest> kept = slot.place.request;
  slot.clear(n_steps_);
  if (!limits_.reuse) slot.forget();
  {
    const std::lock_guard lock(mutex_);
    --n_running_;
    if (last) ++stats_.n_answered;
  }
  if (last) leave(*kept);
}

uint64_t Scheduler::n_positions() const {
  uint64_t positions = 0;
  for (const Slot& slot : slots_) {
    if (!slot.free()) positions += slot.held.size();
  }
  return positions;
}

void Scheduler::count_step(double seconds) {
  experts_.refresh(false);
  const uint64_t positions = n_positions();
  const std::lock_guard lock(mutex_);
  ++stats_.n_steps;
  stats_.step_seconds += seconds;
  stats_.kv_positions = positions;
  read_memory(slots_[0].session.get(), stats_);
}

}  // namespace moe_serve
