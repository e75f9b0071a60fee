// SPDX-License-Identifier: MIT
#pragma once
// A generation whose tokens the caller evaluates, together with those of other sessions.

#include "src/base/array.h"
#include "src/run/generate.h"

namespace moe {

class Generation;
class StreamDecoder;

/// An object that stands between the generation and the caller's callback, as a chat's does.
struct PieceFilter {
  void* object = nullptr;                                    // owned by the generation; null: none
  Status (*finish)(void* object, Finish* finish) = nullptr;  // reports what it has withheld
  void (*destroy)(void* object) = nullptr;
};

/// One thread at a time, like the session. What `options` refers to must outlive it, except for the
/// stop strings.
class SteppedGeneration final {
 public:
  /// Begins after what the session holds. Takes the filter, also if it fails.
  static Result<Box<SteppedGeneration>> create(Session& session, const Tokenizer* tokenizer,
                                               const GenerateOptions& options, PieceFilter filter,
                                               const Allocator& allocator);
  /// Samples a token from the session's logits and reports it. *token: to be evaluated before the
  /// next call; -1: the generation has ended, and *finish says why. MOE_ERR_STATE if it had ended,
  /// or if the session does not hold the text so far with the last token.
  Status next(int32_t* token, Finish* finish);
  /// After next() gave a token: evaluates it, with a draft of those after it, and goes on as if
  /// next() had given each. MOE_ERR_STATE if it was evaluated already.
  Status advance(int32_t* token, Finish* finish);
  /// The index in options.stop of the stop string that was found; -1: none.
  int stop() const;

  /// For create() alone.
  SteppedGeneration(Session& session, const GenerateOptions& options, PieceFilter filter);
  ~SteppedGeneration();

 private:
  Status begin(const Tokenizer* tokenizer, const Allocator& allocator);
  Status settle(SessionState& state, const Status& status, int32_t* token, Finish* finish);

  Session& session_;
  const GenerateOptions options_;
  const PieceFilter filter_;
  Box<StreamDecoder> decoder_;  // empty: no tokenizer
  Box<Generation> generation_;
  int32_t position_ = 0;  // of the session at the next call
  int32_t last_ = -1;     // the token to be evaluated before that; -1: none
  bool ended_ = false;
};

}  // namespace moe
