// SPDX-License-Identifier: MIT
// Sampling and generation.

#include "src/c_api/generate.h"

#include "src/run/default_sampling.h"

namespace moe {

static_assert(sizeof(moe_logit_bias) == sizeof(LogitBias) &&
                  sizeof(moe_token_logprob) == sizeof(TokenLogprob),
              "the C structs are handed on as they are");

Status sampling_config(const moe_sampling* given, SamplingConfig* out) {
  moe_sampling p{};
  MOE_TRY(read_params(given, "sampling", &p));
  if (p.n_bias < 0 || (p.n_bias > 0 && p.bias == nullptr)) {
    return Status::error(MOE_ERR_ARGUMENT, "sampling.bias: %d entries at a NULL or negative count",
                         p.n_bias);
  }
  SamplingConfig config;
  config.bias = {reinterpret_cast<const LogitBias*>(p.bias), static_cast<size_t>(p.n_bias)};
  config.temperature = p.temperature;
  config.top_k = p.top_k;
  config.seed = p.seed;
  // Zero means the default where zero is not a useful value.
#define MOE_SAMPLING_FILTER(name, off, range, text) \
  if (p.name != 0) config.name = p.name;
#include "src/model/sampling_list.h"
  if (p.repetition_penalty != 0) config.repetition_penalty = p.repetition_penalty;
  if (p.repetition_window != 0) config.repetition_window = p.repetition_window;
  *out = config;
  return {};
}

Status GenerateCall::read(const moe_generate_params* given, const moe_model& model) {
  moe_generate_params p{};
  MOE_TRY(read_params(given, "params", &p));
  if (p.n_stop < 0 || (p.n_stop > 0 && p.stop == nullptr)) {
    return Status::error(MOE_ERR_ARGUMENT, "params.stop: %d strings at a NULL or negative count",
                         p.n_stop);
  }
  for (int32_t i = 0; i < p.n_stop; ++i) {
    if (p.stop[i] == nullptr) return Status::error(MOE_ERR_ARGUMENT, "params.stop[%d] is NULL", i);
    MOE_TRY(stops.push(p.stop[i]));
  }
  MOE_TRY(sampling_config(p.sampling, &options.sampling));
  options.max_tokens = p.max_tokens;
  options.stop = stops.span();
  options.ignore_eos = p.ignore_eos != 0;
  options.n_top = p.n_top;
  options.max_draft = p.max_draft;
  callback = p.piece;
  user = p.piece_user;
  if (callback != nullptr) {
    options.callback = call_back;
    options.user = this;
  }
  logits_callback = p.logits;
  logits_user = p.logits_user;
  if (logits_callback != nullptr) {
    options.change_logits = change_logits;
    options.logits_user = this;
  }
  if (p.grammar == nullptr) return {};
  if (p.grammar->model.get() != &model) {
    return Status::error(MOE_ERR_ARGUMENT, "params.grammar: made for another model");
  }
  grammar = Ref<moe_grammar>(p.grammar);
  options.grammar = grammar->grammar.get();
  return {};
}

bool GenerateCall::change_logits(void* user, std::span<const int32_t> text,
                                 std::span<float> logits) {
  const auto* call = static_cast<const GenerateCall*>(user);
  return call->logits_callback(call->logits_user, text.data(), text.size(), logits.data(),
                               logits.size());
}

bool GenerateCall::call_back(void* user, const Piece& piece) {
  const auto* call = static_cast<const GenerateCall*>(user);
  const moe_piece c = {.struct_size = sizeof c,
                       .token = piece.token,
                       .logprob = piece.logprob,
                       .flags = (piece.thinking ? uint32_t{MOE_PIECE_THINKING} : 0) |
                                (piece.call ? uint32_t{MOE_PIECE_TOOL_CALL} : 0),
                       .text = piece.text.empty() ? "" : piece.text.data(),
                       .n_bytes = piece.text.size(),
                       .top = reinterpret_cast<const moe_token_logprob*>(piece.top.data()),
                       .n_top = piece.top.size()};
  return call->callback(call->user, &c);
}

namespace {

Status get_sampling(const moe_model* model, moe_sampling* out, bool* in_file) {
  if (model == nullptr) return null_argument("model");
  MOE_TRY(check_out_struct(out, "out"));
  const ModelConfig& config = model->model->config();
  const SamplingConfig s = default_sampling(config.sampling, config.context_length);
  moe_sampling value{};
  value.temperature = s.temperature;
  value.top_k = s.top_k;
#define MOE_SAMPLING_FILTER(name, off, range, text) value.name = s.name;
#include "src/model/sampling_list.h"
  value.repetition_penalty = s.repetition_penalty;
  value.repetition_window = s.repetition_window;
  write_struct(value, out);
  if (in_file != nullptr) *in_file = config.sampling.given && advises_sampling(config.sampling);
  return {};
}

Status sample(moe_session* session, const moe_sampling* sampling, moe_token_logprob* out,
              moe_token_logprob* top, size_t n_top) {
  MOE_TRY(check_session(session));
  if (out == nullptr) return null_argument("out");
  if (top == nullptr) n_top = 0;
  SamplingConfig config;
  MOE_TRY(sampling_config(sampling, &config));
  return session->session->sample(config, reinterpret_cast<TokenLogprob*>(out),
                                  reinterpret_cast<TokenLogprob*>(top), n_top);
}

Status run_generate(moe_session* session, const int32_t* prompt, size_t n_prompt,
                    const moe_generate_params* given, moe_generate_result* out) {
  MOE_TRY(check_session(session));
  if (prompt == nullptr && n_prompt != 0) return null_argument("prompt");
  MOE_TRY(check_out_struct(out, "out"));
  GenerateCall call(session->model->env->allocator);
  MOE_TRY(call.read(given, *session->model));
  GenerateResult result;
  MOE_TRY(generate(*session->session, session->model->text.tokenizer.get(), {prompt, n_prompt},
                   call.options, &result));
  moe_generate_result value{};
  describe_result(result, &value);
  write_struct(value, out);
  return {};
}

Status create_generation(moe_session* session, const moe_generate_params* given,
                         moe_generation** out) {
  MOE_TRY(check_session(session));
  if (out == nullptr) return null_argument("out");
  const Allocator& allocator = session->model->env->allocator;
  MOE_ASSIGN(Box<moe_generation> made, make_box<moe_generation>(allocator, *session, allocator));
  MOE_TRY(made->read(given));
  MOE_ASSIGN(made->steps,
             SteppedGeneration::create(*session->session, session->model->text.tokenizer.get(),
                                       made->call.options, {}, allocator));
  *out = made.release();
  return {};
}

using Step = Status (SteppedGeneration::*)(int32_t* token, Finish* finish);

Status next_token(moe_generation* generation, Step step, int32_t* token, moe_finish* out) {
  if (generation == nullptr) return null_argument("generation");
  if (token == nullptr) return null_argument("token");
  if (out == nullptr) return null_argument("finish");
  MOE_TRY(check_session(generation->session.get()));
  Finish finish{};
  MOE_TRY((generation->steps.get()->*step)(token, &finish));
  if (*token < 0) *out = static_cast<moe_finish>(finish);
  return {};
}

void destroy(moe_generation* generation) {
  const Ref<moe_session> session = generation->session;  // keeps the allocator
  const Allocator& allocator = generation->allocator;
  generation->~moe_generation();
  deallocate(allocator, generation, sizeof *generation);
}

}  // namespace
}  // namespace moe

moe::Status moe_generation::read(const moe_generate_params* given) {
  MOE_TRY(call.read(given, *session->model));
  std::span<const moe::LogitBias>& used = call.options.sampling.bias;
  MOE_TRY(bias.append(used.data(), used.size()));
  used = bias.span();
  return {};
}

moe_status moe_generation_create(moe_session* session, const moe_generate_params* params,
                                 moe_generation** out, moe_error* error) {
  return moe::deliver(moe::create_generation(session, params, out), error);
}

moe_status moe_generation_next(moe_generation* generation, int32_t* token, moe_finish* finish,
                               moe_error* error) {
  return moe::deliver(moe::next_token(generation, &moe::SteppedGeneration::next, token, finish),
                      error);
}

moe_status moe_generation_advance(moe_generation* generation, int32_t* token, moe_finish* finish,
                                  moe_error* error) {
  return moe::deliver(moe::next_token(generation, &moe::SteppedGeneration::advance, token, finish),
                      error);
}

int32_t moe_generation_stop(const moe_generation* generation) {
  return generation == nullptr ? -1 : generation->steps->stop();
}

void moe_generation_free(moe_generation* generation) {
  if (generation != nullptr) moe::destroy(generation);
}

moe_status moe_model_get_sampling(const moe_model* model, moe_sampling* out, bool* in_file,
                                  moe_error* error) {
  return moe::deliver(moe::get_sampling(model, out, in_file), error);
}

moe_status moe_session_sample(moe_session* session, const moe_sampling* sampling,
                              moe_token_logprob* out, moe_token_logprob* top, size_t n_top,
                              moe_error* error) {
  return moe::deliver(moe::sample(session, sampling, out, top, n_top), error);
}

moe_status moe_session_generate(moe_session* session, const int32_t* prompt, size_t n_prompt,
                                const moe_generate_params* params, moe_generate_result* out,
                                moe_error* error) {
  return moe::deliver(moe::run_generate(session, prompt, n_prompt, params, out), error);
}
