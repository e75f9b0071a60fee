#pragma once
// The generation loop: sample, give out, evaluate, until something says stop.

#include <string_view>

#include "src/run/session.h"

namespace moe {

class Tokenizer;

enum class Finish : uint8_t {
  kLength = 1,   // max_tokens were made
  kEos = 2,      // an end-of-text token; it is neither given out nor evaluated
  kStop = 3,     // a stop string; nothing of it was given out
  kContext = 4,  // the context is full
  kCallback = 5  // the callback said so
};

/// What the callback gets for each token.
struct Piece {
  int32_t token = -1;  // -1: text that was held back, without a new token
  float logprob = 0;
  std::string_view text;  // whole characters; empty without a tokenizer or while bytes wait
  std::span<const TokenLogprob> top;
  bool thinking = false;  // of a chat: not part of the answer
};

/// Returns false to stop. May call Session::cancel, nothing else of the session.
using PieceFn = bool (*)(void* user, const Piece& piece);

/// May change the logits of the token behind `text`; -infinity bans one. Returns false to stop. May
/// call Session::cancel, nothing else of the session.
using LogitsFn = bool (*)(void* user, std::span<const int32_t> text, std::span<float> logits);

inline constexpr size_t kMaxStops = 64;
inline constexpr size_t kMaxStopBytes = 4096;  // of one stop string

struct GenerateOptions {
  int32_t max_tokens = 0;  // 0: until the context is full
  SamplingConfig sampling;
  std::span<const std::string_view> stop;  // need a tokenizer
  bool ignore_eos = false;
  std::span<const int32_t> more_eos = {};  // end-of-text tokens besides the model's
  int32_t n_top = 0;                       // candidates reported with each piece
  PieceFn callback = nullptr;
  void* user = nullptr;
  LogitsFn change_logits = nullptr;
  void* logits_user = nullptr;
};

struct GenerateResult {
  Finish finish = Finish::kLength;
  int32_t n_prompt = 0;
  int32_t n_generated = 0;  // tokens given out
  double prompt_seconds = 0;
  double generate_seconds = 0;
};

/// Evaluates `prompt` (may be empty when the session is not), then generates. Every token that was
/// given out is part of the session when the call succeeds, so that generating 5 and 5 more equals
/// generating 10; a token that completed a stop string counts as given out. On MOE_ERR_CANCELLED
/// the last token given out may be missing from the session: compare its position. tokenizer: null
/// for ids alone. MOE_ERR_STATE without a prompt on an empty session. MOE_ERR_NON_FINITE when
/// change_logits leaves NaN or +infinity, MOE_ERR_RANGE when it bans every token.
Status generate(Session& session, const Tokenizer* tokenizer, std::span<const int32_t> prompt,
                const GenerateOptions& options, GenerateResult* out);
/// The same within a call of the session that has begun already (SessionCall).
Status generate(SessionState& state, const Tokenizer* tokenizer, std::span<const int32_t> prompt,
                const GenerateOptions& options, GenerateResult* out);

}  // namespace moe
