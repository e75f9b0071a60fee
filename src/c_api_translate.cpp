// SPDX-License-Identifier: MIT
// Encoder-decoders.

#include "src/c_api.h"

namespace moe {
namespace {

static_assert(sizeof(moe_translation) == sizeof(Translations::Text));
static_assert(offsetof(moe_translation, score) == offsetof(Translations::Text, score));

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
  if (p.no_length_penalty != 0) o.length_penalty = 0;
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
  if (out->no_length_penalty != 0 && out->length_penalty != 0) {
    return Status::error(MOE_ERR_ARGUMENT,
                         "params.length_penalty and params.no_length_penalty exclude each other");
  }
  return out->prefix == nullptr && out->n_prefix != 0 ? null_argument("params.prefix") : Status();
}

Status run_translate(moe_session* session, const int32_t* source, size_t n_source,
                     const moe_translate_params* given, moe_translate_result* out) {
  MOE_TRY(check_session(session));
  if (source == nullptr) return null_argument("source");
  MOE_TRY(check_out_struct(out, "out"));
  moe_translate_params p{};
  MOE_TRY(read_translate_params(given, &p));
  TranslateBridge bridge{p.progress, p.user};
  TranslateOptions options;
  options.search = beam_options(p, *session);
  options.prefix = {p.prefix, p.n_prefix};
  if (p.progress != nullptr) {
    options.progress = TranslateBridge::call;
    options.user = &bridge;
  }
  MOE_TRY(translate(*session->session, {source, n_source}, options, &session->translations));
  moe_translate_result value{};
  value.texts = reinterpret_cast<const moe_translation*>(session->translations.texts.data());
  value.n_texts = session->translations.texts.size();
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
                                 const moe_translate_params* params, moe_translate_result* out,
                                 moe_error* error) {
  return moe::deliver(moe::run_translate(session, source, n_source, params, out), error);
}

moe_status moe_session_read_source(moe_session* session, const int32_t* source, size_t n_source,
                                   float* hidden, moe_error* error) {
  return moe::deliver(moe::run_read_source(session, source, n_source, hidden), error);
}
