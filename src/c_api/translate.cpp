// SPDX-License-Identifier: MIT
// Encoder-decoders.

#include "src/c_api/handles.h"

namespace moe {
namespace {

struct TranslateBridge {
  moe_progress_fn progress;
  void* user;
  static bool call(void* user, int32_t n_tokens, int32_t most) {
    const auto* b = static_cast<const TranslateBridge*>(user);
    return b->progress(b->user, static_cast<uint64_t>(n_tokens), static_cast<uint64_t>(most),
                       "translate");
  }
};

// Replaces zeros by the defaults of moe_c.h; the core checks ranges.
BeamOptions beam_options(const moe_translate_params& p, const moe_session& session) {
  BeamOptions o;
  const SessionOptions& made = session.session->options();
  o.beam = p.beam != 0 ? p.beam : std::min(o.beam, std::max(made.max_beam, 1));
  if (p.n_best != 0) o.n_best = p.n_best;
  if (p.max_tokens == 0) o.max_tokens = std::min(o.max_tokens, made.context - 1);
  if (p.max_tokens != 0) o.max_tokens = p.max_tokens;
  if (p.min_tokens == 0) o.min_tokens = std::min(o.min_tokens, o.max_tokens);
  if (p.min_tokens != 0) o.min_tokens = p.min_tokens == -1 ? 0 : p.min_tokens;
  if (p.length_penalty != 0) o.length_penalty = p.length_penalty;
  if (enum_number(p.score) == MOE_BEAM_SCORE_SUM) o.length_penalty = 0;
  static_assert(static_cast<int>(BeamStop::kStep) == MOE_BEAM_STOP_STEP);
  o.stop = static_cast<BeamStop>(enum_number(p.stop));
  return o;
}

Status read_translate_params(const moe_translate_params* given, moe_translate_params* out) {
  MOE_TRY(read_params(given, "params", out));
  const int stop = enum_number(out->stop);
  if (stop < MOE_BEAM_STOP_COUNT || stop > MOE_BEAM_STOP_STEP) {
    return Status::error(MOE_ERR_ARGUMENT, "params.stop: expected 0..2, found %d", stop);
  }
  const int score = enum_number(out->score);
  if (score < MOE_BEAM_SCORE_POWER || score > MOE_BEAM_SCORE_SUM) {
    return Status::error(MOE_ERR_ARGUMENT, "params.score: expected 0..1, found %d", score);
  }
  if (score == MOE_BEAM_SCORE_SUM && out->length_penalty != 0) {
    return Status::error(MOE_ERR_ARGUMENT,
                         "params.length_penalty: expected 0 with MOE_BEAM_SCORE_SUM, found %g",
                         static_cast<double>(out->length_penalty));
  }
  return out->prefix == nullptr && out->n_prefix != 0 ? null_argument("params.prefix") : Status();
}

Status run_translate(moe_session* session, const int32_t* source, size_t n_source,
                     const moe_translate_params* given, size_t* n_texts) {
  MOE_TRY(check_session(session));
  if (source == nullptr) return null_argument("source");
  if (n_texts == nullptr) return null_argument("n_texts");
  moe_translate_params p{};
  MOE_TRY(read_translate_params(given, &p));
  TranslateBridge bridge{p.progress, p.progress_user};
  TranslateOptions options;
  options.search = beam_options(p, *session);
  options.prefix = {p.prefix, p.n_prefix};
  if (p.progress != nullptr) {
    options.progress = TranslateBridge::call;
    options.user = &bridge;
  }
  MOE_TRY(translate(*session->session, {source, n_source}, options, &session->translations));
  *n_texts = session->translations.texts.size();
  return {};
}

Status get_translation(const moe_session* session, size_t index, moe_translation* out) {
  if (session == nullptr) return null_argument("session");
  MOE_TRY(check_out_struct(out, "out"));
  const auto& texts = session->translations.texts;
  if (index >= texts.size()) {
    return Status::error(MOE_ERR_RANGE, "index: expected less than %zu, found %zu", texts.size(),
                         index);
  }
  moe_translation value{};
  value.score = texts[index].score;
  value.tokens = texts[index].tokens;
  value.n_tokens = texts[index].n_tokens;
  write_struct(value, out);
  return {};
}

Status run_read_source(moe_session* session, const int32_t* source, size_t n_source,
                       float* hidden) {
  MOE_TRY(check_session(session));
  if (source == nullptr) return null_argument("source");
  return read_source(*session->session, {source, n_source}, hidden);
}

}  // namespace
}  // namespace moe

moe_status moe_session_translate(moe_session* session, const int32_t* source, size_t n_source,
                                 const moe_translate_params* params, size_t* n_texts,
                                 moe_error* error) {
  return moe::deliver(moe::run_translate(session, source, n_source, params, n_texts), error);
}

moe_status moe_session_get_translation(const moe_session* session, size_t index,
                                       moe_translation* out, moe_error* error) {
  return moe::deliver(moe::get_translation(session, index, out), error);
}

moe_status moe_session_read_source(moe_session* session, const int32_t* source, size_t n_source,
                                   float* hidden, moe_error* error) {
  return moe::deliver(moe::run_read_source(session, source, n_source, hidden), error);
}
