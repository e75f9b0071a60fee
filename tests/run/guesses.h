// SPDX-License-Identifier: MIT
#pragma once
// The logits of the layer that guesses tokens.

#include "src/run/session_state.h"
#include "tests/run/tiny_run.h"

namespace moe {

/// Reads all tokens but the last, at most `piece` in a call, and guesses the n tokens after the
/// last. Returns their logits (n, vocab_size), fewer rows if there are fewer guesses.
inline Floats guess_logits(Session& session, const Tokens& tokens, size_t n,
                           size_t piece = ~size_t{0}) {
  EXPECT_TRUE(session.reset().ok());
  SessionCall::state_of(session).predictions.follows = true;
  const size_t n_read = tokens.size() - 1;
  for (size_t i = 0; i < n_read; i += std::min(piece, n_read - i)) {
    const auto part = span(tokens, i, std::min(piece, n_read - i));
    const Status status = session.eval(part, LogitRows::kNone, nullptr);
    EXPECT_TRUE(status.ok()) << status.text();
  }
  const SessionCall call(session);
  SessionState& state = call.state();
  state.tokens.room()[n_read] = tokens.back();
  const auto width = static_cast<size_t>(session.model().config().n_outputs());
  Floats logits(n * width);
  Tokens guessed(n);
  logits.resize(predict(state, n, guessed.data(), logits.data()) * width);
  return logits;
}

}  // namespace moe
