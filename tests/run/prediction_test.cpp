// SPDX-License-Identifier: MIT
// The layer that guesses tokens: its guesses, and that nothing else depends on them.

#include <cmath>
#include <string>

#include "src/run/generate.h"
#include "src/run/predictions.h"
#include "src/run/saved.h"
#include "src/run/stepped.h"
#include "tests/run/guesses.h"
#include "tests/support/memory_device.h"

namespace moe {
namespace {

const TinyKind& kind_named(const std::string& name) {
  static const std::vector<TinyKind> kinds = tiny_layers();
  for (const TinyKind& kind : kinds) {
    if (kind.name == name) return kind;
  }
  ADD_FAILURE() << name;
  return kinds[0];
}

/// Sets a matrix to the unit matrix or to zeros, or a vector to ones.
void set_plain(const BlobMatrix& m, bool unit, uint8_t* blob) {
  std::vector<float> values(static_cast<size_t>(kTileRows) * static_cast<size_t>(m.cols));
  for (int32_t row = 0; row < m.rows; row += kTileRows) {
    for (int32_t r = 0; r < kTileRows; ++r) {
      for (int32_t c = 0; c < m.cols; ++c) {
        const bool one = m.cols == 1 || (unit && row + r == c);
        values[static_cast<size_t>(r * m.cols + c)] = one ? 1.0f : 0.0f;
      }
    }
    uint8_t* const tile = blob + m.offset + static_cast<uint64_t>(row / kTileRows) * m.tile_stride;
    format_info(m.format).pack_values(values.data(), m.cols, std::min(kTileRows, m.rows - row),
                                      m.cols, tile);
  }
}

/// A model whose layers add nothing, so that the token after another one follows from that alone,
/// and whose layer for guesses computes the same: every guess is right at temperature 0.
std::unique_ptr<MemorySink> build_clairvoyant(bool guesses = true) {
  ModelConfig config = tiny_config();
  config.context_length = kTinyContext;
  config.tie_embeddings = false;
  config.residual_multiplier = 0;
  if (guesses) {
    EXPECT_TRUE(config.layers.push(config.layers[0]).ok());
    config.n_predictions = 1;
  }
  TinyChanges plain;
  plain.weights = [](Part part, const BlobLayout& layout, uint8_t* blob) {
    if (part != Part::kPrediction && part != Part::kFinalNorm) return;
    for (const BlobMatrix& m : layout.matrices) set_plain(m, m.role == Role::kNext, blob);
  };
  auto sink = std::make_unique<MemorySink>();
  ModelWriter writer(*sink, false);
  write_tiny_segments(config, {}, &writer, plain);
  EXPECT_TRUE(finish_model(writer, config, nullptr, {}).ok());
  return sink;
}

class PredictionTest : public testing::TestWithParam<const char*> {
 protected:
  PredictionTest() : bytes_(build_tiny_kind(kind_named(GetParam()))) {}
  std::unique_ptr<MemorySink> bytes_;
};

// A prompt's rows are computed chunk by chunk, those of single tokens a few at a time.
TEST_P(PredictionTest, GuessesDoNotDependOnHowATextIsSplit) {
  Machine machine(*bytes_, 2);
  ASSERT_TRUE(machine.status().ok()) << machine.status().text();
  const Tokens text = random_tokens(90, machine.vocab_size());
  const Floats expected = guess_logits(*machine.session(), text, 4);
  ASSERT_EQ(expected.size(), 4u * static_cast<size_t>(machine.vocab_size()));
  for (const size_t piece : {1, 2, 16, 17, 18, 40}) {
    EXPECT_EQ(guess_logits(*machine.session(), text, 4, piece), expected) << piece;
  }
  for (const int32_t chunk : {1, 3, 20}) {
    SessionOptions options;
    options.chunk = chunk;
    EXPECT_EQ(guess_logits(*machine.session(options), text, 4), expected) << chunk;
  }
}

// Several texts in one pass, of which the layer follows some: each has the guesses that it has
// alone.
TEST_P(PredictionTest, GuessesDoNotDependOnCompany) {
  Machine machine(*bytes_, 2);
  const auto width = static_cast<size_t>(machine.vocab_size());
  const size_t sizes[] = {61, 23, 1, 40};
  for (const int32_t chunk : {0, 16, 7}) {
    SessionOptions options;
    options.chunk = chunk;
    std::vector<Box<Session>> sessions;
    std::vector<Session*> all;
    std::vector<Tokens> texts;
    for (size_t i = 0; i < std::size(sizes); ++i) {
      sessions.push_back(machine.session(options));
      all.push_back(sessions.back().get());
      texts.push_back(random_tokens(200, machine.vocab_size(), static_cast<uint32_t>(i + 1)));
      ASSERT_TRUE(sessions.back()->expect_drafts(i != 1).ok());
    }
    size_t done[std::size(sizes)] = {};
    const auto eval = [&](const std::vector<size_t>& n) {
      Tokens tokens;
      for (size_t i = 0; i < n.size(); ++i) {
        const auto part = span(texts[i], done[i], n[i]);
        tokens.insert(tokens.end(), part.begin(), part.end());
        done[i] += n[i];
      }
      const Status status = sessions_eval(all, tokens.data(), n.data(), nullptr);
      ASSERT_TRUE(status.ok()) << status.text();
    };
    eval({sizes, sizes + std::size(sizes)});
    for (int step = 0; step < 40; ++step) eval({1, 1, 1, step < 20 ? size_t{3} : size_t{1}});
    for (size_t i = 0; i < all.size(); ++i) {
      SessionState& state = SessionCall::state_of(*all[i]);
      EXPECT_EQ(state.predictions.begin() == 0, i != 1) << i;
      Tokens read(texts[i].begin(), texts[i].begin() + static_cast<std::ptrdiff_t>(done[i]) + 1);
      const Floats expected = guess_logits(*machine.session(), read, 3);
      ASSERT_EQ(expected.size(), 3 * width);
      const SessionCall call(*all[i]);
      state.tokens.room()[done[i]] = read.back();
      Floats found(3 * width);
      Tokens guessed(3);
      found.resize(predict(state, 3, guessed.data(), found.data()) * width);
      EXPECT_EQ(found == expected, i != 1) << i << " of chunk " << chunk;
    }
  }
}

// A pass of several texts is cancelled or fails in the layer: the texts are whole, and go on.
TEST_P(PredictionTest, CompanySurvivesALayerThatFails) {
  Machine machine(*bytes_);
  const Tokens text = random_tokens(100, machine.vocab_size());
  const int32_t layer = machine.model().config().n_main_layers();
  std::vector<Box<Session>> sessions;
  std::vector<Session*> all;
  for (int i = 0; i < 3; ++i) {
    sessions.push_back(machine.session());
    all.push_back(sessions.back().get());
    ASSERT_TRUE(all.back()->expect_drafts(true).ok());
  }
  const size_t sizes[] = {30, 25, 20};
  Tokens tokens;
  for (const size_t n : sizes)
    tokens.insert(tokens.end(), text.begin(), text.begin() + static_cast<std::ptrdiff_t>(n));
  int n_ops = 0;
  machine.hook().watch_ffn([&](const FfnOp& op) {
    if (op.layer == layer && n_ops++ == 1) all[2]->cancel();
  });
  ASSERT_TRUE(sessions_eval(all, tokens.data(), sizes, nullptr).ok());
  machine.hook().watch_ffn(nullptr);
  EXPECT_GE(n_ops, 2);
  for (size_t i = 0; i < all.size(); ++i) {
    EXPECT_EQ(all[i]->position(), static_cast<int32_t>(sizes[i]));
    const Predictions& own = SessionCall::state_of(*all[i]).predictions;
    EXPECT_EQ(own.end(), all[i]->position());
    EXPECT_EQ(own.n_kept(), 1u);
    const Tokens more(text.begin() + static_cast<std::ptrdiff_t>(sizes[i]), text.end());
    const Box<Session> plain = machine.session();
    const Floats expected = eval_all(*plain, text);
    const Floats found = eval_all(*all[i], more);
    EXPECT_TRUE(std::equal(found.rbegin(), found.rend(), expected.rbegin()));
  }
}

// A call of several passes fails after some of them: repeated, it loses no row of the layer.
TEST_P(PredictionTest, ARepeatedCallKeepsTheRows) {
  Machine machine(*bytes_);
  SessionOptions options;
  options.chunk = 16;
  const Box<Session> sessions[] = {machine.session(options), machine.session(options)};
  Session* const all[] = {sessions[0].get(), sessions[1].get()};
  const Tokens text = random_tokens(80, machine.vocab_size());
  const auto eval = [&](size_t begin, size_t n) {
    Tokens tokens;
    for (int i = 0; i < 2; ++i) {
      const auto part = span(text, begin, n);
      tokens.insert(tokens.end(), part.begin(), part.end());
    }
    const size_t sizes[] = {n, n};
    return sessions_eval(all, tokens.data(), sizes, nullptr);
  };
  for (Session* const session : all) ASSERT_TRUE(session->expect_drafts(true).ok());
  ASSERT_TRUE(eval(0, 20).ok());
  int n_passes = 0;
  machine.hook().watch_ffn([&](const FfnOp& op) {
    if (op.layer == 0 && ++n_passes == 4) all[0]->cancel();
  });
  EXPECT_EQ(eval(20, 60).code(), MOE_ERR_CANCELLED);
  machine.hook().watch_ffn(nullptr);
  EXPECT_EQ(n_passes, 4);
  ASSERT_TRUE(eval(20, 60).ok());
  for (Session* const session : all) {
    const Predictions& own = SessionCall::state_of(*session).predictions;
    EXPECT_EQ(session->position(), 80);
    EXPECT_EQ(own.begin(), 0);
    EXPECT_EQ(own.end(), 80);
  }
}

// A generation in steps that fails follows the text no longer.
TEST_P(PredictionTest, AFailedStepFollowsNoLonger) {
  Machine machine(*bytes_);
  const Box<Session> session = machine.session();
  const Predictions& own = SessionCall::state_of(*session).predictions;
  const Tokens text = random_tokens(20, machine.vocab_size());
  ASSERT_TRUE(session->eval(span(text), LogitRows::kNone, nullptr).ok());
  GenerateOptions options;
  options.max_tokens = 20;
  options.ignore_eos = true;
  options.max_draft = 4;
  auto made = SteppedGeneration::create(*session, nullptr, options, {}, system_allocator());
  ASSERT_TRUE(made.ok()) << made.status().text();
  int32_t token = 0;
  Finish finish;
  ASSERT_TRUE(made.value()->next(&token, &finish).ok());
  EXPECT_TRUE(own.follows);
  machine.hook().watch_ffn([&](const FfnOp&) { session->cancel(); });
  EXPECT_EQ(made.value()->advance(&token, &finish).code(), MOE_ERR_CANCELLED);
  machine.hook().watch_ffn(nullptr);
  EXPECT_FALSE(own.follows);
}

// The positions of the layer count from where it began.
TEST_P(PredictionTest, BeginsAnywhere) {
  Machine machine(*bytes_);
  const Tokens text = random_tokens(60, machine.vocab_size());
  const Box<Session> session = machine.session();
  SessionState& state = SessionCall::state_of(*session);
  Tokens guessed(3);
  const auto guess = [&](int32_t next) {
    const SessionCall call(*session);
    state.tokens.room()[state.tokens.size()] = next;
    return predict(state, 3, guessed.data());
  };
  EXPECT_EQ(guess(text[0]), 0u);  // there is no hidden state
  ASSERT_TRUE(session->eval(span(text, 0, 50), LogitRows::kNone, nullptr).ok());
  EXPECT_FALSE(state.predictions.follows);
  EXPECT_EQ(state.predictions.n_kept(), 1u);
  EXPECT_EQ(guess(text[50]), 3u);
  EXPECT_EQ(guess(text[50]), 0u);  // it has been used
  ASSERT_TRUE(session->eval(span(text, 50, 10), LogitRows::kNone, nullptr).ok());
  EXPECT_EQ(state.predictions.n_kept(), 10u);
  EXPECT_EQ(state.predictions.place(50), 1);
  ASSERT_TRUE(session->rewind(53).ok());
  EXPECT_EQ(state.predictions.n_kept(), 3u);
  EXPECT_EQ(guess(text[53]), 3u);
  ASSERT_TRUE(session->rewind(51).ok());
  EXPECT_EQ(guess(text[51]), 0u);
  ASSERT_TRUE(session->eval(span(text, 51, 1), LogitRows::kNone, nullptr).ok());
  EXPECT_EQ(state.predictions.place(51), 2);  // the text before it is still seen
  EXPECT_EQ(guess(text[52]), 3u);
  ASSERT_TRUE(session->rewind(20).ok());
  ASSERT_TRUE(session->eval(span(text, 20, 3), LogitRows::kNone, nullptr).ok());
  EXPECT_EQ(state.predictions.place(20), 0);
  EXPECT_EQ(guess(text[23]), 3u);
}

std::vector<uint8_t> saved_bytes(Session& session) {
  std::vector<uint8_t> bytes;
  const SaveSink sink = {[](void* user, const void* from, size_t n) -> Status {
                           auto& to = *static_cast<std::vector<uint8_t>*>(user);
                           const auto* const first = static_cast<const uint8_t*>(from);
                           to.insert(to.end(), first, first + n);
                           return {};
                         },
                         &bytes};
  EXPECT_TRUE(save_session(session, {}, sink).ok());
  return bytes;
}

void load_bytes(Session& session, std::vector<uint8_t> bytes) {
  const SaveSource source = {bytes.size(),
                             [](void* user, uint64_t at, void* to, size_t n) -> Status {
                               std::memcpy(to, static_cast<const uint8_t*>(user) + at, n);
                               return {};
                             },
                             bytes.data()};
  const Status status = load_session(session, {}, source);
  EXPECT_TRUE(status.ok()) << status.text();
}

// A fork, a copy of a beginning and a loaded session guess as one that has read the text itself.
TEST_P(PredictionTest, MovesWithASession) {
  Machine machine(*bytes_);
  const Tokens text = random_tokens(90, machine.vocab_size());
  for (const KvType kv : {KvType::kF16, KvType::kInt8}) {
    const auto begin = [&](int32_t context) {
      SessionOptions options;
      options.kv = kv;
      options.context = context;
      return machine.session(options);
    };
    const auto read = [&](Session& session, size_t n) {
      SessionCall::state_of(session).predictions.follows = true;
      ASSERT_TRUE(session.eval(span(text, 0, n), LogitRows::kNone, nullptr).ok());
    };
    const auto guess_after = [&](Session& session, size_t n) {
      EXPECT_TRUE(session.rewind(static_cast<int32_t>(n)).ok());
      EXPECT_TRUE(session.eval(span(text, n, 2), LogitRows::kNone, nullptr).ok());
      const SessionCall call(session);
      SessionState& state = call.state();
      state.tokens.room()[n + 2] = text[n + 2];
      const auto width = static_cast<size_t>(machine.vocab_size());
      Floats logits(3 * width);
      Tokens guessed(3);
      logits.resize(predict(state, 3, guessed.data(), logits.data()) * width);
      return logits;
    };
    const Box<Session> source = begin(100);
    read(*source, 80);
    const std::vector<uint8_t> saved = saved_bytes(*source);
    for (const size_t n : {80, 79, 64, 33, 5, 1}) {
      const Box<Session> fresh = begin(90);
      read(*fresh, n);
      const Floats expected = guess_after(*fresh, n);
      ASSERT_EQ(expected.size(), 3u * static_cast<size_t>(machine.vocab_size()));
      auto forked = fork_session(*source, machine.model(), system_allocator());
      ASSERT_TRUE(forked.ok()) << forked.status().text();
      EXPECT_EQ(guess_after(*forked.value(), n), expected) << n;
      const Box<Session> copy = begin(95);
      read(*copy, 13);
      ASSERT_TRUE(copy_session(*source, static_cast<int32_t>(n), *copy).ok());
      EXPECT_EQ(guess_after(*copy, n), expected) << n;
      const Box<Session> loaded = begin(98);
      read(*loaded, 21);
      load_bytes(*loaded, saved);
      EXPECT_EQ(guess_after(*loaded, n), expected) << n;
    }
    EXPECT_EQ(saved_bytes(*source), saved);  // copying changes nothing
  }
}

// The same tokens are drafted and accepted as without the move.
TEST_P(PredictionTest, DraftsGoOnAfterAMove) {
  Machine machine(*bytes_);
  GenerateOptions options;
  options.max_tokens = 40;
  options.ignore_eos = true;
  options.max_draft = 4;
  const Tokens prompt = random_tokens(50, machine.vocab_size(), 7);
  GenerateResult stayed, moved;
  const Box<Session> session = machine.session();
  ASSERT_TRUE(generate(*session, nullptr, span(prompt), options, &stayed).ok());
  auto forked = fork_session(*session, machine.model(), system_allocator());
  ASSERT_TRUE(forked.ok()) << forked.status().text();
  const Box<Session> loaded = machine.session();
  load_bytes(*loaded, saved_bytes(*session));
  const Tokens more = random_tokens(9, machine.vocab_size(), 8);
  ASSERT_TRUE(generate(*session, nullptr, span(more), options, &stayed).ok());
  EXPECT_GT(stayed.n_drafted, 0);
  for (Session* s : {forked.value().get(), loaded.get()}) {
    ASSERT_TRUE(generate(*s, nullptr, span(more), options, &moved).ok());
    EXPECT_EQ(moved.n_drafted, stayed.n_drafted);
    EXPECT_EQ(moved.n_accepted, stayed.n_accepted);
    EXPECT_EQ(saved_bytes(*s), saved_bytes(*session));
  }
}

/// Drafts as often as possible, with what the layer guesses and with what it would never guess.
void expect_the_same(Machine& machine, const Tokens& prompt, GenerateOptions options) {
  GenerateResult result;
  const Box<Session> plain = machine.session();
  ASSERT_TRUE(generate(*plain, nullptr, span(prompt), options, &result).ok());
  for (const int32_t most : {1, 3, 16}) {
    options.max_draft = most;
    const Box<Session> drafted = machine.session();
    const Status status = generate(*drafted, nullptr, span(prompt), options, &result);
    ASSERT_TRUE(status.ok()) << status.text();
    EXPECT_EQ(Tokens(drafted->tokens().begin(), drafted->tokens().end()),
              Tokens(plain->tokens().begin(), plain->tokens().end()));
  }
  EXPECT_GT(result.n_drafted, 0);
}

TEST_P(PredictionTest, GivesTheSameTokens) {
  Machine machine(*bytes_);
  GenerateOptions options;
  options.max_tokens = 100;
  options.ignore_eos = true;
  for (const float temperature : {0.0f, 0.7f, 1.5f}) {
    options.sampling.temperature = temperature;
    for (const size_t n : {1, 5, 50}) {
      expect_the_same(machine, random_tokens(n, machine.vocab_size(), 7), options);
    }
  }
}

// As benchmarks make them, to measure what right guesses would save.
TEST_P(PredictionTest, GuessesMayBeChanged) {
  Machine machine(*bytes_);
  const Tokens prompt = random_tokens(5, machine.vocab_size(), 7);
  GenerateOptions options;
  options.max_tokens = 100;
  options.ignore_eos = true;
  options.sampling.temperature = 1.5f;
  GenerateResult result;
  const Box<Session> plain = machine.session();
  ASSERT_TRUE(generate(*plain, nullptr, span(prompt), options, &result).ok());
  Tokens whole(plain->tokens().begin(), plain->tokens().end());
  options.max_draft = 4;
  options.guesses_user = &whole;
  options.change_guesses = [](void* user, std::span<const int32_t> text,
                              std::span<int32_t> guessed) {
    const Tokens& right = *static_cast<const Tokens*>(user);
    for (size_t i = 0; i < guessed.size() && text.size() + i < right.size(); ++i) {
      guessed[i] = right[text.size() + i];
    }
  };
  const Box<Session> drafted = machine.session();
  ASSERT_TRUE(generate(*drafted, nullptr, span(prompt), options, &result).ok());
  EXPECT_EQ(Tokens(drafted->tokens().begin(), drafted->tokens().end()), whole);
  EXPECT_GT(result.n_accepted, 0);
  EXPECT_GT(2 * result.n_accepted, result.n_drafted);  // the text has drafted the others
}

// Wherever a cancel comes, also within the layer, the text goes on as if nothing had been.
TEST_P(PredictionTest, CancelAtEveryOperation) {
  Machine machine(*bytes_);
  const Tokens prompt = random_tokens(25, machine.vocab_size());
  GenerateOptions options;
  options.max_tokens = 12;
  options.ignore_eos = true;
  options.max_draft = 3;
  GenerateResult result;
  const Box<Session> plain = machine.session();
  machine.hook().arm([](int, Stream&) {});
  ASSERT_TRUE(generate(*plain, nullptr, span(prompt), options, &result).ok());
  EXPECT_GT(result.n_drafted, 0);
  const int n_ops = machine.hook().n_ops();
  const Tokens whole(plain->tokens().begin(), plain->tokens().end());
  const Box<Session> session = machine.session();
  for (int at = 0; at < n_ops; at += 3) {
    ASSERT_TRUE(session->reset().ok());
    machine.hook().arm([&](int op, Stream&) {
      if (op == at) session->cancel();
    });
    const Status status = generate(*session, nullptr, span(prompt), options, &result);
    machine.hook().disarm();
    ASSERT_TRUE(status.ok() || status.code() == MOE_ERR_CANCELLED) << status.text();
    EXPECT_FALSE(SessionCall::state_of(*session).predictions.follows) << at;
    const auto n_read = static_cast<size_t>(session->position());
    GenerateOptions rest = options;
    rest.max_tokens = static_cast<int32_t>(whole.size() - std::max(n_read, prompt.size()));
    if (n_read < whole.size()) {
      const std::span<const int32_t> more =
          span(prompt, std::min(n_read, prompt.size()), prompt.size());
      ASSERT_TRUE(generate(*session, nullptr, more, rest, &result).ok());
    }
    ASSERT_EQ(Tokens(session->tokens().begin(), session->tokens().end()), whole) << at;
  }
}

// Numbers that are not finite in the layer alone end its guesses, not the text.
TEST_P(PredictionTest, ALayerThatFailsGuessesNothing) {
  Machine machine(*bytes_);
  const Tokens prompt = random_tokens(25, machine.vocab_size());
  GenerateOptions options;
  options.max_tokens = 30;
  options.ignore_eos = true;
  GenerateResult result;
  const Box<Session> plain = machine.session();
  ASSERT_TRUE(generate(*plain, nullptr, span(prompt), options, &result).ok());
  const Box<Session> session = machine.session();
  const int32_t layer = machine.model().config().n_main_layers();
  options.max_draft = 4;
  machine.hook().watch_ffn([&](const FfnOp& op) {
    if (op.layer != layer) return;
    std::fill_n(const_cast<float*>(op.x), op.n_rows * op.d_model, NAN);
  });
  ASSERT_TRUE(generate(*session, nullptr, span(prompt), options, &result).ok());
  machine.hook().watch_ffn(nullptr);
  EXPECT_EQ(Tokens(session->tokens().begin(), session->tokens().end()),
            Tokens(plain->tokens().begin(), plain->tokens().end()));
}

INSTANTIATE_TEST_SUITE_P(Kinds, PredictionTest,
                         testing::Values("guesses", "guesses_raw", "guesses_of_experts"),
                         [](const auto& name) { return std::string(name.param); });

// The norms have factors of their own, so that it matters whether the layer reads what they give.
TEST(PredictionTest, RawHiddenStatesAreOthers) {
  Floats found[2];
  for (const bool raw : {false, true}) {
    TinyKind kind = kind_named("guesses_raw");
    kind.change = [change = kind.change, raw](ModelConfig& c, TinyOptions& o) {
      change(c, o);
      c.raw_predictions = raw;
    };
    const auto bytes = build_tiny_kind(kind);
    Machine machine(*bytes);
    ASSERT_TRUE(machine.status().ok()) << machine.status().text();
    EXPECT_EQ(machine.model().config().raw_predictions, raw);
    found[raw ? 1 : 0] =
        guess_logits(*machine.session(), random_tokens(20, machine.vocab_size()), 2);
  }
  EXPECT_EQ(found[0].size(), found[1].size());
  EXPECT_NE(found[0], found[1]);
}

TEST(ClairvoyantTest, AllGuessesAreRight) {
  const auto bytes = build_clairvoyant();
  Machine machine(*bytes);
  ASSERT_TRUE(machine.status().ok()) << machine.status().text();
  GenerateOptions options;
  options.max_tokens = 60;
  options.ignore_eos = true;
  options.max_draft = 4;
  GenerateResult result;
  const Box<Session> session = machine.session();
  ASSERT_TRUE(generate(*session, nullptr, span({3}), options, &result).ok());
  EXPECT_EQ(result.n_generated, 60);
  EXPECT_GT(result.n_drafted, 20);
  EXPECT_EQ(result.n_accepted, result.n_drafted);
  const Tokens drafted(session->tokens().begin(), session->tokens().end());
  const auto without = build_clairvoyant(false);
  Machine other(*without);
  options.max_draft = 0;
  const Box<Session> plain = other.session();
  ASSERT_TRUE(generate(*plain, nullptr, span({3}), options, &result).ok());
  EXPECT_EQ(drafted, Tokens(plain->tokens().begin(), plain->tokens().end()));
}

TEST(ClairvoyantTest, ContinuesAfterEverythingThatMovesASession) {
  const auto bytes = build_clairvoyant();
  Machine machine(*bytes);
  GenerateOptions options;
  options.max_tokens = 20;
  options.ignore_eos = true;
  options.max_draft = 4;
  GenerateResult result;
  const Box<Session> session = machine.session();
  const Tokens prompt = random_tokens(30, machine.vocab_size());
  ASSERT_TRUE(generate(*session, nullptr, span(prompt), options, &result).ok());
  const Tokens text(session->tokens().begin(), session->tokens().end());
  auto forked = fork_session(*session, machine.model(), system_allocator());
  ASSERT_TRUE(forked.ok()) << forked.status().text();
  const Box<Session> loaded = machine.session();
  load_bytes(*loaded, saved_bytes(*session));
  ASSERT_TRUE(generate(*session, nullptr, {}, options, &result).ok());
  const Tokens whole(session->tokens().begin(), session->tokens().end());
  ASSERT_TRUE(session->rewind(static_cast<int32_t>(text.size())).ok());
  for (Session* s : {session.get(), forked.value().get(), loaded.get()}) {
    ASSERT_TRUE(generate(*s, nullptr, {}, options, &result).ok());
    EXPECT_EQ(Tokens(s->tokens().begin(), s->tokens().end()), whole);
    EXPECT_GT(result.n_accepted, 0);
    EXPECT_EQ(result.n_accepted, result.n_drafted);
  }
}

// As a service does: several sessions in one call, then each alone.
TEST(ClairvoyantTest, StepsWithDrafts) {
  const auto bytes = build_clairvoyant();
  Machine machine(*bytes);
  GenerateOptions options;
  options.max_tokens = 50;
  options.ignore_eos = true;
  std::vector<Box<Session>> sessions;
  std::vector<Tokens> expected;
  GenerateResult result;
  for (const int32_t first : {3, 9, 14}) {
    sessions.push_back(machine.session());
    ASSERT_TRUE(generate(*sessions.back(), nullptr, span({first, 5}), options, &result).ok());
    expected.emplace_back(sessions.back()->tokens().begin(), sessions.back()->tokens().end());
    ASSERT_TRUE(sessions.back()->reset().ok());
  }
  Session* const all[] = {sessions[0].get(), sessions[1].get(), sessions[2].get()};
  const int32_t prompts[] = {3, 5, 9, 5, 14, 5};
  const size_t sizes[] = {2, 2, 2};
  ASSERT_TRUE(sessions_eval(all, prompts, sizes, nullptr).ok());
  options.max_draft = 5;
  std::vector<Box<SteppedGeneration>> steps;
  for (const auto& session : sessions) {
    auto made = SteppedGeneration::create(*session, nullptr, options, {}, system_allocator());
    ASSERT_TRUE(made.ok()) << made.status().text();
    steps.push_back(std::move(made.value()));
  }
  Finish finish;
  for (int round = 0; round < 5; ++round) {
    int32_t tokens[3] = {};
    for (size_t i = 0; i < 3; ++i) ASSERT_TRUE(steps[i]->next(&tokens[i], &finish).ok());
    if (round == 4) break;
    ASSERT_TRUE(sessions_eval(all, tokens, nullptr, nullptr).ok());
  }
  for (size_t i = 0; i < 3; ++i) {
    for (int32_t token = 0; token >= 0;) {
      const Status status = steps[i]->advance(&token, &finish);
      ASSERT_TRUE(status.ok()) << status.text();
    }
    const Tokens found(sessions[i]->tokens().begin(), sessions[i]->tokens().end());
    EXPECT_TRUE(std::equal(found.begin(), found.end(), expected[i].begin()));
    EXPECT_GE(found.size() + 1, expected[i].size());
  }
}

TEST(PredictionFileTest, WhatIsMissingIsNamed) {
  ModelConfig config = tiny_config();
  EXPECT_TRUE(config.layers.push(config.layers[0]).ok());
  config.n_predictions = 1;
  auto sink = std::make_unique<MemorySink>();
  ModelWriter writer(*sink, false);
  write_tiny_segments(tiny_config(), {}, &writer);
  ASSERT_TRUE(finish_model(writer, config, nullptr, {}).ok());
  Machine machine(*sink);
  EXPECT_EQ(machine.status().code(), MOE_ERR_NOT_FOUND);
  EXPECT_NE(std::string(machine.status().text()).find("layers.2."), std::string::npos)
      << machine.status().text();
}

TEST(PredictionFileTest, OtherShapesAreRefused) {
  ModelConfig config = tiny_config();
  EXPECT_TRUE(config.layers.push(config.layers[0]).ok());
  config.n_predictions = 1;
  TinyChanges narrow;
  narrow.layout = [](Part part, BlobLayout* layout) {
    if (part != Part::kPrediction) return;
    for (BlobMatrix& m : layout->matrices) {
      if (m.role == Role::kHidden) m.cols = 31;
    }
    EXPECT_TRUE(place(layout).ok());
  };
  auto sink = std::make_unique<MemorySink>();
  ModelWriter writer(*sink, false);
  write_tiny_segments(config, {}, &writer, narrow);
  ASSERT_TRUE(finish_model(writer, config, nullptr, {}).ok());
  Machine machine(*sink);
  EXPECT_EQ(machine.status().code(), MOE_ERR_SHAPE);
  EXPECT_NE(std::string(machine.status().text()).find("expected (32, 32), file has (32, 31)"),
            std::string::npos)
      << machine.status().text();
}

TEST(PredictionFileTest, BadConfigurationsAreRefused) {
  const auto check = [](const std::function<void(ModelConfig&)>& change) {
    ModelConfig config = tiny_config();
    EXPECT_TRUE(config.layers.push(config.layers[0]).ok());
    config.n_predictions = 1;
    EXPECT_TRUE(validate(config).ok());
    change(config);
    const Status status = validate(config);
    EXPECT_FALSE(status.ok());
    EXPECT_NE(std::string(status.text()).find("n_predictions"), std::string::npos) << status.text();
  };
  check([](ModelConfig& c) { c.n_predictions = 2; });
  check([](ModelConfig& c) { c.n_predictions = -1; });
  check([](ModelConfig& c) {
    c.n_predictions = 0;
    c.raw_predictions = true;
  });
  check([](ModelConfig& c) { c.norm = NormKind::kLayer; });
  check([](ModelConfig& c) { set_mixer(c.layers[2], "short_conv", {3}); });
  check([](ModelConfig& c) { c.layers[2].attention.kv_layer = 0; });
  check([](ModelConfig& c) { c.layer_input.width = 4; });
  check([](ModelConfig& c) {
    c.layers.pop();
    c.layers.pop();
  });
}

// Elsewhere than on the CPU the layer takes no memory.
TEST(PredictionFileTest, OtherDevicesLeaveItOut) {
  const auto with = build_tiny_kind(kind_named("guesses"));
  const auto without = build_tiny_kind({"plain", [](ModelConfig&, TinyOptions&) {}});
  size_t held[2] = {};
  for (const bool guesses : {false, true}) {
    MemoryDevice device(system_allocator(), false);
    auto model = open_model(guesses ? *with : *without, device);
    ASSERT_TRUE(model.ok()) << model.status().text();
    EXPECT_EQ(model.value()->config().n_predictions, 0);
    EXPECT_EQ(model.value()->config().n_layers(), 2);
    ASSERT_TRUE(model.value()->prepare().ok());
    held[guesses ? 1 : 0] = device.held();
    EXPECT_TRUE(model.value()->verify().ok());
  }
  EXPECT_GT(held[0], 0u);
  EXPECT_EQ(held[0], held[1]);
  MemoryDevice device(system_allocator(), true);
  auto model = open_model(*with, device);
  ASSERT_TRUE(model.ok()) << model.status().text();
  EXPECT_EQ(model.value()->config().n_predictions, 1);
}

}  // namespace
}  // namespace moe
