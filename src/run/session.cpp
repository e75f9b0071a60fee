// SPDX-License-Identifier: MIT
// Creates sessions, admits one call at a time, passes cancels on, and evaluates, samples and
// rewinds.
#include "src/run/session.h"

#include <algorithm>
#include <utility>

#include "src/run/logits.h"
#include "src/run/session_state.h"

namespace moe {

SessionCall::SessionCall(Session& session, bool heal) : state_(*session.state_) {
  status_ = state_.call.begin(heal);
}

SessionCall::~SessionCall() {
  if (status_.ok()) state_.call.end();
}

CallState& SessionCall::of(const Session& session) { return session.state_->call; }

Status check_cancel(const SessionState& state) { return state.call.check(); }

void SessionParts::lay_out(Carver& c, const Model& model, const SessionOptions& options) {
  const ModelConfig& config = model.config();
  tokens.lay_out(c, options.context);
  kv.lay_out(c, config, kv_shape(options));
  mixers.lay_out(c, config);
  rope.lay_out(c, config);
  routers.lay_out(c, config);
  logits.lay_out(c, model.device(), config);
  predictions.lay_out(c, config);
}

uint64_t session_host_bytes(const Model& model, const SessionOptions& options) {
  SessionParts parts;
  return kHandleBytes + sizeof(Session) + sizeof(SessionState) + sizeof(PoolMember) +
         measured([&](Carver& c) { parts.lay_out(c, model, options); });
}

Status SessionState::init(const Allocator& allocator) {
  const ModelConfig& config = model.config();
  MOE_TRY(memory.init("session", [&](Carver& c) { lay_out(c, model, options); }));
  MOE_TRY(rope.init(device, config, options.context, allocator));
  MOE_TRY(kv.init(device, config, kv_shape(options)));
  MOE_TRY(mixers.init(device, config));
  routers.init(config, model.next_number());
  logits.stay = device.can_sample();
  if (lends_workspaces(model)) return {};
  MOE_ASSIGN(passes.own, Workspace::make(model, shape_of(passes.member.demand)));
  passes.workspace = passes.own.get();
  call.run_on(&stream());
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
      latent && model.latent_matrices() == nullptr ? model.latent_matrix_bytes(true) : 0;
  MOE_ASSIGN(auto member, make_box<PoolMember>(allocator, model));
  MOE_TRY(
      pool->join(*member, pass_demand(model, resolved, false), account.session_bytes, matrices));
  for (;;) {
    MOE_ASSIGN(auto state,
               make_box<SessionState>(allocator, model, *pool, *member, resolved, allocator));
    const Status status = state->init(allocator);
    if (status.ok()) {
      MOE_TRY(model.start_cache());
      PoolMember& joined = *member;  // stays where it is
      MOE_ASSIGN(auto session, make_box<Session>(allocator, std::move(member), std::move(state)));
      // They stay even if the session is freed: nothing may fail after them.
      if (latent) MOE_TRY(model.make_latent_matrices(std::move(joined.shared)));
      return session;
    }
    if (!model.make_room_after(status, account.device_bytes)) return status;
  }
}

Session::Session(Box<PoolMember> member, Box<SessionState> state)
    : member_(std::move(member)), state_(std::move(state)) {}
Session::~Session() = default;

int32_t Session::position() const { return state_->position(); }
int32_t Session::context() const {
  const int32_t context = state_->options.context;
  return state_->model.config().is_encoder() ? std::min(context, state_->chunk()) : context;
}
int32_t Session::chunk() const { return state_->chunk(); }
const SessionOptions& Session::options() const { return state_->options; }
std::span<const int32_t> Session::tokens() const {
  return {state_->tokens.data(), state_->tokens.size()};
}
const Model& Session::model() const { return state_->model; }
uint64_t Session::bytes() const { return member_->memory.bytes(); }
ExpertStats Session::expert_stats() const {
  return state_->passes.own ? state_->stream().experts : state_->passes.experts;
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
  } copy{logits, state_->logits.row().size()};
  const LogitSink all{Copy::take, &copy};
  MOE_TRY(eval_tokens(*state_, tokens, rows == LogitRows::kAll ? all : LogitSink{},
                      rows == LogitRows::kLast ? logits : nullptr));
  if (tokens.size() > 1) keep_state(*state_);
  return {};
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

Status Session::expect_drafts(bool on) {
  SessionCall call(*this);
  MOE_TRY(call.status());
  state_->predictions.follows = on;
  return {};
}

// The states of mixers after `position` stay until a pass begins before them: none may come then.
void rewind_to(SessionState& state, size_t position) {
  state.predictions.rewind(static_cast<int32_t>(position));  // may be ahead after a failed pass
  if (position == state.tokens.size()) return;
  state.logits.forget();
  state.tokens.resize(position);
}

Status Session::rewind(int32_t position) {
  SessionCall call(*this);
  MOE_TRY(call.status());
  if (position < 0 || position > state_->position()) {
    return Status::error(MOE_ERR_RANGE, "position: expected 0..%d, found %d", state_->position(),
                         position);
  }
  rewind_to(*state_, static_cast<size_t>(position));
  return {};
}

Status Session::reset() {
  SessionCall call(*this, true);
  MOE_TRY(call.status());
  rewind_to(*state_, 0);
  if (state_->call.poisoned) state_->kv.n_source = 0;
  state_->call.poisoned = false;
  if (state_->passes.own) (void)state_->device.sync(state_->stream());  // clears a latched fault
  return {};
}

void Session::cancel() { state_->call.cancel(); }

Status Session::set_router(const moe_router* router) {
  SessionCall call(*this);
  MOE_TRY(call.status());
  SessionRouters& routers = state_->routers;
  MOE_TRY(routers.prepare(state_->model.config(), state_->device, router));
  const PassDemand demand =
      pass_demand(state_->model, state_->options, routers.prepared_capacity());
  if (demand != state_->passes.member.demand) MOE_TRY(set_demand(*state_, demand));
  routers.put_in_force(state_->model.next_number());
  return {};
}

const RouterConfig* Session::router(int32_t layer) const {
  const size_t l = static_cast<size_t>(layer);
  const bool moe = state_->model.config().layers[l].ffn.kind == FfnKind::kMoe;
  return moe ? &state_->routers.of(layer) : nullptr;
}

Status Session::set_routing_hook(const RoutingHook& hook) {
  SessionCall call(*this);
  MOE_TRY(call.status());
  if (!state_->device.uses_host_memory()) {
    return Status::error(MOE_ERR_UNSUPPORTED, "routing can be watched only on the CPU");
  }
  state_->routers.hook = hook;
  return {};
}

Status Session::count_routing(bool on) {
  SessionCall call(*this);
  MOE_TRY(call.status());
  state_->routers.counters.turn(on);
  return {};
}

const RoutingStats* Session::routing_stats(int32_t layer) const {
  return state_->routers.counters.layer(layer);
}

}  // namespace moe
