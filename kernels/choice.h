#pragma once
// Choosing a token from its row of logits: what a device tells the host, so that the row can stay
// where it is, and the arithmetic that both do.
//
// The weight of a token is p = exp((logit - best) / temperature), its probability relative to the
// best token's, in whole units (of 2^-44, as a rule) and rounded down. Sums of weights are exact,
// whoever adds them in whatever order.

#include "kernels/math.h"

namespace moe {

/// Units of a weight in 1, for a vocabulary of up to 2^24 tokens: sums stay below 2^64.
MOE_HD float weight_units(int32_t vocab_size) {
  return vocab_size <= (1 << 19) ? 0x1p44f : 0x1p39f;
}
MOE_HD uint64_t token_weight(float p, float units) {
  return static_cast<uint64_t>(
      static_cast<int64_t>(p * units));  // one instruction, unlike unsigned
}

/// How far a finite logit is below the best, eight classes to a power of two; ascending.
inline constexpr int32_t kLogitClasses = 2048;
MOE_HD int32_t logit_class(float best, float logit) {
  return (ScalarLanes::bits(best - logit) & 0x7fffffff) >> 20;  // 0 - -0 may be -0
}

/// What shall be known of a row to choose a token from it.
struct ChoiceSpec {
  float temperature = 0;      // of weights; 0: they are not asked for
  float min_p = 0;            // smaller p do not count in TokenChoice::weights
  float share = 0;            // candidates with this share of all weight
  int32_t n_candidates = -1;  // and at least so many; -1: nothing is asked

  bool operator==(const ChoiceSpec& other) const {
    return temperature == other.temperature && min_p == other.min_p && share == other.share &&
           n_candidates == other.n_candidates;
  }
};

MOE_HD bool wants_anything(const ChoiceSpec& spec) { return spec.n_candidates >= 0; }
MOE_HD bool wants_candidates(const ChoiceSpec& spec) {
  return spec.n_candidates > 0 || spec.share > 0;
}

struct TokenCandidate {
  float logit;
  int32_t token;
};

inline constexpr int32_t kMaxCandidates = 2048;
/// Tokens whose weights are added up to one sum.
inline constexpr int32_t kChoiceSpan = 1024;
inline constexpr int32_t choice_spans(int32_t vocab_size) {
  return (vocab_size + kChoiceSpan - 1) / kChoiceSpan;
}

/// What is known of a row. With a logit that is not finite nothing but `bad` is.
struct TokenChoice {
  int32_t bad = -1;   // the first token whose logit is not finite; -1: none
  int32_t best = -1;  // the token of the largest logit, the first of equals
  float best_logit = 0;
  /// The n best tokens, in any order: whole classes, as many as the spec asks for, or fewer where
  /// they would be more than kMaxCandidates.
  int32_t n_candidates = 0;
  const TokenCandidate* candidates = nullptr;
  const uint64_t* sums = nullptr;     // (choice_spans) weights at temperature 1
  const uint64_t* weights = nullptr;  // (choice_spans) weights at spec.temperature, of p >= min_p
};

/// Looks at rows of logits.
struct ChooseOp {
  const float* logits = nullptr;  // (n_rows, vocab_size)
  int32_t n_rows = 0;             // at most kMaxChoiceRows
  int32_t vocab_size = 0;
  const ChoiceSpec* specs = nullptr;  // (n_rows) host memory
  float* const* copies = nullptr;     // (n_rows) host memory: where the row goes as well, or null
};
inline constexpr int32_t kMaxChoiceRows = 32;

}  // namespace moe
