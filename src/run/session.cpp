// SPDX-License-Identifier: MIT
#include "src/run/session.h"

#include <sched.h>

#include <algorithm>

#include "kernels/router/text.h"
#include "src/run/logits.h"
#include "src/run/session_state.h"

namespace moe {

Status begin_call(SessionState& state, bool heal) {
  int idle = SessionState::kIdle;
  if (!state.call.compare_exchange_strong(idle, SessionState::kRunning)) {
    return Status::error(MOE_ERR_STATE, "the session is in use by another call");
  }
  state.stream->cancelled.store(false);
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
  MOE_TRY(work.init(device, config, options.chunk, options.kv));
  MOE_TRY(tokens.reserve(static_cast<size_t>(options.context)));
  MOE_TRY(logits.resize(static_cast<size_t>(config.n_outputs())));
  MOE_TRY(sampler.init(config.vocab_size));
  logits_stay = device.can_sample();
  if (logits_stay) MOE_TRY(report.init(config.vocab_size));
  MOE_TRY(routers.resize(n_layers));
  MOE_TRY(staged_routers.resize(n_layers));
  for (size_t l = 0; l < n_layers; ++l) {
    routers[l] = config.layers[l].ffn.moe.router;
    has_capacity = has_capacity || moe::has_capacity(config.layers[l].ffn);
  }
  MOE_TRY(counters.init(config));
  MOE_ASSIGN(stream, device.open_stream(stream_shape(model, options)));
  number = model.next_number();
  return {};
}

namespace {

// True if memory was freed and the allocation of `bytes` can be retried.
bool made_room(const Model& model, const Status& status, uint64_t bytes) {
  const bool full = status.code() == MOE_ERR_BUDGET || status.code() == MOE_ERR_MEMORY;
  return full && model.make_room(bytes);
}

// The caller is in a call of the session. Cancels during the exchange have no effect; those already
// under way to the old stream are waited for, which takes a few instructions.
void exchange_stream(SessionState& state, Stream* stream) {
  const int call = state.call.exchange(SessionState::kMoving);
  while (state.cancels.load() != 0) sched_yield();
  stream->experts = state.stream->experts;
  state.device.close_stream(state.stream);
  state.stream = stream;
  state.call.store(call);
}

// Restores the expert cache's size if creating a session fails.
class CacheRoom final {
 public:
  explicit CacheRoom(const Model& model)
      : model_(model), cache_bytes_(model.memory_stats().arena_bytes) {}
  CacheRoom(const CacheRoom&) = delete;
  CacheRoom& operator=(const CacheRoom&) = delete;
  ~CacheRoom() {
    if (cache_bytes_ != 0) model_.set_cache_bytes(cache_bytes_);
  }
  void taken() { cache_bytes_ = 0; }

 private:
  const Model& model_;
  uint64_t cache_bytes_;
};

}  // namespace

Status SessionState::set_chunk(int32_t chunk) {
  SessionOptions o = options;
  o.chunk = chunk;
  uint64_t old = 0;
  (void)WorkMemory::device_bytes(device, model.config(), options.chunk, options.kv,
                                 &old);  // fitted before
  const StreamShape shape = stream_shape(model, options);
  old += device.stream_bytes(shape) + device.host_stream_bytes(shape);
  MemoryAccount account;
  o.other_sessions_bytes += old;
  MOE_TRY(account_memory(model, o, &account));
  MOE_TRY(check_budget(account, o.memory_cap)
              .with_context("while the old activations are still allocated"));
  CacheRoom room(model);
  MOE_TRY(model.prepare(account.device_bytes, account.cache_bytes));
  o.other_sessions_bytes -= old;
  if (has_logits && on_device) {  // they are in the memory that is freed
    MOE_TRY(read_logits(*this, logits.data()));
    on_device = false;
  }
  for (;;) {
    WorkMemory fresh(model.allocator());
    Status status = fresh.init(device, model.config(), chunk, options.kv);
    if (status.ok()) {
      Result<Stream*> opened = device.open_stream(stream_shape(model, o));
      status = opened.status();
      if (status.ok()) {
        exchange_stream(*this, opened.value());
        work = std::move(fresh);
        options = o;
        bytes = account.session_bytes;
        room.taken();
        model.count_memory(account.total);
        model.session_gone(old);
        return {};
      }
    }
    if (!made_room(model, status, account.device_bytes)) return status;
  }
}

Result<Box<Session>> Session::create(Model& model, const SessionOptions& options,
                                     const Allocator& allocator) {
  MOE_ASSIGN(const SessionOptions resolved, resolve_options(model, options));
  MemoryAccount account;
  MOE_TRY(account_memory(model, resolved, &account));
  MOE_TRY(check_budget(account, resolved.memory_cap));
  CacheRoom room(model);
  MOE_TRY(model.prepare(account.device_bytes, account.cache_bytes));
  for (;;) {
    MOE_ASSIGN(auto state, make_box<SessionState>(allocator, model, resolved, allocator));
    state->bytes = account.session_bytes;
    const Status status = state->init(allocator);
    if (status.ok()) {
      MOE_ASSIGN(auto session, make_box<Session>(allocator, std::move(state)));
      // They stay even if the session is freed: nothing may fail after them.
      if (is_latent(resolved.kv)) MOE_TRY(model.make_latent_matrices());
      room.taken();
      model.count_memory(account.total);
      return session;
    }
    if (!made_room(model, status, account.device_bytes)) return status;
  }
}

Session::Session(Box<SessionState> state) : state_(std::move(state)) {}
Session::~Session() = default;

int32_t Session::position() const { return state_->position(); }
int32_t Session::context() const { return state_->options.context; }
int32_t Session::chunk() const { return state_->options.chunk; }
const SessionOptions& Session::options() const { return state_->options; }
std::span<const int32_t> Session::tokens() const {
  return {state_->tokens.data(), state_->tokens.size()};
}
const Model& Session::model() const { return state_->model; }
uint64_t Session::bytes() const { return state_->bytes; }
ExpertStats Session::expert_stats() const { return state_->stream->experts; }

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
  (void)state_->device.sync(*state_->stream);  // clears a latched fault
  return {};
}

void Session::cancel() {
  state_->cancels.fetch_add(1);  // the stream exists until this is over
  int running = SessionState::kRunning;
  if (state_->call.compare_exchange_strong(running, SessionState::kCancelled)) {
    state_->stream->cancelled.store(true);
  }
  state_->cancels.fetch_sub(1);
}

Status Session::set_router(const moe_router* router, uint64_t other_sessions_bytes) {
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
  const int32_t chunk = std::min(state_->options.context, kMaxChunk);
  if (has_capacity && state_->options.chunk_follows && state_->options.chunk < chunk) {
    state_->options.other_sessions_bytes = other_sessions_bytes;
    MOE_TRY(state_->set_chunk(chunk));
  }
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
