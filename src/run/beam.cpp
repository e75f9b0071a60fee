// SPDX-License-Identifier: MIT
// Collects the best continuations of a step, keeps the finished hypotheses, and decides when none
// can become better.
#include "src/run/beam.h"

#include <algorithm>

#include "kernels/math.h"
#include "src/run/logits.h"

namespace moe {
namespace {

constexpr float kMaxLengthPenalty = 100;

Status check_option(const char* field, int32_t found, int32_t low, int32_t high) {
  if (found >= low && found <= high) return {};
  return Status::error(MOE_ERR_RANGE, "beam search: %s: expected %d..%d, found %d", field, low,
                       high, found);
}

}  // namespace

Status validate(const BeamOptions& o) {
  MOE_TRY(check_option("beam", o.beam, 1, kMaxBeam));
  MOE_TRY(check_option("n_best", o.n_best, 1, o.beam));
  MOE_TRY(check_option("max_tokens", o.max_tokens, 0, INT32_MAX - 1));
  MOE_TRY(check_option("min_tokens", o.min_tokens, 0, o.max_tokens));
  if (o.length_penalty >= -kMaxLengthPenalty && o.length_penalty <= kMaxLengthPenalty) return {};
  return Status::error(MOE_ERR_RANGE, "beam search: length_penalty: expected %g..%g, found %g",
                       static_cast<double>(-kMaxLengthPenalty),
                       static_cast<double>(kMaxLengthPenalty),
                       static_cast<double>(o.length_penalty));
}

Status BeamSearch::begin(const BeamOptions& options, const BeamTokens& tokens) {
  MOE_TRY(validate(options));
  options_ = options;
  tokens_ = tokens;
  n_ = 0;
  MOE_TRY(memory_.init("beam search", [this](Carver& c) { lay_out(c); }));
  running_.push({0, -1, -1, -1});
  return {};
}

// The first two are exchanged after each step. A step is added to the trail for each hypothesis
// that goes on, of which there are none after max_tokens.
void BeamSearch::lay_out(Carver& c) {
  const int64_t beam = options_.beam;
  running_.lay_out(c, 2 * beam);
  best_.lay_out(c, 2 * beam);
  ended_.lay_out(c, beam + 1);
  trail_.lay_out(c, beam * options_.max_tokens);
}

uint64_t BeamSearch::bytes(const BeamOptions& options) {
  BeamSearch search(system_allocator());
  search.options_ = options;
  return measured([&](Carver& c) { search.lay_out(c); });
}

bool BeamSearch::is_eos(int32_t token) const {
  return std::find(tokens_.eos.begin(), tokens_.eos.end(), token) != tokens_.eos.end();
}

bool BeamSearch::allowed(int32_t token) const {
  if (is_eos(token)) return n_ >= options_.min_tokens;  // some models use the pad token as EOS
  return token != tokens_.pad && n_ < options_.max_tokens;
}

// Called in ascending order of hypothesis and token: equal sums preserve that order.
void BeamSearch::insert(const Continuation& c) {
  const size_t most = 2 * static_cast<size_t>(options_.beam);
  if (best_.size() == most) best_.pop();
  const auto worse = [](float sum, const Continuation& other) { return sum > other.sum; };
  const auto place = static_cast<size_t>(
      std::upper_bound(best_.begin(), best_.end(), c.sum, worse) - best_.begin());
  best_.push(c);
  std::rotate(best_.begin() + place, best_.end() - 1, best_.end());
}

Status BeamSearch::offer(int32_t j, std::span<const float> logprobs) {
  constexpr float kInfinity = __builtin_inff();
  const Continuation& from = running_[static_cast<size_t>(j)];
  const size_t most = 2 * static_cast<size_t>(options_.beam);
  const auto n = static_cast<size_t>(n_);
  const bool given = n < tokens_.prefix.size();
  for (size_t v = 0; v < logprobs.size(); ++v) {
    if (!(logprobs[v] < kInfinity)) {
      return Status::error(
          MOE_ERR_NON_FINITE,
          "beam search: the log-probability of token %zu after %d tokens is NaN or +infinity", v,
          n_);
    }
    const auto token = static_cast<int32_t>(v);
    const float sum = given ? from.sum : from.sum + logprobs[v];
    if (best_.size() == most && !(sum > best_.back().sum)) continue;
    if (!(sum > -kInfinity)) continue;
    if (given ? token != tokens_.prefix[n] : !allowed(token)) continue;
    insert({sum, j, token, -1});
  }
  return {};
}

double BeamSearch::score_of(float sum) const {
  const double length = n_ + 1;
  const auto alpha = static_cast<double>(options_.length_penalty);
  return static_cast<double>(sum) / (alpha == 1 ? length : pow_double(length, alpha));
}

void BeamSearch::end(const Continuation& c) {
  const auto beam = static_cast<size_t>(options_.beam);
  if (options_.stop == BeamStop::kCount && ended_.size() == beam) return;
  const Ended e = {score_of(c.sum), n_ + 1, c.token, running_[static_cast<size_t>(c.parent)].at};
  const auto worse = [](double score, const Ended& other) { return score > other.score; };
  const auto place = std::upper_bound(ended_.begin(), ended_.end(), e.score, worse);
  const auto index = place - ended_.begin();
  ended_.push(e);
  std::rotate(ended_.begin() + index, ended_.end() - 1, ended_.end());
  if (ended_.size() > beam) ended_.pop();
}

// The step's best continuations become the running hypotheses.
void BeamSearch::follow() {
  for (Continuation& c : best_) {
    const int32_t before = running_[static_cast<size_t>(c.parent)].at;
    c.at = static_cast<int32_t>(trail_.size());
    trail_.push({before, c.token});
  }
  std::swap(running_, best_);
  best_.clear();
}

bool BeamSearch::is_over() const {
  if (running_.empty()) return true;
  if (ended_.size() < static_cast<size_t>(options_.beam)) return false;
  return options_.stop != BeamStop::kBound || score_of(running_[0].sum) <= ended_.back().score;
}

Status BeamSearch::end_step() {
  const auto beam = static_cast<size_t>(options_.beam);
  size_t n_follow = 0;
  for (size_t rank = 0; rank < best_.size(); ++rank) {
    const Continuation c = best_[rank];
    const bool ends = is_eos(c.token) && static_cast<size_t>(n_) >= tokens_.prefix.size();
    if (!ends && n_follow < beam) best_[n_follow++] = c;
    if (ends && rank < beam) end(c);
  }
  best_.resize(n_follow);
  follow();
  if (is_over()) running_.clear();
  ++n_;
  if (!done() || !ended_.empty()) return {};
  return Status::error(MOE_ERR_RANGE, "beam search: no text finished");
}

int32_t BeamSearch::n_results() const {
  return std::min(options_.n_best, static_cast<int32_t>(ended_.size()));
}

float BeamSearch::score(int32_t i) const {
  return static_cast<float>(ended_[static_cast<size_t>(i)].score);
}

void BeamSearch::read(int32_t i, int32_t* tokens) const {
  const Ended& e = ended_[static_cast<size_t>(i)];
  int32_t at = e.parent;
  tokens[e.n_tokens - 1] = e.token;
  for (int32_t n = e.n_tokens - 2; n >= 0; --n) {
    const Step& step = trail_[static_cast<size_t>(at)];
    tokens[n] = step.token;
    at = step.before;
  }
}

}  // namespace moe
