// SPDX-License-Identifier: MIT
#pragma once
// Memory of one pass, which the sessions of a model borrow from each other. See
// src/model/README.md.

#include <atomic>

#include "src/base/mutex.h"
#include "src/run/memory.h"
#include "src/run/sampler.h"
#include "src/run/work_memory.h"

namespace moe {

class WorkspacePool;

/// Everything that computing one pass and sampling from its logits needs besides the session.
class Workspace {
 public:
  Workspace(Device& device, const Allocator& allocator)
      : work(allocator), sampler(allocator), device_(device) {}
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;
  ~Workspace() {
    if (stream != nullptr) device_.close_stream(stream);
  }
  static Result<Box<Workspace>> make(const Model& model, const PassShape& shape);

  PassShape shape;
  WorkMemory work;
  Stream* stream = nullptr;
  Sampler sampler;

 private:
  friend class WorkspacePool;
  Status init(const Model& model, const PassShape& shape);

  Device& device_;
  uint64_t bytes_ = 0;
  uintptr_t holder_ = 0;  // the thread that borrowed it
  Workspace* next_ = nullptr;
};

/// A session as the workspaces of its model know it. Ends when the session has freed its memory.
class PoolMember {
 public:
  explicit PoolMember(Model& model) : memory(model.budget()), shared(model.budget()) {}
  PoolMember(const PoolMember&) = delete;
  PoolMember& operator=(const PoolMember&) = delete;
  ~PoolMember();

  PassDemand demand;
  Reservation memory;  // of the session itself
  Reservation shared;  // of what it makes for every session, and then belongs to the model

 private:
  friend class WorkspacePool;
  WorkspacePool* pool_ = nullptr;  // null before it has joined
  PoolMember* next_ = nullptr;
};

/// Workspaces of one model. There are as many as there have been passes at the same time, as far as
/// memory goes: the first is reserved as long as there is a session, a further one takes at most a
/// share of the expert cache. All have one shape, which serves every session; it changes when
/// sessions come and go. Any thread.
class WorkspacePool {
 public:
  static Result<WorkspacePool*> of(Model& model);
  explicit WorkspacePool(Model& model) : model_(model), memory_(model.budget()) {}
  WorkspacePool(const WorkspacePool&) = delete;
  WorkspacePool& operator=(const WorkspacePool&) = delete;
  ~WorkspacePool();

  /// The sessions that exist, for the account of a further one.
  Sharers sharers() const;
  /// Reserves the bytes of a session and of what it shares, and the workspace of the session's
  /// passes, which then exists. Automatic chunks shrink if they must; waits for passes whose
  /// workspaces are too large then. On failure nothing changes: MOE_ERR_BUDGET, MOE_ERR_MEMORY.
  Status join(PoolMember& member, const PassDemand& demand, uint64_t bytes, uint64_t shared_bytes);
  /// Changes what a session asks for, as join(). MOE_ERR_CANCELLED soon after `stop` is set.
  Status change(PoolMember& member, const PassDemand& demand, const std::atomic<bool>& stop);
  /// For sessions that keep a workspace: replaces it by a larger one by calling exchange(fresh),
  /// until which both exist and count.
  template <class Exchange>
  Status change_own(PoolMember& member, const PassDemand& demand, const Workspace& own,
                    Exchange&& exchange) {
    Reservation more(model_.budget());
    MOE_ASSIGN(Box<Workspace> fresh, make_own(shape_of(demand), more));
    const uint64_t before = own.bytes_;
    const uint64_t bytes = fresh->bytes_;
    exchange(std::move(fresh));
    member.demand = demand;
    return model_.budget().reserve(
        {{&member.memory, member.memory.bytes() - before + bytes}, {&more, 0}});
  }

  /// Waits, first come first served, until there is a workspace. If memory is missing for another
  /// one, it waits for one to be given back; MOE_ERR_MEMORY only if there is none to wait for.
  /// MOE_ERR_CANCELLED soon after `stop` is set. MOE_ERR_STATE instead of waiting if this thread
  /// has borrowed a workspace already: a callback of a pass evaluates another session.
  Result<Workspace*> lend(const std::atomic<bool>& stop);
  void give_back(Workspace* workspace);

  /// Rows of automatic chunks.
  int32_t automatic_rows() const { return automatic_rows_.load(std::memory_order_relaxed); }

 private:
  /// A thread waiting for a workspace.
  struct Waiter {
    Waiter* next = nullptr;
  };

  /// Reservations that a new session changes.
  struct Joining {
    Budget::Change session = {nullptr, 0};
    Budget::Change shared = {nullptr, 0};
  };

  /// Whether to wait for passes with workspaces of the old shape, if memory is missing until they
  /// end, and what ends the wait; null: nothing.
  struct Patience {
    bool waits = false;
    const std::atomic<bool>* stop = nullptr;
  };

  friend class PoolMember;
  void leave(PoolMember& member);
  Result<Box<Workspace>> make_own(const PassShape& shape, Reservation& more);

  // The caller holds the mutex in all functions below.
  PassDemands demands(const PoolMember* without) const;
  void link(PoolMember& member, const PassDemand& demand);
  void unlink(PoolMember& member);
  Status join_locked(PoolMember& member, const PassDemand& demand, const Joining& joining);
  Status change_locked(PoolMember& member, const PassDemand& demand, const std::atomic<bool>& stop);
  void forget_those_that_left();
  Status refit(const PassDemands& all, const Joining& joining, const Patience& patience);
  void settle(const Joining& leaving);
  Status await_refit(const std::atomic<bool>* stop);
  void trim();
  uint64_t needed_bytes() const;
  bool has_one() const;
  bool holds_one() const;
  bool may_grow(bool nested) const;
  Status add();
  Status make_first();
  Status wait_for_one(Waiter& me, const std::atomic<bool>& stop);
  void destroy(Workspace* workspace);
  static Status busy();

  Model& model_;
  mutable Mutex mutex_;  // of the lists; before the lock of the budget
  Condition changed_;    // a workspace was given back, or the line or the shape changed
  PoolMember* members_ = nullptr;
  size_t n_members_ = 0;
  bool refitting_ = false;  // a session waits for workspaces of the old shape
  bool left_ = false;       // another one has left meanwhile
  PassShape shape_;
  uint64_t shape_bytes_ = 0;
  std::atomic<int32_t> automatic_rows_{kDefaultChunk};
  Workspace* idle_ = nullptr;  // all of shape_
  Workspace* lent_ = nullptr;
  Waiter* first_waiter_ = nullptr;
  Reservation memory_;  // of all workspaces, and of the first before it exists
};

}  // namespace moe
