// SPDX-License-Identifier: MIT
// Sessions: evaluation, perplexity, routing.

#include "src/c_api/handles.h"
#include "src/run/perplexity.h"

namespace moe {

Status session_options(const moe_session_params* given, SessionOptions* out) {
  moe_session_params p{};
  MOE_TRY(read_params(given, "params", &p));
  SessionOptions options;
  options.context = p.context;
  options.chunk = p.chunk;
  const int kv = enum_number(p.kv);
  constexpr KvType kTypes[] = {KvType::kF16, KvType::kF16, KvType::kInt8, KvType::kF32,
                               KvType::kLatent};
  if (kv < MOE_KV_DEFAULT || kv > MOE_KV_LATENT) {
    return Status::error(MOE_ERR_ARGUMENT, "params.kv: expected 0..4, found %d", kv);
  }
  options.kv = kTypes[kv];
  options.max_beam = p.max_beam;
  *out = options;
  return {};
}

namespace {

void destroy(moe_session* session) {
  const Ref<moe_model> model = session->model;  // counts the session's memory
  if (model->env->out_of_reach()) return;
  const Allocator& allocator = model->memory.get();
  session->~moe_session();
  deallocate(allocator, session, sizeof *session);
}

Status create_session(moe_model* model, const moe_session_params* params, moe_session** out) {
  MOE_TRY(check_model(model));
  if (out == nullptr) return null_argument("out");
  SessionOptions options;
  MOE_TRY(session_options(params, &options));
  const Allocator& allocator = model->memory.get();
  MOE_ASSIGN(Box<moe_session> handle, make_box<moe_session>(allocator, *model));
  MOE_ASSIGN(handle->session, Session::create(*model->model, options, allocator));
  *out = handle.release();
  return {};
}

Status eval(moe_session* session, const int32_t* tokens, size_t n_tokens, int rows, float* logits) {
  MOE_TRY(check_session(session));
  if (tokens == nullptr && n_tokens != 0) return null_argument("tokens");
  constexpr LogitRows kRows[] = {LogitRows::kNone, LogitRows::kLast, LogitRows::kAll};
  if (rows < MOE_ROWS_NONE || rows > MOE_ROWS_ALL) {
    return Status::error(MOE_ERR_ARGUMENT, "rows: expected 0..2, found %d", rows);
  }
  if ((rows == MOE_ROWS_NONE) != (logits == nullptr)) {
    return Status::error(MOE_ERR_ARGUMENT, "logits: expected %s with rows %d, found %s",
                         rows == MOE_ROWS_NONE ? "NULL" : "an array", rows,
                         logits == nullptr ? "NULL" : "an array");
  }
  return session->session->eval({tokens, n_tokens}, kRows[rows], logits);
}

Status score(moe_session* session, const int32_t* tokens, size_t n_tokens, float* logprobs,
             size_t n_logprobs) {
  MOE_TRY(check_session(session));
  if (tokens == nullptr && n_tokens != 0) return null_argument("tokens");
  if (logprobs == nullptr && n_logprobs != 0) return null_argument("logprobs");
  return score_tokens(*session->session, {tokens, n_tokens}, {logprobs, n_logprobs});
}

// n_tokens: null for one token each.
Status eval_each(moe_session* const* sessions, const int32_t* tokens, const size_t* n_tokens,
                 size_t n, float* logits) {
  if (n == 0) return {};
  if (sessions == nullptr) return null_argument("sessions");
  if (tokens == nullptr) return null_argument("tokens");
  for (size_t i = 0; i < n; ++i) {
    MOE_TRY(check_session(sessions[i]).with_context("session %zu", i));
  }
  constexpr size_t kFew = 64;  // more sessions than this cost one allocation per call
  Session* few[kFew];
  Array<Session*> many(sessions[0]->model->env->allocator);
  if (n > kFew) MOE_TRY(many.resize(n));
  Session** inner = n > kFew ? many.data() : few;
  for (size_t i = 0; i < n; ++i) inner[i] = sessions[i]->session.get();
  return sessions_eval({inner, n}, tokens, n_tokens, logits);
}

// Rewinding to 0 also recovers from a device fault.
Status rewind(moe_session* session, int32_t position) {
  MOE_TRY(check_session(session));
  return position == 0 ? session->session->reset() : session->session->rewind(position);
}

Status set_router(moe_session* session, const moe_router* given) {
  MOE_TRY(check_session(session));
  moe_router router{};
  MOE_TRY(read_params(given, "router", &router));
  return session->session->set_router(given == nullptr ? nullptr : &router);
}

// Tokens before a text that begins a sequence.
std::span<const int32_t> text_prefix(const moe_model& model) {
  if (model.text.tokenizer) return model.text.tokenizer->prefix();
  const ModelConfig& config = model.model->config();
  return {&config.bos_token_id, config.add_bos ? size_t{1} : size_t{0}};
}

struct ProgressBridge {
  moe_progress_fn progress;
  void* user;
  static bool call(void* user, uint64_t done, uint64_t total) {
    const auto* b = static_cast<const ProgressBridge*>(user);
    return b->progress(b->user, done, total, "perplexity");
  }
};

Status perplexity(moe_session* session, const int32_t* tokens, size_t n_tokens,
                  moe_progress_fn progress, void* user, moe_perplexity* out) {
  MOE_TRY(check_session(session));
  if (tokens == nullptr) return null_argument("tokens");
  MOE_TRY(check_out_struct(out, "out"));
  ProgressBridge bridge{progress, user};
  PerplexityOptions options;
  options.prefix = text_prefix(*session->model);
  if (progress != nullptr) {
    options.progress = ProgressBridge::call;
    options.user = &bridge;
  }
  Perplexity result;
  MOE_TRY(measure_perplexity(*session->session, {tokens, n_tokens}, options, &result));
  moe_perplexity value{};
  value.n_scored = result.n_scored;
  value.mean_nll = result.mean_nll;
  value.perplexity = result.perplexity;
  write_struct(value, out);
  return {};
}

// Finds the counts of a layer; `routed`: it must have experts.
Status find_stats(const moe_session* session, int32_t layer, bool routed,
                  const RoutingStats** stats) {
  const ModelConfig& config = session->model->model->config();
  if (layer < 0 || layer >= config.n_main_layers()) {
    return Status::error(MOE_ERR_RANGE, "layer: expected 0..%d, found %d",
                         config.n_main_layers() - 1, layer);
  }
  if (routed && config.layers[static_cast<size_t>(layer)].ffn.kind != FfnKind::kMoe) {
    return Status::error(MOE_ERR_UNSUPPORTED, "layer %d is dense: it has no routing", layer);
  }
  *stats = session->session->routing_stats(layer);
  return *stats != nullptr ? Status()
                           : Status::error(MOE_ERR_STATE, "routing is not being counted");
}

Status get_activations(const moe_session* session, int32_t layer, moe_activation_stats* out) {
  if (session == nullptr) return null_argument("session");
  MOE_TRY(check_out_struct(out, "out"));
  const RoutingStats* s = nullptr;
  MOE_TRY(find_stats(session, layer, false, &s));
  moe_activation_stats value{};
  value.n_activations = s->n_activations;
  value.n_positive = s->n_positive;
  write_struct(value, out);
  return {};
}

Status get_routing(const moe_session* session, int32_t layer, moe_routing_stats* out) {
  if (session == nullptr) return null_argument("session");
  MOE_TRY(check_out_struct(out, "out"));
  const RoutingStats* s = nullptr;
  MOE_TRY(find_stats(session, layer, true, &s));
  const FfnConfig& ffn = session->model->model->config().layers[static_cast<size_t>(layer)].ffn;
  moe_routing_stats value{};
  value.n_experts = ffn.moe.n_experts;
  value.n_tokens = s->n_tokens;
  value.n_dropped = s->n_dropped;
  value.n_activations = s->n_activations;
  value.n_positive = s->n_positive;
  value.tokens_per_expert = s->tokens_per_expert;
  value.experts_per_token = s->experts_per_token;
  value.n_skipped = s->n_skipped;
  value.skipped_probability = s->skipped_probability;
  write_struct(value, out);
  return {};
}

void pass_choices(void* user, const RoutedTokens& tokens, Routing* r) {
  const auto* watch = static_cast<const RoutingWatch*>(user);
  const ModelConfig& config = watch->session->model().config();
  const int32_t n_experts = config.layers[static_cast<size_t>(tokens.layer)].ffn.moe.n_experts;
  moe_routing_choices choices{.struct_size = sizeof choices,
                              .layer = tokens.layer,
                              .position = tokens.position,
                              .n_tokens = r->n_tokens,
                              .n_slots = r->max_k,
                              .counts = r->count,
                              .experts = r->expert,
                              .weights = r->weight,
                              .hidden = tokens.states,
                              .scores = r->scores,
                              .d = tokens.d,
                              .n_experts = n_experts};
  if (!watch->callback(watch->user, &choices)) watch->session->cancel();
}

Status watch_routing(moe_session* session, moe_routing_fn callback, void* user) {
  MOE_TRY(check_session(session));
  LockGuard guard(session->watching);
  const int other = 1 - session->watch;
  RoutingWatch& watch = session->watches[other];
  watch = {session->session.get(), callback, user};
  RoutingHook hook;
  if (callback != nullptr) hook = {pass_choices, &watch};
  MOE_TRY(session->session->set_routing_hook(hook));
  session->watch = other;
  return {};
}

}  // namespace

void drop(moe_session* session) {
  if (session->references.remove()) destroy(session);
}

}  // namespace moe

moe_status moe_session_create(moe_model* model, const moe_session_params* params, moe_session** out,
                              moe_error* error) {
  return moe::deliver(moe::create_session(model, params, out), error);
}

void moe_session_free(moe_session* session) {
  if (session != nullptr) moe::drop(session);
}

moe_status moe_session_eval(moe_session* session, const int32_t* tokens, size_t n_tokens,
                            moe_rows rows, float* logits, moe_error* error) {
  return moe::deliver(moe::eval(session, tokens, n_tokens, moe::enum_number(rows), logits), error);
}

moe_status moe_session_score(moe_session* session, const int32_t* tokens, size_t n_tokens,
                             float* logprobs, size_t n_logprobs, moe_error* error) {
  return moe::deliver(moe::score(session, tokens, n_tokens, logprobs, n_logprobs), error);
}

moe_status moe_sessions_eval(moe_session* const* sessions, const int32_t* tokens,
                             const size_t* n_tokens, size_t n, float* logits, moe_error* error) {
  return moe::deliver(moe::eval_each(sessions, tokens, n_tokens, n, logits), error);
}

int32_t moe_session_position(const moe_session* session) {
  return session == nullptr ? 0 : session->session->position();
}

int32_t moe_session_context(const moe_session* session) {
  return session == nullptr ? 0 : session->session->context();
}

moe_status moe_session_rewind(moe_session* session, int32_t position, moe_error* error) {
  return moe::deliver(moe::rewind(session, position), error);
}

void moe_session_cancel(moe_session* session) {
  if (session != nullptr) session->session->cancel();
}

moe_status moe_session_perplexity(moe_session* session, const int32_t* tokens, size_t n_tokens,
                                  moe_progress_fn progress, void* user, moe_perplexity* out,
                                  moe_error* error) {
  return moe::deliver(moe::perplexity(session, tokens, n_tokens, progress, user, out), error);
}

moe_status moe_session_set_router(moe_session* session, const moe_router* router,
                                  moe_error* error) {
  return moe::deliver(moe::set_router(session, router), error);
}

moe_status moe_session_count_routing(moe_session* session, bool on, moe_error* error) {
  if (session == nullptr) return moe::deliver(moe::null_argument("session"), error);
  return moe::deliver(session->session->count_routing(on), error);
}

moe_status moe_session_expect_drafts(moe_session* session, bool on, moe_error* error) {
  if (session == nullptr) return moe::deliver(moe::null_argument("session"), error);
  return moe::deliver(session->session->expect_drafts(on), error);
}

moe_status moe_session_get_routing(const moe_session* session, int32_t layer,
                                   moe_routing_stats* out, moe_error* error) {
  return moe::deliver(moe::get_routing(session, layer, out), error);
}

moe_status moe_session_get_activations(const moe_session* session, int32_t layer,
                                       moe_activation_stats* out, moe_error* error) {
  return moe::deliver(moe::get_activations(session, layer, out), error);
}

moe_status moe_session_watch_routing(moe_session* session, moe_routing_fn callback, void* user,
                                     moe_error* error) {
  return moe::deliver(moe::watch_routing(session, callback, user), error);
}
