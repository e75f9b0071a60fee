// SPDX-License-Identifier: MIT
// The workspaces of a session's passes: borrowed from the model's pool, or its own.

#include <utility>

#include "src/run/session_state.h"

namespace moe {

PassLease::PassLease(SessionState& state) : state_(state) {
  SessionPasses& passes = state.passes;
  while (passes.workspace == nullptr && status_.ok()) {
    Result<Workspace*> lent = passes.pool.lend(state.call.stop);
    if (lent.ok()) {
      passes.workspace = lent.value();
      state.stream().experts = passes.experts;
      borrowed_ = true;
      state.call.run_on(&state.stream());
    } else if (lent.status().code() == MOE_ERR_CANCELLED && !state.call.group_cancelled()) {
      state.call.forget_late_stop();
    } else {
      status_ = lent.status();
    }
  }
}

PassLease::~PassLease() {
  if (!borrowed_) return;
  SessionPasses& passes = state_.passes;
  state_.call.run_on(nullptr);
  passes.experts = state_.stream().experts;
  (void)state_.device.sync(state_.stream());  // clears a latched fault
  state_.stream().cancelled.store(false);
  passes.pool.give_back(std::exchange(passes.workspace, nullptr));
}

namespace {

// The caller is in a call of the session.
void exchange_own(SessionState& state, Box<Workspace> fresh) {
  SessionPasses& passes = state.passes;
  state.call.move_to([&] {
    fresh->stream->experts = state.stream().experts;
    passes.own = std::move(fresh);
    passes.workspace = passes.own.get();
    return passes.workspace->stream;
  });
}

// On a device with its own memory. The old workspace exists until the new one does, and the budget
// counts both.
Status exchange_own(SessionState& state, const PassDemand& demand) {
  Model& model = state.model;
  const PassShape old = state.passes.own->shape;
  WorkspaceBytes freed;
  WorkspaceBytes bytes;
  MOE_TRY(workspace_bytes(model, old, &freed));
  MOE_TRY(workspace_bytes(model, shape_of(demand), &bytes));
  Reservation more(model.budget());
  MOE_TRY(model.budget().reserve({{&more, bytes.total()}}));
  // They may be in the memory that is freed.
  if (state.logits.known()) MOE_TRY(fetch_logits(state));
  for (;;) {
    MOE_ASSIGN(Box<Workspace> fresh,
               make_box<Workspace>(model.allocator(), state.device, model.allocator()));
    const Status status = fresh->init(model, shape_of(demand));
    if (status.ok()) {
      exchange_own(state, std::move(fresh));
      Reservation& kept = state.passes.member.memory;
      return model.budget().reserve(
          {{&kept, kept.bytes() + bytes.total() - freed.total()}, {&more, 0}});
    }
    if (!model.make_room_after(status, bytes.total())) return status;
  }
}

}  // namespace

Status set_demand(SessionState& state, const PassDemand& demand) {
  SessionPasses& passes = state.passes;
  if (!passes.own) return passes.pool.change(passes.member, demand, state.call.stop);
  const PassShape& has = passes.own->shape;
  const PassShape needed = shape_of(demand);
  if (needed.rows <= has.rows && needed.context == has.context && needed.latent == has.latent) {
    passes.member.demand = demand;
    return {};
  }
  MOE_TRY(exchange_own(state, demand));
  passes.member.demand = demand;
  return {};
}

}  // namespace moe
