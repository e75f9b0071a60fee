// SPDX-License-Identifier: MIT
// Splits a text into windows, scores their tokens, and sums the log-probabilities.
#include "src/run/perplexity.h"

#include <algorithm>

#include "kernels/math.h"
#include "src/base/bounded_list.h"
#include "src/base/host_buffer.h"
#include "src/run/session_call.h"

namespace moe {
namespace {

/// How a text is split.
struct Windows {
  std::span<const int32_t> prefix;
  size_t length;    // tokens of the text per window
  int32_t context;  // of the session: prefix and text of a window
  size_t stride;
};

Status plan(const Session& session, std::span<const int32_t> tokens,
            const PerplexityOptions& options, Windows* out) {
  const int32_t stride = options.stride;
  const int32_t length = session.context() - static_cast<int32_t>(options.prefix.size());
  const size_t needed = options.prefix.empty() ? 2 : 1;
  if (length < static_cast<int32_t>(needed) || tokens.size() < needed) {
    return Status::error(MOE_ERR_RANGE,
                         "perplexity: nothing can be scored with %zu tokens in a context of %d",
                         tokens.size(), session.context());
  }
  if (stride < 0 || stride > length) {
    return Status::error(MOE_ERR_RANGE, "perplexity: stride: expected 0..%d, found %d", length,
                         stride);
  }
  const auto n = static_cast<size_t>(length);
  *out = {options.prefix, n, session.context(), stride == 0 ? n : static_cast<size_t>(stride)};
  return {};
}

void lay_out_input(Carver& c, int32_t context, BoundedList<int32_t>* input) {
  input->lay_out(c, context);
}

/// Sums the negative log-probabilities of a text. Input i of a window predicts input i + 1, so the
/// last one is not an input.
class Scorer {
 public:
  Scorer(SessionState& state, const Windows& windows, const Allocator& allocator)
      : state_(state), windows_(windows), memory_(allocator) {}

  Status init() {
    return memory_.init("perplexity",
                        [&](Carver& c) { lay_out_input(c, windows_.context, &input_); });
  }

  /// Scores the tokens of `window` from index first_new on.
  Status add(std::span<const int32_t> window, size_t first_new) {
    input_.clear();
    input_.append(windows_.prefix);
    const size_t target = std::max<size_t>(1, input_.size() + first_new);
    input_.append(window);
    const std::span<const int32_t> all = input_.span();
    MOE_TRY(check_tokens(state_, all));
    if (target < all.size()) {
      MOE_TRY(eval_scored(state_, all.first(all.size() - 1), target - 1, all.subspan(target),
                          {take, this}));
    }
    rewind_to(state_, 0);
    return {};
  }

  uint64_t n_scored() const { return n_scored_; }
  double sum() const { return sum_; }

 private:
  static void take(void* user, size_t, double logprob) {
    Scorer& s = *static_cast<Scorer*>(user);
    s.sum_ -= logprob;
    ++s.n_scored_;
  }

  SessionState& state_;
  const Windows& windows_;
  BoundedList<int32_t> input_;  // at most a context of tokens
  uint64_t n_scored_ = 0;
  double sum_ = 0;
  HostBuffer memory_;
};

Status score_text(Scorer& scorer, const Windows& windows, std::span<const int32_t> tokens,
                  const PerplexityOptions& options) {
  MOE_TRY(scorer.init());
  size_t done = 0;
  for (size_t begin = 0; done < tokens.size(); begin += windows.stride) {
    const size_t n = std::min(windows.length, tokens.size() - begin);
    MOE_TRY(scorer.add({tokens.data() + begin, n}, done - begin));
    done = begin + n;
    if (options.progress != nullptr && !options.progress(options.user, done, tokens.size())) {
      return Status::error(MOE_ERR_CANCELLED, "cancelled by the progress callback");
    }
  }
  return {};
}

}  // namespace

uint64_t scoring_bytes(int32_t context) {
  BoundedList<int32_t> input;
  return measured([&](Carver& c) { lay_out_input(c, context, &input); });
}

Status score_tokens(Session& session, std::span<const int32_t> tokens, std::span<float> logprobs) {
  SessionCall call(session);
  MOE_TRY(call.status());
  SessionState& state = call.state();
  const size_t unscored = session.position() == 0 ? 1 : 0;
  const size_t n = tokens.size() > unscored ? tokens.size() - unscored : 0;
  if (logprobs.size() != n) {
    return Status::error(MOE_ERR_ARGUMENT,
                         "n_logprobs: expected %zu for %zu tokens after %d others, found %zu", n,
                         tokens.size(), session.position(), logprobs.size());
  }
  MOE_TRY(check_tokens(state, tokens));
  if (tokens.empty()) return {};
  float* to = logprobs.data();
  if (unscored == 0) {
    double logprob = 0;
    MOE_TRY(score_next(state, tokens[0], &logprob));
    *to++ = static_cast<float>(logprob);
  }
  const auto take = [](void* user, size_t index, double logprob) {
    static_cast<float*>(user)[index] = static_cast<float>(logprob);
  };
  return eval_scored(state, tokens, 0, tokens.subspan(1), {take, to});
}

Status measure_perplexity(Session& session, std::span<const int32_t> tokens,
                          const PerplexityOptions& options, Perplexity* out) {
  SessionCall call(session);
  MOE_TRY(call.status());
  if (session.model().config().is_encoder_decoder()) {
    return Status::error(
        MOE_ERR_UNSUPPORTED,
        "perplexity: the model is an encoder-decoder; score a text after a source");
  }
  if (session.position() != 0) {
    return Status::error(MOE_ERR_STATE,
                         "perplexity needs an empty session, this one holds %d tokens",
                         session.position());
  }
  Windows windows;
  MOE_TRY(plan(session, tokens, options, &windows));
  Scorer scorer(call.state(), windows, session.model().allocator());
  const Status status = score_text(scorer, windows, tokens, options);
  rewind_to(call.state(), 0);
  MOE_TRY(status);
  const double mean = scorer.sum() / static_cast<double>(scorer.n_scored());
  *out = {scorer.n_scored(), mean, exp_double(mean)};
  return {};
}

}  // namespace moe
