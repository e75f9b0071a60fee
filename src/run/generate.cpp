// SPDX-License-Identifier: MIT
// Samples tokens, checks drafts in one pass, decodes text, and ends at stop strings, limits or the
// caller's wish.
#include "src/run/generate.h"

#include <algorithm>

#include "src/base/host_buffer.h"
#include "src/base/inline.h"
#include "src/run/generation.h"
#include "src/run/logits.h"

namespace moe {
namespace {

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
  if (o.max_draft < 0 || o.max_draft > static_cast<int32_t>(kMaxDraft)) {
    return Status::error(MOE_ERR_RANGE, "max_draft: expected 0..%zu, found %d", kMaxDraft,
                         o.max_draft);
  }
  if (o.max_draft > 0 && o.change_logits != nullptr) {
    return Status::error(MOE_ERR_ARGUMENT, "max_draft: not together with a logits callback");
  }
  if (o.grammar != nullptr && tokenizer == nullptr) {
    return Status::error(MOE_ERR_UNSUPPORTED, "a grammar needs a model with a tokenizer");
  }
  if (!o.stop.empty() && tokenizer == nullptr) {
    return Status::error(MOE_ERR_UNSUPPORTED, "stop strings need a model with a tokenizer");
  }
  return {};
}

/// Checks the logits that a callback left. A ban becomes the lowest finite number, because sampling
/// needs finite logits: its weight is zero.
Status clamp_bans(std::span<float> logits) {
  size_t n_banned = 0;
  for (size_t i = 0; i < logits.size(); ++i) {
    if (logits[i] == -__builtin_inff()) {
      logits[i] = kBannedLogit;
      ++n_banned;
    } else if (!is_finite(logits[i])) {
      return non_finite_logit(i).with_context("logits callback");
    }
  }
  if (n_banned < logits.size()) return {};
  return Status::error(MOE_ERR_RANGE, "logits callback: every token is banned");
}

void lay_out_copy(Carver& c, int32_t n_outputs, std::span<float>* copy) { c.take(copy, n_outputs); }

}  // namespace

Status Generation::prepare() {
  if (changes_logits()) {
    const int32_t n = state_.model.config().n_outputs();
    MOE_TRY(copy_.init("logits", [&](Carver& c) { lay_out_copy(c, n, &changed_); }));
  }
  MOE_TRY(constraint_.init(state_.model.config().eos_token_ids.span()));
  return stops_.init(options_.stop);
}

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
Status Generation::flush(StreamDecoder* decoder) {
  if (decoder == nullptr || stops_.stopped()) return {};
  bool go_on = result_.finish != Finish::kCallback;
  if (!go_on && !options_.all_text) return {};
  text_.clear();
  MOE_TRY(decoder->finish(text_));
  Piece piece;
  MOE_TRY(stops_.push(text_.view(), &piece.text));
  if (!piece.text.empty()) go_on = give(piece) && go_on;
  if (stops_.stopped()) {
    if (go_on || result_.finish != Finish::kCallback) result_.finish = Finish::kStop;
    return {};
  }
  piece.text = stops_.finish();
  if ((go_on || options_.all_text) && !piece.text.empty()) go_on = give(piece) && go_on;
  if (!go_on) result_.finish = Finish::kCallback;
  return {};
}

// True, with the generation ended, if nothing may follow `position` tokens.
bool Generation::at_limit(int32_t position) {
  if (options_.max_tokens > 0 && result_.n_generated == options_.max_tokens) {
    end(Finish::kLength);
  } else if (position == state_.options.context) {
    end(Finish::kContext);
  }
  return ended_;
}

bool Generation::is_end(int32_t token) const {
  const std::span<const int32_t> eos = state_.model.config().eos_token_ids.span();
  return !options_.ignore_eos && (contains(eos, token) || contains(options_.more_eos, token));
}

bool Generation::at_end_of_text() {
  if (is_end(next_.token)) end(Finish::kEos);
  return ended_;
}

// Samples the token after the first `text` tokens of a pass from its row of logits.
Status Generation::sample_row(const float* logits, size_t text, TokenLogprob* next,
                              TokenLogprob* top) {
  std::span<const float> row(logits, state_.logits.row().size());
  if (options_.grammar != nullptr) {
    std::copy(row.begin(), row.end(), changed_.begin());
    MOE_TRY(constraint_.ban(changed_));
    row = changed_;
  }
  MOE_TRY(state_.sampler().sample(options_.sampling, row, {state_.tokens.data(), text},
                                  static_cast<uint64_t>(text), next, top, n_top()));
  return constraint_.check(row, next->token);
}

Status Generation::sample_next_token() {
  if (!changes_logits()) return sample_next(state_, options_.sampling, &next_, top_, n_top());
  MOE_TRY(recall_logits(state_));
  MOE_TRY(read_logits(state_, changed_.data()));
  if (options_.change_logits != nullptr) {
    if (!options_.change_logits(options_.logits_user, state_.tokens.span(), changed_)) {
      end(Finish::kCallback);
      return {};
    }
    MOE_TRY(clamp_bans(changed_));
  }
  MOE_TRY(constraint_.ban(changed_));
  const PassLease lease(state_);
  MOE_TRY(lease.status());
  MOE_TRY(state_.sampler().sample(options_.sampling, changed_, state_.tokens.span(),
                                  static_cast<uint64_t>(state_.position()), &next_, top_, n_top()));
  return constraint_.check(changed_, next_.token);
}

// Samples the token after the session's last one, unless the generation ends.
Status Generation::choose() {
  if (at_limit(state_.position())) return {};
  MOE_TRY(sample_next_token());
  if (!ended_) (void)at_end_of_text();
  return {};
}

Status Generation::report(StreamDecoder* decoder) {
  Piece piece{next_.token, next_.logprob, {}, {top_, n_top()}, false};
  MOE_TRY(decode(decoder, next_.token, &piece.text));
  bool complete = false;
  MOE_TRY(constraint_.take(next_.token, text_.view(), &complete));
  const bool go_on = give(piece);
  ++result_.n_generated;
  if (stops_.stopped()) {
    end(Finish::kStop);
  } else if (!go_on) {
    end(Finish::kCallback);
  } else if (complete) {
    end(Finish::kEos);
  }
  return {};
}

// Puts the next token and a draft of those after it into pass_. The text that they continue stands
// behind the session's tokens, in the room reserved for the context.
size_t Generation::draft() {
  if (options_.max_draft == 0) return 0;
  const auto position = static_cast<size_t>(state_.position());
  size_t room = static_cast<size_t>(state_.options.context) - position - 1;
  room = std::min(room, static_cast<size_t>(state_.chunk()) - 1);
  if (options_.max_tokens > 0) {
    room = std::min(room, static_cast<size_t>(options_.max_tokens - result_.n_generated));
  }
  int32_t* const text = state_.tokens.room().data();
  text[position] = pass_[0] = next_.token;
  if (options_.grammar != nullptr && !constraint_.active()) return 0;
  size_t n = 0;
  room = std::min(room, static_cast<size_t>(options_.max_draft));
  if (!constraint_.draft(room, pass_ + 1, &n).ok()) n = 0;  // sampling finds the error again
  forced_ = n > 0;
  if (!forced_) n = draft_more({text, position + 1}, room);
  std::copy_n(pass_ + 1, n, text + position + 1);
  return n;
}

// Drafts from the text that ends in the next token, or lets the model guess.
size_t Generation::draft_more(std::span<const int32_t> text, size_t room) {
  Predictions& predictions = state_.predictions;
  const Guesser guesser = {guess, this};
  const size_t n = drafter_.draft(text, room, pass_ + 1, predictions.any() ? &guesser : nullptr);
  if (!predictions.any()) return n;
  predictions.follows = drafter_.guesses();
  // The pass leaves hidden states of all its tokens, those that turn out to be wrong too.
  if (n > 0 && predictions.follows && !predictions.has_room(n + 1))
    (void)predict(state_, 0, nullptr);
  return n;
}

size_t Generation::guess(void* user, size_t n, int32_t* out, double* seconds) {
  Generation& generation = *static_cast<Generation*>(user);
  SessionState& state = generation.state_;
  const GenerateOptions& options = generation.options_;
  const double start = state.model.clock().seconds();
  const size_t n_guessed = predict(state, n, out);
  if (options.change_guesses != nullptr) {
    const size_t n_text = static_cast<size_t>(state.position()) + 1;
    options.change_guesses(options.guesses_user, {state.tokens.room().data(), n_text},
                           {out, n_guessed});
  }
  *seconds = state.model.clock().seconds() - start;
  return n_guessed;
}

// Evaluates the next token and the draft in one pass. *checked: false if the pass failed, which
// may be because of a wrong token; then nothing has changed.
Status Generation::check_draft(size_t n_drafted, StreamDecoder* decoder, bool* checked) {
  struct Pass {
    Generation& generation;
    size_t position;
    size_t n_drafted;
    Checked checked;
    bool settled = false;

    static Status take(void* user, size_t i, const float* logits) {
      Pass& p = *static_cast<Pass*>(user);
      if (p.settled) return {};
      Generation& g = p.generation;
      TokenLogprob& next = p.checked.tokens[i];
      p.checked.status =
          g.sample_row(logits, p.position + 1 + i, &next, p.checked.top + i * kMaxTopLogprobs);
      if (p.checked.status.ok()) ++p.checked.n;
      p.settled = !p.checked.status.ok() || i == p.n_drafted || next.token != g.pass_[i + 1] ||
                  g.is_end(next.token);
      if (!p.settled && g.options_.grammar != nullptr) {
        p.checked.status = g.constraint_.take_ahead(next.token);
        p.settled = !p.checked.status.ok();
      }
      return {};
    }
  } pass{*this, static_cast<size_t>(state_.position()), n_drafted, {}};
  const bool constrained = options_.grammar != nullptr;
  const grammar::Matcher::Place place = constrained ? constraint_.place() : 0;
  const double start = state_.model.clock().seconds();
  Status status = eval_tokens(state_, {pass_, n_drafted + 1}, {Pass::take, &pass});
  if (constrained) constraint_.go_back(place);
  const double seconds = state_.model.clock().seconds() - start;
  if (status.code() == MOE_ERR_CANCELLED || status.code() == MOE_ERR_DEVICE) return status;
  *checked = status.ok();
  if (!*checked) return {};
  size_t n_right = 0;
  status = take_draft(pass.checked, n_drafted, decoder, &n_right);
  result_.n_drafted += static_cast<int32_t>(n_drafted);
  result_.n_accepted += static_cast<int32_t>(n_right);
  const double again = state_.model.clock().seconds();
  rewind_to(state_, pass.position + 1 + n_right);
  // Tokens that were right are evaluated again from the state before the pass. That is part of what
  // the draft has cost.
  const bool more = status.ok() && !ended_;
  if (more) status = reach_state(state_, state_, state_.position());
  if (!forced_) drafter_.learn(n_right, seconds + state_.model.clock().seconds() - again);
  return status;
}

// Reports the drafted tokens that are right; next_ is then the token after them, unless the
// generation has ended.
Status Generation::take_draft(const Checked& checked, size_t n_drafted, StreamDecoder* decoder,
                              size_t* n_right) {
  const int32_t position = state_.position() - static_cast<int32_t>(n_drafted);
  for (size_t i = 0; !at_limit(position + static_cast<int32_t>(i)); ++i) {
    if (i == checked.n) return checked.status;
    next_ = checked.tokens[i];
    std::copy_n(checked.top + i * kMaxTopLogprobs, n_top(), top_);
    if (at_end_of_text() || i == n_drafted || next_.token != pass_[i + 1]) return {};
    ++*n_right;
    MOE_TRY(report(decoder));
    if (state_.call.cancelled()) {  // as if the token were evaluated now
      --*n_right;
      return Status::error(MOE_ERR_CANCELLED, "cancelled");
    }
    if (ended_) return {};
  }
  return {};
}

Status Generation::loop(StreamDecoder* decoder) {
  MOE_TRY(choose());
  while (!ended_) {
    MOE_TRY(report(decoder));
    const size_t n_drafted = ended_ ? 0 : draft();
    bool checked = false;
    if (n_drafted > 0) MOE_TRY(check_draft(n_drafted, decoder, &checked));
    if (checked) continue;
    MOE_TRY(step());
  }
  return {};
}

Status Generation::step() {
  if (options_.change_logits != nullptr) return step_with_workspace();  // it may call the library
  const PassLease lease(state_);  // for the pass and for sampling: otherwise it would wait twice
  MOE_TRY(lease.status());
  return step_with_workspace();
}

Status Generation::step_with_workspace() {
  const double start = state_.model.clock().seconds();
  MOE_TRY(eval_tokens(state_, {&next_.token, 1}, {}));
  drafter_.learn_single(state_.model.clock().seconds() - start);
  return ended_ ? Status() : choose();
}

Status Generation::run() {
  if (tokenizer_ == nullptr) return loop(nullptr);
  StreamDecoder decoder(*tokenizer_, true, allocator_);
  MOE_TRY(prime(decoder));
  MOE_TRY(loop(&decoder));
  return flush(&decoder);
}

// The text so far affects how the first new token is decoded (a leading space, half a character).
Status Generation::prime(StreamDecoder& decoder) {
  for (const int32_t token : state_.tokens) {
    text_.clear();
    if (token < tokenizer_->n_vocab()) MOE_TRY(decoder.push(token, text_));
  }
  constraint_.prime(decoder);
  return {};
}

// After the last token there is nothing to evaluate: the limits are checked at once.
Status Generation::next(StreamDecoder* decoder, int32_t* token) {
  if (!at_limit(state_.position())) {
    MOE_TRY(sample_next_token());
    if (!ended_) (void)at_end_of_text();
  }
  return give_next(decoder, token);
}

Status Generation::advance(StreamDecoder* decoder, int32_t* token) {
  const size_t n_drafted = draft();
  bool checked = false;
  if (n_drafted > 0) MOE_TRY(check_draft(n_drafted, decoder, &checked));
  if (!checked) MOE_TRY(step());
  return give_next(decoder, token);
}

// Reports the token that was sampled, unless the generation has ended.
Status Generation::give_next(StreamDecoder* decoder, int32_t* token) {
  if (!ended_) MOE_TRY(report(decoder));
  if (!ended_) (void)at_limit(state_.position() + 1);
  *token = ended_ ? -1 : next_.token;
  return ended_ ? flush(decoder) : Status();
}

uint64_t generating_bytes(const ModelConfig& config) {
  std::span<float> copy;
  return measured([&](Carver& c) { lay_out_copy(c, config.n_outputs(), &copy); });
}

Status check_generate(const SessionState& state, const Tokenizer* tokenizer,
                      std::span<const int32_t> prompt, int32_t used,
                      const GenerateOptions& options) {
  MOE_TRY(check_options(options, tokenizer, state.model.config().vocab_size));
  MOE_TRY(check_tokens(state, prompt, used));
  if (options.max_draft > 0 && state.routers.depend_on_passes()) {
    return Status::error(MOE_ERR_UNSUPPORTED,
                         "max_draft (--draft): not with an expert capacity or 'resident', where "
                         "results depend on how a text is split");
  }
  if (prompt.empty() && used == 0) {
    return Status::error(MOE_ERR_STATE, "the session is empty: there is nothing to continue");
  }
  return StopMatcher::check(options.stop);
}

namespace {

/// The layer that guesses follows the text until this ends: no later text need be drafted.
class FollowedText {
 public:
  FollowedText(SessionState& state, bool on) : state_(state) { state.predictions.follows = on; }
  ~FollowedText() { state_.predictions.follows = false; }
  FollowedText(const FollowedText&) = delete;
  FollowedText& operator=(const FollowedText&) = delete;

 private:
  SessionState& state_;
};

}  // namespace

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

  GenerateResult& result = generation.result();
  result.n_prompt = static_cast<int32_t>(prompt.size());
  state.logits.spec = {};
  if (options.change_logits == nullptr && options.grammar == nullptr) {
    set_sample_spec(state, options.sampling, static_cast<size_t>(options.n_top));
  }
  const FollowedText followed(state, options.max_draft > 0);
  const Clock& clock = state.model.clock();
  const double start = clock.seconds();
  MOE_TRY(eval_tokens(state, prompt, {}));
  if (prompt.size() > 1) keep_state(state);
  const double prompt_end = clock.seconds();
  MOE_TRY(generation.run());
  keep_state(state);
  result.prompt_seconds = prompt_end - start;
  result.generate_seconds = clock.seconds() - prompt_end;
  *out = result;
  return {};
}

}  // namespace moe
