// SPDX-License-Identifier: MIT
// Generates in steps: the caller evaluates tokens, this samples, decodes and stops.
#include "src/run/stepped.h"

#include <utility>

#include "src/run/generation.h"

namespace moe {

SteppedGeneration::SteppedGeneration(Session& session, const GenerateOptions& options,
                                     PieceFilter filter)
    : session_(session), options_(options), filter_(filter) {}

SteppedGeneration::~SteppedGeneration() {
  if (filter_.object != nullptr) filter_.destroy(filter_.object);
}

Result<Box<SteppedGeneration>> SteppedGeneration::create(Session& session,
                                                         const Tokenizer* tokenizer,
                                                         const GenerateOptions& options,
                                                         PieceFilter filter,
                                                         const Allocator& allocator) {
  Result<Box<SteppedGeneration>> made =
      make_box<SteppedGeneration>(allocator, session, options, filter);
  if (!made.ok()) {
    if (filter.object != nullptr) filter.destroy(filter.object);
    return made.status();
  }
  MOE_TRY(made.value()->begin(tokenizer, allocator));
  return made;
}

Status SteppedGeneration::begin(const Tokenizer* tokenizer, const Allocator& allocator) {
  const SessionCall call(session_);
  MOE_TRY(call.status());
  SessionState& state = call.state();
  MOE_TRY(check_generate(state, tokenizer, {}, state.position(), options_));
  MOE_ASSIGN(generation_, make_box<Generation>(allocator, state, tokenizer, options_, allocator));
  MOE_TRY(generation_->prepare());
  if (tokenizer != nullptr) {
    MOE_ASSIGN(decoder_, make_box<StreamDecoder>(allocator, *tokenizer, true, allocator));
    MOE_TRY(generation_->prime(*decoder_));
  }
  if (options_.change_logits == nullptr && options_.grammar == nullptr) {
    set_sample_spec(state, options_.sampling, static_cast<size_t>(options_.n_top));
  }
  state.predictions.follows = options_.max_draft > 0;
  position_ = state.position();
  return {};
}

Status SteppedGeneration::next(int32_t* token, Finish* finish) {
  if (ended_) return Status::error(MOE_ERR_STATE, "the generation has ended");
  const SessionCall call(session_);
  MOE_TRY(call.status());
  SessionState& state = call.state();
  const bool evaluated = state.position() == position_ &&
                         (last_ < 0 || state.tokens[static_cast<size_t>(position_) - 1] == last_);
  if (!evaluated) {
    return Status::error(MOE_ERR_STATE,
                         "the session has %d tokens; expected %d, the last of them the one that "
                         "this generation gave",
                         state.position(), position_);
  }
  return settle(state, generation_->next(decoder_.get(), &last_), token, finish);
}

Status SteppedGeneration::advance(int32_t* token, Finish* finish) {
  if (ended_) return Status::error(MOE_ERR_STATE, "the generation has ended");
  const SessionCall call(session_);
  MOE_TRY(call.status());
  SessionState& state = call.state();
  if (last_ < 0 || state.position() != position_ - 1) {
    return Status::error(MOE_ERR_STATE,
                         "the session has %d tokens; expected %d, and a token that this generation "
                         "gave and that is not evaluated yet",
                         state.position(), position_ - 1);
  }
  return settle(state, generation_->advance(decoder_.get(), &last_), token, finish);
}

// After a token, the end, or an error.
Status SteppedGeneration::settle(SessionState& state, const Status& status, int32_t* token,
                                 Finish* finish) {
  if (!status.ok() || last_ < 0) state.predictions.follows = false;  // no later text is drafted
  MOE_TRY(status);
  if (last_ >= 0) {
    position_ = state.position() + 1;
  } else {
    ended_ = true;
    *finish = generation_->result().finish;
    if (filter_.object != nullptr) MOE_TRY(filter_.finish(filter_.object, finish));
  }
  *token = last_;
  return {};
}

int SteppedGeneration::stop() const {
  return generation_->result().finish == Finish::kStop ? generation_->stop() : -1;
}

}  // namespace moe
