// SPDX-License-Identifier: MIT
// Opens and closes models of a server.
#include "cli/serve/served_models.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <new>
#include <set>
#include <utility>

#include "cli/io/terminal.h"
#include "cli/io/units.h"
#include "cli/model/memory.h"
#include "cli/serve/exchange.h"

namespace moe_cli {
namespace {

constexpr const char* kEnding = "the service is ending";

// "NAME=FILE"
std::pair<std::string, std::string> parse_model(const std::string& text) {
  const size_t at = text.find('=');
  if (at == std::string::npos || at == 0 || at + 1 == text.size()) {
    throw UsageError("--model: expected NAME=FILE, found '" + text + "'");
  }
  return {text.substr(0, at), text.substr(at + 1)};
}

void check_exists(const std::string& path) {
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  if (std::filesystem::exists(status)) return;
  throw CallError(MOE_ERR_IO,
                  "--model: " + path + ": " + (error ? error.message() : std::strerror(ENOENT)));
}

// Whether a model may be opened when others are closed. A cap that is too small stays so.
bool lacks_memory(const CallError& e, const ServeOptions& o, bool in_room) {
  return e.code == MOE_ERR_MEMORY ||
         (e.code == MOE_ERR_BUDGET && (o.model.memory.empty() || !in_room));
}

}  // namespace

// Until the first session is made, the model takes little memory.
ServedModel::ServedModel(const ServeOptions& o, moe_env* env, const std::string& name,
                         ReceiptTaker taker, const MakeRoom& make_room)
    : model_(open_model(o.model, env)) {
  const int n_sessions = o.n_slots > 0 ? o.n_slots : 8;
  Room room;
  if (make_room) room = make_room(moe_cli::wanted_bytes(o.model, env, model_.get(), n_sessions));
  if (room.made) {  // how its file is read depends on the memory that is available
    model_.reset();
    model_ = open_model(o.model, env);
  }
  fit_memory(o.model, env, model_, n_sessions, room.bytes);
  wanted_bytes_ = moe_cli::wanted_bytes(o.model, env, model_.get(), n_sessions);
  check_servable(o.model, model_.get());
  service_ = create_service(o, model_.get(), name, taker);
}

ServedModels::ServedModels(const ServeOptions& o, moe_env* env, ReceiptTaker taker)
    : o_(o), env_(env), taker_(taker) {
  if (o.models.empty()) {
    const std::string name = o.name.empty() ? name_of_file(o.model.path) : o.name;
    entries_.push_back(std::make_unique<Entry>(Entry{.name = name, .options = o}));
    entries_[0]->open = std::make_shared<ServedModel>(o, env, name, taker);
    return;
  }
  for (const std::string& text : o.models) {
    const auto [name, path] = parse_model(text);
    if (find(name) != nullptr) throw UsageError("--model: '" + name + "' is there twice");
    check_exists(path);
    entries_.push_back(std::make_unique<Entry>(Entry{.name = name, .options = o}));
    entries_.back()->options.model.path = path;
  }
  thread_ = std::thread([this] { run(); });
}

ServedModels::~ServedModels() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
  // The thread of a service cannot free it: requests that were cancelled give their model back
  // first.
  for (const auto& entry : entries_) {
    while (entry->open.use_count() > 1) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

std::vector<std::string> ServedModels::names() const {
  std::vector<std::string> names;
  for (const auto& entry : entries_) names.push_back(entry->name);
  return names;
}

ServedModels::Entry* ServedModels::find(const std::string& name) const {
  for (const auto& entry : entries_) {
    if (entry->name == name) return entry.get();
  }
  return nullptr;
}

ServedModels::Open ServedModels::open_one(const std::string& name) {
  Entry* entry = find(name);
  const std::lock_guard lock(mutex_);
  return entry == nullptr ? nullptr : entry->open;
}

void ServedModels::use(const std::string& name, Use use) {
  Open open;
  {
    const std::lock_guard lock(mutex_);
    Entry& entry = *find(name);
    open = entry.open;
    entry.last_use = Clock::now();
    if (open == nullptr && !ending_) {
      if (entry.waiting.empty()) entry.waiting_since = entry.last_use;
      entry.waiting.push_back(std::move(use));
      changed_.notify_all();
      return;
    }
  }
  use(open, open == nullptr ? kEnding : "", kUnavailable);  // an open service refuses by itself
}

bool ServedModels::drain(double seconds) {
  std::vector<Open> open;
  std::vector<Use> waiting;
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
    for (const auto& entry : entries_) {
      if (entry->open != nullptr) open.push_back(entry->open);
      for (Use& use : entry->waiting) waiting.push_back(std::move(use));
      entry->waiting.clear();
    }
  }
  for (const Use& use : waiting) use(nullptr, kEnding, kUnavailable);
  bool all = true;
  for (const Open& one : open) {
    bool empty = false;
    moe_error error;
    const double part = seconds / static_cast<double>(open.size());
    check(moe_service_drain(one->service(), part, &empty, &error), error);
    all = all && empty;
  }
  return all;
}

bool ServedModels::ending() {
  const std::lock_guard lock(mutex_);
  return ending_;
}

int ServedModels::n_left() {
  int n = 0;
  std::vector<Open> open;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& entry : entries_) {
      n += static_cast<int>(entry->waiting.size());
      if (entry->open != nullptr) open.push_back(entry->open);
    }
  }
  for (const Open& one : open) {
    const moe_service_stats stats = stats_of(one->service());
    n += stats.n_running + stats.n_waiting;
  }
  return n;
}

void ServedModels::run() {
  for (bool ended = false; !ended;) {
    try {
      work();
      ended = true;
    } catch (const std::bad_alloc&) {  // later there may be memory
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
  }
}

// Until the end.
void ServedModels::work() {
  Lock lock(mutex_);
  // Somebody may come while a model is being closed.
  const auto has_work = [this] { return stopping_ || wanted() != nullptr; };
  while (!stopping_) {
    if (Entry* entry = wanted()) {
      open(lock, *entry);
      continue;
    }
    close_idle(lock);
    const bool looks = o_.close_seconds > 0 && n_open() > 0 && !ending_;
    if (looks) {
      const auto often = std::chrono::milliseconds(100 * std::min(o_.close_seconds, 100));
      changed_.wait_for(lock, often, has_work);
    } else {
      changed_.wait(lock, has_work);
    }
  }
}

// The model for which somebody has waited longest, so that no model keeps others from their turn.
ServedModels::Entry* ServedModels::wanted() {
  Entry* first = nullptr;
  for (const auto& entry : entries_) {
    if (entry->waiting.empty()) continue;
    if (first == nullptr || entry->waiting_since < first->waiting_since) first = entry.get();
  }
  return first;
}

size_t ServedModels::n_open() const {
  return static_cast<size_t>(std::count_if(entries_.begin(), entries_.end(),
                                           [](const auto& e) { return e->open != nullptr; }));
}

// Opens the model, or says why not, to those who wait for it.
void ServedModels::open(Lock& lock, Entry& entry) {
  const std::string no_room = "no room for model '" + entry.name + "' while others are in use";
  std::string problem;
  int status = kUnavailable;
  Open made;
  bool again = false;
  bool in_room = true;
  const auto make_room = [&](uint64_t wanted) {
    Lock own(mutex_);
    const Room room = this->make_room(own, wanted);
    in_room = wanted <= room.bytes;
    return room;
  };
  for (;;) {
    if (!make_place(lock)) {
      problem = no_room;
      break;
    }
    lock.unlock();
    again = false;
    try {
      made = std::make_shared<ServedModel>(entry.options, env_, entry.name, taker_, make_room);
    } catch (const CallError& e) {
      again = lacks_memory(e, entry.options, in_room);
      problem = e.what();
      if (!again) status = 500;
    } catch (const std::exception& e) {
      problem = e.what();
    }
    lock.lock();
    if (made != nullptr || !again || !close_least_used(lock)) break;
    problem.clear();
  }
  if (ending_ && made != nullptr) {  // drain() has not seen it, and nobody may use it any more
    lock.unlock();
    made.reset();
    lock.lock();
    problem = kEnding;
  }
  if (made == nullptr && !ending_) {
    std::fprintf(stderr, "moe: %s: %s\n", visible(entry.name).c_str(), visible(problem).c_str());
  }
  if (status == 500) {
    problem = "model '" + entry.name + "' cannot be opened; the server says why";
  } else if (again && !ending_ && n_open() > 0) {
    problem = no_room;
  }
  entry.open = made;
  entry.last_use = Clock::now();
  std::vector<Use> waiting = std::exchange(entry.waiting, {});
  lock.unlock();
  for (const Use& use : waiting) use(made, problem, status);
  waiting.clear();
  made.reset();
  lock.lock();
}

// Closes others until one more may be open.
bool ServedModels::make_place(Lock& lock) {
  const auto most = static_cast<size_t>(o_.max_open);
  while (most > 0 && n_open() >= most) {
    if (!close_least_used(lock)) return false;
  }
  return true;
}

// Closes others until there is room, or all are in use.
Room ServedModels::make_room(Lock& lock, uint64_t wanted) {
  Room room{this->room()};
  while (wanted > room.bytes && close_least_used(lock)) room = {this->room(), true};
  return room;
}

// The memory that is available, without what the open models will hold and do not hold yet: experts
// are read when they are first used, and a cache's pages are taken when a text reaches them.
uint64_t ServedModels::room() const {
  uint64_t wanted = 0;
  for (const auto& entry : entries_) {
    if (entry->open != nullptr) wanted += entry->open->wanted_bytes();
  }
  const uint64_t available = available_budget();
  const uint64_t promised = wanted - std::min(wanted, held_bytes().value_or(wanted));
  return available - std::min(available, promised);
}

// The model of those that nobody uses whose last use was longest ago.
bool ServedModels::close_least_used(Lock& lock) {
  Entry* least = nullptr;
  for (const auto& entry : entries_) {
    if (entry->open == nullptr || entry->open.use_count() > 1) continue;
    if (least == nullptr || entry->last_use < least->last_use) least = entry.get();
  }
  if (least == nullptr) return false;
  close(lock, *least);
  return true;
}

// It takes time to free a model, and nobody shall wait for that.
void ServedModels::close(Lock& lock, Entry& entry) {
  Open closing = std::move(entry.open);
  lock.unlock();
  closing.reset();
  lock.lock();
}

void ServedModels::close_idle(Lock& lock) {
  if (o_.close_seconds == 0 || ending_) return;
  const Clock::time_point now = Clock::now();
  for (const auto& entry : entries_) {
    if (entry->open == nullptr) continue;
    if (entry->open.use_count() > 1) entry->last_use = now;
    if (now - entry->last_use >= std::chrono::seconds(o_.close_seconds)) close(lock, *entry);
  }
}

}  // namespace moe_cli
