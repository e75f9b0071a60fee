#include "src/run/sampler.h"

#include <algorithm>

#include "kernels/math.h"

namespace moe {
namespace {

bool finite(float v) { return (__builtin_bit_cast(uint32_t, v) & 0x7f800000u) != 0x7f800000u; }

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
    if (!finite(b.bias) && b.bias != -__builtin_inff()) {
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
  if (!finite(c.temperature) || c.temperature < 0) {
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

Status log_sum_exp(Span<const float> logits, double* out) {
  float best = -__builtin_inff();
  for (size_t i = 0; i < logits.size; ++i) {
    if (!finite(logits[i])) {
      return Status::error(MOE_ERR_NON_FINITE, "logit of token %zu is not a finite number", i);
    }
    best = std::max(best, logits[i]);
  }
  double sum = 0;
  for (const float l : logits) sum += static_cast<double>(exp_float(l - best));
  *out = static_cast<double>(best) + log_double(sum);
  return {};
}

Sampler::Sampler(const Allocator& allocator) : candidates_(allocator), recent_(allocator) {}

Status Sampler::init(int32_t vocab_size) {
  MOE_TRY(candidates_.resize(static_cast<size_t>(vocab_size)));
  return recent_.resize(static_cast<size_t>(vocab_size));
}

uint64_t Sampler::bytes(int32_t vocab_size) {
  return static_cast<uint64_t>(vocab_size) * (sizeof(Candidate) + 1);
}

bool Sampler::better(const Candidate& a, const Candidate& b) {
  return a.logit > b.logit || (a.logit == b.logit && a.token < b.token);
}

void Sampler::gather(const SamplingConfig& config, Span<const float> logits,
                     Span<const int32_t> text) {
  for (size_t i = 0; i < logits.size; ++i) {
    candidates_[i] = {logits[i], static_cast<int32_t>(i), 0};
  }
  for (const LogitBias& b : config.bias) {
    float& l = candidates_[static_cast<size_t>(b.token)].logit;
    l += b.bias;
    // Also NaN, where earlier entries of the token had reached infinity: the ban holds.
    if (!(l > -__builtin_inff())) l = -__builtin_inff();
  }
  if (config.repetition_penalty == 1) return;
  const size_t window = std::min(text.size, static_cast<size_t>(config.repetition_window));
  const Span<const int32_t> recent(text.data + (text.size - window), window);
  for (const int32_t token : recent) {
    const size_t i = static_cast<size_t>(token);
    if (recent_[i] != 0) continue;
    recent_[i] = 1;
    float& l = candidates_[i].logit;
    l = l > 0 ? l / config.repetition_penalty : l * config.repetition_penalty;
  }
  for (const int32_t token : recent) recent_[static_cast<size_t>(token)] = 0;
}

// The best of [begin, n) come first, in order, up to index `end`.
void Sampler::sort_best(size_t begin, size_t end, size_t n) {
  Candidate* c = candidates_.data();
  if (end < n) std::nth_element(c + begin, c + end, c + n, better);
  std::sort(c + begin, c + end, better);
}

size_t Sampler::keep_top_p(float top_p, size_t n, size_t n_sorted) {
  double total = 0;
  for (size_t i = 0; i < n; ++i) total += static_cast<double>(candidates_[i].p);
  const double target = static_cast<double>(top_p) * total;
  double sum = 0;
  for (size_t i = 0; i < n; ++i) {
    if (i == n_sorted) {  // sorts only as far as is needed, in growing steps
      n_sorted = std::min(n, 4 * n_sorted + 64);
      sort_best(i, n_sorted, n);
    }
    sum += static_cast<double>(candidates_[i].p);
    if (sum >= target) return i + 1;
  }
  return n;
}

int32_t Sampler::draw_from(size_t n, float min_p, double uniform) const {
  double total = 0;
  for (size_t i = 0; i < n; ++i) {
    if (candidates_[i].p >= min_p) total += static_cast<double>(candidates_[i].p);
  }
  const double target = uniform * total;
  double sum = 0;
  int32_t token = -1;
  for (size_t i = 0; i < n; ++i) {
    const Candidate& c = candidates_[i];
    if (c.p < min_p || c.p == 0) continue;
    token = c.token;
    sum += static_cast<double>(c.p);
    if (sum > target) break;
  }
  return token;
}

int32_t Sampler::choose(const SamplingConfig& config, const Candidate& best, double uniform) {
  if (config.temperature == 0) return best.token;
  for (Candidate& c : candidates_) c.p = exp_float((c.logit - best.logit) / config.temperature);
  size_t n = candidates_.size();
  size_t n_sorted = 0;
  if (config.top_k > 0 && static_cast<size_t>(config.top_k) < n) {
    n = n_sorted = static_cast<size_t>(config.top_k);
    sort_best(0, n, candidates_.size());
  }
  if (config.top_p < 1) n = keep_top_p(config.top_p, n, n_sorted);
  return draw_from(n, config.min_p, uniform);
}

Status Sampler::sample(const SamplingConfig& config, Span<const float> logits,
                       Span<const int32_t> text, uint64_t draw, TokenLogprob* out,
                       TokenLogprob* top, size_t n_top) {
  double log_sum = 0;
  MOE_TRY(log_sum_exp(logits, &log_sum));
  gather(config, logits, text);
  Candidate best = candidates_[0];
  for (const Candidate& c : candidates_) {
    if (better(c, best)) best = c;
  }
  if (!finite(best.logit)) {
    return best.logit < 0
               ? Status::error(MOE_ERR_RANGE, "sampling: bias bans every token")
               : Status::error(MOE_ERR_NON_FINITE,
                               "sampling: the biased logit of token %d overflows", best.token);
  }
  const int32_t token = choose(config, best, uniform_draw(config.seed, draw));
  const double logit = static_cast<double>(logits[static_cast<size_t>(token)]);
  *out = {token, static_cast<float>(logit - log_sum)};
  best_tokens(logits, log_sum, top, std::min(n_top, logits.size));
  for (size_t i = logits.size; i < n_top; ++i) top[i] = {-1, 0};
  return {};
}

}  // namespace moe
