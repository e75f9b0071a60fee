// SPDX-License-Identifier: MIT
// Bias, penalty, temperature, top-k, top-p and min-p, then a draw; sorts no more tokens than these
// need.
#include "src/run/sampler.h"

#include <algorithm>

#include "src/base/inline.h"
#include "src/run/logits.h"

namespace moe {
namespace {

Status range_error(const char* field, const char* expected, double found) {
  return Status::error(MOE_ERR_RANGE, "sampling: %s: expected %s, found %g", field, expected,
                       found);
}

uint64_t mix(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
  return z ^ (z >> 31);
}

constexpr float kMostTemperature = 1e6f;
constexpr float kMostBias = 1e30f;
constexpr size_t kFewTokens = 1024;  // so few best tokens are found without the others' weights

Status validate_bias(std::span<const LogitBias> bias, int32_t vocab_size) {
  for (const LogitBias& b : bias) {
    if (b.token < 0 || b.token >= vocab_size) {
      return Status::error(MOE_ERR_RANGE, "sampling: bias: token expected 0..%d, found %d",
                           vocab_size - 1, b.token);
    }
    if (!is_finite(b.bias) && b.bias != -__builtin_inff()) {
      return Status::error(MOE_ERR_NON_FINITE,
                           "sampling: bias of token %d: expected a number or -infinity", b.token);
    }
    if (b.bias > kMostBias) {
      return Status::error(MOE_ERR_RANGE, "sampling: bias of token %d: expected at most 1e30",
                           b.token);
    }
  }
  return {};
}

// The n most probable tokens, best first, ties to the lower id.
void best_tokens(std::span<const float> logits, double log_sum, TokenLogprob* top, size_t n) {
  if (n == 0) return;
  size_t filled = 0;
  for (size_t i = 0; i < logits.size(); ++i) {
    const float logprob = static_cast<float>(static_cast<double>(logits[i]) - log_sum);
    if (filled == n && !(logits[i] > logits[static_cast<size_t>(top[n - 1].token)])) continue;
    size_t at = filled < n ? filled++ : n - 1;
    for (; at > 0 && logits[i] > logits[static_cast<size_t>(top[at - 1].token)]; --at) {
      top[at] = top[at - 1];
    }
    top[at] = {static_cast<int32_t>(i), logprob};
  }
}

}  // namespace

Status validate(const SamplingConfig& c, int32_t vocab_size) {
  // Larger ones would give banned tokens a probability above 0.
  if (!(c.temperature >= 0 && c.temperature <= kMostTemperature)) {
    return range_error("temperature", "0..1e6", c.temperature);
  }
  if (c.top_k < 0) return range_error("top_k", "at least 0", c.top_k);
#define MOE_SAMPLING_FILTER(name, off, range, text) \
  if (const float x = c.name; !(range)) return range_error(#name, text, x);
#include "src/model/sampling_list.h"
  if (!(c.repetition_penalty >= 0.01f && c.repetition_penalty <= 100)) {
    return range_error("repetition_penalty", "0.01..100", c.repetition_penalty);
  }
  if (c.repetition_window < 0) {
    return range_error("repetition_window", "at least 0", c.repetition_window);
  }
  return validate_bias(c.bias, vocab_size);
}

double uniform_draw(uint64_t seed, uint64_t number) {
  const uint64_t bits = mix(mix(seed) + (number + 1) * 0x9e3779b97f4a7c15ULL);
  return static_cast<double>(bits >> 11) * 0x1p-53;
}

void Sampler::lay_out(Carver& c, int32_t vocab_size) {
  c.take(&edited_, vocab_size);
  c.take(&p_, vocab_size);
  c.take(&candidates_, vocab_size);
  c.take(&recent_, vocab_size);
}

Status Sampler::init(int32_t vocab_size) {
  return memory_.init("sampling", [&](Carver& c) { lay_out(c, vocab_size); });
}

uint64_t Sampler::bytes(int32_t vocab_size) {
  Sampler sampler(system_allocator());
  return measured([&](Carver& c) { sampler.lay_out(c, vocab_size); });
}

bool Sampler::better(const Candidate& a, const Candidate& b) {
  return a.logit > b.logit || (a.logit == b.logit && a.token < b.token);
}

// Bias and penalty affect few tokens; without them no copy is made.
std::span<const float> Sampler::edit(const SamplingConfig& config, std::span<const float> logits,
                                     std::span<const int32_t> text) {
  if (config.bias.empty() && config.repetition_penalty == 1) return logits;
  std::copy(logits.begin(), logits.end(), edited_.begin());
  for (const LogitBias& b : config.bias) {
    float& l = edited_[static_cast<size_t>(b.token)];
    l += b.bias;
    // Also for NaN, after the token's earlier entries reached infinity: the ban wins.
    if (!(l > -__builtin_inff())) l = -__builtin_inff();
  }
  if (config.repetition_penalty == 1) return edited_;
  const size_t window = std::min(text.size(), static_cast<size_t>(config.repetition_window));
  const std::span<const int32_t> recent(text.data() + (text.size() - window), window);
  for (const int32_t token : recent) {
    const size_t i = static_cast<size_t>(token);
    if (recent_[i] != 0) continue;
    recent_[i] = 1;
    float& l = edited_[i];
    l = l > 0 ? l / config.repetition_penalty : l * config.repetition_penalty;
  }
  for (const int32_t token : recent) recent_[static_cast<size_t>(token)] = 0;
  return edited_;
}

// Sorts the best of [begin, n) to the front, up to index `end`.
void Sampler::sort_best(size_t begin, size_t end, size_t n) {
  Candidate* c = candidates_.data();
  if (end < n) std::nth_element(c + begin, c + end, c + n, better);
  std::sort(c + begin, c + end, better);
}

uint64_t Sampler::weight(int32_t token) const {
  return token_weight(p_[static_cast<size_t>(token)],
                      weight_units(static_cast<int32_t>(p_.size())));
}

// 0: off.
size_t Sampler::top_k(const SamplingConfig& config) const {
  const size_t k = static_cast<size_t>(config.top_k);
  return k < p_.size() ? k : 0;
}

// Collects candidates that include the n_wanted best tokens and the wanted weight, so that few
// tokens need sorting.
size_t Sampler::gather(std::span<const float> logits, float best, size_t n_wanted, double wanted) {
  uint32_t count[kLogitClasses] = {};
  uint64_t weights[kLogitClasses] = {};
  for (size_t i = 0; i < logits.size(); ++i) {
    const int32_t c = logit_class(best, logits[i]);
    ++count[c];
    weights[c] += weight(static_cast<int32_t>(i));
  }
  int32_t last = 0;
  size_t n_held = count[0];
  uint64_t held = weights[0];
  while ((n_held < n_wanted || static_cast<double>(held) < wanted) && last + 1 < kLogitClasses) {
    ++last;
    n_held += count[last];
    held += weights[last];
  }
  size_t n = 0;
  for (size_t i = 0; i < logits.size(); ++i) {
    if (logit_class(best, logits[i]) > last) continue;
    candidates_[n++] = {logits[i], static_cast<int32_t>(i)};
  }
  return n;
}

// Collects the k best tokens, and what draws need of them. In no particular order few logits are
// better than the k-th best of those before them.
void Sampler::gather_best(const SamplingConfig& config, std::span<const float> logits, float best,
                          size_t k) {
  Candidate* const heap = candidates_.data();  // the worst in front
  for (size_t i = 0; i < k; ++i) heap[i] = {logits[i], static_cast<int32_t>(i)};
  std::make_heap(heap, heap + k, better);
  for (size_t i = k; i < logits.size(); ++i) {
    if (logits[i] <= heap[0].logit) continue;  // of equals the first one stays
    std::pop_heap(heap, heap + k, better);
    heap[k - 1] = {logits[i], static_cast<int32_t>(i)};
    std::push_heap(heap, heap + k, better);
  }
  for (size_t i = 0; i < k; ++i) {
    probabilities({&heap[i].logit, 1}, best, config.temperature,
                  &p_[static_cast<size_t>(heap[i].token)]);
  }
}

// Number of candidates, best first, that reach the target together.
size_t Sampler::count_top_p(double target, size_t n, size_t n_sorted) {
  uint64_t sum = 0;
  for (size_t i = 0; i < n; ++i) {
    if (i == n_sorted) {  // sorts as far as needed, in growing steps
      n_sorted = std::min(n, 4 * n_sorted + 64);
      sort_best(i, n_sorted, n);
    }
    sum += weight(candidates_[i].token);
    if (static_cast<double>(sum) >= target) return i + 1;
  }
  return n;
}

namespace {

// The cumulative weight, of `total`, at which a draw ends.
uint64_t draw_target(double uniform, uint64_t total) {
  return std::min(static_cast<uint64_t>(uniform * static_cast<double>(total)), total - 1);
}

// The least probability, relative to the best token, that passes the filters. Not used at a
// temperature of 0.
float least_p(const SamplingConfig& config) { return config.min_p; }

// Walks the tokens with at least min_p until the target is passed. token_of(i) is the i-th of n; at
// least one has a weight.
template <class TokenOf>
int32_t draw(std::span<const float> p, size_t n, float min_p, double uniform, TokenOf token_of) {
  const float units = weight_units(static_cast<int32_t>(p.size()));
  uint64_t total = 0;
  for (size_t i = 0; i < n; ++i) {
    const float one = p[token_of(i)];
    if (one >= min_p) total += token_weight(one, units);
  }
  const uint64_t target = draw_target(uniform, total);
  uint64_t sum = 0;
  size_t i = 0;
  for (; i + 1 < n; ++i) {
    const float one = p[token_of(i)];
    if (one >= min_p) sum += token_weight(one, units);
    if (sum > target) break;
  }
  return static_cast<int32_t>(token_of(i));
}

uint64_t add_up(const uint64_t* spans, size_t vocab_size) {
  uint64_t total = 0;
  const auto n = static_cast<size_t>(sample_spans(static_cast<int32_t>(vocab_size)));
  for (size_t i = 0; i < n; ++i) total += spans[i];
  return total;
}

}  // namespace

// Samples from candidates that include every eligible token. total: the weight of all tokens;
// unused with top-k.
int32_t Sampler::draw_among(const SamplingConfig& config, size_t n, uint64_t total,
                            double uniform) {
  const size_t k = top_k(config);
  size_t n_sorted = 0;
  if (k > 0) {
    sort_best(0, k, n);
    n = n_sorted = k;
    total = 0;
    for (size_t i = 0; i < n; ++i) total += weight(candidates_[i].token);
  }
  if (config.top_p < 1) {
    n = count_top_p(static_cast<double>(config.top_p) * static_cast<double>(total), n, n_sorted);
  }
  return draw(p_, n, least_p(config), uniform,
              [this](size_t i) { return static_cast<size_t>(candidates_[i].token); });
}

int32_t Sampler::draw_token(const SamplingConfig& config, std::span<const float> logits,
                            size_t best, double uniform) {
  if (config.temperature == 0) return static_cast<int32_t>(best);
  const size_t k = top_k(config);
  if (k > 0 && k <= kFewTokens) {
    gather_best(config, logits, logits[best], k);
    return draw_among(config, k, 0, uniform);
  }
  probabilities(logits, logits[best], config.temperature, p_.data());
  if (k == 0 && config.top_p == 1) {
    return draw(p_, logits.size(), least_p(config), uniform, [](size_t i) { return i; });
  }
  uint64_t total = 0;
  if (k == 0) {
    for (size_t i = 0; i < logits.size(); ++i) total += weight(static_cast<int32_t>(i));
  }
  const double wanted = static_cast<double>(config.top_p) * static_cast<double>(total);
  return draw_among(config, gather(logits, logits[best], k, wanted), total, uniform);
}

// Samples from all tokens in order of their ids: only the span in which the draw ends is read.
Status Sampler::draw_in_span(const SamplingConfig& config, const SampleReport& report,
                             const LogitReader& row, double uniform, int32_t* out) {
  const uint64_t target = draw_target(uniform, add_up(report.weights, p_.size()));
  uint64_t sum = 0;
  size_t span = 0;
  while ((span + 1) * kSampleSpan < p_.size() && sum + report.weights[span] <= target) {
    sum += report.weights[span++];
  }
  const size_t first = span * kSampleSpan;
  const size_t n = std::min<size_t>(kSampleSpan, p_.size() - first);
  MOE_TRY(row.read(row.user, first, n, edited_.data() + first));
  probabilities({edited_.data() + first, n}, report.best_logit, config.temperature,
                p_.data() + first);
  const float least = least_p(config);
  size_t i = first;
  for (; i + 1 < first + n; ++i) {
    if (p_[i] >= least) sum += weight(static_cast<int32_t>(i));
    if (sum > target) break;
  }
  *out = static_cast<int32_t>(i);
  return {};
}

// candidates_ and edited_ hold the device's candidates. *out remains -1 if they do not suffice.
Status Sampler::draw_token(const SamplingConfig& config, const SampleReport& report,
                           const LogitReader& row, double uniform, int32_t* out) {
  if (config.temperature == 0) {
    *out = report.best;
    return {};
  }
  const size_t k = top_k(config);
  if (k == 0 && config.top_p == 1) return draw_in_span(config, report, row, uniform, out);
  const auto n = static_cast<size_t>(report.n_candidates);
  uint64_t held = 0;
  for (size_t i = 0; i < n; ++i) {
    const Candidate& c = candidates_[i];
    p_[static_cast<size_t>(c.token)] =
        exp_float((c.logit - report.best_logit) / config.temperature);
    held += weight(c.token);
  }
  const uint64_t total = add_up(report.weights, p_.size());
  const double wanted = static_cast<double>(config.top_p) * static_cast<double>(total);
  if (n < k || (k == 0 && static_cast<double>(held) < wanted)) return {};
  *out = draw_among(config, n, total, uniform);
  return {};
}

bool sample_spec(const SamplingConfig& config, size_t n_top, int32_t vocab_size, SampleSpec* out) {
  if (!config.bias.empty() || config.repetition_penalty != 1) return false;
  SampleSpec spec;
  spec.n_candidates = std::min(static_cast<int32_t>(n_top), vocab_size);
  if (config.temperature > 0) {
    const int32_t k = config.top_k < vocab_size ? config.top_k : 0;
    spec.temperature = config.temperature;
    spec.n_candidates = std::max(spec.n_candidates, k);
    if (k == 0 && config.top_p < 1) spec.share = config.top_p;
    if (k == 0 && config.top_p == 1) spec.min_p = least_p(config);
  }
  if (spec.n_candidates > kMaxCandidates) return false;
  *out = spec;
  return true;
}

Status Sampler::sample(const SamplingConfig& config, const SampleReport& report,
                       const LogitReader& row, uint64_t number, TokenLogprob* out,
                       TokenLogprob* top, size_t n_top, bool* enough) {
  *enough = false;
  if (report.bad >= 0) return non_finite_logit(static_cast<size_t>(report.bad));
  const size_t vocab_size = p_.size();
  const auto n = static_cast<size_t>(report.n_candidates);
  const size_t n_best = std::min(n_top, vocab_size);
  if (n < n_best) return {};
  edited_[static_cast<size_t>(report.best)] = report.best_logit;
  for (size_t i = 0; i < n; ++i) {
    candidates_[i] = report.candidates[i];
    edited_[static_cast<size_t>(candidates_[i].token)] = candidates_[i].logit;
  }
  int32_t token = -1;
  MOE_TRY(draw_token(config, report, row, uniform_draw(config.seed, number), &token));
  if (token < 0) return {};
  const double log_sum =
      log_sum_exp(report.best_logit, add_up(report.sums, vocab_size), vocab_size);
  const auto logprob = [log_sum](float logit) {
    return static_cast<float>(static_cast<double>(logit) - log_sum);
  };
  *out = {token, logprob(edited_[static_cast<size_t>(token)])};
  sort_best(0, n_best, n);
  for (size_t i = 0; i < n_best; ++i) {
    top[i] = {candidates_[i].token, logprob(candidates_[i].logit)};
  }
  for (size_t i = n_best; i < n_top; ++i) top[i] = {-1, 0};
  *enough = true;
  return {};
}

Status Sampler::sample(const SamplingConfig& config, std::span<const float> logits,
                       std::span<const int32_t> text, uint64_t number, TokenLogprob* out,
                       TokenLogprob* top, size_t n_top) {
  double log_sum = 0;
  MOE_TRY(log_sum_exp(logits, &log_sum));
  const std::span<const float> edited = edit(config, logits, text);
  const size_t best = largest_index(edited);
  if (!is_finite(edited[best])) {
    return edited[best] < 0
               ? Status::error(MOE_ERR_RANGE, "sampling: bias bans every token")
               : Status::error(MOE_ERR_NON_FINITE,
                               "sampling: the biased logit of token %zu overflows", best);
  }
  const int32_t token = draw_token(config, edited, best, uniform_draw(config.seed, number));
  const double logit = static_cast<double>(logits[static_cast<size_t>(token)]);
  *out = {token, static_cast<float>(logit - log_sum)};
  best_tokens(logits, log_sum, top, std::min(n_top, logits.size()));
  for (size_t i = logits.size(); i < n_top; ++i) top[i] = {-1, 0};
  return {};
}

}  // namespace moe
