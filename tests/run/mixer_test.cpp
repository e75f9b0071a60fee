// SPDX-License-Identifier: MIT
// Sessions of models whose layers have a state: what a session gives depends on its tokens alone,
// however it came to hold them.

#include <cstring>
#include <random>

#include "src/run/generate.h"
#include "src/run/mixer_states.h"
#include "src/run/saved.h"
#include "tests/run/tiny_run.h"

namespace moe {
namespace {

constexpr size_t kLength = 1000;

void push_mixer(ModelConfig& c, const char* name, std::initializer_list<float> params) {
  LayerConfig layer = c.layers[1];
  set_mixer(layer, name, params);
  EXPECT_TRUE(c.layers.push(layer).ok());
}

// A long convolution, attention with a mixer beside it, then mixers with matrices.
std::unique_ptr<MemorySink> build(int32_t huge_token = -1) {
  return build_tiny_kind({"mixers", [=](ModelConfig& c, TinyOptions& o) {
                            c.context_length = 1200;
                            set_mixer(c.layers[0], "short_conv", {17});
                            push_mixer(c, "gated_delta", {2, 4, 5, 7, 4});
                            push_mixer(c, "mamba2", {4, 6, 2, 5, 4});
                            push_mixer(c, "kimi_delta", {3, 4, 5, 3, 6});
                            push_mixer(c, "lightning", {3, 6});
                            add_mixer(c.layers[1], "mamba2", {2, 3, 1, 4, 2});
                            o.huge_token = huge_token;
                            o.biases = true;
                            c.tie_embeddings = huge_token < 0;
                          }});
}

class MixerTest : public testing::Test {
 protected:
  MixerTest() : bytes_(build()), machine_(*bytes_, 2) {}
  void SetUp() override {
    ASSERT_TRUE(machine_.status().ok()) << machine_.status().text();
    vocab_ = static_cast<size_t>(machine_.vocab_size());
    text_ = random_tokens(kLength, machine_.vocab_size());
    session_ = session();
    expected_ = eval_all(*session_, text_);
  }
  Box<Session> session() {
    SessionOptions options;
    options.context = 1200;
    options.chunk = 64;
    return machine_.session(options);
  }
  // The logits after each of the n tokens from `first` on.
  Floats expected(size_t first, size_t n) const {
    const auto at = expected_.begin() + static_cast<std::ptrdiff_t>(first * vocab_);
    return {at, at + static_cast<std::ptrdiff_t>(n * vocab_)};
  }
  Floats eval(Session& session, size_t first, size_t n, size_t call = ~size_t{0}) {
    const Tokens part(text_.begin() + static_cast<std::ptrdiff_t>(first),
                      text_.begin() + static_cast<std::ptrdiff_t>(first + n));
    return eval_all(session, part, call);
  }
  void expect_holds(Session& session, size_t n) {
    ASSERT_EQ(session.position(), static_cast<int32_t>(n));
    const size_t more = std::min<size_t>(5, kLength - n);
    EXPECT_EQ(eval(session, n, more), expected(n, more)) << "after " << n;
  }
  static Status save(Session& session, std::vector<uint8_t>* bytes) {
    const auto write = [](void* user, const void* from, size_t n) -> Status {
      auto* to = static_cast<std::vector<uint8_t>*>(user);
      const auto* b = static_cast<const uint8_t*>(from);
      to->insert(to->end(), b, b + n);
      return {};
    };
    bytes->clear();
    return save_session(session, {1, 2}, {write, bytes});
  }
  static Status load(Session& session, const std::vector<uint8_t>& bytes) {
    const auto read = [](void* user, uint64_t offset, void* to, size_t n) -> Status {
      std::memcpy(to, static_cast<const std::vector<uint8_t>*>(user)->data() + offset, n);
      return {};
    };
    return load_session(session, {1, 2},
                        {bytes.size(), read, const_cast<std::vector<uint8_t>*>(&bytes)});
  }

  std::unique_ptr<MemorySink> bytes_;
  Machine machine_;
  size_t vocab_ = 0;
  Tokens text_;
  Box<Session> session_;
  Floats expected_;
};

TEST_F(MixerTest, RewindsAnywhere) {
  std::mt19937 rng(5);
  for (int i = 0; i < 200; ++i) {
    const size_t at = rng() % static_cast<size_t>(session_->position() + 1);
    ASSERT_TRUE(session_->rewind(static_cast<int32_t>(at)).ok());
    const size_t most = kLength - at;
    const size_t n = i % 3 == 0 ? most : rng() % (most + 1);
    ASSERT_EQ(eval(*session_, at, n), expected(at, n)) << at << " and " << n;
    if (session_->position() < 20) (void)eval(*session_, session_->position(), 500);
  }
}

// The text after a rewind differs from the one before it.
TEST_F(MixerTest, ForgetsWhatWasRewound) {
  std::mt19937 rng(6);
  const Box<Session> fresh = session();
  Tokens held = text_;
  for (int i = 0; i < 30; ++i) {
    const size_t at = rng() % held.size();
    ASSERT_TRUE(session_->rewind(static_cast<int32_t>(at)).ok());
    held.resize(at);
    const Tokens more = random_tokens(1 + rng() % 150, machine_.vocab_size(), rng());
    const Floats found = eval_all(*session_, more, i % 4 == 0 ? 1 : ~size_t{0});
    held.insert(held.end(), more.begin(), more.end());
    ASSERT_TRUE(fresh->reset().ok());
    const Floats whole = eval_all(*fresh, held);
    ASSERT_EQ(found, Floats(whole.end() - static_cast<std::ptrdiff_t>(found.size()), whole.end()));
  }
}

TEST_F(MixerTest, SamplesAfterARewind) {
  for (const int32_t at : {700, 256, 1}) {
    ASSERT_TRUE(session_->rewind(at).ok());
    TokenLogprob found{}, wanted{};
    ASSERT_TRUE(session_->sample({}, &found, nullptr, 0).ok());
    const Box<Session> fresh = session();
    (void)eval(*fresh, 0, static_cast<size_t>(at));
    ASSERT_TRUE(fresh->sample({}, &wanted, nullptr, 0).ok());
    EXPECT_EQ(found.token, wanted.token);
    EXPECT_EQ(found.logprob, wanted.logprob);
    expect_holds(*session_, static_cast<size_t>(at));
  }
}

TEST_F(MixerTest, SavesLoadsAndForksAnywhere) {
  std::mt19937 rng(7);
  std::vector<uint8_t> bytes;
  const Box<Session> other = session();
  for (int i = 0; i < 30; ++i) {
    const size_t at = i == 0 ? 0 : rng() % kLength;
    ASSERT_TRUE(session_->reset().ok());
    if (at > 0) (void)eval(*session_, 0, kLength);
    ASSERT_TRUE(session_->rewind(static_cast<int32_t>(at)).ok());
    auto fork = fork_session(*session_, machine_.model(), system_allocator());
    ASSERT_TRUE(fork.ok()) << fork.status().text();
    ASSERT_TRUE(save(*session_, &bytes).ok());
    const Status status = load(*other, bytes);
    ASSERT_TRUE(status.ok()) << status.text();
    expect_holds(*other, at);
    expect_holds(*fork.value(), at);
    expect_holds(*session_, at);
    if (at > 2) {  // what was loaded can be rewound too
      ASSERT_TRUE(other->rewind(static_cast<int32_t>(at / 2)).ok());
      expect_holds(*other, at / 2);
    }
  }
}

// The target has states of a text of its own, and then only those of the source.
TEST_F(MixerTest, TakesABeginningOver) {
  const Box<Session> target = session();
  std::mt19937 rng(9);
  for (int i = 0; i < 20; ++i) {
    (void)eval_all(*target, random_tokens(rng() % 300, machine_.vocab_size(), rng()));
    const size_t n = rng() % (kLength + 1);
    const Status status = copy_session(*session_, static_cast<int32_t>(n), *target);
    ASSERT_TRUE(status.ok()) << status.text();
    expect_holds(*target, n);
    ASSERT_TRUE(target->rewind(static_cast<int32_t>(n / 2)).ok());
    expect_holds(*target, n / 2);
    if (target->position() > 600) (void)target->reset();
  }
}

TEST_F(MixerTest, ASavedStateIsChecked) {
  std::vector<uint8_t> bytes;
  ASSERT_TRUE(session_->rewind(9).ok());
  ASSERT_TRUE(save(*session_, &bytes).ok());
  const auto attention = build_tiny_kind({"plain", [](ModelConfig&, TinyOptions&) {}});
  Machine plain(*attention);
  const Box<Session> without = plain.session();
  const Status status = load(*without, bytes);
  EXPECT_EQ(status.code(), MOE_ERR_ARGUMENT);
  EXPECT_STREQ(status.text(),
               "saved session: its states are of other mixers, and this model has no mixers");
  (void)eval_all(*without, {1, 2, 3});
  std::vector<uint8_t> stateless;
  ASSERT_TRUE(save(*without, &stateless).ok());
  EXPECT_STREQ(load(*session_, stateless).text(),
               "saved session: it has no states of mixers, and this model needs those of its own");
  EXPECT_EQ(session_->position(), 9);
  const auto longer = build_tiny_kind(
      {"longer", [](ModelConfig& c, TinyOptions&) { set_mixer(c.layers[0], "short_conv", {18}); }});
  Machine third(*longer);
  EXPECT_STREQ(load(*third.session(), bytes).text(),
               "saved session: its states are of other mixers, and this model needs those of its "
               "own");
  bytes[bytes.size() - 20] ^= 1;  // in the state
  EXPECT_EQ(load(*session_, bytes).code(), MOE_ERR_CORRUPT);
  EXPECT_EQ(session_->position(), 0);
  expect_holds(*session_, 0);
}

// At every operation of a pass.
TEST_F(MixerTest, APassThatFailsChangesNothing) {
  for (int op = 0;; ++op) {
    ASSERT_TRUE(session_->rewind(500).ok());
    ASSERT_EQ(eval(*session_, 500, 3), expected(500, 3));
    bool failed = false;
    machine_.hook().arm([&](int i, Stream& s) {
      failed = failed || i == op;
      if (i == op) s.latched = Status::error(MOE_ERR_IO, "the disk has failed");
    });
    const Status status = session_->eval(span(text_, 503, 7), LogitRows::kNone, nullptr);
    machine_.hook().disarm();
    ASSERT_EQ(status.code(), failed ? MOE_ERR_IO : MOE_OK);
    expect_holds(*session_, failed ? 503 : 510);
    if (failed) continue;
    EXPECT_GE(op, 9);
    break;
  }
}

TEST_F(MixerTest, ACancelledCallKeepsWholeChunks) {
  ASSERT_TRUE(session_->rewind(100).ok());
  machine_.hook().arm([&](int i, Stream&) {
    if (i == 25) session_->cancel();
  });
  EXPECT_EQ(session_->eval(span(text_, 100, 400), LogitRows::kNone, nullptr).code(),
            MOE_ERR_CANCELLED);
  machine_.hook().disarm();
  EXPECT_EQ((session_->position() - 100) % 64, 0);
  expect_holds(*session_, static_cast<size_t>(session_->position()));
}

// A call of several passes in which the last one fails: no session has advanced.
TEST_F(MixerTest, ACallOfSeveralSessionsThatFailsChangesNothing) {
  const Box<Session> other = session();
  (void)eval(*other, 0, 50);
  ASSERT_TRUE(session_->rewind(300).ok());
  Tokens next(text_.begin() + 300, text_.begin() + 500);
  next.insert(next.end(), text_.begin() + 50, text_.begin() + 60);
  const size_t n[] = {200, 10};
  Session* both[] = {session_.get(), other.get()};
  Floats logits(2 * vocab_);
  for (const int op : {0, 15, 30}) {
    machine_.hook().arm([&](int i, Stream& s) {
      if (i == op) s.latched = Status::error(MOE_ERR_IO, "the disk has failed");
    });
    EXPECT_EQ(sessions_eval(both, next.data(), n, logits.data()).code(), MOE_ERR_IO);
    machine_.hook().disarm();
    EXPECT_EQ(session_->position(), 300);
    EXPECT_EQ(other->position(), 50);
  }
  const Status status = sessions_eval(both, next.data(), n, logits.data());
  ASSERT_TRUE(status.ok()) << status.text();
  Floats wanted = expected(499, 1);
  const Floats second = expected(59, 1);
  wanted.insert(wanted.end(), second.begin(), second.end());
  EXPECT_EQ(logits, wanted);
}

TEST_F(MixerTest, BatchesAfterRewindsEqualAlone) {
  constexpr size_t kSessions = 8;
  Box<Session> sessions[kSessions];
  Session* together[kSessions];
  std::mt19937 rng(8);
  for (size_t i = 0; i < kSessions; ++i) {
    sessions[i] = session();
    together[i] = sessions[i].get();
    (void)eval(*sessions[i], 0, 900);
  }
  for (int round = 0; round < 10; ++round) {
    Tokens next;
    size_t n[kSessions], at[kSessions];
    for (size_t i = 0; i < kSessions; ++i) {
      at[i] = rng() % static_cast<size_t>(sessions[i]->position());
      n[i] = round % 2 == 0 ? 1 : 1 + rng() % 90;
      ASSERT_TRUE(sessions[i]->rewind(static_cast<int32_t>(at[i])).ok());
      const auto from = text_.begin() + static_cast<std::ptrdiff_t>(at[i]);
      next.insert(next.end(), from, from + static_cast<std::ptrdiff_t>(n[i]));
    }
    Floats logits(kSessions * vocab_), wanted;
    ASSERT_TRUE(sessions_eval(together, next.data(), n, logits.data()).ok());
    for (size_t i = 0; i < kSessions; ++i) {
      const Floats row = expected(at[i] + n[i] - 1, 1);
      wanted.insert(wanted.end(), row.begin(), row.end());
    }
    ASSERT_EQ(logits, wanted);
  }
}

TEST_F(MixerTest, VectorsOfTextsChangeNothing) {
  ASSERT_TRUE(session_->rewind(333).ok());
  const Tokens other = random_tokens(150, machine_.vocab_size(), 4);
  Floats first(static_cast<size_t>(machine_.model().config().d_model)), second(first.size());
  Encoding out;
  out.pooled = first.data();
  ASSERT_TRUE(session_->encode(span(other), out).ok());
  expect_holds(*session_, 333);
  ASSERT_TRUE(session_->rewind(333).ok());
  out.pooled = second.data();
  ASSERT_TRUE(session_->encode(span(other), out).ok());
  EXPECT_EQ(first, second);
}

TEST_F(MixerTest, DraftsChangeNothing) {
  // Repeats, so that drafts are tried, and right as often as wrong.
  Tokens prompt;
  for (int i = 0; i < 12; ++i) prompt.insert(prompt.end(), text_.begin(), text_.begin() + 9);
  GenerateOptions options;
  options.max_tokens = 300;
  options.ignore_eos = true;
  options.sampling.temperature = 0.6f;
  GenerateResult result;
  ASSERT_TRUE(session_->reset().ok());
  ASSERT_TRUE(generate(*session_, nullptr, span(prompt), options, &result).ok());
  const Tokens plain(session_->tokens().begin(), session_->tokens().end());
  options.max_draft = 8;
  ASSERT_TRUE(session_->reset().ok());
  ASSERT_TRUE(generate(*session_, nullptr, span(prompt), options, &result).ok());
  EXPECT_GT(result.n_drafted, result.n_accepted);
  EXPECT_EQ(Tokens(session_->tokens().begin(), session_->tokens().end()), plain);
  const Tokens more = random_tokens(20, machine_.vocab_size(), 3);
  const Box<Session> fresh = session();
  (void)eval_all(*fresh, plain);
  EXPECT_EQ(eval_all(*session_, more), eval_all(*fresh, more));
}

// A rewind evaluates again no more than the tokens after the nearest kept state.
TEST_F(MixerTest, KeptStatesSaveWork) {
  const auto rows_of = [&](size_t at) {
    EXPECT_TRUE(session_->rewind(static_cast<int32_t>(at)).ok());
    int ops = 0;
    machine_.hook().arm([&](int, Stream&) { ++ops; });
    (void)eval(*session_, at, 1);
    machine_.hook().disarm();
    return ops;
  };
  ASSERT_TRUE(session_->reset().ok());
  (void)eval(*session_, 0, 300);  // a turn ends
  for (size_t i = 300; i < 500; ++i) (void)eval(*session_, i, 1);
  const int one = rows_of(499);
  const int again = rows_of(300);
  EXPECT_EQ(again, rows_of(300)) << "the state at the end of the turn is there";
  EXPECT_LE(again, one);
  EXPECT_GT(rows_of(290), again);  // from a chunk's end on
}

TEST_F(MixerTest, StatesAreCounted) {
  SessionOptions options;
  options.context = 1200;
  MemoryAccount account;
  ASSERT_TRUE(account_memory(machine_.model(), options, &account).ok());
  const uint64_t delta = 3 * (2 * 2 * 5 + 4 * 7) + 4 * 5 * 7;
  const uint64_t mamba = 3 * (4 * 6 + 2 * 2 * 5) + 4 * 6 * 5;
  const uint64_t kimi = 2 * 3 * (4 + 4 + 5) + 3 * 4 * 5;
  const uint64_t lightning = 3 * 6 * 6;
  const uint64_t beside = (2 * 3 + 2 * 4) + 2 * 3 * 4;
  const uint64_t state = (32 * 16 + delta + mamba + kimi + lightning + beside) * sizeof(float);
  EXPECT_EQ(MixerStates::size(machine_.model().config()) * sizeof(float), state);
  EXPECT_EQ(line_of(account, "states of mixers"), kMostStates * state);
}

// States so large that only the fewest are kept.
TEST(MixerStatesOfAnySize, FewLargeStates) {
  constexpr int kLayers = 270;
  const auto bytes = build_tiny_kind({"large", [=](ModelConfig& c, TinyOptions& o) {
                                        o.quick = true;
                                        c.d_model = 128;
                                        c.context_length = 300;
                                        LayerConfig layer;
                                        set_mixer(layer, "short_conv", {64});
                                        layer.has_ffn = false;
                                        layer.ffn = {};
                                        for (int i = 0; i < kLayers; ++i) {
                                          EXPECT_TRUE(c.layers.push(layer).ok());
                                        }
                                      }});
  Machine machine(*bytes);
  ASSERT_TRUE(machine.status().ok()) << machine.status().text();
  SessionOptions options;
  options.chunk = 8;
  const Box<Session> session = machine.session(options);
  MemoryAccount account;
  ASSERT_TRUE(account_memory(machine.model(), options, &account).ok());
  const uint64_t state = uint64_t{kLayers} * 128 * 63 * sizeof(float);
  EXPECT_EQ(line_of(account, "states of mixers"), kLeastStates * state);
  const Tokens text = random_tokens(40, machine.vocab_size());
  const Floats whole = eval_all(*session, text);
  for (const int32_t at : {31, 17, 8, 3}) {
    ASSERT_TRUE(session->rewind(at).ok());
    const Floats tail = eval_all(*session, Tokens(text.begin() + at, text.end()), 5);
    EXPECT_EQ(tail, Floats(whole.end() - static_cast<std::ptrdiff_t>(tail.size()), whole.end()));
  }
}

class MixerFaults : public testing::TestWithParam<const char*> {};

TEST_P(MixerFaults, AStateThatIsNotFiniteIsAnErrorOfTheCall) {
  constexpr int32_t kHuge = 5;
  const std::string mixer = GetParam();
  const auto bytes = build_tiny_kind({"overflow", [&](ModelConfig& c, TinyOptions& o) {
                                        c.norm = NormKind::kLayer;
                                        c.tie_embeddings = false;
                                        c.layers[1] = c.layers[0];
                                        if (mixer == "short_conv") {
                                          set_mixer(c.layers[1], "short_conv", {3});
                                        } else if (mixer == "mamba2") {
                                          set_mixer(c.layers[1], "mamba2", {4, 6, 2, 5, 4});
                                        } else if (mixer == "kimi_delta") {
                                          set_mixer(c.layers[1], "kimi_delta", {3, 5, 7, 4, 6});
                                        } else if (mixer == "lightning") {
                                          set_mixer(c.layers[1], "lightning", {3, 6});
                                        } else {
                                          set_mixer(c.layers[1], "gated_delta", {2, 4, 5, 7, 4});
                                        }
                                        o.biases = true;
                                        o.huge_token = kHuge;
                                      }});
  Machine machine(*bytes);
  ASSERT_TRUE(machine.status().ok()) << machine.status().text();
  for (const int32_t chunk : {1, 4, 64}) {
    SessionOptions options;
    options.chunk = chunk;
    const Box<Session> session = machine.session(options);
    const Tokens good = {1, 2, 3};
    (void)eval_all(*session, good);
    const Tokens bad = {4, kHuge, 6, 7};
    const Status status = session->eval(span(bad), LogitRows::kNone, nullptr);
    EXPECT_EQ(status.code(), MOE_ERR_NON_FINITE);
    const std::string expected =
        "layer 1: the state of " + mixer + " is not finite after the token at position 4";
    EXPECT_EQ(status.text(), expected);
    ASSERT_TRUE(session->rewind(3).ok());
    const Box<Session> fresh = machine.session(options);
    (void)eval_all(*fresh, good);
    EXPECT_EQ(eval_all(*session, good), eval_all(*fresh, good)) << "chunk " << chunk;
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, MixerFaults,
                         testing::Values("short_conv", "gated_delta", "kimi_delta", "lightning",
                                         "mamba2"));

}  // namespace
}  // namespace moe
