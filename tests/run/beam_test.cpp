// SPDX-License-Identifier: MIT
#include "src/run/beam.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/support/failing_allocator.h"

namespace moe {
namespace {

constexpr float kNever = -__builtin_inff();

struct Text {
  std::vector<int32_t> tokens;
  float score;
};

/// A search with the same log-probabilities in every step.
Status search(const std::vector<float>& row, const BeamOptions& options, const BeamTokens& tokens,
              std::vector<Text>* out, const Allocator& allocator = system_allocator()) {
  BeamSearch beam(allocator);
  MOE_TRY(beam.begin(options, tokens));
  while (!beam.done()) {
    for (int32_t j = 0; j < beam.n_running(); ++j) {
      MOE_TRY(beam.offer(j, {row.data(), row.size()}));
    }
    MOE_TRY(beam.end_step());
  }
  for (int32_t i = 0; i < beam.n_results(); ++i) {
    Text text{std::vector<int32_t>(static_cast<size_t>(beam.n_tokens(i))), beam.score(i)};
    beam.read(i, text.tokens.data());
    out->push_back(text);
  }
  return {};
}

BeamOptions options(int32_t beam, int32_t n_best, int32_t max_tokens, float alpha) {
  BeamOptions o;
  o.beam = beam;
  o.n_best = n_best;
  o.max_tokens = max_tokens;
  o.length_penalty = alpha;
  return o;
}

const int32_t kEos[] = {0, 3};

TEST(BeamTest, EveryEosEndsAText) {
  std::vector<Text> texts;
  const std::vector<float> row = {-4, -1, kNever, -2};
  ASSERT_TRUE(search(row, options(2, 2, 2, 0), {kEos, {}, -1}, &texts).ok());
  ASSERT_EQ(texts.size(), 2u);
  EXPECT_EQ(texts[0].tokens, (std::vector<int32_t>{1, 3}));
  EXPECT_EQ(texts[0].score, -3);
  EXPECT_EQ(texts[1].tokens, (std::vector<int32_t>{1, 1, 3}));
}

TEST(BeamTest, APrefixCostsNothingAndCountsInTheLength) {
  std::vector<Text> texts;
  const int32_t prefix[] = {3, 1};  // an EOS in the prefix does not end the text
  const std::vector<float> row = {-2, -8, kNever, kNever};
  BeamOptions o = options(1, 1, 2, 1);
  ASSERT_TRUE(search(row, o, {kEos, prefix, -1}, &texts).ok());
  ASSERT_EQ(texts.size(), 1u);
  EXPECT_EQ(texts[0].tokens, (std::vector<int32_t>{3, 1, 0}));
  EXPECT_FLOAT_EQ(texts[0].score, -2.0f / 3);
}

TEST(BeamTest, ALongTextCanWinByItsLength) {
  std::vector<Text> texts;
  const std::vector<float> row = {-1.25f, -1, kNever};
  ASSERT_TRUE(search(row, options(1, 1, 3, 1), {{kEos, 1}, {}, -1}, &texts).ok());
  EXPECT_EQ(texts[0].tokens.size(), 4u);  // beam 1 is greedy
  texts.clear();
  ASSERT_TRUE(search(row, options(4, 1, 3, 0), {{kEos, 1}, {}, -1}, &texts).ok());
  EXPECT_EQ(texts[0].tokens, (std::vector<int32_t>{1, 0}));  // at least two tokens are required
}

TEST(BeamTest, AnEosThatIsThePadAsWellEndsTexts) {
  std::vector<Text> texts;
  ASSERT_TRUE(search({-1, -2}, options(2, 1, 3, 1), {{kEos, 1}, {}, 0}, &texts).ok());
  ASSERT_EQ(texts.size(), 1u);
  EXPECT_EQ(texts[0].tokens.back(), 0);
}

TEST(BeamTest, BadOptionsAreNamed) {
  std::vector<Text> texts;
  const std::vector<float> row = {-1, -1};
  BeamOptions o = options(65, 1, 3, 1);
  EXPECT_STREQ(search(row, o, {kEos, {}, -1}, &texts).text(),
               "beam search: beam: expected 1..64, found 65");
  o = options(2, 3, 3, 1);
  EXPECT_STREQ(search(row, o, {kEos, {}, -1}, &texts).text(),
               "beam search: n_best: expected 1..2, found 3");
  o = options(2, 1, 3, __builtin_nanf(""));
  EXPECT_EQ(search(row, o, {kEos, {}, -1}, &texts).code(), MOE_ERR_RANGE);
  o = options(2, 1, 3, -1e30f);
  EXPECT_EQ(search(row, o, {kEos, {}, -1}, &texts).code(), MOE_ERR_RANGE);
  EXPECT_STREQ(search({-1, __builtin_inff()}, options(1, 1, 3, 1), {kEos, {}, -1}, &texts).text(),
               "beam search: the log-probability of token 1 after 0 tokens is NaN or +infinity");
  // EOS has probability 0, so no text can end.
  EXPECT_STREQ(search({kNever, -1}, options(2, 1, 3, 1), {{kEos, 1}, {}, -1}, &texts).text(),
               "beam search: no text finished");
}

TEST(BeamTest, MemoryThatRunsOutIsReported) {
  const std::vector<float> row = {-2, -1, -1.5f};
  Status status = Status::error(MOE_ERR_MEMORY, "not tried");
  for (size_t n = 0; !status.ok(); ++n) {
    ASSERT_EQ(status.code(), MOE_ERR_MEMORY);
    ASSERT_LT(n, 100u);
    FailingAllocator memory(n);
    std::vector<Text> texts;
    status = search(row, options(4, 4, 20, 1), {{kEos, 1}, {}, -1}, &texts, memory.get());
  }
}

}  // namespace
}  // namespace moe
