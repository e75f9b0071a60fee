// SPDX-License-Identifier: MIT
// Lends workspaces to passes, makes and frees them as sessions come and go, and lets threads wait
// for one.
#include "src/run/workspace.h"

#include <algorithm>
#include <utility>

#include "src/base/format.h"
#include "src/base/os/threads.h"

namespace moe {
namespace {

// A further workspace may take at most 1/kShare of the expert cache: a larger cache helps a pass
// more than a second pass beside it.
constexpr uint64_t kShare = 6;

bool asked(const std::atomic<bool>* stop) { return stop != nullptr && stop->load(); }

Status cancelled() { return Status::error(MOE_ERR_CANCELLED, "cancelled"); }

}  // namespace

Result<Box<Workspace>> Workspace::make(const Model& model, const PassShape& shape) {
  MOE_ASSIGN(Box<Workspace> workspace,
             make_box<Workspace>(model.allocator(), model.device(), model.allocator()));
  MOE_TRY(workspace->init(model, shape));
  return workspace;
}

Status Workspace::init(const Model& model, const PassShape& given) {
  shape = given;
  WorkspaceBytes bytes;
  MOE_TRY(workspace_bytes(model, shape, &bytes));
  bytes_ = bytes.total();
  MOE_TRY(work.init(device_, model.config(), shape));
  MOE_TRY(sampler.init(model.config().vocab_size));
  MOE_ASSIGN(stream, device_.open_stream(stream_shape(model, shape)));
  return {};
}

Result<WorkspacePool*> WorkspacePool::of(Model& model) {
  const auto make = [](Model& m) -> Result<Attachment> {
    MOE_ASSIGN(Box<WorkspacePool> pool, make_box<WorkspacePool>(m.allocator(), m));
    const auto destroy = [](void* object) {
      auto* made = static_cast<WorkspacePool*>(object);
      const Allocator& allocator = made->model_.allocator();
      made->~WorkspacePool();
      deallocate(allocator, made, sizeof *made);
    };
    return Attachment{pool.release(), destroy};
  };
  MOE_ASSIGN(void* pool, model.attached(make));
  return static_cast<WorkspacePool*>(pool);
}

WorkspacePool::~WorkspacePool() {
  for (Workspace* list : {idle_, lent_}) {
    while (list != nullptr) destroy(std::exchange(list, list->next_));
  }
}

void WorkspacePool::destroy(Workspace* workspace) {
  workspace->~Workspace();
  deallocate(model_.allocator(), workspace, sizeof *workspace);
}

PoolMember::~PoolMember() {
  if (pool_ != nullptr) pool_->leave(*this);
}

// --- Sessions ------------------------------------------------------------------------------------

PassDemands WorkspacePool::demands(const PoolMember* without) const {
  PassDemands all;
  for (const PoolMember* m = members_; m != nullptr; m = m->next_) {
    if (m != without) all.add(m->demand);
  }
  return all;
}

Sharers WorkspacePool::sharers() const {
  LockGuard guard(mutex_);
  Sharers sharers;
  if (lends_workspaces(model_)) sharers.demands = demands(nullptr);
  for (const PoolMember* m = members_; m != nullptr; m = m->next_) {
    sharers.bytes += m->memory.bytes();
  }
  return sharers;
}

Status WorkspacePool::join(PoolMember& member, const PassDemand& demand, uint64_t bytes,
                           uint64_t shared_bytes) {
  LockGuard guard(mutex_);
  const Status status =
      join_locked(member, demand, {{&member.memory, bytes}, {&member.shared, shared_bytes}});
  forget_those_that_left();
  return status;
}

Status WorkspacePool::change(PoolMember& member, const PassDemand& demand,
                             const std::atomic<bool>& stop) {
  LockGuard guard(mutex_);
  const Status status = change_locked(member, demand, stop);
  forget_those_that_left();
  return status;
}

// Sessions that left while another one waited are still part of the shape.
void WorkspacePool::forget_those_that_left() {
  if (!refitting_ && std::exchange(left_, false)) settle({});
}

Status WorkspacePool::join_locked(PoolMember& member, const PassDemand& demand,
                                  const Joining& joining) {
  if (!lends_workspaces(model_)) {
    MOE_TRY(model_.budget().reserve({joining.session, joining.shared}));
    link(member, demand);
    return {};
  }
  MOE_TRY(await_refit(nullptr));
  PassDemands all = demands(nullptr);
  all.add(demand);
  MOE_TRY(refit(all, joining, {.waits = true}));
  link(member, demand);
  const Status status = make_first();
  if (status.ok()) return {};
  unlink(member);
  settle({{&member.memory, 0}, {&member.shared, 0}});
  return status;
}

Status WorkspacePool::change_locked(PoolMember& member, const PassDemand& demand,
                                    const std::atomic<bool>& stop) {
  MOE_TRY(await_refit(&stop));
  PassDemands all = demands(&member);
  all.add(demand);
  MOE_TRY(refit(all, {}, {.waits = true, .stop = &stop}));
  const PassDemand before = std::exchange(member.demand, demand);
  const Status status = make_first();
  if (status.ok()) return {};
  member.demand = before;
  settle({});
  return status;
}

void WorkspacePool::link(PoolMember& member, const PassDemand& demand) {
  member.demand = demand;
  member.pool_ = this;
  member.next_ = members_;
  members_ = &member;
  ++n_members_;
}

void WorkspacePool::unlink(PoolMember& member) {
  PoolMember** at = &members_;
  while (*at != &member) at = &(*at)->next_;
  *at = member.next_;
  member.pool_ = nullptr;
  --n_members_;
}

void WorkspacePool::leave(PoolMember& member) {
  if (model_.budget().forked()) return;  // nobody might unlock the mutex
  LockGuard guard(mutex_);
  unlink(member);
  if (lends_workspaces(model_) && !refitting_) return settle({{&member.memory, 0}, {}});
  member.memory.release();
  left_ = lends_workspaces(model_);
  changed_.notify_all();
}

// --- The shape -----------------------------------------------------------------------------------

bool WorkspacePool::has_one() const {
  if (idle_ != nullptr) return true;
  for (const Workspace* w = lent_; w != nullptr; w = w->next_) {
    if (w->shape == shape_) return true;
  }
  return false;
}

bool WorkspacePool::holds_one() const {
  for (const Workspace* w = lent_; w != nullptr; w = w->next_) {
    if (w->holder_ == this_thread()) return true;
  }
  return false;
}

// Bytes of those that exist, and of the first one if it does not.
uint64_t WorkspacePool::needed_bytes() const {
  uint64_t bytes = has_one() ? 0 : shape_bytes_;
  for (const Workspace* list : {idle_, lent_}) {
    for (; list != nullptr; list = list->next_) bytes += list->bytes_;
  }
  return bytes;
}

// Frees idle workspaces of another shape. Under a cap a single one stays.
void WorkspacePool::trim() {
  const size_t most = model_.budget().unlimited() ? n_members_ + 1 : 1;
  size_t n = 0;
  for (Workspace** at = &idle_; *at != nullptr;) {
    Workspace* workspace = *at;
    if (workspace->shape == shape_ && ++n <= most) {
      at = &workspace->next_;
      continue;
    }
    *at = workspace->next_;
    destroy(workspace);
  }
}

Status WorkspacePool::await_refit(const std::atomic<bool>* stop) {
  while (refitting_) {
    if (holds_one()) return busy();
    if (asked(stop)) return cancelled();
    changed_.wait_unless(mutex_, stop);
  }
  return {};
}

// Gives workspaces the shape for these sessions. On failure nothing has changed.
Status WorkspacePool::refit(const PassDemands& all, const Joining& joining,
                            const Patience& patience) {
  Budget& budget = model_.budget();
  const auto with_changes = [&](uint64_t bytes) {
    if (bytes == UINT64_MAX) return bytes;
    bytes += memory_.bytes();
    for (const Budget::Change& change : {joining.session, joining.shared}) {
      if (change.of == nullptr) continue;
      bytes += change.of->bytes();
      bytes -= std::min(bytes, change.bytes);
    }
    return bytes;
  };
  const int32_t rows = moe::automatic_rows(model_, all, with_changes(budget.last_bytes()));
  const PassShape shape = all.shape(rows);
  WorkspaceBytes bytes;
  MOE_TRY(workspace_bytes(model_, shape, &bytes));
  const uint64_t room = with_changes(budget.free_bytes());
  if (bytes.total() > room) {
    char who[40];
    (void)format(who, sizeof who, "chunks of %d tokens", shape.rows);
    return budget.refused({.who = who, .way_out = "use a smaller chunk or context"}, bytes.total(),
                          room);
  }
  const PassShape old_shape = std::exchange(shape_, shape);
  const uint64_t old_bytes = std::exchange(shape_bytes_, bytes.total());
  const int32_t old_rows = automatic_rows_.exchange(rows);
  refitting_ = true;
  Status status;
  for (;;) {
    trim();
    status = budget.reserve({{&memory_, needed_bytes()}, joining.session, joining.shared});
    const bool missing = status.code() == MOE_ERR_BUDGET && lent_ != nullptr;
    if (!missing || !patience.waits || holds_one()) break;
    if (asked(patience.stop)) {
      status = cancelled();
      break;
    }
    changed_.wait_unless(mutex_, patience.stop);
  }
  refitting_ = false;
  changed_.notify_all();
  if (status.ok()) return {};
  shape_ = old_shape;
  shape_bytes_ = old_bytes;
  automatic_rows_ = old_rows;
  trim();
  (void)budget.reserve({{&memory_, needed_bytes()}});  // at most what was reserved before
  if (n_members_ > 0) (void)make_first();              // or the next pass does
  return status;
}

// The best shape for the sessions that are there, when one has left or could not be made, and its
// memory with it.
void WorkspacePool::settle(const Joining& leaving) {
  if (n_members_ > 0 && refit(demands(nullptr), leaving, {}).ok()) {
    (void)make_first();  // or the next pass does
    return;
  }
  if (n_members_ == 0) {
    shape_ = {};
    shape_bytes_ = 0;
    trim();
  }
  (void)model_.budget().reserve({{&memory_, needed_bytes()}, leaving.session, leaving.shared});
}

// --- Passes --------------------------------------------------------------------------------------

Status WorkspacePool::busy() {
  return Status::error(
      MOE_ERR_STATE,
      "a callback of a pass cannot evaluate, create or change another session now: the memory cap "
      "leaves no room for a second pass; call it after the pass, or open the model with a larger "
      "cap");
}

// For a session that keeps it.
Result<Box<Workspace>> WorkspacePool::make_own(const PassShape& shape, Reservation& more) {
  WorkspaceBytes bytes;
  MOE_TRY(workspace_bytes(model_, shape, &bytes));
  MOE_TRY(model_.budget().reserve({{&more, bytes.total()}}));
  for (;;) {
    Result<Box<Workspace>> made = Workspace::make(model_, shape);
    if (made.ok() || !model_.make_room_after(made.status(), bytes.total())) return made;
  }
}

// Makes an idle one.
Status WorkspacePool::add() {
  Budget& budget = model_.budget();
  MOE_TRY(budget.reserve({{&memory_, needed_bytes() + (has_one() ? shape_bytes_ : 0)}}));
  Result<Box<Workspace>> made = Workspace::make(model_, shape_);
  if (!made.ok()) {
    (void)budget.reserve({{&memory_, needed_bytes()}});
    return made.status();
  }
  Workspace* workspace = made.value().release();
  workspace->next_ = idle_;
  idle_ = workspace;
  return {};
}

Status WorkspacePool::make_first() { return has_one() ? Status() : add(); }

bool WorkspacePool::may_grow(bool nested) const {
  if (refitting_) return false;
  const Budget& budget = model_.budget();
  if (budget.unlimited() || !has_one()) return true;
  if (budget.free_bytes() < shape_bytes_) return false;
  const ExpertCacheShape& cache = model_.cache_shape();
  const uint64_t most = cache.bytes(cache.most_slots);
  const uint64_t now = budget.last_bytes();
  return nested ||
         std::min(most, now - shape_bytes_) >= std::min(most, now) / kShare * (kShare - 1);
}

Status WorkspacePool::wait_for_one(Waiter& me, const std::atomic<bool>& stop) {
  const bool nested = holds_one();
  for (;;) {
    if (nested || first_waiter_ == &me) {
      Status status;
      if (idle_ == nullptr && may_grow(nested)) status = add();
      if (idle_ != nullptr) return {};
      if (!status.ok() && lent_ == nullptr) return status;
    }
    if (nested) return busy();
    if (asked(&stop)) return cancelled();
    changed_.wait_unless(mutex_, &stop);
  }
}

Result<Workspace*> WorkspacePool::lend(const std::atomic<bool>& stop) {
  LockGuard guard(mutex_);
  Waiter me;
  Waiter** at = &first_waiter_;
  while (*at != nullptr) at = &(*at)->next;
  *at = &me;
  const Status status = wait_for_one(me, stop);
  for (at = &first_waiter_; *at != &me;) at = &(*at)->next;
  *at = me.next;
  changed_.notify_all();
  MOE_TRY(status);
  Workspace* workspace = idle_;
  idle_ = workspace->next_;
  workspace->next_ = lent_;
  workspace->holder_ = this_thread();
  lent_ = workspace;
  return workspace;
}

void WorkspacePool::give_back(Workspace* workspace) {
  LockGuard guard(mutex_);
  Workspace** at = &lent_;
  while (*at != workspace) at = &(*at)->next_;
  *at = workspace->next_;
  if (workspace->shape == shape_) {
    workspace->next_ = idle_;
    idle_ = workspace;
  } else {
    destroy(workspace);
    (void)model_.budget().reserve({{&memory_, needed_bytes()}});
  }
  changed_.notify_all();
}

}  // namespace moe
