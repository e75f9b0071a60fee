// SPDX-License-Identifier: MIT
// Runs the encoder once, then the decoder for all running hypotheses of a beam search, each with
// its place in the cache.
#include "src/run/translate.h"

#include <algorithm>

#include "src/base/inline.h"
#include "src/run/logits.h"
#include "src/run/session_state.h"

namespace moe {
namespace {

Status check_source(const SessionState& state, std::span<const int32_t> tokens) {
  const ModelConfig& config = state.model.config();
  if (!config.is_encoder_decoder()) {
    return Status::error(MOE_ERR_UNSUPPORTED,
                         "the model is %s: only an encoder-decoder reads a source and translates",
                         config.is_encoder() ? "an encoder" : "a decoder");
  }
  const int32_t most = std::min(state.options.source, state.chunk());
  if (tokens.empty()) return Status::error(MOE_ERR_RANGE, "source: there is no token to read");
  if (tokens.size() > static_cast<size_t>(most)) {
    const int32_t model_takes = std::min(config.source_length, kMaxChunk);
    return Status::error(MOE_ERR_TOO_LONG,
                         most < model_takes
                             ? "source: %zu tokens do not fit: the session takes %d; "
                               "create it with a larger context and chunk "
                               "(--context, --chunk), at most %d"
                             : "source: %zu tokens do not fit: the model takes %d",
                         tokens.size(), most, model_takes);
  }
  return check_ids(state, tokens).with_context("source");
}

void forget_source(SessionState& state) {
  rewind_to(state, 0);
  state.kv.n_source = 0;
}

Status check_memory(std::span<const float> hidden) {
  for (const float x : hidden) {
    if (is_finite(x)) continue;
    return Status::error(MOE_ERR_NON_FINITE, "the encoder's output is not finite");
  }
  return {};
}

// The source has been checked.
Status encode_source(SessionState& state, std::span<const int32_t> tokens, float* hidden) {
  forget_source(state);
  const Status status = forward_source(state, tokens, hidden);
  if (status.code() == MOE_ERR_DEVICE) state.call.poisoned = true;
  MOE_TRY(status);
  if (hidden != nullptr) {
    const auto d = static_cast<size_t>(state.model.config().d_model);
    MOE_TRY(check_memory({hidden, tokens.size() * d}));
  }
  state.routers.counters.add_pass();
  state.kv.n_source = static_cast<int32_t>(tokens.size());
  return {};
}

Status check_options(const SessionState& state, const TranslateOptions& o) {
  MOE_TRY(validate(o.search));
  if (o.search.beam > state.options.max_beam) {
    return Status::error(MOE_ERR_RANGE,
                         "beam search: beam: the session was made for at most %d (max_beam), "
                         "found %d",
                         state.options.max_beam, o.search.beam);
  }
  if (o.search.max_tokens >= state.options.context) {  // the start token takes a position
    return Status::error(MOE_ERR_TOO_LONG,
                         "beam search: max_tokens: at most %d in a context of %d, found %d",
                         state.options.context - 1, state.options.context, o.search.max_tokens);
  }
  if (o.prefix.size() > static_cast<size_t>(o.search.max_tokens)) {
    return Status::error(MOE_ERR_RANGE, "beam search: prefix: at most max_tokens, %d, found %zu",
                         o.search.max_tokens, o.prefix.size());
  }
  return check_ids(state, o.prefix).with_context("prefix");
}

void lay_out_row(Carver& c, const ModelConfig& config, std::span<float>* logprobs) {
  c.take(logprobs, config.vocab_size);
}

/// A beam search over the decoder's texts for the session's source. Each running hypothesis has a
/// place in the KV cache.
class Search {
 public:
  Search(SessionState& state, const TranslateOptions& options)
      : state_(state),
        options_(options),
        beam_(state.model.allocator()),
        memory_(state.model.allocator()) {}

  Status run();
  Status read(Translations* out) const;

 private:
  struct Offer {
    Search* search;
    int32_t hypothesis;
    static Status take(void* user, size_t, const float* logits);
  };
  std::span<const int32_t> prefix() const;
  Status report(int32_t n_tokens) const;
  Status step(int32_t position);
  void place(int32_t n_positions);

  SessionState& state_;
  const TranslateOptions& options_;
  BeamSearch beam_;
  std::span<float> logprobs_;  // (vocab_size)
  HostBuffer memory_;
  int32_t places_[kMaxBeam] = {};
  int32_t tokens_[kMaxBeam] = {};  // the last ones
  Offer offers_[kMaxBeam] = {};
};

std::span<const int32_t> Search::prefix() const {
  const int32_t& forced = state_.model.config().forced_token_id;
  if (!options_.prefix.empty() || forced < 0) return options_.prefix;
  return {&forced, options_.search.max_tokens > 0 ? size_t{1} : size_t{0}};
}

Status Search::run() {
  const ModelConfig& config = state_.model.config();
  MOE_TRY(memory_.init("beam search", [&](Carver& c) { lay_out_row(c, config, &logprobs_); }));
  MOE_TRY(
      beam_.begin(options_.search, {config.eos_token_ids.span(), prefix(), config.pad_token_id}));
  for (int32_t n = 0; !beam_.done(); ++n) {
    MOE_TRY(report(n));
    if (n > 0) place(n);
    MOE_TRY(step(n));
    MOE_TRY(beam_.end_step());
  }
  return {};
}

Status Search::report(int32_t n_tokens) const {
  const auto progress = options_.progress;
  if (progress == nullptr || progress(options_.user, n_tokens, options_.search.max_tokens)) {
    return {};
  }
  return Status::error(MOE_ERR_CANCELLED, "cancelled");
}

// A hypothesis continues in its parent's place; if a parent has several, the first keeps the place
// and the others get copies in unused places.
void Search::place(int32_t n_positions) {
  int32_t next[kMaxBeam];
  bool taken[kMaxBeam] = {};
  for (int32_t j = 0; j < beam_.n_running(); ++j) {
    const int32_t parents = places_[beam_.parent(j)];
    next[j] = taken[parents] ? -1 : parents;
    taken[parents] = true;
  }
  int32_t free = 0;
  for (int32_t j = 0; j < beam_.n_running(); ++j) {
    if (next[j] >= 0) continue;
    while (taken[free]) ++free;
    taken[free] = true;
    next[j] = free;
    state_.kv.copy_text(state_.model.config(), places_[beam_.parent(j)], free, n_positions);
  }
  std::copy_n(next, beam_.n_running(), places_);
}

Status Search::Offer::take(void* user, size_t, const float* logits) {
  const Offer& offer = *static_cast<Offer*>(user);
  const std::span<float> logprobs = offer.search->logprobs_;
  double total = 0;
  MOE_TRY(log_sum_exp({logits, logprobs.size()}, &total));
  for (size_t v = 0; v < logprobs.size(); ++v) {
    logprobs[v] = static_cast<float>(static_cast<double>(logits[v]) - total);
  }
  return offer.search->beam_.offer(offer.hypothesis, logprobs);
}

// Advances all hypotheses by one token, up to a chunk at a time.
Status Search::step(int32_t position) {
  const int32_t n = beam_.n_running();
  const int32_t start = state_.model.config().start_token_id;
  const PassLease lease(state_);
  MOE_TRY(lease.status());
  const int32_t chunk = state_.pass_rows();
  for (int32_t first = 0; first < n; first += chunk) {
    const int32_t end = std::min(n, first + chunk);
    for (int32_t j = first; j < end; ++j) {
      tokens_[j] = position == 0 ? start : beam_.token(j);
      offers_[j] = {this, j};
      BatchPart& part = state_.work().parts[static_cast<size_t>(j - first)];
      part = {&state_, {&tokens_[j], 1}, position, LogitRows::kAll, {Offer::take, &offers_[j]}};
      part.text = places_[j];
    }
    MOE_TRY(run_batch(state_, {state_.work().parts.data(), static_cast<size_t>(end - first)}));
    state_.routers.counters.add_pass();
  }
  return {};
}

Status Search::read(Translations* out) const {
  const int32_t n_texts = beam_.n_results();
  int64_t n_tokens = 0;
  for (int32_t i = 0; i < n_texts; ++i) n_tokens += beam_.n_tokens(i);
  MOE_TRY(out->memory.init("texts", [&](Carver& c) { out->lay_out(c, n_texts, n_tokens); }));
  int32_t* tokens = out->tokens.data();
  for (int32_t i = 0; i < n_texts; ++i) {
    const auto n = static_cast<size_t>(beam_.n_tokens(i));
    beam_.read(i, tokens);
    out->texts[static_cast<size_t>(i)] = {tokens, n, beam_.score(i)};
    tokens += n;
  }
  return {};
}

}  // namespace

Status read_source(Session& session, std::span<const int32_t> tokens, float* hidden) {
  SessionCall call(session);
  MOE_TRY(call.status());
  MOE_TRY(check_source(call.state(), tokens));
  return encode_source(call.state(), tokens, hidden);
}

Status translate(Session& session, std::span<const int32_t> source, const TranslateOptions& options,
                 Translations* out) {
  SessionCall call(session);
  MOE_TRY(call.status());
  SessionState& state = call.state();
  MOE_TRY(check_source(state, source));
  MOE_TRY(check_options(state, options));
  out->texts = {};
  out->tokens = {};
  MOE_TRY(encode_source(state, source, nullptr));
  Search search(state, options);
  MOE_TRY(search.run());
  return search.read(out);
}

uint64_t search_bytes(const ModelConfig& config, int32_t beam, int32_t context) {
  std::span<float> logprobs;
  Translations texts(system_allocator());
  BeamOptions most;
  most.beam = beam;
  most.max_tokens = context - 1;
  return BeamSearch::bytes(most) + measured([&](Carver& c) {
           lay_out_row(c, config, &logprobs);
           texts.lay_out(c, beam, int64_t{beam} * context);
         });
}

}  // namespace moe
