// SPDX-License-Identifier: MIT
// sample_rows() compared with its definition, and tokens sampled from its results compared with
// tokens sampled from whole rows.

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <string>

#include "kernels/cuda/ops.h"
#include "src/run/sampler.h"
#include "tests/gpu/on_device.h"

namespace moe::cuda {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kLargest = std::numeric_limits<float>::max();

using Floats = std::vector<float>;

/// Memory that the device writes and the host reads.
template <class T>
class Pinned {
 public:
  explicit Pinned(size_t n) {
    void* memory = nullptr;
    EXPECT_EQ(cudaMallocHost(&memory, n * sizeof(T)), cudaSuccess);
    std::memset(memory, 0xa5, n * sizeof(T));
    memory_ = {static_cast<T*>(memory), [](T* p) { cudaFreeHost(p); }};
  }
  T* get() const { return memory_.get(); }

 private:
  std::shared_ptr<T> memory_;
};

/// Rows of logits on the device, and the results of sample_rows().
class Rows {
 public:
  Rows(const std::vector<Floats>& rows, const std::vector<SampleSpec>& specs)
      : vocab_(static_cast<int32_t>(rows[0].size())),
        spans_(static_cast<size_t>(sample_spans(vocab_))),
        heads_(rows.size()),
        sums_(rows.size() * spans_),
        weights_(rows.size() * spans_),
        candidates_(rows.size() * kMaxCandidates) {
    Floats all;
    for (const Floats& row : rows) all.insert(all.end(), row.begin(), row.end());
    const size_t n = rows.size();
    const OnDevice<float> logits(all);
    const OnDevice<SampleSpec> device_specs(specs);
    std::vector<float*> to;
    for (size_t i = 0; i < n; ++i) {
      copies_.emplace_back(rows[i].size());
      to.push_back(i % 2 == 0 ? copies_[i].get() : nullptr);
    }
    const OnDevice<float*> copies(to);
    const OnDevice<uint64_t> best(n * spans_);
    const OnDevice<int32_t> bad(n * spans_);
    const OnDevice<uint32_t> counts(n * kLogitClasses);
    const OnDevice<unsigned long long> classes(n * kLogitClasses);
    const OnDevice<int32_t> cursor(n);
    DeviceSampleOp op;
    op.op = {logits, static_cast<int32_t>(n), vocab_, device_specs, copies};
    op.best = best;
    op.bad = bad;
    op.counts = counts;
    op.classes = classes;
    op.cursor = cursor;
    op.heads = heads_.get();
    op.span_sums = sums_.get();
    op.span_weights = weights_.get();
    op.candidates_of = candidates_.get();
    EXPECT_EQ(sample_rows(nullptr, op), cudaSuccess);
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  }
  SampleReport sampled(size_t row) const {
    const SampleHead& head = heads_.get()[row];
    return {head.bad,
            head.best,
            head.best_logit,
            head.n_candidates,
            candidates_.get() + row * kMaxCandidates,
            sums_.get() + row * spans_,
            weights_.get() + row * spans_};
  }
  Floats copy(size_t row) const { return copies_[row].values(); }

 private:
  int32_t vocab_;
  size_t spans_;
  Pinned<SampleHead> heads_;
  Pinned<uint64_t> sums_;
  Pinned<uint64_t> weights_;
  Pinned<TokenCandidate> candidates_;
  std::vector<OnDevice<float>> copies_;
};

bool same(const TokenCandidate& a, const TokenCandidate& b) {
  return a.token == b.token && std::memcmp(&a.logit, &b.logit, sizeof a.logit) == 0;
}

std::vector<TokenCandidate> best_first(const Floats& logits) {
  std::vector<TokenCandidate> all;
  for (size_t i = 0; i < logits.size(); ++i) all.push_back({logits[i], static_cast<int32_t>(i)});
  std::stable_sort(all.begin(), all.end(), [](const TokenCandidate& a, const TokenCandidate& b) {
    return a.logit > b.logit;
  });
  return all;
}

/// Compares with the definition in kernels/sample.h.
void expect_report(const Floats& logits, const SampleSpec& spec, SampleReport found) {
  const auto is_bad = [](float v) { return !std::isfinite(v); };
  const auto bad = std::find_if(logits.begin(), logits.end(), is_bad);
  if (bad != logits.end()) {
    EXPECT_EQ(found.bad, bad - logits.begin());
    return;
  }
  ASSERT_EQ(found.bad, -1);
  const auto best = std::max_element(logits.begin(), logits.end());
  ASSERT_EQ(found.best, best - logits.begin());
  EXPECT_EQ(found.best_logit, *best);

  const float units = weight_units(static_cast<int32_t>(logits.size()));
  const auto weight_at = [&](float logit, float t, float least) {
    const float p = exp_float((logit - *best) / t);
    return p >= least ? token_weight(p, units) : 0;
  };
  uint64_t total = 0;
  for (size_t first = 0, span = 0; first < logits.size(); first += kSampleSpan, ++span) {
    uint64_t sum = 0;
    uint64_t weights = 0;
    for (size_t i = first; i < std::min(logits.size(), first + kSampleSpan); ++i) {
      sum += weight_at(logits[i], 1, 0);
      if (spec.temperature > 0) weights += weight_at(logits[i], spec.temperature, spec.min_p);
    }
    ASSERT_EQ(found.sums[span], sum) << "span " << span;
    ASSERT_EQ(found.weights[span], weights) << "span " << span;
    total += weights;
  }

  const std::vector<TokenCandidate> all = best_first(logits);
  std::vector<TokenCandidate> expected;
  uint64_t held = 0;
  for (size_t i = 0; i < all.size();) {
    if (expected.size() >= static_cast<size_t>(spec.n_candidates) &&
        static_cast<double>(held) >= static_cast<double>(spec.share) * static_cast<double>(total)) {
      break;
    }
    size_t end = i;
    while (end < all.size() &&
           logit_class(*best, all[end].logit) == logit_class(*best, all[i].logit)) {
      if (spec.share > 0) held += weight_at(all[end].logit, spec.temperature, 0);
      ++end;
    }
    if (end > static_cast<size_t>(kMaxCandidates)) break;
    expected.assign(all.begin(), all.begin() + static_cast<ptrdiff_t>(end));
    i = end;
  }
  ASSERT_EQ(found.n_candidates, static_cast<int32_t>(expected.size()));
  std::vector<TokenCandidate> sorted(found.candidates, found.candidates + found.n_candidates);
  std::sort(sorted.begin(), sorted.end(), [](const TokenCandidate& a, const TokenCandidate& b) {
    return a.logit > b.logit || (a.logit == b.logit && a.token < b.token);
  });
  EXPECT_TRUE(std::equal(sorted.begin(), sorted.end(), expected.begin(), same));
}

struct Kind {
  const char* name;
  Floats logits;
};

std::vector<Kind> kinds(size_t vocab) {
  std::mt19937 rng(static_cast<unsigned>(vocab));
  std::normal_distribution<float> normal(0, 3);
  const auto make = [&](auto one) {
    Floats logits(vocab);
    for (float& l : logits) l = one();
    return logits;
  };
  std::vector<Kind> all = {
      {"normal", make([&] { return normal(rng); })},
      {"steep", make([&] { return 4 * normal(rng); })},
      {"coarse", make([&] { return std::round(normal(rng)); })},
      {"equal", make([&] { return -2.5f; })},
      {"zeros of both signs", make([&] { return rng() % 2 == 0 ? -0.0f : 0.0f; })},
      {"extremes", make([&] { return rng() % 3 == 0 ? kLargest : -kLargest; })},
      {"tiny", make([&] { return static_cast<float>(rng() % 7) * 1e-45f; })},
  };
  for (const float bad : {kInf, -kInf, std::nanf("")}) {
    all.push_back({"not finite", all[0].logits});
    all.back().logits[vocab / 2] = bad;
    all.back().logits[vocab - 1] = kInf;
  }
  return all;
}

const SampleSpec kSpecs[] = {
    {0, 0, 0, 0},         {0, 0, 0, 20},         {0.8f, 0, 0, 0},    {1, 0.05f, 0, 3},
    {1.5f, 0, 0.9f, 0},   {0.7f, 0, 0.999f, 64}, {1, 0, 0, 40},      {1, 0, 0, kMaxCandidates},
    {1e-30f, 0, 0.5f, 0}, {1e30f, 0, 0.3f, 1},   {0.5f, 0.5f, 0, 0},
};

TEST(CudaSample, IsItsDefinition) {
  for (const size_t vocab : {size_t{1}, size_t{31}, size_t{1024}, size_t{1025}, size_t{5000}}) {
    for (const Kind& kind : kinds(vocab)) {
      SCOPED_TRACE(testing::Message() << kind.name << " of " << vocab);
      const std::vector<SampleSpec> specs(std::begin(kSpecs), std::end(kSpecs));
      const std::vector<Floats> rows(specs.size(), kind.logits);
      const Rows found(rows, specs);
      for (size_t i = 0; i < specs.size(); ++i) {
        SCOPED_TRACE(testing::Message() << "spec " << i);
        expect_report(kind.logits, specs[i], found.sampled(i));
        if (i % 2 == 0) {
          EXPECT_SAME_BITS(found.copy(i), kind.logits);
        }
      }
    }
  }
}

// Rows of several sessions: each has its own spec, and some specs ask for the copy alone.
TEST(CudaSample, ManyRowsOfALargeVocabulary) {
  constexpr size_t kVocab = 151936;
  const std::vector<Kind> all = kinds(kVocab);
  const std::vector<Floats> rows = {all[0].logits, all[1].logits, all[2].logits, all[7].logits,
                                    all[0].logits};
  const std::vector<SampleSpec> specs = {kSpecs[5], kSpecs[4], SampleSpec(), kSpecs[6], kSpecs[0]};
  const Rows found(rows, specs);
  for (const size_t i : {0, 1, 3, 4}) {
    SCOPED_TRACE(testing::Message() << "row " << i);
    expect_report(rows[i], specs[i], found.sampled(i));
  }
  for (const size_t i : {0, 2, 4}) EXPECT_SAME_BITS(found.copy(i), rows[i]);
}

SamplingConfig sampling(float temperature, int32_t top_k, float top_p, float min_p) {
  SamplingConfig c;
  c.temperature = temperature;
  c.top_k = top_k;
  c.top_p = top_p;
  c.min_p = min_p;
  return c;
}

/// Samples from the row and from the device's results. Returns how often the latter were
/// sufficient.
int expect_same_tokens(const Floats& logits, SamplingConfig config, size_t n_top, int draws) {
  const auto vocab = static_cast<int32_t>(logits.size());
  SampleSpec spec;
  EXPECT_TRUE(sample_spec(config, n_top, vocab, &spec));
  const Rows rows({logits}, {spec});
  Sampler sampler(system_allocator());
  EXPECT_TRUE(sampler.init(vocab).ok());
  const LogitReader reader{[](void* user, size_t first, size_t n, float* to) {
                             const auto& from = *static_cast<const Floats*>(user);
                             std::copy_n(&from[first], n, to);
                             return Status();
                           },
                           const_cast<Floats*>(&logits)};
  int sufficed = 0;
  for (int i = 0; i < draws; ++i) {
    config.seed = static_cast<uint64_t>(i % 3);
    const auto number = static_cast<uint64_t>(i);
    TokenLogprob expected{};
    TokenLogprob found{};
    std::vector<TokenLogprob> expected_top(n_top + 1);
    std::vector<TokenLogprob> found_top(n_top + 1);
    bool enough = false;
    const Status status = sampler.sample(config, rows.sampled(0), reader, number, &found,
                                         found_top.data(), n_top, &enough);
    const Status of_row = sampler.sample(config, {logits.data(), logits.size()}, {}, number,
                                         &expected, expected_top.data(), n_top);
    EXPECT_STREQ(status.text(), of_row.text());
    if (!enough) continue;
    ++sufficed;
    EXPECT_EQ(found.token, expected.token) << "draw " << i;
    EXPECT_EQ(found.logprob, expected.logprob) << "draw " << i;
    for (size_t t = 0; t < n_top; ++t) {
      EXPECT_EQ(found_top[t].token, expected_top[t].token) << "draw " << i << ", best " << t;
      EXPECT_EQ(found_top[t].logprob, expected_top[t].logprob) << "draw " << i << ", best " << t;
    }
  }
  return sufficed;
}

TEST(CudaSample, TheSameTokensAsFromTheRow) {
  const SamplingConfig configs[] = {
      sampling(0, 0, 1, 0),         sampling(0.8f, 0, 1, 0),     sampling(1, 0, 1, 0.05f),
      sampling(1.2f, 40, 1, 0),     sampling(0.7f, 40, 0.9f, 0), sampling(0.6f, 0, 0.9f, 0),
      sampling(1, 0, 0.95f, 0.02f), sampling(1e-38f, 0, 1, 0),   sampling(1e38f, 0, 0.5f, 0),
      sampling(1, 2000, 0.99f, 0),
  };
  for (const size_t vocab : {size_t{1}, size_t{31}, size_t{2000}}) {
    for (const Kind& kind : kinds(vocab)) {
      for (const SamplingConfig& config : configs) {
        for (const size_t n_top : {size_t{0}, size_t{5}}) {
          SCOPED_TRACE(testing::Message() << kind.name << " of " << vocab << ", temperature "
                                          << config.temperature << ", top_k " << config.top_k
                                          << ", top_p " << config.top_p << ", " << n_top);
          const int sufficed = expect_same_tokens(kind.logits, config, n_top, 12);
          // With at most kMaxCandidates tokens every one is a candidate.
          EXPECT_EQ(sufficed, std::string(kind.name) == "not finite" ? 0 : 12);
        }
      }
    }
  }
}

TEST(CudaSample, TheSameTokensOfALargeVocabulary) {
  const std::vector<Kind> all = kinds(151936);
  EXPECT_EQ(expect_same_tokens(all[0].logits, sampling(1, 0, 1, 0), 0, 40), 40);
  EXPECT_EQ(expect_same_tokens(all[0].logits, sampling(0, 0, 1, 0), 20, 2), 2);
  EXPECT_EQ(expect_same_tokens(all[1].logits, sampling(1, 0, 0.9f, 0.01f), 5, 40), 40);
  EXPECT_EQ(expect_same_tokens(all[1].logits, sampling(0.8f, 50, 0.9f, 0), 0, 40), 40);
  // Equal logits form one class, which has more tokens than there are candidates.
  EXPECT_EQ(expect_same_tokens(all[3].logits, sampling(1, 0, 0.9f, 0), 0, 2), 0);
  EXPECT_EQ(expect_same_tokens(all[3].logits, sampling(1, 40, 1, 0), 0, 2), 0);
  EXPECT_EQ(expect_same_tokens(all[3].logits, sampling(1, 0, 1, 0), 0, 40), 40);
}

TEST(CudaSample, SamplingThatNeedsTheRowOfLogits) {
  SampleSpec spec;
  SamplingConfig config;
  EXPECT_TRUE(sample_spec(config, 0, 100000, &spec));
  const LogitBias bias[] = {{3, 1.0f}};
  config.bias = {bias, 1};
  EXPECT_FALSE(sample_spec(config, 0, 100000, &spec));
  config.bias = {};
  config.repetition_penalty = 1.1f;
  EXPECT_FALSE(sample_spec(config, 0, 100000, &spec));
  config.repetition_penalty = 1;
  config.temperature = 1;
  config.top_k = kMaxCandidates + 1;
  EXPECT_FALSE(sample_spec(config, 0, 100000, &spec));
  EXPECT_TRUE(
      sample_spec(config, 0, kMaxCandidates, &spec));  // top_k of the whole vocabulary is no limit
}

}  // namespace
}  // namespace moe::cuda
