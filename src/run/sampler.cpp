#include "src/run/sampler.h"

#include <algorithm>

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

Status validate_bias(Span<const LogitBias> bias, int32_t vocab_size) {
  for (const LogitBias& b : bias) {
    if (b.token < 0 || b.token >= vocab_size) {
      return Status::error(MOE_ERR_RANGE, "sampling: bias: token expected 0..%d, found %d",
                           vocab_size - 1, b.token);
    }
    if (!is_finite(b.bias) && b.bias != -__builtin_inff()) {
      return Status::error(MOE_ERR_NON_FINITE,
                           "sampling: bias of token %d: expected a number or -infinity", b.token);
    }
  }
  return {};
}

// The n most probable tokens, best first, ties to the lower id.
void best_tokens(Span<const float> logits, double log_sum, TokenLogprob* top, size_t n) {
  if (n == 0) return;
  size_t filled = 0;
  for (size_t i = 0; i < logits.size; ++i) {
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
  if (!is_finite(c.temperature) || c.temperature < 0) {
    return range_error("temperature", "a finite number, at least 0", c.temperature);
  }
  if (c.top_k < 0) return range_error("top_k", "at least 0", c.top_k);
  if (!(c.top_p > 0 && c.top_p <= 1)) return range_error("top_p", "above 0, at most 1", c.top_p);
  if (!(c.min_p >= 0 && c.min_p < 1)) return range_error("min_p", "at least 0, below 1", c.min_p);
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

Sampler::Sampler(const Allocator& allocator)
    : edited_(allocator), p_(allocator), candidates_(allocator), recent_(allocator) {}

Status Sampler::init(int32_t vocab_size) {
  const auto n = static_cast<size_t>(vocab_size);
  MOE_TRY(edited_.resize(n));
  MOE_TRY(p_.resize(n));
  MOE_TRY(candidates_.resize(n));
  return recent_.resize(n);
}

uint64_t Sampler::bytes(int32_t vocab_size) {
  return static_cast<uint64_t>(vocab_size) * (2 * sizeof(float) + sizeof(Candidate) + 1);
}

bool Sampler::better(const Candidate& a, const Candidate& b) {
  return a.logit > b.logit || (a.logit == b.logit && a.token < b.token);
}

// Bias and penalty are on few tokens: without them the logits stay where they are.
Span<const float> Sampler::edit(const SamplingConfig& config, Span<const float> logits,
                                Span<const int32_t> text) {
  if (config.bias.empty() && config.repetition_penalty == 1) return logits;
  std::copy(logits.begin(), logits.end(), edited_.begin());
  for (const LogitBias& b : config.bias) {
    float& l = edited_[static_cast<size_t>(b.token)];
    l += b.bias;
    // Also NaN, where earlier entries of the token had reached infinity: the ban holds.
    if (!(l > -__builtin_inff())) l = -__builtin_inff();
  }
  if (config.repetition_penalty == 1) return edited_.span();
  const size_t window = std::min(text.size, static_cast<size_t>(config.repetition_window));
  const Span<const int32_t> recent(text.data + (text.size - window), window);
  for (const int32_t token : recent) {
    const size_t i = static_cast<size_t>(token);
    if (recent_[i] != 0) continue;
    recent_[i] = 1;
    float& l = edited_[i];
    l = l > 0 ? l / config.repetition_penalty : l * config.repetition_penalty;
  }
  for (const int32_t token : recent) recent_[static_cast<size_t>(token)] = 0;
  return edited_.span();
}

// The best of [begin, n) come first, in order, up to index `end`.
void Sampler::sort_best(size_t begin, size_t end, size_t n) {
  Candidate* c = candidates_.data();
  if (end < n) std::nth_element(c + begin, c + end, c + n, better);
  std::sort(c + begin, c + end, better);
}

// Candidates that hold the n_wanted best tokens, and p_wanted of probability where there is as
// much: few tokens need to be sorted then. How far a logit is below the best is counted in classes,
// eight to a power of two.
size_t Sampler::gather(Span<const float> logits, float best, size_t n_wanted, double p_wanted) {
  constexpr uint32_t kClasses = 2048;
  const auto class_of = [best](float logit) {
    return __builtin_bit_cast(uint32_t, best - logit) >> 20;  // not negative: the bits are ordered
  };
  uint32_t count[kClasses] = {};
  double p[kClasses] = {};
  for (size_t i = 0; i < logits.size; ++i) {
    const uint32_t c = class_of(logits[i]);
    ++count[c];
    p[c] += static_cast<double>(p_[i]);
  }
  uint32_t last = 0;
  size_t n_held = count[0];
  double p_held = p[0];
  while ((n_held < n_wanted || p_held < p_wanted) && last + 1 < kClasses) {
    ++last;
    n_held += count[last];
    p_held += p[last];
  }
  size_t n = 0;
  for (size_t i = 0; i < logits.size; ++i) {
    if (class_of(logits[i]) <= last) candidates_[n++] = {logits[i], static_cast<int32_t>(i)};
  }
  return n;
}

// How many of the n candidates, best first, reach the target together.
size_t Sampler::count_top_p(double target, size_t n, size_t n_sorted) {
  double sum = 0;
  for (size_t i = 0; i < n; ++i) {
    if (i == n_sorted) {  // sorts only as far as is needed, in growing steps
      n_sorted = std::min(n, 4 * n_sorted + 64);
      sort_best(i, n_sorted, n);
    }
    sum += static_cast<double>(p_[static_cast<size_t>(candidates_[i].token)]);
    if (sum >= target) return i + 1;
  }
  return n;
}

namespace {

// Walks tokens of at least min_p until `uniform` of their probability is passed. token_of(i) names
// the i-th of n.
template <class TokenOf>
int32_t draw(const float* p, size_t n, float min_p, double uniform, TokenOf token_of) {
  double total = 0;
  for (size_t i = 0; i < n; ++i) {
    const float weight = p[token_of(i)];
    if (weight >= min_p) total += static_cast<double>(weight);
  }
  const double target = uniform * total;
  double sum = 0;
  size_t token = 0;
  for (size_t i = 0; i < n; ++i) {
    const float weight = p[token_of(i)];
    if (weight < min_p || weight == 0) continue;
    token = token_of(i);
    sum += static_cast<double>(weight);
    if (sum > target) break;
  }
  return static_cast<int32_t>(token);
}

}  // namespace

int32_t Sampler::choose(const SamplingConfig& config, Span<const float> logits, size_t best,
                        double uniform) {
  if (config.temperature == 0) return static_cast<int32_t>(best);
  probabilities(logits, logits[best], config.temperature, p_.data());
  size_t k = static_cast<size_t>(config.top_k);
  if (k >= logits.size) k = 0;
  if (k == 0 && config.top_p == 1) {
    return draw(p_.data(), logits.size, config.min_p, uniform, [](size_t i) { return i; });
  }
  double total = 0;
  if (k == 0) {
    for (const float p : p_) total += static_cast<double>(p);
  }
  // A little more than the target, as sums in another order differ in their last bits.
  const double p_wanted = static_cast<double>(config.top_p) * total * (1 + 1e-9);
  size_t n = gather(logits, logits[best], k, p_wanted);
  size_t n_sorted = 0;
  if (k > 0) {
    sort_best(0, k, n);
    n = n_sorted = k;
    for (size_t i = 0; i < n; ++i) {
      total += static_cast<double>(p_[static_cast<size_t>(candidates_[i].token)]);
    }
  }
  if (config.top_p < 1) {
    n = count_top_p(static_cast<double>(config.top_p) * total, n, n_sorted);
  }
  return draw(p_.data(), n, config.min_p, uniform,
              [this](size_t i) { return static_cast<size_t>(candidates_[i].token); });
}

Status Sampler::sample(const SamplingConfig& config, Span<const float> logits,
                       Span<const int32_t> text, uint64_t number, TokenLogprob* out,
                       TokenLogprob* top, size_t n_top) {
  double log_sum = 0;
  MOE_TRY(log_sum_exp(logits, &log_sum));
  const Span<const float> edited = edit(config, logits, text);
  const size_t best = largest_index(edited);
  if (!is_finite(edited[best])) {
    return edited[best] < 0
               ? Status::error(MOE_ERR_RANGE, "sampling: bias bans every token")
               : Status::error(MOE_ERR_NON_FINITE,
                               "sampling: the biased logit of token %zu overflows", best);
  }
  const int32_t token = choose(config, edited, best, uniform_draw(config.seed, number));
  const double logit = static_cast<double>(logits[static_cast<size_t>(token)]);
  *out = {token, static_cast<float>(logit - log_sum)};
  best_tokens(logits, log_sum, top, std::min(n_top, logits.size));
  for (size_t i = logits.size; i < n_top; ++i) top[i] = {-1, 0};
  return {};
}

}  // namespace moe
