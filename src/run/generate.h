// SPDX-License-Identifier: MIT
#pragma once
// The generation loop: sample, report, evaluate, until a stop condition.

#include <string_view>

#include "src/run/draft.h"
#include "src/run/session.h"

namespace moe {

class Tokenizer;

namespace grammar {
class Grammar;
}

/// Says where the part of a text begins that follows a grammar: behind a model's thinking.
struct AnswerGate {
  enum State : uint8_t {
    kOpen,    // the answer has begun
    kStart,   // the next token may begin the answer, or be `opening`, which begins something else
    kClosed,  // the text is not the answer
  };
  /// Takes a token and the text that it completes. *answer: the end of it that belongs to the
  /// answer.
  Status (*push)(void* object, int32_t token, std::string_view text,
                 std::string_view* answer) = nullptr;
  State (*state)(const void* object) = nullptr;
  void* object = nullptr;  // null: the answer begins at once
  int32_t opening = -1;    // -1: none
};

enum class Finish : uint8_t {
  kLength = 1,   // max_tokens were generated
  kEos = 2,      // an end-of-text token; it is neither reported nor evaluated
  kStop = 3,     // a stop string, no part of which is reported
  kContext = 4,  // the context is full
  kCallback = 5  // the callback stopped the call
};

/// Special tokens around text that belongs to no part of a reply, such as a channel's name.
struct ReplyHeaders {
  std::span<const int32_t> begins;
  int32_t ends = -1;
};

/// Reported for each token.
struct Piece {
  int32_t token = -1;  // -1: text that was withheld, without a new token
  float logprob = 0;
  std::string_view text;  // whole characters; empty without a tokenizer or while one is incomplete
  std::span<const TokenLogprob> top;
  bool thinking = false;  // in a chat: not part of the answer
  bool call = false;      // in a chat with tools: the text is a whole call (ToolCallParser::Event)
};

/// Changes the tokens that the model has guessed after `text`.
using GuessesFn = void (*)(void* user, std::span<const int32_t> text, std::span<int32_t> guessed);

/// Returns false to stop. May only call Session::cancel on the session.
using PieceFn = bool (*)(void* user, const Piece& piece);

/// May change the logits of the token after `text`; -infinity bans one. Returns false to stop. May
/// only call Session::cancel on the session.
using LogitsFn = bool (*)(void* user, std::span<const int32_t> text, std::span<float> logits);

inline constexpr size_t kMaxStops = 64;
inline constexpr size_t kMaxStopBytes = 4096;  // of one stop string

struct GenerateOptions {
  int32_t max_tokens = 0;  // 0: until the context is full
  SamplingConfig sampling;
  std::span<const std::string_view> stop;  // requires a tokenizer
  bool ignore_eos = false;
  std::span<const int32_t> more_eos = {};  // end-of-text tokens besides the model's
  int32_t n_top = 0;                       // candidates reported per piece
  PieceFn callback = nullptr;
  void* user = nullptr;
  bool in_parts = false;      // no stop string matches across a special token
  ReplyHeaders headers = {};  // of the parts: no stop string matches inside
  bool all_text = false;  // after the callback has stopped the call, withheld text is reported too
  /// Tokens drafted at once (Drafter) and evaluated in one pass; only those that would have been
  /// sampled are used, so the result is the same. 0..kMaxDraft; 0: none. Not with change_logits,
  /// nor with an expert capacity or `resident`, where results depend on the passes.
  int32_t max_draft = 0;
  /// For measurements: makes a known share of the guesses right. null: they stay as they are.
  GuessesFn change_guesses = nullptr;
  void* guesses_user = nullptr;
  LogitsFn change_logits = nullptr;
  void* logits_user = nullptr;
  /// The text follows it, and the call ends with Finish::kEos once it must end. Requires a
  /// tokenizer, the one that the grammar was made for. null: any text.
  const grammar::Grammar* grammar = nullptr;
  AnswerGate gate = {};
  /// In a chat with tools, instead of `grammar`: replies whose calls are held to a form
  /// (grammar::compile_calls).
  const grammar::Grammar* calls = nullptr;
};

struct GenerateResult {
  Finish finish = Finish::kLength;
  int32_t n_prompt = 0;
  int32_t n_generated = 0;  // tokens reported
  int32_t n_drafted = 0;    // by the Drafter
  int32_t n_accepted = 0;   // of these, generated
  double prompt_seconds = 0;
  double generate_seconds = 0;
};

/// Evaluates `prompt` (may be empty if the session is not), then generates. On success every
/// reported token is part of the session, so generating 5 and 5 more equals generating 10; a token
/// that completes a stop string counts as reported. After MOE_ERR_CANCELLED the last reported token
/// may be missing from the session: compare its position. tokenizer: null for ids only.
/// MOE_ERR_STATE without a prompt on an empty session. MOE_ERR_NON_FINITE if change_logits leaves
/// NaN or +infinity, MOE_ERR_RANGE if it bans every token.
Status generate(Session& session, const Tokenizer* tokenizer, std::span<const int32_t> prompt,
                const GenerateOptions& options, GenerateResult* out);
/// The errors of generate() that are found before anything changes, for a session that has `used`
/// tokens.
Status check_generate(const SessionState& state, const Tokenizer* tokenizer,
                      std::span<const int32_t> prompt, int32_t used,
                      const GenerateOptions& options);
/// The same as generate() inside a session call that has begun (SessionCall).
Status generate(SessionState& state, const Tokenizer* tokenizer, std::span<const int32_t> prompt,
                const GenerateOptions& options, GenerateResult* out);

}  // namespace moe
