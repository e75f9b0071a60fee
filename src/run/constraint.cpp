// SPDX-License-Identifier: MIT
// Bans the tokens that a grammar does not allow, outside of a model's thinking.
#include "src/run/constraint.h"

#include "src/text/stream_decoder.h"

namespace moe {
namespace {

Status any_left(std::span<const float> logits) {
  if (std::any_of(logits.begin(), logits.end(), [](float x) { return x != kBannedLogit; }))
    return {};
  return Status::error(MOE_ERR_RANGE, "grammar: every token that may follow is banned");
}

// Most groups of 64 tokens are allowed or banned as a whole.
void ban_others(const grammar::TokenSet& allowed, std::span<float> logits) {
  const std::span<const uint64_t> words = allowed.words();
  for (size_t w = 0; 64 * w < logits.size(); ++w) {
    const uint64_t banned = w < words.size() ? ~words[w] : ~uint64_t{0};
    if (banned == 0) continue;
    const std::span<float> group =
        logits.subspan(64 * w, std::min<size_t>(64, logits.size() - 64 * w));
    if (banned == ~uint64_t{0}) {
      std::fill(group.begin(), group.end(), kBannedLogit);
      continue;
    }
    for (size_t i = 0; i < group.size(); ++i) {
      if ((banned >> i & 1) != 0) group[i] = kBannedLogit;
    }
  }
}

}  // namespace

Status Constraint::init(std::span<const int32_t> eos) {
  if (options_.grammar == nullptr) return {};
  eos_ = eos;
  open_ = options_.gate.object == nullptr;
  MOE_ASSIGN(matcher_, make_box<grammar::Matcher>(allocator_, *options_.grammar));
  return matcher_->init();
}

void Constraint::prime(const StreamDecoder& decoder) { drops_space_ = decoder.drops_space(); }

// Calls f(id) for the end-of-text tokens.
template <class F>
void Constraint::each_end(F&& f) const {
  for (const std::span<const int32_t> ids : {eos_, options_.more_eos}) {
    for (const int32_t id : ids) f(id);
  }
}

Status Constraint::check(std::span<const float> logits, int32_t token) const {
  if (!matcher_ || logits[static_cast<size_t>(token)] != kBannedLogit) return {};
  return Status::error(MOE_ERR_RANGE, "grammar: the biases ban every token that may follow");
}

Status Constraint::ban(std::span<float> logits) {
  if (!matcher_) return {};
  const auto ban_one = [&](int32_t id) {
    const auto i = static_cast<size_t>(id);
    if (i < logits.size()) logits[i] = kBannedLogit;
  };
  const AnswerGate::State gate = open_ ? AnswerGate::kOpen : gate_state();
  if (gate == AnswerGate::kClosed) {
    each_end(ban_one);  // the answer must come first
    return any_left(logits);
  }
  const grammar::TokenSet* allowed = nullptr;
  MOE_TRY(matcher_->allowed(&allowed));
  kept_.clear();
  Status status;
  const auto keep = [&](int32_t id) {
    const auto i = static_cast<size_t>(id);
    if (i < logits.size() && status.ok()) status = kept_.push({i, logits[i]});
  };
  if (gate == AnswerGate::kStart) keep(options_.gate.opening);
  if (matcher_->may_end() && !options_.ignore_eos) each_end(keep);
  MOE_TRY(status);
  ban_others(*allowed, logits);
  each_end(ban_one);
  if (drops_space_) {
    for (size_t i = 0; i < logits.size(); ++i) {
      if (logits[i] != kBannedLogit && text_of(i).starts_with(' ')) logits[i] = kBannedLogit;
    }
  }
  for (const Kept& k : kept_) logits[k.token] = k.logit;
  return any_left(logits);
}

Status Constraint::take(int32_t token, std::string_view text, bool* ends) {
  *ends = false;
  if (!matcher_) return {};
  if (!open_) {
    const bool opening = gate_state() == AnswerGate::kStart && token != options_.gate.opening;
    MOE_TRY(pass_gate(token, text, opening));
    if (!opening) {
      *ends = open_ && matcher_->must_end();
      return {};
    }
  }
  MOE_TRY(take_ahead(token));
  drops_space_ = drops_space_ && text.empty();
  *ends = matcher_->must_end();
  return matcher_->tidy();
}

// begins: the token is the first one of the answer.
Status Constraint::pass_gate(int32_t token, std::string_view text, bool begins) {
  std::string_view answer;
  MOE_TRY(options_.gate.push(options_.gate.object, token, text, &answer));
  open_ = begins || gate_state() == AnswerGate::kOpen;
  if (begins || answer.empty()) return {};
  bool fits = false;
  MOE_TRY(matcher_->accept_text(answer, &fits));
  if (fits) return {};
  return Status::error(MOE_ERR_TEXT,
                       "grammar: the token that ended the thinking goes on with text that the "
                       "grammar does not allow");
}

Status Constraint::take_ahead(int32_t token) {
  bool fits = false;
  MOE_TRY(matcher_->accept(token, &fits));
  if (fits) return {};
  return Status::error(MOE_ERR_RANGE, "grammar: token %d may not follow", token);
}

Status Constraint::draft(size_t room, int32_t* tokens, size_t* n) {
  *n = 0;
  return active() && !drops_space_ ? matcher_->draft(room, tokens, n) : Status();
}

}  // namespace moe
