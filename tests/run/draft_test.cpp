// SPDX-License-Identifier: MIT
// Drafts change the speed of generation, never its results.

#include "src/run/draft.h"

#include <algorithm>

#include "tests/grammar/support.h"
#include "tests/run/generate_run.h"
#include "tests/support/router_text.h"

namespace moe {
namespace {

Tokens draft(Drafter& drafter, const Tokens& text, size_t room = kMaxDraft) {
  Tokens out(kMaxDraft, -1);
  out.resize(drafter.draft(span(text), room, out.data()));
  return out;
}

TEST(DrafterTest, ContinuesTheLatestOfTheLongestMatches) {
  Drafter drafter(1);
  EXPECT_EQ(draft(drafter, {}), Tokens());
  EXPECT_EQ(draft(drafter, {1}), Tokens());
  EXPECT_EQ(draft(drafter, {1, 2, 3}), Tokens());
  EXPECT_EQ(draft(drafter, {1, 2, 3, 4, 9, 1, 2, 3}), Tokens{4});
  EXPECT_EQ(draft(drafter, {1, 2, 3, 4, 1, 2, 3, 5, 1, 2, 3}), Tokens{5});
  EXPECT_EQ(draft(drafter, {0, 1, 2, 3, 4, 7, 1, 2, 3, 5, 0, 1, 2, 3}), Tokens{4});
  EXPECT_EQ(draft(drafter, {1, 2, 3, 4, 9, 1, 2, 3}, 0), Tokens());
}

TEST(DrafterTest, ContinuesWithItsOwnDraft) {
  Drafter drafter(kMaxDraft);
  Tokens text;
  for (int i = 0; i < 30; ++i) text.push_back(i % 3);
  const Tokens found = draft(drafter, text);
  ASSERT_GT(found.size(), 3u);
  for (size_t i = 0; i < found.size(); ++i) EXPECT_EQ(found[i], static_cast<int32_t>(i % 3));
}

TEST(DrafterTest, LearnsWhatPays) {
  const Tokens text = {1, 2, 3, 4, 5, 6, 9, 1, 2, 3, 4, 5, 6};
  // The tokens drafted in 300 steps if all or none are right and each adds `cost` to a pass.
  const auto n_drafted = [&](bool right, double cost) {
    Drafter drafter(kMaxDraft);
    drafter.learn_single(1);
    size_t sum = 0;
    for (int i = 0; i < 300; ++i) {
      const size_t n = draft(drafter, text).size();
      if (n > 0) drafter.learn(right ? n : 0, 1 + cost * static_cast<double>(n));
      sum += n;
    }
    return sum;
  };
  EXPECT_GT(n_drafted(true, 0.05), 300u * 12);
  EXPECT_LT(n_drafted(false, 0.2), 100u);
  EXPECT_LT(n_drafted(true, 1.5), 60u);
  // It never gives up.
  EXPECT_GT(n_drafted(false, 0.2), 20u);
  EXPECT_GT(n_drafted(true, 1.5), 20u);
}

/// A model whose guesses are all right or all wrong, in passes: a drafted token adds 0.2 to one,
/// and 0.1 for the guess.
struct Simulation {
  bool right;
  double cost = 0.2;
  double guess_cost = 0.1;
  double time = 0;
  double n_tokens = 0;
  size_t n_guessed = 0;

  static size_t guess(void* user, size_t n, int32_t* out, double* seconds) {
    auto& s = *static_cast<Simulation*>(user);
    std::fill_n(out, n, 1000);
    *seconds = s.guess_cost * static_cast<double>(n);
    s.time += *seconds;
    s.n_guessed += n;
    return n;
  }
  void run(double most_tokens, const Tokens& text) {
    Drafter drafter(kMaxDraft);
    const Guesser guesser = {guess, this};
    while (n_tokens < most_tokens) {
      Tokens out(kMaxDraft);
      const size_t n = drafter.draft(span(text), kMaxDraft, out.data(), &guesser);
      const double seconds = 1 + cost * static_cast<double>(n);
      time += seconds;
      n_tokens += right ? 1 + static_cast<double>(n) : 1;
      if (n > 0) {
        drafter.learn(right ? n : 0, seconds);
      } else {
        drafter.learn_single(seconds);
      }
    }
  }
};

TEST(DrafterTest, GuessesSaveTimeOrLoseLittle) {
  const Tokens text = {1, 2, 3};  // nothing to continue
  Simulation right{true};
  right.run(2000, text);
  EXPECT_LT(right.time, 0.45 * right.n_tokens);
  for (const double cost : {0.0, 0.2, 0.8, 3.0}) {
    for (const double guess_cost : {0.02, 0.1, 0.7}) {
      Simulation wrong{false, cost, guess_cost};
      wrong.run(5000, text);
      EXPECT_LT(wrong.time, 1.021 * wrong.n_tokens + 80) << cost << " " << guess_cost;
      EXPECT_GT(wrong.n_guessed, 0u);
    }
  }
}

// A long match is likelier to be right than guesses, and costs nothing to draft.
TEST(DrafterTest, TheTextIsPreferredWhereItSavesMore) {
  const Tokens text = {1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3, 4, 5, 6, 7, 8};
  Drafter drafter(kMaxDraft);
  drafter.learn_single(1);
  Simulation guesses{true};
  const Guesser guesser = {Simulation::guess, &guesses};
  for (int i = 0; i < 20; ++i) {
    Tokens out(kMaxDraft);
    const size_t n = drafter.draft(span(text), kMaxDraft, out.data(), &guesser);
    ASSERT_GT(n, 0u);
    const bool from_text = out[0] == 9;
    drafter.learn(from_text ? n : 0, 1 + 0.1 * static_cast<double>(n));
  }
  Tokens out(kMaxDraft);
  guesses.n_guessed = 0;
  ASSERT_GT(drafter.draft(span(text), kMaxDraft, out.data(), &guesser), 0u);
  EXPECT_EQ(out[0], 9);
  EXPECT_EQ(guesses.n_guessed, 0u);
}

// As by a layer of which an expert is damaged: time passes, and there are no guesses.
TEST(DrafterTest, AGuesserThatFailsIsGivenUp) {
  int n_calls = 0;
  const Guesser guesser = {[](void* user, size_t, int32_t*, double* seconds) {
                             ++*static_cast<int*>(user);
                             *seconds = 0.5;
                             return size_t{0};
                           },
                           &n_calls};
  Drafter drafter(kMaxDraft);
  const Tokens text = {1, 2, 3};  // nothing to continue
  Tokens out(kMaxDraft);
  for (int i = 0; i < 1000; ++i) {
    ASSERT_EQ(drafter.draft(span(text), kMaxDraft, out.data(), &guesser), 0u);
    drafter.learn_single(1);
  }
  EXPECT_GT(n_calls, 0);
  EXPECT_LT(n_calls * 0.5, 2 + 0.02 * 1000 + 1);
}

class DraftTest : public GenerateTest {
 protected:
  /// Runs with and without drafts from an empty session; expects the same and returns how many
  /// drafted tokens were right.
  int32_t expect_the_same() {
    options_.max_draft = 0;
    again();
    const Status plain_status = run();
    const Seen plain = seen_;
    const GenerateResult result = result_;
    const int32_t position = session_->position();
    int32_t n_accepted = 0;
    for (const int32_t most : {1, 3, static_cast<int32_t>(kMaxDraft)}) {
      options_.max_draft = most;
      again();
      const Status status = run();
      EXPECT_EQ(status.code(), plain_status.code()) << status.text();
      EXPECT_EQ(seen_.tokens, plain.tokens);
      EXPECT_EQ(seen_.text, plain.text);
      EXPECT_EQ(seen_.logprobs, plain.logprobs);
      EXPECT_EQ(seen_.top, plain.top);
      EXPECT_EQ(result_.finish, result.finish);
      EXPECT_EQ(result_.n_generated, result.n_generated);
      EXPECT_EQ(session_->position(), position);
      EXPECT_LE(result_.n_accepted, result_.n_drafted);
      n_accepted += result_.n_accepted;
    }
    return n_accepted;
  }
};

TEST_F(DraftTest, GivesTheSameTokens) {
  options_.n_top = 3;
  int32_t n_accepted = 0;
  for (const float temperature : {0.0f, 0.3f, 1.0f}) {
    for (const char* bytes : {"a", "ab", "abc", "abcdefghijklmnop"}) {
      only(bytes);
      options_.sampling.temperature = temperature;
      for (const int32_t max_tokens : {0, 1, 2, 7, 40}) {
        options_.max_tokens = max_tokens;
        n_accepted += expect_the_same();
      }
    }
  }
  EXPECT_GT(n_accepted, 500);
  only("ab");
  options_.sampling.repetition_penalty = 1.3f;
  EXPECT_GT(expect_the_same(), 0);
  for (const int32_t chunk : {1, 2, 5}) {
    SessionOptions small;
    small.chunk = chunk;
    session_ = machine_.session(small);
    EXPECT_EQ(expect_the_same() > 0, chunk > 1);
  }
}

TEST_F(DraftTest, EndsAtTheSameToken) {
  only("ab");
  int32_t n_accepted = 0;
  for (const char* stop : {"aab", "aba", "bbbb", "abab", "a"}) {
    const std::string_view view = stop;
    options_.stop = {&view, 1};
    n_accepted += expect_the_same();
  }
  options_.stop = {};
  only(std::string("ab\x01"));  // with the end of the text
  for (uint64_t seed = 0; seed < 8; ++seed) {
    options_.sampling.seed = seed;
    n_accepted += expect_the_same();
  }
  EXPECT_GT(n_accepted, 50);
  only("ab");
  for (size_t n = 1; n < 30; ++n) {
    options_.max_draft = 0;
    again();
    seen_.stop_after = n;
    ASSERT_TRUE(run().ok());
    const Tokens tokens = seen_.tokens;
    options_.max_draft = 8;
    again();
    seen_.stop_after = n;
    ASSERT_TRUE(run().ok());
    EXPECT_EQ(result_.finish, Finish::kCallback);
    EXPECT_EQ(seen_.tokens, tokens);
    EXPECT_EQ(session_->position(), static_cast<int32_t>(prompt_.size() + n));
  }
}

// The tokens before the one for which a grammar runs out of memory, also within a draft.
TEST_F(DraftTest, GivesWhatComesBeforeAFailure) {
  struct Limited {
    static void* allocate(void* user, size_t bytes, size_t align) {
      const bool fits = bytes <= *static_cast<size_t*>(user);
      return fits ? moe::allocate(system_allocator(), bytes, align) : nullptr;
    }
    static void deallocate(void*, void* pointer, size_t bytes) {
      moe::deallocate(system_allocator(), pointer, bytes);
    }
  };
  size_t most_bytes = 4096;
  const Allocator limited = {Limited::allocate, Limited::deallocate, &most_bytes};
  const std::vector<std::string> texts = grammar::vocabulary();
  const std::vector<std::string_view> views(texts.begin(), texts.end());
  grammar::TokenTrie tokens(system_allocator());
  ASSERT_TRUE(tokens.create(std::span(views)).ok());
  grammar::Grammar grammar(tokens, limited);
  ASSERT_TRUE(grammar.create(grammar::Kind::kRegex, "[ab]{1,1000}").ok());
  options_.grammar = &grammar;
  options_.max_tokens = 0;
  only("a");
  prompt_.assign(20, 'a');
  int n_cut = 0;
  for (most_bytes = 800; most_bytes < 3200; most_bytes += 200) {
    (void)expect_the_same();
    if (!seen_.tokens.empty() && seen_.tokens.size() < 140) ++n_cut;
  }
  EXPECT_GT(n_cut, 5);
}

// Whatever a call leaves, the next one continues from.
TEST_F(DraftTest, AnotherCallContinues) {
  only("abc");
  options_.max_tokens = 60;
  ASSERT_TRUE(run().ok());
  const Tokens whole = seen_.tokens;
  options_.max_draft = 8;
  for (int32_t part = 1; part < 12; ++part) {
    again();
    for (bool first = true; seen_.tokens.size() < 60; first = false) {
      options_.max_tokens = std::min(part, 60 - static_cast<int32_t>(seen_.tokens.size()));
      ASSERT_TRUE(run(first).ok());
    }
    EXPECT_EQ(seen_.tokens, whole);
  }
}

TEST_F(DraftTest, CancelAtEveryCallback) {
  only("ab");
  ASSERT_TRUE(run().ok());
  const Tokens whole = seen_.tokens;
  for (size_t at = 1; at <= 40; ++at) {
    for (const int32_t draft : {0, 8}) {
      options_.max_draft = draft;
      options_.max_tokens = 40;
      again();
      seen_.cancel = session_.get();
      seen_.cancel_at = at;
      EXPECT_EQ(run().code(), MOE_ERR_CANCELLED);
      EXPECT_EQ(seen_.tokens.size(), at);
      // All but the last reported token.
      const size_t n = at - 1;
      EXPECT_EQ(session_->position(), static_cast<int32_t>(prompt_.size() + n));
      seen_ = Seen();
      options_.max_tokens = static_cast<int32_t>(40 - n);
      ASSERT_TRUE(run(false).ok());
      EXPECT_TRUE(std::equal(seen_.tokens.begin(), seen_.tokens.end(),
                             whole.begin() + static_cast<std::ptrdiff_t>(n), whole.end()));
    }
  }
}

TEST_F(DraftTest, BadOptionsAreRefused) {
  for (const int32_t most : {-1, static_cast<int32_t>(kMaxDraft) + 1}) {
    options_.max_draft = most;
    EXPECT_EQ(run().code(), MOE_ERR_RANGE);
  }
  options_.max_draft = 1;
  options_.change_logits = [](void*, std::span<const int32_t>, std::span<float>) { return true; };
  EXPECT_EQ(run().code(), MOE_ERR_ARGUMENT);
  options_.change_logits = nullptr;
  for (const char* router : {"topk:1,gamma=2", "resident=0.1"}) {
    ASSERT_TRUE(set_router(*session_, router).ok());
    EXPECT_EQ(run().code(), MOE_ERR_UNSUPPORTED);
  }
  EXPECT_EQ(session_->position(), 0);
}

// Every kind of layer, router and weight.
class DraftKinds : public testing::TestWithParam<TinyKind> {};

TEST_P(DraftKinds, GivesTheSameTokens) {
  const auto bytes = build_tiny_kind(GetParam());
  Machine machine(*bytes);
  const Box<Session> session = machine.session();
  const Tokens prompt = random_tokens(20, machine.vocab_size());
  GenerateOptions options;
  options.max_tokens = 60;
  options.ignore_eos = true;
  GenerateResult result;
  ASSERT_TRUE(generate(*session, nullptr, span(prompt), options, &result).ok());
  const Tokens plain(session->tokens().begin(), session->tokens().end());
  ASSERT_TRUE(session->reset().ok());
  options.max_draft = 8;
  const Status status = generate(*session, nullptr, span(prompt), options, &result);
  if (session->router(0) != nullptr && session->router(0)->gamma > 0) {
    EXPECT_EQ(status.code(), MOE_ERR_UNSUPPORTED);
    return;
  }
  ASSERT_TRUE(status.ok()) << status.text();
  EXPECT_EQ(Tokens(session->tokens().begin(), session->tokens().end()), plain);
}

INSTANTIATE_TEST_SUITE_P(Tiny, DraftKinds, testing::ValuesIn(all_tiny_kinds()),
                         [](const auto& kind) { return std::string(kind.param.name); });

}  // namespace
}  // namespace moe
