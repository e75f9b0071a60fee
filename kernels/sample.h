// SPDX-License-Identifier: MIT
#pragma once
// Sampling a token from a row of logits that remains on the device: what the device reports to the
// host, and the arithmetic that both share.
//
// The weight of a token is p = exp((logit - best) / temperature), its probability relative to the
// best token's, in integer units (usually 2^-44), rounded down. Sums of weights are exact, in any
// order.

#include "kernels/math.h"

namespace moe {

/// Units per weight of 1, for up to 2^24 tokens: sums stay below 2^64.
MOE_HD float weight_units(int32_t vocab_size) {
  return vocab_size <= (1 << 19) ? 0x1p44f : 0x1p39f;
}
MOE_HD uint64_t token_weight(float p, float units) {
  return static_cast<uint64_t>(
      static_cast<int64_t>(p * units));  // one instruction, unlike unsigned
}

/// Distance of a finite logit to the best, in eight classes per power of two, ascending.
inline constexpr int32_t kLogitClasses = 2048;
MOE_HD int32_t logit_class(float best, float logit) {
  return (ScalarLanes::bits(best - logit) & 0x7fffffff) >> 20;  // 0 - -0 may be -0
}

/// The report about a row that sampling needs.
struct SampleSpec {
  float temperature = 0;      // for weights; 0: not requested
  float min_p = 0;            // smaller p do not count in SampleReport::weights
  float share = 0;            // candidates covering this share of the total weight
  int32_t n_candidates = -1;  // minimum number of candidates; -1: nothing is requested

  bool operator==(const SampleSpec& other) const {
    return temperature == other.temperature && min_p == other.min_p && share == other.share &&
           n_candidates == other.n_candidates;
  }
};

MOE_HD bool wants_anything(const SampleSpec& spec) { return spec.n_candidates >= 0; }
MOE_HD bool wants_candidates(const SampleSpec& spec) {
  return spec.n_candidates > 0 || spec.share > 0;
}

struct TokenCandidate {
  float logit;
  int32_t token;
};

inline constexpr int32_t kMaxCandidates = 2048;
/// Tokens per partial sum of weights.
inline constexpr int32_t kSampleSpan = 1024;
inline constexpr int32_t sample_spans(int32_t vocab_size) {
  return (vocab_size + kSampleSpan - 1) / kSampleSpan;
}

/// Report on a row. If a logit is not finite, only `bad` is valid.
struct SampleReport {
  int32_t bad = -1;   // first token with a logit that is not finite; -1: none
  int32_t best = -1;  // token with the largest logit, the first of equals
  float best_logit = 0;
  /// The n best tokens, unordered: whole classes, as many as requested, or fewer if more than
  /// kMaxCandidates would be needed.
  int32_t n_candidates = 0;
  const TokenCandidate* candidates = nullptr;
  const uint64_t* sums = nullptr;     // (sample_spans) weights at temperature 1
  const uint64_t* weights = nullptr;  // (sample_spans) weights at spec.temperature, of p >= min_p
};

/// Analyses rows of logits.
struct SampleOp {
  const float* logits = nullptr;  // (n_rows, vocab_size)
  int32_t n_rows = 0;             // at most kMaxSampleRows
  int32_t vocab_size = 0;
  const SampleSpec* specs = nullptr;  // (n_rows) host memory
  float* const* copies = nullptr;     // (n_rows) host memory: copies of the rows, or null
};
inline constexpr int32_t kMaxSampleRows = 32;

}  // namespace moe
