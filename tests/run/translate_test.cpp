// SPDX-License-Identifier: MIT
// Encoder-decoders: a search with caches gives the same results as one without.

#include "src/run/translate.h"

#include <cmath>
#include <functional>

#include "src/run/perplexity.h"
#include "src/run/saved.h"
#include "tests/kernels/random_floats.h"
#include "tests/run/tiny_run.h"
#include "tests/support/every_isa.h"
#include "tests/support/failing_allocator.h"
#include "tests/support/memory_device.h"

namespace moe {
namespace {

/// The texts that a search finds, with their scores.
struct Found {
  Status status;
  std::vector<Tokens> texts;
  Floats scores;
  bool operator==(const Found& other) const {
    return texts == other.texts && scores == other.scores;
  }
};

TranslateOptions wide(int32_t beam = 5, BeamStop stop = BeamStop::kCount) {
  TranslateOptions o;
  o.search.beam = o.search.n_best = beam;
  o.search.max_tokens = 12;
  o.search.stop = stop;
  return o;
}

Found translate_with(Session& session, const Tokens& source, const TranslateOptions& options) {
  Found found;
  Translations out(system_allocator());
  found.status = translate(session, span(source), options, &out);
  if (!found.status.ok()) return found;
  for (const Translations::Text& text : out.texts) {
    found.texts.emplace_back(text.tokens, text.tokens + text.n_tokens);
    found.scores.push_back(text.score);
  }
  return found;
}

// The same search without a cache: every hypothesis is evaluated from its beginning in each step.
Found search_plainly(Session& session, const Tokens& source, const TranslateOptions& options) {
  const ModelConfig& c = session.model().config();
  const auto vocab = static_cast<size_t>(c.vocab_size);
  BeamSearch beam(system_allocator());
  Found found;
  EXPECT_TRUE(read_source(session, span(source)).ok());
  EXPECT_TRUE(
      beam.begin(options.search, {c.eos_token_ids.span(), options.prefix, c.pad_token_id}).ok());
  std::vector<Tokens> texts = {{c.start_token_id}};
  while (!beam.done()) {
    for (int32_t j = 0; j < beam.n_running(); ++j) {
      Floats logits(vocab), logprobs;
      EXPECT_TRUE(session.rewind(0).ok());
      const Tokens& text = texts[static_cast<size_t>(j)];
      EXPECT_TRUE(session.eval(span(text), LogitRows::kLast, logits.data()).ok());
      double sum = 0;
      for (const float x : logits) sum += std::exp(static_cast<double>(x));
      for (const float x : logits) {
        logprobs.push_back(static_cast<float>(static_cast<double>(x) - std::log(sum)));
      }
      EXPECT_TRUE(beam.offer(j, logprobs).ok());
    }
    EXPECT_TRUE(beam.end_step().ok());
    std::vector<Tokens> next;
    for (int32_t j = 0; j < beam.n_running(); ++j) {
      next.push_back(texts[static_cast<size_t>(beam.parent(j))]);
      next.back().push_back(beam.token(j));
    }
    texts = std::move(next);
  }
  for (int32_t i = 0; i < beam.n_results(); ++i) {
    found.texts.emplace_back(static_cast<size_t>(beam.n_tokens(i)));
    beam.read(i, found.texts.back().data());
    found.scores.push_back(beam.score(i));
  }
  return found;
}

SessionOptions for_beam(int32_t max_beam, KvType kv = KvType::kF16, int32_t chunk = 0) {
  SessionOptions o;
  o.max_beam = max_beam;
  o.kv = kv;
  o.chunk = chunk;
  return o;
}

Tokens source_of(size_t n, uint32_t seed) {
  Tokens tokens = random_tokens(n, 64, seed);
  tokens.push_back(1);
  return tokens;
}

class Translate : public testing::TestWithParam<bool> {
 protected:
  Translate() : bytes_(build_tiny_model(tiny_translator(GetParam()), options())) {}
  static TinyOptions options() {
    TinyOptions o;
    o.biases = true;
    return o;
  }
  std::unique_ptr<MemorySink> bytes_;
};

TEST_P(Translate, FindsWhatASearchWithoutACacheFinds) {
  Machine machine(*bytes_, 2);
  ASSERT_TRUE(machine.status().ok()) << machine.status().text();
  for (const KvType kv : {KvType::kF16, KvType::kInt8, KvType::kF32}) {
    const Box<Session> session = machine.session(for_beam(6, kv));
    for (const BeamStop stop : {BeamStop::kCount, BeamStop::kBound, BeamStop::kStep}) {
      const Tokens source = source_of(11, static_cast<uint32_t>(stop));
      const TranslateOptions o = wide(6, stop);
      const Found found = translate_with(*session, source, o);
      ASSERT_TRUE(found.status.ok()) << found.status.text();
      const Found plain = search_plainly(*session, source, o);
      ASSERT_EQ(found.texts, plain.texts);
      ASSERT_EQ(found.texts.size(), 6u);
      for (size_t i = 0; i < 6; ++i) EXPECT_NEAR(found.scores[i], plain.scores[i], 1e-5);
    }
  }
}

TEST_P(Translate, HasTheSameBitsOnAnyMachineAndAfterAnyOtherText) {
  const Tokens texts[] = {source_of(30, 1), source_of(3, 2), source_of(17, 3)};
  Found first[3];
  for (const CpuKernels* isa : every_isa()) {
    for (const int threads : {1, 3}) {
      Machine machine(*bytes_, threads, isa->name);
      const Box<Session> used = machine.session(for_beam(5));
      const Box<Session> narrow = machine.session(for_beam(8, KvType::kF16, 31));
      for (size_t i = 0; i < 3; ++i) {
        const Found found = translate_with(*used, texts[i], wide());
        ASSERT_TRUE(found.status.ok()) << found.status.text();
        if (first[i].texts.empty()) first[i] = found;
        EXPECT_EQ(found, first[i]) << isa->name << " " << threads;
        EXPECT_EQ(translate_with(*machine.session(for_beam(5)), texts[i], wide()), first[i]);
        EXPECT_EQ(translate_with(*narrow, texts[i], wide()), first[i]);
      }
    }
  }
  EXPECT_FALSE(first[0] == first[2]);
}

TEST_P(Translate, ASessionThatHasReadASourceIsOneOfADecoder) {
  Machine machine(*bytes_);
  const Box<Session> session = machine.session(), other = machine.session();
  const Tokens source = source_of(20, 4);
  Tokens text = random_tokens(15, 64, 5);
  text[0] = 1;
  ASSERT_TRUE(read_source(*session, span(source)).ok());
  const Floats all = eval_all(*session, text);
  ASSERT_TRUE(session->rewind(0).ok());
  EXPECT_EQ(eval_all(*session, text, 4), all);
  // Another source gives other logits, and does not affect the first session.
  ASSERT_TRUE(read_source(*other, span(source_of(9, 6))).ok());
  const Floats differs = eval_all(*other, text);
  EXPECT_NE(differs, all);
  Session* both[] = {session.get(), other.get()};
  const int32_t next[] = {7, 7};
  Floats rows(2 * 64), alone(64);
  ASSERT_TRUE(sessions_eval(both, next, nullptr, rows.data()).ok());
  ASSERT_TRUE(other->rewind(15).ok());
  ASSERT_TRUE(other->eval({next, 1}, LogitRows::kLast, alone.data()).ok());
  EXPECT_TRUE(std::equal(alone.begin(), alone.end(), rows.begin() + 64));
  EXPECT_NE(Floats(rows.begin(), rows.begin() + 64), alone);
  // A new source empties the session.
  ASSERT_TRUE(read_source(*session, span(source_of(9, 6))).ok());
  EXPECT_EQ(session->position(), 0);
  EXPECT_EQ(eval_all(*session, text), differs);
}

TEST_P(Translate, BeginsWithThePrefix) {
  Machine machine(*bytes_);
  const Box<Session> session = machine.session();
  const int32_t begin[] = {9, 33};
  TranslateOptions o = wide();
  o.prefix = begin;
  const Found found = translate_with(*session, source_of(8, 7), o);
  ASSERT_TRUE(found.status.ok()) << found.status.text();
  for (const Tokens& text : found.texts) {
    EXPECT_EQ(text[0], 9);
    EXPECT_EQ(text[1], 33);
    EXPECT_EQ(text.back(), 1);
  }
  EXPECT_EQ(session->position(), 0);
  // The forced first token of the file, unless a prefix replaces it.
  ModelConfig config = tiny_translator(GetParam());
  config.forced_token_id = 40;
  const auto forced = build_tiny_model(config, options());
  Machine other(*forced);
  EXPECT_EQ(translate_with(*other.session(), source_of(8, 7), wide()).texts[0][0], 40);
  EXPECT_EQ(translate_with(*other.session(), source_of(8, 7), o), found);
}

TEST_P(Translate, StopsOnCancelAndWorksAgain) {
  Machine machine(*bytes_);
  const Box<Session> session = machine.session();
  const Tokens source = source_of(21, 8);
  TranslateOptions o = wide();
  const Found expected = translate_with(*session, source, o);
  machine.hook().arm([](int, Stream&) {});
  (void)translate_with(*session, source, o);
  const int n_ops = machine.hook().n_ops();
  for (int at = 0; at < n_ops; at += 3) {
    machine.hook().arm([&](int op, Stream&) {
      if (op == at) session->cancel();
    });
    EXPECT_EQ(translate_with(*session, source, o).status.code(), MOE_ERR_CANCELLED) << at;
    EXPECT_LE(machine.hook().n_ops() - at, 10);  // within one layer
  }
  machine.hook().disarm();
  int calls = 0;
  o.user = &calls;
  o.progress = [](void* user, int32_t n, int32_t most) {
    EXPECT_EQ(n, *static_cast<int*>(user));
    EXPECT_EQ(most, 12);
    return ++*static_cast<int*>(user) < 3;
  };
  EXPECT_EQ(translate_with(*session, source, o).status.code(), MOE_ERR_CANCELLED);
  EXPECT_EQ(calls, 3);
  EXPECT_EQ(translate_with(*session, source, wide()), expected);
}

TEST_P(Translate, ASearchAllocatesWhatTheAccountAllows) {
  FailingAllocator memory;
  Machine machine(*bytes_, 1, nullptr, memory.get());
  ASSERT_TRUE(machine.status().ok());
  SessionOptions options = for_beam(4);
  options.context = 20;
  MemoryAccount account;
  ASSERT_TRUE(account_memory(machine.model(), options, &account).ok());
  const uint64_t allowed = line_of(account, "beam search");
  const Box<Session> session = machine.session(options);
  Translations out(memory.get());
  TranslateOptions longest = wide(4);
  longest.search.max_tokens = 19;
  longest.search.min_tokens = 19;  // so that there are four texts of 20 tokens
  const size_t before = memory.live_bytes();
  memory.reset_peak();
  ASSERT_TRUE(translate(*session, span(source_of(12, 9)), longest, &out).ok());
  EXPECT_EQ(out.tokens.size(), 80u);
  EXPECT_EQ(memory.peak_bytes() - before, allowed);
}

TEST_P(Translate, AnyAllocationMayFail) {
  FailingAllocator allocator;
  Machine machine(*bytes_, 1, nullptr, allocator.get());
  ASSERT_TRUE(machine.status().ok());
  const auto run = [&]() -> Status {
    auto session = machine.try_session(for_beam(4));
    MOE_TRY(session.status());
    Translations out(allocator.get());
    return translate(*session.value(), span(source_of(12, 9)), wide(4), &out);
  };
  ASSERT_TRUE(run().ok());
  const size_t before = allocator.n_allocations();
  ASSERT_TRUE(run().ok());
  const size_t n = allocator.n_allocations() - before;
  for (size_t i = 0; i < n; ++i) {
    allocator.fail_in(i);
    EXPECT_EQ(run().code(), MOE_ERR_MEMORY) << i;
  }
  allocator.fail_in(FailingAllocator::kNever);
  EXPECT_TRUE(run().ok());
}

INSTANTIATE_TEST_SUITE_P(Norms, Translate, testing::Bool(),
                         [](const auto& norm) { return norm.param ? "pre" : "post"; });

void expect_refused(const Status& status, moe_status code, const char* word) {
  EXPECT_EQ(status.code(), code) << status.text();
  EXPECT_NE(std::string(status.text()).find(word), std::string::npos) << status.text();
}

TEST(TranslateRefuses, BadOptions) {
  const auto bytes = build_tiny_model(tiny_translator());
  Machine machine(*bytes);
  const Box<Session> session = machine.session(for_beam(3));
  const Tokens source = source_of(5, 1);
  const auto refused = [&](moe_status code, const char* word,
                           const std::function<void(TranslateOptions&)>& change) {
    TranslateOptions o = wide(3);
    change(o);
    expect_refused(translate_with(*session, source, o).status, code, word);
  };
  refused(MOE_ERR_RANGE, "beam", [](auto& o) { o.search.beam = 0; });
  refused(MOE_ERR_RANGE, "beam", [](auto& o) { o.search.beam = 65; });
  refused(MOE_ERR_RANGE, "max_beam", [](auto& o) { o.search.beam = 4; });
  refused(MOE_ERR_RANGE, "n_best", [](auto& o) { o.search.n_best = 4; });
  refused(MOE_ERR_RANGE, "min_tokens", [](auto& o) { o.search.min_tokens = 13; });
  refused(MOE_ERR_RANGE, "length_penalty", [](auto& o) { o.search.length_penalty = NAN; });
  refused(MOE_ERR_TOO_LONG, "max_tokens", [](auto& o) { o.search.max_tokens = 48; });
  const int32_t unknown[] = {64};
  refused(MOE_ERR_RANGE, "prefix", [&](auto& o) { o.prefix = unknown; });
  const int32_t long_prefix[] = {3, 4, 5};
  refused(MOE_ERR_RANGE, "prefix", [&](auto& o) {
    o.prefix = long_prefix;
    o.search.max_tokens = 2;
  });
  expect_refused(translate_with(*session, {}, wide(3)).status, MOE_ERR_RANGE, "source");
  expect_refused(translate_with(*session, {3, 64}, wide(3)).status, MOE_ERR_RANGE, "source");
  expect_refused(translate_with(*session, source_of(40, 1), wide(3)).status, MOE_ERR_TOO_LONG,
                 "40");
  const Box<Session> small = machine.session(for_beam(3, KvType::kF16, 8));
  expect_refused(translate_with(*small, source_of(8, 1), wide(3)).status, MOE_ERR_TOO_LONG, "8");
  expect_refused(session->eval(span(source), LogitRows::kNone, nullptr), MOE_ERR_STATE, "source");
  Perplexity of_text;
  expect_refused(measure_perplexity(*session, span(source), {}, &of_text), MOE_ERR_UNSUPPORTED,
                 "encoder-decoder");
  for (const int32_t beam : {-1, 65}) {
    expect_refused(machine.try_session(for_beam(beam)).status(), MOE_ERR_RANGE, "max_beam");
  }
}

TEST(TranslateRefuses, OtherModels) {
  for (const bool encoder : {false, true}) {
    const auto bytes = build_tiny_model(encoder ? tiny_encoder() : tiny_config());
    Machine machine(*bytes);
    const char* kind = encoder ? "an encoder:" : "a decoder:";
    expect_refused(translate_with(*machine.session(), {3}, wide(1)).status, MOE_ERR_UNSUPPORTED,
                   kind);
    expect_refused(machine.try_session(for_beam(2)).status(), MOE_ERR_UNSUPPORTED, "max_beam");
  }
}

TEST(TranslateRefuses, ADeviceWithMemoryOfItsOwn) {
  const auto bytes = build_tiny_model(tiny_translator());
  MemoryDevice device(system_allocator(), false);
  expect_refused(open_model(*bytes, device).status(), MOE_ERR_UNSUPPORTED, "only on the CPU");
}

TEST(TranslateRefuses, ToSaveOrForkASession) {
  const auto bytes = build_tiny_model(tiny_translator());
  Machine machine(*bytes);
  const Box<Session> session = machine.session();
  const SaveSink sink = {[](void*, const void*, size_t) -> Status { return {}; }, nullptr};
  expect_refused(save_session(*session, {1, 1}, sink), MOE_ERR_UNSUPPORTED, "encoder-decoder");
  expect_refused(fork_session(*session, machine.model(), system_allocator()).status(),
                 MOE_ERR_UNSUPPORTED, "encoder-decoder");
  const Box<Session> other = machine.session();
  expect_refused(copy_session(*session, 0, *other), MOE_ERR_UNSUPPORTED, "encoder-decoder");
}

TEST(TranslateConfig, IsCheckedFieldByField) {
  const auto refused = [](const char* word, const std::function<void(ModelConfig&)>& change) {
    ModelConfig c = tiny_translator();
    change(c);
    const Status status = validate(c);
    EXPECT_FALSE(status.ok()) << word;
    EXPECT_NE(std::string(status.text()).find(word), std::string::npos) << status.text();
  };
  EXPECT_TRUE(validate(tiny_translator()).ok());
  refused("n_encoder_layers", [](auto& c) { c.n_encoder_layers = 4; });
  refused("source_length", [](auto& c) { c.n_encoder_layers = 0; });
  refused("source_length", [](auto& c) { c.source_length = 0; });
  refused("start_token_id", [](auto& c) { c.start_token_id = -1; });
  refused("forced_token_id", [](auto& c) { c.forced_token_id = 64; });
  refused("eos_token_ids", [](auto& c) { c.eos_token_ids.clear(); });
  refused("positions", [](auto& c) { c.positions = PositionKind::kRope; });
  refused("tied_bias", [](auto& c) { c.tie_embeddings = false; });
  refused("cross_attention", [](auto& c) { c.layers[0].has_cross = true; });
  refused("cross_attention", [](auto& c) { c.layers[3].cross.causal = true; });
  refused("cross_attention", [](auto& c) { c.layers[3].has_cross = false; });
  refused("n_kv_heads", [](auto& c) { c.layers[3].cross.n_kv_heads = 3; });
  refused("cross_attention", [](auto& c) { c.layers[3].cross.q_latent = 8; });
  refused("attention.causal", [](auto& c) { c.layers[2].attention.causal = false; });
  refused("attention.causal", [](auto& c) { c.layers[1].attention.causal = true; });
}

TEST(TranslateMemory, IsCountedInFull) {
  ModelConfig config = tiny_translator();
  config.context_length = 16;  // a source may be longer than a text
  const auto bytes = build_tiny_model(config);
  Machine machine(*bytes);
  MemoryAccount account;
  ASSERT_TRUE(account_memory(machine.model(), {}, &account).ok());
  const Box<Session> session = machine.session();
  EXPECT_EQ(session->bytes(), account.session_bytes);
  TranslateOptions o = wide();
  const Found found = translate_with(*session, source_of(39, 1), o);
  EXPECT_TRUE(found.status.ok()) << found.status.text();
  ASSERT_TRUE(account_memory(machine.model(), for_beam(9), &account).ok());
  EXPECT_GT(account.session_bytes, session->bytes());
}

TEST(TranslateConfig, IsOfAVersionThatOlderReadersRefuse) {
  const auto bytes = build_tiny_model(tiny_translator());
  EXPECT_EQ(bytes->data()[10], 3);
}

}  // namespace
}  // namespace moe
