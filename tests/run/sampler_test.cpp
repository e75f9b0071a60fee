// SPDX-License-Identifier: MIT
#include "src/run/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <random>
#include <set>
#include <vector>

#include "kernels/sample.h"
#include "src/run/logits.h"
#include "tests/support/failing_allocator.h"

namespace moe {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

class SamplerTest : public testing::Test {
 protected:
  void use(std::vector<float> logits) {
    logits_ = std::move(logits);
    ASSERT_TRUE(sampler_.init(static_cast<int32_t>(logits_.size())).ok());
  }
  Status try_sample(uint64_t draw, TokenLogprob* out, TokenLogprob* top = nullptr, size_t n = 0) {
    return sampler_.sample(config_, {logits_.data(), logits_.size()}, {text_.data(), text_.size()},
                           draw, out, top, n);
  }
  int32_t sample(uint64_t draw = 0) {
    TokenLogprob out{};
    const Status s = try_sample(draw, &out);
    EXPECT_TRUE(s.ok()) << s.text();
    return out.token;
  }
  // Frequency of each token over many draws.
  std::map<int32_t, double> frequencies(int n = 20000) {
    std::map<int32_t, double> f;
    for (int i = 0; i < n; ++i) f[sample(static_cast<uint64_t>(i))] += 1.0 / n;
    return f;
  }

  Sampler sampler_{system_allocator()};
  SamplingConfig config_;
  std::vector<float> logits_;
  std::vector<int32_t> text_;
};

TEST_F(SamplerTest, GreedyTakesTheBestAndTheLowerIdOnTies) {
  use({1, 3, 2, 3});
  EXPECT_EQ(sample(), 1);
}

TEST_F(SamplerTest, LogprobIsOfTheModelNotOfTheFilters) {
  use({1, 2, 3});
  config_.temperature = 0.1f;
  config_.top_k = 1;
  TokenLogprob out{};
  ASSERT_TRUE(try_sample(0, &out).ok());
  const double expected = 3 - std::log(std::exp(1) + std::exp(2) + std::exp(3));
  EXPECT_NEAR(out.logprob, expected, 1e-6);
}

TEST_F(SamplerTest, TopLogprobsAreSortedWithTiesToTheLowerId) {
  use({1, 5, 5, 0, 7});
  TokenLogprob out{};
  TokenLogprob top[7];
  ASSERT_TRUE(try_sample(0, &out, top, 7).ok());
  const std::vector<int32_t> expected = {4, 1, 2, 0, 3, -1, -1};
  for (size_t i = 0; i < expected.size(); ++i) EXPECT_EQ(top[i].token, expected[i]) << i;
  EXPECT_EQ(top[0].logprob, out.logprob);
  double sum = 0;
  for (int i = 0; i < 5; ++i) sum += std::exp(static_cast<double>(top[i].logprob));
  EXPECT_NEAR(sum, 1, 1e-6);
}

TEST_F(SamplerTest, DrawsFollowTheSoftmax) {
  use({0, 1, 2});
  config_.temperature = 0.5f;
  const double z = 1 + std::exp(2) + std::exp(4);
  const auto f = frequencies();
  EXPECT_NEAR(f.at(0), 1 / z, 0.01);
  EXPECT_NEAR(f.at(1), std::exp(2) / z, 0.01);
  EXPECT_NEAR(f.at(2), std::exp(4) / z, 0.01);
}

TEST_F(SamplerTest, TopKKeepsTheBest) {
  use({0, 0.3f, 0.2f, 0.1f, 0.3f});
  config_.temperature = 1;
  config_.top_k = 3;
  const auto f = frequencies(5000);
  ASSERT_EQ(f.size(), 3u);
  EXPECT_TRUE(f.count(1) && f.count(2) && f.count(4));
}

TEST_F(SamplerTest, TopPKeepsTheSmallestSetThatReachesIt) {
  // Probabilities 0.5, 0.25, 0.15, 0.1.
  use({std::log(0.1f), std::log(0.5f), std::log(0.15f), std::log(0.25f)});
  config_.temperature = 1;
  const auto kept = [this](float top_p) {
    config_.top_p = top_p;
    return frequencies(5000).size();
  };
  EXPECT_EQ(kept(0.4f), 1u);
  EXPECT_EQ(kept(0.6f), 2u);
  EXPECT_EQ(kept(0.85f), 3u);
  EXPECT_EQ(kept(0.95f), 4u);
  // After top-k: 0.5 / 0.75 alone reaches 0.6.
  config_.top_k = 2;
  EXPECT_EQ(kept(0.6f), 1u);
}

TEST_F(SamplerTest, MinPIsAShareOfTheBest) {
  use({std::log(0.5f), std::log(0.26f), std::log(0.24f)});
  config_.temperature = 1;
  config_.min_p = 0.5f;
  const auto f = frequencies(5000);
  ASSERT_EQ(f.size(), 2u);
  EXPECT_NEAR(f.at(0), 0.5 / 0.76, 0.03);
}

TEST_F(SamplerTest, TopPEqualsAPlainImplementationOnManyTokens) {
  std::mt19937 rng(3);
  std::normal_distribution<float> normal(0, 2);
  std::vector<float> logits(1000);
  for (float& l : logits) l = normal(rng);
  use(logits);
  config_.temperature = 1;
  for (const float top_p : {0.1f, 0.5f, 0.9f, 0.999f}) {
    config_.top_p = top_p;
    std::vector<int32_t> order(logits.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int32_t>(i);
    std::sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
      return logits[static_cast<size_t>(a)] > logits[static_cast<size_t>(b)];
    });
    double total = 0;
    for (const float l : logits) total += std::exp(static_cast<double>(l));
    std::set<int32_t> allowed;
    double sum = 0;
    for (const int32_t t : order) {
      if (sum > static_cast<double>(top_p) * total * (1 + 1e-6)) break;
      allowed.insert(t);
      sum += std::exp(static_cast<double>(logits[static_cast<size_t>(t)]));
    }
    std::set<int32_t> seen;
    for (uint64_t i = 0; i < 1000; ++i) seen.insert(sample(i));
    for (const int32_t t : seen) EXPECT_TRUE(allowed.count(t)) << t << " at top_p " << top_p;
    EXPECT_GT(seen.size(), allowed.size() / 20);
  }
}

// Coarse logits, so that there are ties at the boundary of the set; some tokens are banned.
TEST_F(SamplerTest, TopKEqualsAPlainImplementationOnManyTokens) {
  std::mt19937 rng(8);
  std::normal_distribution<float> normal(0, 4);
  for (const size_t vocab : {size_t{5}, size_t{70}, size_t{3001}}) {
    std::vector<float> logits(vocab);
    for (float& l : logits) l = std::round(normal(rng) * 4) / 4;
    use(logits);
    const LogitBias ban{3, -kInf};
    config_.bias = {&ban, 1};
    std::vector<size_t> order(vocab);
    for (size_t i = 0; i < vocab; ++i) order[i] = i;
    logits[3] = -kInf;
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return logits[a] > logits[b]; });
    for (const int k : {1, 2, 4, 40, 1000}) {
      if (static_cast<size_t>(k) >= vocab) continue;
      config_.temperature = 1.5f;
      config_.top_k = k;
      const std::set<size_t> kept(order.begin(), order.begin() + k);
      std::set<size_t> seen;
      for (uint64_t i = 0; i < 300; ++i) seen.insert(static_cast<size_t>(sample(i)));
      for (const size_t token : seen) ASSERT_TRUE(kept.count(token) != 0) << vocab << ' ' << k;
      if (k <= 2) {
        EXPECT_EQ(seen.size(), static_cast<size_t>(k)) << vocab;
      }
    }
  }
}

// The best k tokens in their order, as kernels/sample.h defines the draw.
int32_t plain_top_k(const std::vector<float>& logits, size_t k, float temperature, double uniform) {
  std::vector<size_t> order(logits.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return logits[a] > logits[b]; });
  const auto weight = [&](size_t i) {
    return token_weight(exp_float((logits[order[i]] - logits[order[0]]) / temperature),
                        weight_units(static_cast<int32_t>(logits.size())));
  };
  uint64_t total = 0;
  for (size_t i = 0; i < k; ++i) total += weight(i);
  const auto target = static_cast<uint64_t>(uniform * static_cast<double>(total));
  size_t i = 0;
  for (uint64_t sum = weight(0); i + 1 < k && sum <= target; sum += weight(++i)) {
  }
  return static_cast<int32_t>(order[i]);
}

// Few best tokens are found in another way than many.
TEST_F(SamplerTest, TopKDrawsTheTokenOfItsDefinition) {
  std::mt19937 rng(11);
  std::normal_distribution<float> normal(0, 3);
  for (const int how : {0, 1, 2, 3}) {  // random with ties, descending, ascending, all equal
    std::vector<float> logits(3001);
    for (float& l : logits) l = how == 3 ? 0.5f : std::round(normal(rng) * 8) / 8;
    if (how == 1) std::sort(logits.rbegin(), logits.rend());
    if (how == 2) std::sort(logits.begin(), logits.end());
    use(logits);
    for (const size_t k : {1, 2, 40, 1023, 1024, 1025, 3000}) {
      config_.top_k = static_cast<int32_t>(k);
      for (uint64_t i = 0; i < 50; ++i) {
        config_.temperature = i % 10 == 0 ? 1e-4f : 2;
        const double uniform = uniform_draw(config_.seed, i);
        const int32_t token = plain_top_k(logits, k, config_.temperature, uniform);
        ASSERT_EQ(sample(i), token) << how << ' ' << k << ' ' << i;
      }
    }
  }
}

TEST(LogitsTest, LargestIndexIsTheFirstOfEquals) {
  std::mt19937 rng(3);
  for (size_t n = 1; n < 70; ++n) {
    std::vector<float> x(n);
    for (float& v : x) v = rng() % 9 == 0 ? -kInf : static_cast<float>(rng() % 5) - 10;
    const auto best = static_cast<size_t>(std::max_element(x.begin(), x.end()) - x.begin());
    EXPECT_EQ(largest_index({x.data(), n}), best) << n;
  }
}

TEST(LogitsTest, ProbabilitiesAreThoseOfEachLogitAlone) {
  for (size_t n = 1; n < 40; ++n) {
    std::vector<float> x(n), p(n), one(1);
    for (size_t i = 0; i < n; ++i) x[i] = -0.37f * static_cast<float>(i * i % 97);
    if (n > 5) x[5] = -kInf;
    probabilities({x.data(), n}, 0.0f, 0.7f, p.data());
    for (size_t i = 0; i < n; ++i) {
      probabilities({&x[i], 1}, 0.0f, 0.7f, one.data());
      EXPECT_EQ(p[i], one[0]) << n << ' ' << i;
      EXPECT_NEAR(p[i], std::exp(x[i] / 0.7f), 1e-6);
    }
  }
}

// Denormals would make a sample with a grammar, which bans most tokens, many times slower.
TEST(LogitsTest, BannedTokensHaveNoWeightAndNoDenormal) {
  const std::vector<float> x = {0, -kInf, -80, -87.5f, -100, -1e30f, -kInf, -60};
  for (const float temperature : {0.01f, 1.0f, 3.0f}) {
    std::vector<float> p(3 * x.size());
    std::vector<float> logits;
    for (int i = 0; i < 3; ++i) logits.insert(logits.end(), x.begin(), x.end());
    probabilities({logits.data(), logits.size()}, 0.0f, temperature, p.data());
    for (size_t i = 0; i < p.size(); ++i) {
      EXPECT_TRUE(std::isnormal(p[i])) << logits[i] << " at " << temperature;
      if (logits[i] / temperature < -45) {
        EXPECT_EQ(token_weight(p[i], weight_units(2)), 0u);
      }
    }
    EXPECT_EQ(p[0], 1.0f);
  }
}

TEST_F(SamplerTest, RepetitionPenaltyHitsEachRecentTokenOnce) {
  use({4, 3.9f, -1});
  text_ = {0, 0, 0};
  config_.repetition_penalty = 1.5f;
  EXPECT_EQ(sample(), 1);
  // 4 / 1.5^3 is below 1.5; 4 / 1.5 is above.
  logits_ = {4, 1.5f, -1};
  EXPECT_EQ(sample(), 0);
  // Outside the window nothing is penalised.
  logits_ = {4, 3.9f, -1};
  text_ = {0, 2, 2};
  config_.repetition_window = 2;
  EXPECT_EQ(sample(), 0);
}

TEST_F(SamplerTest, NegativeLogitsArePenalisedDownwards) {
  use({-1, -1.5f});
  text_ = {0};
  config_.repetition_penalty = 2;
  EXPECT_EQ(sample(), 1);
}

TEST_F(SamplerTest, BiasMovesAndBans) {
  use({1, 2, 3});
  LogitBias bias[] = {{0, 5}, {2, -kInf}};
  config_.bias = {bias, 2};
  EXPECT_EQ(sample(), 0);
  bias[0] = {1, -kInf};
  EXPECT_EQ(sample(), 0);
  config_.temperature = 5;
  EXPECT_EQ(frequencies(500).size(), 1u);
}

// Biases of one token are summed, and a ban holds in spite of other entries. A NaN would break the
// order that sorting needs.
TEST_F(SamplerTest, ABanHoldsAmongOtherEntriesOfItsToken) {
  std::vector<float> logits(200);
  for (size_t i = 0; i < logits.size(); ++i) logits[i] = 1e37f * static_cast<float>(i % 7);
  use(logits);
  std::vector<LogitBias> bias;
  for (int32_t t = 0; t < 200; ++t) {
    if (t % 3 == 0) continue;
    for (const float b : {3.4e38f, 3.4e38f, -kInf, 3.4e38f}) bias.push_back({t, b});
  }
  config_.bias = {bias.data(), bias.size()};
  config_.temperature = 1e38f;
  for (const float top_p : {1.0f, 0.9f}) {
    for (const int32_t top_k : {0, 50}) {
      config_.top_p = top_p;
      config_.top_k = top_k;
      for (const auto& [token, share] : frequencies(300)) {
        EXPECT_EQ(token % 3, 0) << top_p << " " << top_k;
        EXPECT_GT(share, 0);
      }
    }
  }
}

TEST_F(SamplerTest, BanningEverythingIsAnError) {
  use({1, 2});
  const LogitBias bias[] = {{0, -kInf}, {1, -kInf}};
  config_.bias = {bias, 2};
  TokenLogprob out{7, 7};
  EXPECT_EQ(try_sample(0, &out).code(), MOE_ERR_RANGE);
  EXPECT_EQ(out.token, 7);
}

TEST_F(SamplerTest, NonFiniteLogitsAreAnErrorThatNamesTheToken) {
  for (const float bad : {std::nanf(""), kInf, -kInf}) {
    use({1, bad, 2});
    TokenLogprob out{};
    const Status s = try_sample(0, &out);
    EXPECT_EQ(s.code(), MOE_ERR_NON_FINITE);
    EXPECT_NE(std::string(s.text()).find("token 1"), std::string::npos) << s.text();
  }
}

TEST_F(SamplerTest, SameSeedAndDrawGiveTheSameToken) {
  std::vector<float> logits(300, 0.0f);
  use(logits);
  config_.temperature = 1;
  config_.seed = 5;
  std::vector<int32_t> a;
  std::vector<int32_t> b;
  for (uint64_t i = 0; i < 50; ++i) a.push_back(sample(i));
  for (uint64_t i = 0; i < 50; ++i) b.push_back(sample(i));
  EXPECT_EQ(a, b);
  config_.seed = 6;
  b.clear();
  for (uint64_t i = 0; i < 50; ++i) b.push_back(sample(i));
  EXPECT_NE(a, b);
}

TEST_F(SamplerTest, VeryLowTemperatureIsGreedy) {
  use({1, 1.0001f, 0.5f});
  config_.temperature = 1e-38f;
  EXPECT_EQ(frequencies(100).size(), 1u);
  EXPECT_EQ(sample(), 1);
}

TEST(SamplingConfigTest, RangesAreChecked) {
  const auto code = [](auto change) {
    SamplingConfig c;
    change(c);
    return validate(c, 10).code();
  };
  EXPECT_EQ(code([](SamplingConfig&) {}), MOE_OK);
  EXPECT_EQ(code([](SamplingConfig& c) { c.temperature = -1; }), MOE_ERR_RANGE);
  EXPECT_EQ(code([](SamplingConfig& c) { c.temperature = std::nanf(""); }), MOE_ERR_RANGE);
  EXPECT_EQ(code([](SamplingConfig& c) { c.top_k = -1; }), MOE_ERR_RANGE);
  EXPECT_EQ(code([](SamplingConfig& c) { c.top_p = 0; }), MOE_ERR_RANGE);
  EXPECT_EQ(code([](SamplingConfig& c) { c.top_p = std::nanf(""); }), MOE_ERR_RANGE);
  EXPECT_EQ(code([](SamplingConfig& c) { c.min_p = 1; }), MOE_ERR_RANGE);
  EXPECT_EQ(code([](SamplingConfig& c) { c.repetition_penalty = 0; }), MOE_ERR_RANGE);
  EXPECT_EQ(code([](SamplingConfig& c) { c.repetition_window = -1; }), MOE_ERR_RANGE);
  static const LogitBias outside[] = {{10, 1}};
  static const LogitBias infinite[] = {{1, kInf}};
  EXPECT_EQ(code([](SamplingConfig& c) { c.bias = {outside, 1}; }), MOE_ERR_RANGE);
  EXPECT_EQ(code([](SamplingConfig& c) { c.bias = {infinite, 1}; }), MOE_ERR_NON_FINITE);
}

TEST(UniformDrawTest, IsSplitMix64) {
  // The values of Java's SplittableRandom, and of every other implementation, for the state 0.
  const auto mix = [](uint64_t z) {
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    return z ^ (z >> 31);
  };
  ASSERT_EQ(mix(0x9e3779b97f4a7c15ULL), 0xe220a8397b1dcdafULL);
  EXPECT_EQ(uniform_draw(0, 0), static_cast<double>(0xe220a8397b1dcdafULL >> 11) * 0x1p-53);
  EXPECT_EQ(uniform_draw(0, 1), static_cast<double>(0x6e789e6aa1b965f4ULL >> 11) * 0x1p-53);
}

TEST(UniformDrawTest, IsUniform) {
  int histogram[10] = {};
  for (uint64_t i = 0; i < 100000; ++i) {
    const double u = uniform_draw(42, i);
    ASSERT_GE(u, 0);
    ASSERT_LT(u, 1);
    ++histogram[static_cast<int>(u * 10)];
  }
  for (const int count : histogram) EXPECT_NEAR(count, 10000, 500);
}

TEST(LogSumExpTest, MatchesTheLibraryInDouble) {
  std::mt19937 rng(1);
  std::normal_distribution<float> normal(-3, 10);
  std::vector<float> logits(10000);
  for (float& l : logits) l = normal(rng);
  const float best = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float l : logits) sum += std::exp(static_cast<double>(l) - static_cast<double>(best));
  double out = 0;
  ASSERT_TRUE(log_sum_exp({logits.data(), logits.size()}, &out).ok());
  EXPECT_NEAR(out, static_cast<double>(best) + std::log(sum), 1e-6);
}

}  // namespace
}  // namespace moe
