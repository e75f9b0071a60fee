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

Status set_demand(SessionState& state, const PassDemand& demand) {
  SessionPasses& passes = state.passes;
  if (!passes.own) return passes.pool.change(passes.member, demand, state.call.stop);
  const PassShape& has = passes.own->shape;
  const PassShape needed = shape_of(demand);
  if (needed.rows <= has.rows && needed.context == has.context && needed.latent == has.latent) {
    passes.member.demand = demand;
    return {};
  }
  // They may be in the memory that is freed.
  if (state.logits.known()) MOE_TRY(fetch_logits(state));
  return passes.pool.change_own(passes.member, demand, *passes.own, [&](Box<Workspace> fresh) {
    state.call.move_to([&] {
      fresh->stream->experts = state.stream().experts;
      passes.own = std::move(fresh);
      passes.workspace = passes.own.get();
      return passes.workspace->stream;
    });
  });
}

}  // namespace moe
