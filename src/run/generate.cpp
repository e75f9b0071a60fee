#include "src/run/generate.h"

#include <time.h>

#include "src/base/inline.h"
#include "src/run/logits.h"
#include "src/run/session_state.h"
#include "src/run/stop_matcher.h"
#include "src/text/stream_decoder.h"

namespace moe {
namespace {

double now_seconds() {
  timespec t{};
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

bool contains(std::span<const int32_t> ids, int32_t id) {
  for (const int32_t i : ids) {
    if (i == id) return true;
  }
  return false;
}

Status check_options(const GenerateOptions& o, const Tokenizer* tokenizer, int32_t vocab_size) {
  MOE_TRY(validate(o.sampling, vocab_size));
  if (o.max_tokens < 0) {
    return Status::error(MOE_ERR_RANGE, "max_tokens: expected at least 0, found %d", o.max_tokens);
  }
  if (o.n_top < 0 || o.n_top > kMaxTopLogprobs) {
    return Status::error(MOE_ERR_RANGE, "n_top: expected 0..%d, found %d", kMaxTopLogprobs,
                         o.n_top);
  }
  if (!o.stop.empty() && tokenizer == nullptr) {
    return Status::error(MOE_ERR_UNSUPPORTED, "stop strings need a model with a tokenizer");
  }
  return {};
}

/// Checks the logits that a callback left. A ban becomes the lowest finite number, because sampling
/// needs finite logits: its weight is zero.
Status settle_bans(std::span<float> logits) {
  constexpr float kLowest = -3.40282347e38f;
  size_t n_banned = 0;
  for (size_t i = 0; i < logits.size(); ++i) {
    if (logits[i] == -__builtin_inff()) {
      logits[i] = kLowest;
      ++n_banned;
    } else if (!is_finite(logits[i])) {
      return non_finite_logit(i).with_context("logits callback");
    }
  }
  if (n_banned < logits.size()) return {};
  return Status::error(MOE_ERR_RANGE, "logits callback: every token is banned");
}

/// One generation in progress.
class Generation {
 public:
  Generation(SessionState& state, const Tokenizer* tokenizer, const GenerateOptions& options,
             const Allocator& allocator)
      : state_(state),
        tokenizer_(tokenizer),
        options_(options),
        stops_(allocator),
        text_(allocator),
        changed_(allocator),
        allocator_(allocator) {}

  Status prepare() {
    if (options_.change_logits != nullptr) MOE_TRY(changed_.resize(state_.logits.size()));
    return stops_.init(options_.stop);
  }
  Status run(GenerateResult* result);

 private:
  Status loop(StreamDecoder* decoder, GenerateResult* result);
  Status sample_next_token(TokenLogprob* next, bool* go_on);
  Status decode(StreamDecoder* decoder, int32_t token, std::string_view* ready);
  Status flush(StreamDecoder* decoder, GenerateResult* result);
  bool give(const Piece& piece) {
    return options_.callback == nullptr || options_.callback(options_.user, piece);
  }

  SessionState& state_;
  const Tokenizer* tokenizer_;
  const GenerateOptions& options_;
  StopMatcher stops_;
  String text_;
  Array<float> changed_;  // (vocab) the callback's copy; the session's logits are unchanged
  bool in_header_ = false;
  const Allocator& allocator_;
  TokenLogprob top_[kMaxTopLogprobs];
};

// Decodes one more token, as far as whole characters are complete.
Status Generation::decode(StreamDecoder* decoder, int32_t token, std::string_view* ready) {
  *ready = {};
  if (decoder == nullptr) return {};
  text_.clear();
  // Ids in a vocabulary's padding have no text.
  const bool has_text = token < tokenizer_->n_vocab();
  if (has_text) MOE_TRY(decoder->push(token, text_));
  const bool ends = options_.in_parts && has_text && tokenizer_->is_special(token);
  const bool in_header = in_header_;
  if (contains(options_.headers.begins, token)) in_header_ = true;
  if (token == options_.headers.ends) in_header_ = false;
  if (!in_header) return stops_.push(text_.view(), ready, ends);
  *ready = text_.view();
  return {};
}

// At the end, reports the text that was withheld.
Status Generation::flush(StreamDecoder* decoder, GenerateResult* result) {
  if (decoder == nullptr || stops_.stopped()) return {};
  bool go_on = result->finish != Finish::kCallback;
  if (!go_on && !options_.all_text) return {};
  text_.clear();
  MOE_TRY(decoder->finish(text_));
  Piece piece;
  MOE_TRY(stops_.push(text_.view(), &piece.text));
  if (!piece.text.empty()) go_on = give(piece) && go_on;
  if (stops_.stopped()) {
    if (go_on || result->finish != Finish::kCallback) result->finish = Finish::kStop;
    return {};
  }
  piece.text = stops_.finish();
  if ((go_on || options_.all_text) && !piece.text.empty()) go_on = give(piece) && go_on;
  if (!go_on) result->finish = Finish::kCallback;
  return {};
}

// *go_on: false if the callback stopped; then nothing was sampled.
Status Generation::sample_next_token(TokenLogprob* next, bool* go_on) {
  const size_t n_top = static_cast<size_t>(options_.n_top);
  if (options_.change_logits == nullptr) {
    return sample_next(state_, options_.sampling, next, top_, n_top);
  }
  MOE_TRY(recall_logits(state_));
  MOE_TRY(read_logits(state_, changed_.data()));
  *go_on = options_.change_logits(options_.logits_user, state_.tokens.span(), changed_.span());
  if (!*go_on) return {};
  MOE_TRY(settle_bans(changed_.span()));
  return state_.sampler.sample(options_.sampling, changed_.span(), state_.tokens.span(),
                               static_cast<uint64_t>(state_.position()), next, top_, n_top);
}

Status Generation::loop(StreamDecoder* decoder, GenerateResult* result) {
  const ModelConfig& config = state_.model.config();
  const size_t n_top = static_cast<size_t>(options_.n_top);
  for (;;) {
    if (options_.max_tokens > 0 && result->n_generated == options_.max_tokens) {
      result->finish = Finish::kLength;
      return {};
    }
    if (state_.position() == state_.options.context) {
      result->finish = Finish::kContext;
      return {};
    }
    TokenLogprob next{};
    bool go_on = true;
    MOE_TRY(sample_next_token(&next, &go_on));
    if (!go_on) {
      result->finish = Finish::kCallback;
      return {};
    }
    if (!options_.ignore_eos && (contains(config.eos_token_ids.span(), next.token) ||
                                 contains(options_.more_eos, next.token))) {
      result->finish = Finish::kEos;
      return {};
    }
    Piece piece{next.token, next.logprob, {}, {top_, n_top}, false};
    MOE_TRY(decode(decoder, next.token, &piece.text));
    go_on = give(piece);
    ++result->n_generated;
    MOE_TRY(eval_tokens(state_, {&next.token, 1}, {}));
    if (stops_.stopped()) {
      result->finish = Finish::kStop;
      return {};
    }
    if (!go_on) {
      result->finish = Finish::kCallback;
      return {};
    }
  }
}

Status Generation::run(GenerateResult* result) {
  if (tokenizer_ == nullptr) return loop(nullptr, result);
  StreamDecoder decoder(*tokenizer_, true, allocator_);
  // The text so far affects how the first new token is decoded (a leading space, half a character).
  for (const int32_t token : state_.tokens) {
    text_.clear();
    if (token < tokenizer_->n_vocab()) MOE_TRY(decoder.push(token, text_));
  }
  MOE_TRY(loop(&decoder, result));
  return flush(&decoder, result);
}

}  // namespace

Status check_generate(const SessionState& state, const Tokenizer* tokenizer,
                      std::span<const int32_t> prompt, int32_t used,
                      const GenerateOptions& options) {
  MOE_TRY(check_options(options, tokenizer, state.model.config().vocab_size));
  MOE_TRY(check_tokens(state, prompt, used));
  if (prompt.empty() && used == 0) {
    return Status::error(MOE_ERR_STATE, "the session is empty: there is nothing to continue");
  }
  return StopMatcher::check(options.stop);
}

Status generate(Session& session, const Tokenizer* tokenizer, std::span<const int32_t> prompt,
                const GenerateOptions& options, GenerateResult* out) {
  const SessionCall call(session);
  MOE_TRY(call.status());
  return generate(call.state(), tokenizer, prompt, options, out);
}

Status generate(SessionState& state, const Tokenizer* tokenizer, std::span<const int32_t> prompt,
                const GenerateOptions& options, GenerateResult* out) {
  MOE_TRY(check_generate(state, tokenizer, prompt, state.position(), options));
  Generation generation(state, tokenizer, options, state.model.allocator());
  MOE_TRY(generation.prepare());

  GenerateResult result;
  result.n_prompt = static_cast<int32_t>(prompt.size());
  state.spec = {};
  if (options.change_logits == nullptr) {
    ask_for(state, options.sampling, static_cast<size_t>(options.n_top));
  }
  const double start = now_seconds();
  MOE_TRY(eval_tokens(state, prompt, {}));
  const double prompt_end = now_seconds();
  MOE_TRY(generation.run(&result));
  result.prompt_seconds = prompt_end - start;
  result.generate_seconds = now_seconds() - prompt_end;
  *out = result;
  return {};
}

}  // namespace moe
