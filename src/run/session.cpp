// SPDX-License-Identifier: MIT
// Creates sessions, admits one call at a time, passes cancels on, and evaluates, samples and
// rewinds.
#include "src/run/session.h"

#include <algorithm>
#include <utility>

#include "kernels/router/text.h"
#include "src/run/logits.h"
#include "src/run/session_state.h"

namespace moe {

Status begin_call(SessionState& state, bool heal) {
  int idle = SessionState::kIdle;
  if (!state.call.compare_exchange_strong(idle, SessionState::kRunning)) {
    return Status::error(MOE_ERR_STATE, "the session is in use by another call");
  }
  state.stop.store(false);
  if (state.call.load() == SessionState::kCancelled) state.stop.store(true);  // in between
  if (state.own) state.stream().cancelled.store(false);
  if (!state.poisoned || heal) return {};
  end_call(state);
  return Status::error(MOE_ERR_STATE, "the session met a device fault; it must be reset first");
}

void end_call(SessionState& state) { state.call.store(SessionState::kIdle); }

SessionCall::SessionCall(Session& session, bool heal) : state_(*session.state_) {
  status_ = begin_call(state_, heal);
}

SessionCall::~SessionCall() {
  if (status_.ok()) end_call(state_);
}

Status SessionState::init(const Allocator& allocator) {
  const ModelConfig& config = model.config();
  const size_t n_layers = config.layers.size();
  MOE_TRY(rope.init(device, config, options.context, allocator));
  MOE_TRY(kv.init(device, config, kv_shape(options)));
  MOE_TRY(tokens.reserve(static_cast<size_t>(options.context)));
  MOE_TRY(logits.resize(static_cast<size_t>(config.n_outputs())));
  logits_stay = device.can_sample();
  if (logits_stay) MOE_TRY(report.init(config.vocab_size));
  MOE_TRY(routers.resize(n_layers));
  MOE_TRY(staged_routers.resize(n_layers));
  for (size_t l = 0; l < n_layers; ++l) {
    routers[l] = config.layers[l].ffn.moe.router;
    has_capacity = has_capacity || moe::has_capacity(config.layers[l].ffn);
  }
  MOE_TRY(counters.init(config));
  if (!lends_workspaces(model)) {
    MOE_ASSIGN(own, make_box<Workspace>(allocator, device, allocator));
    MOE_TRY(own->init(model, shape_of(member.demand)));
    workspace = own.get();
    running.store(workspace->stream);
  }
  number = model.next_number();
  return {};
}

void wait_for_cancels(const SessionState& state) {
  while (state.cancels.load() != 0) yield_thread();
  for (const Session* member : state.group) {
    while (SessionCall::state_of(*member).cancels.load() != 0) yield_thread();
  }
}

namespace {

bool is_cancelled(const SessionState& state) {
  return state.call.load() == SessionState::kCancelled;
}

bool cancel_asked(const SessionState& lead) {
  bool asked = is_cancelled(lead);
  for (const Session* member : lead.group) {
    asked = asked || is_cancelled(SessionCall::state_of(*member));
  }
  return asked;
}

}  // namespace

PassLease::PassLease(SessionState& state) : state_(state) {
  while (state.workspace == nullptr && status_.ok()) {
    Result<Workspace*> lent = state.pool.lend(state.stop);
    if (lent.ok()) {
      state.workspace = lent.value();
      state.stream().experts = state.experts;
      borrowed_ = true;
      // cancel() sees the stream, or is seen here.
      state.running.store(&state.stream());
      if (cancel_asked(state)) state.stream().cancelled.store(true);
    } else if (lent.status().code() == MOE_ERR_CANCELLED && !cancel_asked(state)) {
      state.stop.store(false);  // a preempted cancel() of an earlier call
      if (cancel_asked(state)) state.stop.store(true);
    } else {
      status_ = lent.status();
    }
  }
}

PassLease::~PassLease() {
  if (!borrowed_) return;
  state_.running.store(nullptr);
  wait_for_cancels(state_);
  state_.experts = state_.stream().experts;
  (void)state_.device.sync(state_.stream());  // clears a latched fault
  state_.stream().cancelled.store(false);
  state_.pool.give_back(std::exchange(state_.workspace, nullptr));
}

namespace {

// True if memory was freed and the allocation of `bytes` can be retried.
bool made_room(Model& model, const Status& status, uint64_t bytes) {
  const bool full = status.code() == MOE_ERR_BUDGET || status.code() == MOE_ERR_MEMORY;
  return full && model.make_room(bytes);
}

// The caller is in a call of the session. Cancels during the exchange have no effect.
void exchange_own(SessionState& state, Box<Workspace> fresh) {
  const int call = state.call.exchange(SessionState::kMoving);
  state.running.store(nullptr);
  wait_for_cancels(state);
  fresh->stream->experts = state.stream().experts;
  state.own = std::move(fresh);
  state.workspace = state.own.get();
  state.running.store(state.workspace->stream);
  state.call.store(call);
}

// On a device with its own memory. The old workspace exists until the new one does, and the budget
// counts both.
Status exchange_own(SessionState& state, const PassDemand& demand) {
  Model& model = state.model;
  const PassShape old = state.own->shape;
  WorkspaceBytes freed;
  WorkspaceBytes bytes;
  MOE_TRY(workspace_bytes(model, old, &freed));
  MOE_TRY(workspace_bytes(model, shape_of(demand), &bytes));
  Reservation more(model.budget());
  MOE_TRY(model.budget().reserve({{&more, bytes.total()}}));
  if (state.has_logits && state.on_device) {  // they are in the memory that is freed
    MOE_TRY(read_logits(state, state.logits.data()));
    state.on_device = false;
  }
  for (;;) {
    MOE_ASSIGN(Box<Workspace> fresh,
               make_box<Workspace>(model.allocator(), state.device, model.allocator()));
    const Status status = fresh->init(model, shape_of(demand));
    if (status.ok()) {
      exchange_own(state, std::move(fresh));
      Reservation& kept = state.member.memory;
      return model.budget().reserve(
          {{&kept, kept.bytes() + bytes.total() - freed.total()}, {&more, 0}});
    }
    if (!made_room(model, status, bytes.total())) return status;
  }
}

}  // namespace

Status SessionState::set_demand(const PassDemand& demand) {
  if (!own) return pool.change(member, demand, stop);
  const PassShape& has = own->shape;
  const PassShape needed = shape_of(demand);
  if (needed.rows <= has.rows && needed.context == has.context && needed.latent == has.latent) {
    member.demand = demand;
    return {};
  }
  MOE_TRY(exchange_own(*this, demand));
  member.demand = demand;
  return {};
}

Result<Box<Session>> Session::create(Model& model, const SessionOptions& options,
                                     const Allocator& allocator) {
  MOE_ASSIGN(const SessionOptions resolved, resolve_options(model, options));
  MOE_ASSIGN(WorkspacePool * pool, WorkspacePool::of(model));
  MemoryAccount account;
  MOE_TRY(account_memory(model, resolved, pool->sharers(), &account));
  MOE_TRY(check_room(model, account));
  MOE_TRY(model.prepare(account.device_bytes));
  const bool latent = is_latent(resolved.kv);
  const uint64_t matrices =
      model.latent_matrices() == nullptr ? model.latent_matrix_bytes(latent) : 0;
  Reservation latent_memory(model.budget());
  MOE_ASSIGN(auto member, make_box<PoolMember>(allocator, model));
  MOE_TRY(pool->join(*member, pass_demand(model, resolved, false), account.session_bytes,
                     latent_memory, matrices));
  for (;;) {
    MOE_ASSIGN(auto state,
               make_box<SessionState>(allocator, model, *pool, *member, resolved, allocator));
    const Status status = state->init(allocator);
    if (status.ok()) {
      MOE_TRY(model.start_cache());
      MOE_ASSIGN(auto session, make_box<Session>(allocator, std::move(member), std::move(state)));
      // They stay even if the session is freed: nothing may fail after them.
      if (latent) MOE_TRY(model.make_latent_matrices(std::move(latent_memory)));
      return session;
    }
    if (!made_room(model, status, account.device_bytes)) return status;
  }
}

Session::Session(Box<PoolMember> member, Box<SessionState> state)
    : member_(std::move(member)), state_(std::move(state)) {}
Session::~Session() = default;

int32_t Session::position() const { return state_->position(); }
int32_t Session::context() const { return state_->options.context; }
int32_t Session::chunk() const { return state_->chunk(); }
const SessionOptions& Session::options() const { return state_->options; }
std::span<const int32_t> Session::tokens() const {
  return {state_->tokens.data(), state_->tokens.size()};
}
const Model& Session::model() const { return state_->model; }
uint64_t Session::bytes() const { return member_->memory.bytes(); }
ExpertStats Session::expert_stats() const {
  return state_->own ? state_->stream().experts : state_->experts;
}

Status Session::eval(std::span<const int32_t> tokens, LogitRows rows, float* logits) {
  SessionCall call(*this);
  MOE_TRY(call.status());
  MOE_TRY(check_tokens(*state_, tokens));
  if (tokens.empty() && rows != LogitRows::kNone) {
    return Status::error(MOE_ERR_ARGUMENT, "logits need at least one token");
  }
  struct Copy {
    float* to;
    size_t n;
    static Status take(void* user, size_t index, const float* from) {
      const Copy& c = *static_cast<const Copy*>(user);
      MOE_TRY(check_finite({from, c.n}));
      std::memcpy(c.to + index * c.n, from, c.n * sizeof(float));
      return {};
    }
  } copy{logits, state_->logits.size()};
  const LogitSink all{Copy::take, &copy};
  return eval_tokens(*state_, tokens, rows == LogitRows::kAll ? all : LogitSink{},
                     rows == LogitRows::kLast ? logits : nullptr);
}

Status Session::sample(const SamplingConfig& config, TokenLogprob* out, TokenLogprob* top,
                       size_t n_top) {
  SessionCall call(*this);
  MOE_TRY(call.status());
  MOE_TRY(validate(config, state_->model.config().vocab_size));
  if (n_top > static_cast<size_t>(kMaxTopLogprobs)) {
    return Status::error(MOE_ERR_RANGE, "n_top: expected 0..%d, found %zu", kMaxTopLogprobs, n_top);
  }
  return sample_next(*state_, config, out, top, n_top);
}

Status rewind_to(SessionState& state, size_t position) {
  if (position == state.tokens.size()) return {};
  state.has_logits = false;
  return state.tokens.resize(position);
}

Status Session::rewind(int32_t position) {
  SessionCall call(*this);
  MOE_TRY(call.status());
  if (position < 0 || position > state_->position()) {
    return Status::error(MOE_ERR_RANGE, "position: expected 0..%d, found %d", state_->position(),
                         position);
  }
  return rewind_to(*state_, static_cast<size_t>(position));
}

Status Session::reset() {
  SessionCall call(*this, true);
  MOE_TRY(call.status());
  state_->tokens.clear();
  state_->has_logits = false;
  if (state_->poisoned) state_->n_source = 0;
  state_->poisoned = false;
  if (state_->own) (void)state_->device.sync(state_->stream());  // clears a latched fault
  return {};
}

void Session::cancel() {
  state_->cancels.fetch_add(1);  // the stream exists until this is over
  int running = SessionState::kRunning;
  if (state_->call.compare_exchange_strong(running, SessionState::kCancelled)) {
    SessionState* lead = state_->lead.load();
    if (lead == nullptr) lead = state_.get();
    lead->stop.store(true);
    Stream* const stream = lead->running.load();
    if (stream != nullptr) stream->cancelled.store(true);
  }
  state_->cancels.fetch_sub(1);
}

Status Session::set_router(const moe_router* router) {
  SessionCall call(*this);
  MOE_TRY(call.status());
  const ModelConfig& config = state_->model.config();
  bool has_capacity = false;
  bool any = false;
  for (int32_t l = 0; l < config.n_layers(); ++l) {
    const FfnConfig& ffn = config.layers[static_cast<size_t>(l)].ffn;
    RouterConfig& staged = state_->staged_routers[static_cast<size_t>(l)];
    staged = ffn.moe.router;
    if (ffn.kind != FfnKind::kMoe) continue;
    any = true;
    if (router != nullptr) {
      MOE_TRY(override_router(ffn.moe.router, ffn.moe.n_experts, *router, &staged)
                  .with_context("layer %d", l));
    }
    if (staged.resident > 0 && !state_->device.uses_host_memory()) {
      return Status::error(MOE_ERR_UNSUPPORTED,
                           "router override: 'resident' works only on the CPU");
    }
    has_capacity = has_capacity || staged.gamma > 0;
  }
  if (!any && router != nullptr) {
    return Status::error(MOE_ERR_UNSUPPORTED, "the model has no router: every layer is dense");
  }
  const PassDemand demand = pass_demand(state_->model, state_->options, has_capacity);
  if (demand != state_->member.demand) MOE_TRY(state_->set_demand(demand));
  for (size_t l = 0; l < config.layers.size(); ++l) {
    state_->routers[l] = state_->staged_routers[l];
  }
  state_->overridden = router != nullptr;
  state_->number = state_->model.next_number();
  state_->has_capacity = has_capacity;
  return {};
}

const RouterConfig* Session::router(int32_t layer) const {
  const size_t l = static_cast<size_t>(layer);
  const bool moe = state_->model.config().layers[l].ffn.kind == FfnKind::kMoe;
  return moe ? &state_->routers[l] : nullptr;
}

Status Session::set_routing_hook(const RoutingHook& hook) {
  SessionCall call(*this);
  MOE_TRY(call.status());
  if (!state_->device.uses_host_memory()) {
    return Status::error(MOE_ERR_UNSUPPORTED, "routing can be watched only on the CPU");
  }
  state_->hook = hook;
  return {};
}

Status Session::count_routing(bool on) {
  SessionCall call(*this);
  MOE_TRY(call.status());
  if (on) state_->counters.clear();
  state_->counting = on;
  return {};
}

const RoutingStats* Session::routing_stats(int32_t layer) const {
  return state_->counting ? &state_->counters.layer(layer) : nullptr;
}

}  // namespace moe
