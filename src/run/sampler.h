// SPDX-License-Identifier: MIT
#pragma once
// Samples the next token from logits. Deterministic: own exp and log, exact sums of weights
// (kernels/sample.h), and draws that depend only on (seed, draw number).

#include "kernels/sample.h"
#include "src/base/host_buffer.h"

namespace moe {

struct LogitBias {
  int32_t token;
  float bias;  // added to the logit; -infinity bans the token
};

/// Filters run in the order of the fields. Probabilities are renormalised between filters only
/// where a field says so.
struct SamplingConfig {
  std::span<const LogitBias> bias;
  /// p in 0.01..100, on recent tokens: l > 0 ? l / p : l * p (CTRL, Keskar et al. 2019). 1: off.
  float repetition_penalty = 1;
  int32_t repetition_window = 64;  // number of last tokens that are penalised
  float temperature = 0;           // >= 0; 0: greedy, ties to the lower id
  int32_t top_k = 0;               // 0: off
#define MOE_SAMPLING_FILTER(name, off, range, text) float name = off;
#include "src/model/sampling_list.h"
  uint64_t seed = 0;
};

struct TokenLogprob {
  int32_t token;
  float logprob;  // natural logarithm, of softmax(logits) before any filter
};

inline constexpr int32_t kMaxTopLogprobs = 64;

/// Checks every field and the ids in `bias`: MOE_ERR_RANGE or MOE_ERR_NON_FINITE, naming the field.
Status validate(const SamplingConfig& config, int32_t vocab_size);

/// Draw `number` of the stream `seed`: uniform in [0, 1), a multiple of 2^-53. It is element
/// `number` of the SplitMix64 sequence (Steele et al. 2014) that starts at mix(seed).
double uniform_draw(uint64_t seed, uint64_t number);

/// The report that a device must make about a row so that a token can be sampled without
/// downloading the row. False if that cannot be known: a bias or penalty changes logits, or top_k
/// exceeds kMaxCandidates.
bool sample_spec(const SamplingConfig& config, size_t n_top, int32_t vocab_size, SampleSpec* out);

/// Reads n logits from `first` on.
struct LogitReader {
  Status (*read)(void* user, size_t first, size_t n, float* to) = nullptr;
  void* user = nullptr;
};

/// Scratch for one vocabulary; allocates only in init(). One thread at a time.
class Sampler {
 public:
  explicit Sampler(const Allocator& allocator) : memory_(allocator) {}
  Status init(int32_t vocab_size);
  static uint64_t bytes(int32_t vocab_size);  // that init() allocates

  /// Samples the token after `text` (reads only its last repetition_window tokens). `config` has
  /// been validated. top: n_top (at most kMaxTopLogprobs) entries, best first, ties to the lower id
  /// (token -1 beyond the vocabulary).
  /// MOE_ERR_NON_FINITE for NaN or infinite logits, MOE_ERR_RANGE if every token is banned; then
  /// nothing is written.
  Status sample(const SamplingConfig& config, std::span<const float> logits,
                std::span<const int32_t> text, uint64_t draw, TokenLogprob* out, TokenLogprob* top,
                size_t n_top);

  /// The same from what a device reported for sample_spec(): same token, same logprobs. If that
  /// does not suffice, *enough is false and nothing else is written.
  Status sample(const SamplingConfig& config, const SampleReport& report, const LogitReader& row,
                uint64_t draw, TokenLogprob* out, TokenLogprob* top, size_t n_top, bool* enough);

 private:
  void lay_out(Carver& c, int32_t vocab_size);
  using Candidate = TokenCandidate;
  static bool better(const Candidate& a, const Candidate& b);

  std::span<const float> edit(const SamplingConfig& config, std::span<const float> logits,
                              std::span<const int32_t> text);
  int32_t draw_token(const SamplingConfig& config, std::span<const float> logits, size_t best,
                     double uniform);
  int32_t draw_among(const SamplingConfig& config, size_t n, uint64_t total, double uniform);
  Status draw_token(const SamplingConfig& config, const SampleReport& report,
                    const LogitReader& row, double uniform, int32_t* out);
  Status draw_in_span(const SamplingConfig& config, const SampleReport& report,
                      const LogitReader& row, double uniform, int32_t* out);
  size_t gather(std::span<const float> logits, float best, size_t n_wanted, double wanted);
  void gather_best(const SamplingConfig& config, std::span<const float> logits, float best,
                   size_t k);
  void sort_best(size_t begin, size_t end, size_t n);
  size_t count_top_p(double target, size_t n, size_t n_sorted);
  size_t top_k(const SamplingConfig& config) const;
  uint64_t weight(int32_t token) const;

  std::span<float> edited_;  // (vocab) logits after bias and penalty, or those reported by a device
  std::span<float> p_;       // (vocab) exp((logit - best) / temperature)
  std::span<Candidate> candidates_;  // (vocab)
  std::span<uint8_t> recent_;        // (vocab), all zero between calls
  HostBuffer memory_;
};

}  // namespace moe
