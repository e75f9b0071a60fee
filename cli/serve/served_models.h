// SPDX-License-Identifier: MIT
#pragma once
// The models of a server: one that is open all the time, or several that are opened on first use.

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "cli/serve/open_service.h"

namespace moe_cli {

/// The memory that there is for a model.
struct Room {
  uint64_t bytes = UINT64_MAX;
  bool made = false;  // by freeing some
};
/// Makes room for a model that will hold so many bytes, if it can.
using MakeRoom = std::function<Room(uint64_t wanted)>;

/// A model that is open, and its service.
class ServedModel {
 public:
  /// Calls make_room before it takes much memory. Throws CallError, UsageError.
  ServedModel(const ServeOptions& o, moe_env* env, const std::string& name, ReceiptTaker taker,
              const MakeRoom& make_room = {});
  moe_service* service() const { return service_.get(); }
  const moe_model* model() const { return model_.get(); }
  /// The memory that it will hold when it has been used; at first it holds less.
  uint64_t wanted_bytes() const { return wanted_bytes_; }

 private:
  Model model_;
  uint64_t wanted_bytes_ = 0;
  Service service_;  // freed before the model
};

class ServedModels {
 public:
  using Open = std::shared_ptr<ServedModel>;
  /// Gets an open model, or why there is none. Must neither wait nor throw.
  using Use = std::function<void(const Open& open, const std::string& problem, int status)>;

  /// Opens the one model of the options; of several none, but their files must exist. The arguments
  /// must outlive it. Throws CallError, UsageError.
  ServedModels(const ServeOptions& o, moe_env* env, ReceiptTaker taker);
  ServedModels(const ServedModels&) = delete;
  ServedModels& operator=(const ServedModels&) = delete;
  /// All requests must have ended or been cancelled.
  ~ServedModels();

  // Any thread:
  bool several() const { return entries_.size() > 1; }
  std::vector<std::string> names() const;
  bool has(const std::string& name) const { return find(name) != nullptr; }
  /// The model, if it is open.
  Open open_one(const std::string& name);
  /// Calls `use` once: now if the model is open, otherwise from another thread when it is. The
  /// model, which must be one of the names, stays open while somebody has it.
  void use(const std::string& name, Use use);
  /// Refuses further uses, and waits for the requests of the services as moe_service_drain does.
  bool drain(double seconds);
  bool ending();
  /// Texts that are being generated or wait, and requests whose model is being opened.
  int n_left();

 private:
  using Clock = std::chrono::steady_clock;
  using Lock = std::unique_lock<std::mutex>;
  struct Entry {
    std::string name;
    ServeOptions options;  // with the model's file
    Open open = {};
    Clock::time_point last_use = {};
    std::vector<Use> waiting = {};
    Clock::time_point waiting_since = {};  // the first of them
  };

  Entry* find(const std::string& name) const;
  void run();
  void work();
  Entry* wanted();
  void open(Lock& lock, Entry& entry);
  bool make_place(Lock& lock);
  Room make_room(Lock& lock, uint64_t wanted);
  uint64_t room() const;
  bool close_least_used(Lock& lock);
  void close_idle(Lock& lock);
  void close(Lock& lock, Entry& entry);
  size_t n_open() const;

  const ServeOptions& o_;
  moe_env* const env_;
  const ReceiptTaker taker_;
  std::vector<std::unique_ptr<Entry>>
      entries_;  // a fixed number; the mutex guards the rest of each
  std::mutex mutex_;
  std::condition_variable changed_;
  bool ending_ = false;
  bool stopping_ = false;
  std::thread thread_;  // opens and closes; not with one model
};

}  // namespace moe_cli
