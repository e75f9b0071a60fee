// SPDX-License-Identifier: MIT
#include "src/run/perplexity.h"

#include <algorithm>
#include <cmath>

#include "src/run/logits.h"
#include "tests/run/tiny_run.h"

namespace moe {
namespace {

// The parameter is the number of tokens before each window.
class PerplexityTest : public testing::TestWithParam<size_t> {
 protected:
  PerplexityTest()
      : bytes_(build_tiny_kind({"plain", [](ModelConfig&, TinyOptions&) {}})), machine_(*bytes_) {}
  void SetUp() override { ASSERT_TRUE(machine_.status().ok()) << machine_.status().text(); }

  Box<Session> session(int32_t context) {
    SessionOptions options;
    options.context = context;
    options.chunk = 7;
    return machine_.session(options);
  }

  // Adds the negative log-probabilities of tokens [from, end) of a window, computed from its
  // logits.
  void add(const Tokens& window, size_t from, double* sum, uint64_t* n) {
    const size_t vocab = static_cast<size_t>(machine_.vocab_size());
    const Floats logits = eval_all(*machine_.session(), window);
    for (size_t i = from; i < window.size(); ++i) {
      const float* row = &logits[(i - 1) * vocab];
      double total = 0;
      for (size_t t = 0; t < vocab; ++t) total += std::exp(static_cast<double>(row[t]));
      *sum += std::log(total) - static_cast<double>(row[window[i]]);
      ++*n;
    }
  }

  // Windows that start every `stride` tokens of the text, each token scored once.
  Perplexity expected(const Tokens& text, size_t context, size_t stride) {
    const size_t length = context - prefix_.size();
    double sum = 0;
    uint64_t n = 0;
    size_t done = 0;
    for (size_t begin = 0; done < text.size(); begin += stride == 0 ? length : stride) {
      const size_t end = std::min(text.size(), begin + length);
      Tokens window(text.begin() + static_cast<std::ptrdiff_t>(begin),
                    text.begin() + static_cast<std::ptrdiff_t>(end));
      size_t first = done - begin;
      window.insert(window.begin(), prefix_.begin(), prefix_.end());
      first = std::max<size_t>(1, prefix_.size() + first);
      add(window, first, &sum, &n);
      done = end;
    }
    return {n, sum / static_cast<double>(n), std::exp(sum / static_cast<double>(n))};
  }

  PerplexityOptions with_prefix() const {
    PerplexityOptions options;
    options.prefix = span(prefix_);
    return options;
  }

  std::unique_ptr<MemorySink> bytes_;
  Machine machine_;
  const Tokens prefix_ = Tokens(GetParam(), 5);
};

TEST_P(PerplexityTest, EqualsTheDefinition) {
  const Tokens text = random_tokens(75, machine_.vocab_size());
  for (const int32_t context : {3, 16, 25, 37, 100}) {
    const Box<Session> s = session(context);
    Perplexity p;
    const Status status = measure_perplexity(*s, span(text), with_prefix(), &p);
    ASSERT_TRUE(status.ok()) << status.text();
    const Perplexity e = expected(text, static_cast<size_t>(context), 0);
    EXPECT_EQ(p.n_scored, e.n_scored) << context;
    EXPECT_NEAR(p.mean_nll, e.mean_nll, 1e-6);
    EXPECT_NEAR(p.perplexity / e.perplexity, 1, 1e-6);
    EXPECT_EQ(s->position(), 0);
  }
}

TEST_P(PerplexityTest, AStrideScoresEveryTokenOnce) {
  const Tokens text = random_tokens(75, machine_.vocab_size());
  const Box<Session> s = session(20);
  PerplexityOptions options = with_prefix();
  options.stride = 6;
  Perplexity p;
  ASSERT_TRUE(measure_perplexity(*s, span(text), options, &p).ok());
  const Perplexity e = expected(text, 20, 6);
  EXPECT_EQ(p.n_scored, GetParam() != 0 ? 75u : 74u);
  EXPECT_EQ(p.n_scored, e.n_scored);
  EXPECT_NEAR(p.mean_nll, e.mean_nll, 1e-6);
}

TEST_P(PerplexityTest, RefusesWhatCannotBeScored) {
  const Tokens one = {3};
  const Tokens ten = random_tokens(10, machine_.vocab_size());
  const Box<Session> s = session(8);
  Perplexity p;
  PerplexityOptions options = with_prefix();
  EXPECT_EQ(measure_perplexity(*s, {}, options, &p).code(), MOE_ERR_RANGE);
  EXPECT_EQ(measure_perplexity(*s, span(one), options, &p).code(),
            GetParam() != 0 ? MOE_OK : MOE_ERR_RANGE);
  EXPECT_EQ(measure_perplexity(*session(1), span(ten), options, &p).code(), MOE_ERR_RANGE);
  options.stride = 9;
  EXPECT_EQ(measure_perplexity(*s, span(ten), options, &p).code(), MOE_ERR_RANGE);
  const Tokens bad = {1, 2, 64};
  EXPECT_EQ(measure_perplexity(*s, span(bad), {}, &p).code(), MOE_ERR_RANGE);
  EXPECT_EQ(s->position(), 0);
  ASSERT_TRUE(s->eval(span(one), LogitRows::kNone, nullptr).ok());
  EXPECT_EQ(measure_perplexity(*s, span(ten), {}, &p).code(), MOE_ERR_STATE);
}

TEST_P(PerplexityTest, ProgressCanStopIt) {
  const Tokens text = random_tokens(75, machine_.vocab_size());
  const Box<Session> s = session(20);
  struct Progress {
    int calls = 0;
    uint64_t done = 0;
    static bool take(void* user, uint64_t done, uint64_t total) {
      auto* p = static_cast<Progress*>(user);
      EXPECT_EQ(total, 75u);
      EXPECT_GT(done, p->done);
      p->done = done;
      return ++p->calls < 2;
    }
  } progress;
  PerplexityOptions options = with_prefix();
  options.progress = Progress::take;
  options.user = &progress;
  Perplexity p;
  EXPECT_EQ(measure_perplexity(*s, span(text), options, &p).code(), MOE_ERR_CANCELLED);
  EXPECT_EQ(progress.calls, 2);
  EXPECT_EQ(s->position(), 0);
  EXPECT_TRUE(measure_perplexity(*s, span(text), {}, &p).ok());
}

// The log-softmax of rows of logits.
Floats expected_scores(const Floats& logits, const Tokens& text, size_t from) {
  const size_t vocab = logits.size() / text.size();
  Floats expected;
  for (size_t i = from; i < text.size(); ++i) {
    const std::span<const float> row(&logits[(i - 1) * vocab], vocab);
    double log_sum = 0;
    EXPECT_TRUE(log_sum_exp(row, &log_sum).ok());
    double sum = 0;  // log_sum_exp() omits negligible terms
    const double largest = static_cast<double>(*std::max_element(row.begin(), row.end()));
    for (const float v : row) sum += std::exp(static_cast<double>(v) - largest);
    EXPECT_NEAR(log_sum, largest + std::log(sum), 1e-6);
    const double logit = static_cast<double>(row[static_cast<size_t>(text[i])]);
    expected.push_back(static_cast<float>(logit - log_sum));
  }
  return expected;
}

class Score : public testing::Test {
 protected:
  Score()
      : bytes_(build_tiny_kind({"plain", [](ModelConfig&, TinyOptions&) {}})), machine_(*bytes_) {}
  void SetUp() override {
    ASSERT_TRUE(machine_.status().ok()) << machine_.status().text();
    text_ = random_tokens(75, machine_.vocab_size());
  }
  Box<Session> session(int32_t chunk = 7) {
    SessionOptions options;
    options.chunk = chunk;
    return machine_.session(options);
  }

  std::unique_ptr<MemorySink> bytes_;
  Machine machine_;
  Tokens text_;
};

TEST_F(Score, IsLogSoftmaxOfTheLogits) {
  const Floats logits = eval_all(*machine_.session(), text_);
  const Box<Session> s = session();
  Floats scores(74);
  ASSERT_TRUE(score_tokens(*s, span(text_), scores).ok());
  EXPECT_EQ(scores, expected_scores(logits, text_, 1));
  EXPECT_EQ(s->position(), 75);
  // In pieces; the first one is the first token, which has no score.
  const Box<Session> other = session();
  Floats pieces;
  for (size_t i = 0; i < text_.size();) {
    const size_t n = std::min(i == 0 ? size_t{1} : size_t{20}, text_.size() - i);
    Floats part(n - (i == 0));
    ASSERT_TRUE(score_tokens(*other, span(text_, i, n), part).ok());
    pieces.insert(pieces.end(), part.begin(), part.end());
    i += n;
  }
  EXPECT_EQ(pieces, scores);
  // Scoring does not change later results.
  TokenLogprob here{}, there{};
  ASSERT_TRUE(s->sample({}, &here, nullptr, 0).ok());
  const Box<Session> plain = session();
  ASSERT_TRUE(plain->eval(span(text_), LogitRows::kNone, nullptr).ok());
  ASSERT_TRUE(plain->sample({}, &there, nullptr, 0).ok());
  EXPECT_EQ(here.token, there.token);
  EXPECT_EQ(here.logprob, there.logprob);
}

// More rows than are scored at once, divided among threads, and logits so far apart that some are
// negligible.
TEST(ScoreOfManyRows, EqualsTheDefinition) {
  const auto bytes =
      build_tiny_kind({"wide", [](ModelConfig& c, TinyOptions&) { c.logit_multiplier = 400; }});
  for (const int threads : {1, 3}) {
    Machine machine(*bytes, threads);
    ASSERT_TRUE(machine.status().ok()) << machine.status().text();
    const Tokens text = random_tokens(kTinyContext, machine.vocab_size());
    const Floats logits = eval_all(*machine.session(), text);
    Floats scores(text.size() - 1);
    ASSERT_TRUE(score_tokens(*machine.session(), span(text), scores).ok());
    EXPECT_EQ(scores, expected_scores(logits, text, 1)) << threads;
    double least = 0;
    for (const float s : scores) {
      EXPECT_LE(s, 0);
      least = std::min(least, static_cast<double>(s));
    }
    EXPECT_LT(least, -40);
  }
}

TEST_F(Score, StopsWhereItIsCancelled) {
  const Box<Session> s = session(20);
  Floats scores(74, 7.0f);
  Floats expected(74);
  ASSERT_TRUE(score_tokens(*session(), span(text_), expected).ok());
  machine_.hook().arm(nullptr);
  ASSERT_TRUE(score_tokens(*session(20), span(text_), scores).ok());
  const int n_ops = machine_.hook().n_ops();
  ASSERT_EQ(scores, expected);
  for (int at = 0; at < n_ops; at += 3) {
    ASSERT_TRUE(s->reset().ok());
    machine_.hook().arm([&](int op, Stream&) {
      if (op == at) s->cancel();
    });
    EXPECT_EQ(score_tokens(*s, span(text_), scores).code(), MOE_ERR_CANCELLED) << at;
    machine_.hook().disarm();
    EXPECT_EQ(s->position() % 20, 0) << at;
    const auto done = static_cast<size_t>(s->position());
    const size_t unscored = done == 0;
    Floats rest(75 - done - unscored);
    ASSERT_TRUE(score_tokens(*s, span(text_, done), rest).ok()) << at;
    EXPECT_TRUE(std::equal(rest.rbegin(), rest.rend(), expected.rbegin())) << at;
  }
}

TEST_F(Score, GoesOnAfterARewind) {
  const Floats logits = eval_all(*machine_.session(), text_);
  const Box<Session> s = session();
  ASSERT_TRUE(s->eval(span(text_), LogitRows::kNone, nullptr).ok());
  ASSERT_TRUE(s->rewind(40).ok());
  Floats scores(35);
  ASSERT_TRUE(score_tokens(*s, span(text_, 40), scores).ok());
  EXPECT_EQ(scores, expected_scores(logits, text_, 40));
}

TEST_F(Score, RefusesWhatItCannotScore) {
  const Box<Session> s = session();
  Floats scores(75);
  const auto code = [&](const Tokens& tokens, size_t n) {
    return score_tokens(*s, span(tokens), {scores.data(), n}).code();
  };
  EXPECT_EQ(code(text_, 75), MOE_ERR_ARGUMENT);
  EXPECT_EQ(code({1, 2, machine_.vocab_size()}, 2), MOE_ERR_RANGE);
  EXPECT_EQ(code({1, -1}, 1), MOE_ERR_RANGE);
  EXPECT_EQ(s->position(), 0);
  EXPECT_EQ(code({}, 0), MOE_OK);
  EXPECT_EQ(code({3}, 0), MOE_OK);
  EXPECT_EQ(code({3}, 0), MOE_ERR_ARGUMENT);
  EXPECT_EQ(code({3}, 1), MOE_OK);
  const Tokens long_text(static_cast<size_t>(s->context()), 1);
  Floats many(long_text.size());
  EXPECT_EQ(score_tokens(*s, span(long_text), many).code(), MOE_ERR_TOO_LONG);
}

INSTANTIATE_TEST_SUITE_P(Prefix, PerplexityTest, testing::Values(0, 1, 2));

}  // namespace
}  // namespace moe
