// SPDX-License-Identifier: MIT
#pragma once
// Holds the text of a generation to a grammar. Private to src/run.

#include "src/grammar/grammar.h"
#include "src/run/generate.h"

namespace moe {

class StreamDecoder;

/// The logit of a banned token: sampling needs finite ones, and its weight is zero.
inline constexpr float kBannedLogit = -3.40282347e38f;

/// Does nothing in a generation without a grammar. One thread.
class Constraint {
 public:
  Constraint(const GenerateOptions& options, const Allocator& allocator)
      : options_(options), allocator_(allocator), kept_(allocator) {}
  /// eos: the model's end-of-text tokens.
  Status init(std::span<const int32_t> eos);
  /// Before the first token: what the text so far makes of a space at its beginning.
  void prime(const StreamDecoder& decoder);

  /// Bans the tokens that may not follow, with the lowest finite logit, which is that of a ban by
  /// the caller too. MOE_ERR_RANGE if none is left.
  Status ban(std::span<float> logits);
  /// MOE_ERR_RANGE for a token that ban() banned: a bias was lower still.
  Status check(std::span<const float> logits, int32_t token) const;
  /// Takes the token that follows, and the text that it completes. *ends: nothing may follow it.
  Status take(int32_t token, std::string_view text, bool* ends);
  /// Drafts the tokens of text that must follow.
  Status draft(size_t room, int32_t* tokens, size_t* n);
  /// Whether the grammar decides about the next token alone.
  bool active() const { return matcher_ && open_; }

  // Tokens that are not certain yet: take_ahead() each, then go_back().
  grammar::Matcher::Place place() const { return matcher_->place(); }
  void go_back(grammar::Matcher::Place place) { matcher_->go_to(place); }
  Status take_ahead(int32_t token);

 private:
  /// The logit of a token that is allowed besides those of the grammar.
  struct Kept {
    size_t token;
    float logit;
  };
  template <class F>
  void each_end(F&& f) const;
  std::string_view text_of(size_t token) const {
    return options_.grammar->tokens().text(static_cast<int32_t>(token));
  }
  Status pass_gate(int32_t token, std::string_view text, bool begins);
  AnswerGate::State gate_state() const { return options_.gate.state(options_.gate.object); }

  const GenerateOptions& options_;
  const Allocator& allocator_;
  std::span<const int32_t> eos_;
  Box<grammar::Matcher> matcher_;
  Array<Kept> kept_;          // scratch of ban()
  bool open_ = false;         // the answer has begun, or nothing else can
  bool drops_space_ = false;  // the decoder would drop a space at the beginning of the next token
};

}  // namespace moe
