// SPDX-License-Identifier: MIT
#include "src/run/saved.h"

#include <cstring>

#include "formats/moe/checksum.h"
#include "src/run/session_state.h"
#include "tests/run/tiny_run.h"
#include "tests/support/router_text.h"

namespace moe {
namespace {

using Bytes = std::vector<uint8_t>;

ModelFileName name_of(const Session& session) {
  const FileHeader& header = session.model().file().header();
  return {header.metadata_xxh64, header.file_bytes};
}

struct Saving {
  Status status;
  Bytes bytes;
};

Saving save(Session& session, size_t most = ~size_t{0}) {
  struct Sink {
    Bytes bytes;
    size_t most;
    static Status write(void* user, const void* from, size_t n) {
      auto* s = static_cast<Sink*>(user);
      if (s->bytes.size() + n > s->most) return Status::error(MOE_ERR_IO, "full");
      const auto* b = static_cast<const uint8_t*>(from);
      s->bytes.insert(s->bytes.end(), b, b + n);
      return {};
    }
  } sink{{}, most};
  const Status status = save_session(session, name_of(session), {Sink::write, &sink});
  return {status, std::move(sink.bytes)};
}

Status read_bytes(void* user, uint64_t offset, void* to, size_t n) {
  const auto& bytes = *static_cast<const Bytes*>(user);
  EXPECT_LE(offset + n, bytes.size());
  if (n != 0) std::memcpy(to, bytes.data() + offset, n);
  return {};
}

Status load(Session& session, Bytes bytes) {
  return load_session(session, name_of(session), {bytes.size(), read_bytes, &bytes});
}

Box<Session> session_of(Machine& machine, KvType kv, int32_t context = 0, int32_t chunk = 0) {
  SessionOptions options;
  options.kv = kv;
  options.context = context;
  options.chunk = chunk;
  return machine.session(options);
}

// Different cache layouts: heads of 8 and of 20 elements, a latent, a layer that guesses, layers
// that share the keys of others of another size, a window.
std::vector<TinyKind> kinds() {
  return {{"plain", [](ModelConfig&, TinyOptions&) {}},
          {"heads_of_20",
           [](ModelConfig& c, TinyOptions&) {
             each_attention(c, [](AttentionConfig& a) { a.head_dim = 20; });
           }},
          {"latent", [](ModelConfig& c, TinyOptions& o) { set_latent(c, o); }},
          {"guesses",
           [](ModelConfig& c, TinyOptions&) {
             EXPECT_TRUE(c.layers.push(c.layers[0]).ok());
             c.layers.back().attention.head_dim = 20;
             c.n_predictions = 1;
           }},
          {"latent_and_guesses",
           [](ModelConfig& c, TinyOptions& o) {
             EXPECT_TRUE(c.layers.push(c.layers[0]).ok());
             set_latent(c, o);
             c.n_predictions = 1;
           }},
          {"short_conv",
           [](ModelConfig& c, TinyOptions&) { set_mixer(c.layers[0], "short_conv", {4}); }},
          {"keys_of_another_layer",
           [](ModelConfig& c, TinyOptions&) {
             c.layers[0].attention.head_dim = 20;
             for (const int32_t source : {0, 1}) {
               EXPECT_TRUE(c.layers.push(c.layers[static_cast<size_t>(source)]).ok());
               c.layers.back().attention.kv_layer = source;
             }
           }},
          {"window", [](ModelConfig& c, TinyOptions&) {
             each_attention(c, [](AttentionConfig& a) { a.window = 30; });
           }}};
}

std::vector<KvType> types_of(const TinyKind& kind) {
  std::vector<KvType> types = {KvType::kF16, KvType::kInt8, KvType::kF32};
  if (kind.name.starts_with("latent")) types.push_back(KvType::kLatent);
  return types;
}

class SavedKinds : public testing::TestWithParam<TinyKind> {};

TEST_P(SavedKinds, ARestoredSessionContinuesIdentically) {
  const auto bytes = build_tiny_kind(GetParam());
  Machine machine(*bytes, 2), other(*bytes, 1, "scalar");
  ASSERT_TRUE(machine.status().ok()) << machine.status().text();
  const Tokens text = random_tokens(150, machine.vocab_size());
  for (const KvType kv : types_of(GetParam())) {
    for (const size_t n : {size_t{1}, size_t{64}, size_t{130}}) {
      const Box<Session> from = session_of(machine, kv, 160);
      ASSERT_TRUE(from->eval(span(text, 0, n), LogitRows::kNone, nullptr).ok());
      const Saving saved = save(*from);
      ASSERT_TRUE(saved.status.ok()) << saved.status.text();
      const Tokens rest(text.begin() + static_cast<std::ptrdiff_t>(n), text.end());
      const Floats expected = eval_all(*from, rest);
      // Into a session with another context, another instruction set and another text.
      const Box<Session> to = session_of(other, kv, 151, 9);
      ASSERT_TRUE(to->eval(span(text, 60, 77), LogitRows::kNone, nullptr).ok());
      const Status status = load(*to, saved.bytes);
      ASSERT_TRUE(status.ok()) << status.text();
      EXPECT_EQ(Tokens(to->tokens().begin(), to->tokens().end()),
                Tokens(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(n)));
      EXPECT_EQ(save(*to).bytes, saved.bytes);
      EXPECT_EQ(eval_all(*to, rest), expected) << n;
    }
  }
}

TEST_P(SavedKinds, AForkIsIndependent) {
  const auto bytes = build_tiny_kind(GetParam());
  Machine machine(*bytes);
  const Tokens text = random_tokens(70, machine.vocab_size());
  const Tokens one = random_tokens(20, machine.vocab_size(), 2);
  const Tokens two = random_tokens(20, machine.vocab_size(), 3);
  for (const KvType kv : types_of(GetParam())) {
    Box<Session> first = session_of(machine, kv, 100);
    ASSERT_TRUE(first->eval(span(text), LogitRows::kNone, nullptr).ok());
    auto made = fork_session(*first, machine.model(), system_allocator());
    ASSERT_TRUE(made.ok()) << made.status().text();
    Box<Session> second = std::move(made.value());
    EXPECT_EQ(second->context(), 100);
    EXPECT_EQ(second->position(), 70);
    const Floats of_one = eval_all(*first, one);
    const Floats of_two = eval_all(*second, two);
    ASSERT_TRUE(first->rewind(70).ok());
    EXPECT_EQ(eval_all(*first, two), of_two);
    first.reset();
    ASSERT_TRUE(second->rewind(70).ok());
    EXPECT_EQ(eval_all(*second, one), of_one);
  }
}

// Into a session with another context and another text; the source goes on as before.
TEST_P(SavedKinds, ABeginningIsCopied) {
  const auto bytes = build_tiny_kind(GetParam());
  Machine machine(*bytes);
  const Tokens text = random_tokens(140, machine.vocab_size());
  const Tokens more = random_tokens(20, machine.vocab_size(), 2);
  for (const KvType kv : types_of(GetParam())) {
    const Box<Session> from = session_of(machine, kv, 150);
    const Box<Session> to = session_of(machine, kv, 160, 9);
    const Floats logits = eval_all(*from, text);
    ASSERT_TRUE(to->eval(span(more), LogitRows::kNone, nullptr).ok());
    for (const size_t n : {size_t{140}, size_t{129}, size_t{64}, size_t{1}, size_t{0}}) {
      const Status status = copy_session(*from, static_cast<int32_t>(n), *to);
      ASSERT_TRUE(status.ok()) << status.text();
      EXPECT_EQ(to->position(), static_cast<int32_t>(n));
      const Tokens rest(text.begin() + static_cast<std::ptrdiff_t>(n), text.end());
      const auto at = static_cast<std::ptrdiff_t>(n * logits.size() / text.size());
      EXPECT_EQ(eval_all(*to, rest), Floats(logits.begin() + at, logits.end())) << n;
    }
    EXPECT_EQ(eval_all(*from, Tokens(more.begin(), more.begin() + 9)),
              eval_all(*to, Tokens(more.begin(), more.begin() + 9)));
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, SavedKinds, testing::ValuesIn(kinds()),
                         [](const auto& kind) { return kind.param.name; });

class SavedTest : public testing::Test {
 protected:
  SavedTest() : bytes_(build_tiny_kind(kinds()[0])), machine_(*bytes_) {}
  void SetUp() override {
    ASSERT_TRUE(machine_.status().ok());
    session_ = session_of(machine_, KvType::kF16, 80);
    text_ = random_tokens(12, machine_.vocab_size());
    ASSERT_TRUE(session_->eval(span(text_), LogitRows::kNone, nullptr).ok());
    saved_ = save(*session_).bytes;
  }
  std::unique_ptr<MemorySink> bytes_;
  Machine machine_;
  Box<Session> session_;
  Tokens text_;
  Bytes saved_;
};

TEST_F(SavedTest, AnEmptySessionIsSavedToo) {
  const Box<Session> empty = machine_.session();
  const Saving saved = save(*empty);
  ASSERT_TRUE(saved.status.ok());
  EXPECT_EQ(saved.bytes.size(), 72u);
  ASSERT_TRUE(load(*session_, saved.bytes).ok());
  EXPECT_EQ(session_->position(), 0);
}

TEST_F(SavedTest, LogitsComeBackWithTheText) {
  TokenLogprob before{}, after{};
  ASSERT_TRUE(session_->sample({}, &before, nullptr, 0).ok());
  const Box<Session> other = machine_.session();
  ASSERT_TRUE(load(*other, saved_).ok());
  ASSERT_TRUE(other->sample({}, &after, nullptr, 0).ok());
  EXPECT_EQ(after.token, before.token);
  EXPECT_EQ(after.logprob, before.logprob);
}

TEST_F(SavedTest, EveryCutIsRefused) {
  for (size_t n = 0; n < saved_.size(); n += n < 80 ? 1 : 37) {
    const Status status =
        load(*session_, Bytes(saved_.begin(), saved_.begin() + static_cast<std::ptrdiff_t>(n)));
    EXPECT_EQ(status.code(), MOE_ERR_FORMAT) << n << status.text();
    EXPECT_EQ(session_->position(), 12);  // unchanged
  }
  Bytes longer = saved_;
  longer.push_back(0);
  EXPECT_EQ(load(*session_, longer).code(), MOE_ERR_FORMAT);
}

TEST_F(SavedTest, EveryFlippedBitIsFound) {
  for (size_t i = 0; i < saved_.size(); i += i < 80 ? 1 : 13) {
    Bytes bad = saved_;
    bad[i] ^= static_cast<uint8_t>(1 << i % 8);
    const Status status = load(*session_, bad);
    EXPECT_FALSE(status.ok()) << i;
    const moe_status expected = i < 8 ? MOE_ERR_FORMAT : i < 12 ? MOE_ERR_VERSION : MOE_ERR_CORRUPT;
    EXPECT_EQ(status.code(), expected) << i << ": " << status.text();
    EXPECT_EQ(session_->position(), i < 64 ? 12 : 0);
    ASSERT_TRUE(load(*session_, saved_).ok());
  }
}

/// A session whose layer for guesses has seen the whole text.
class SavedGuesses : public testing::Test {
 protected:
  SavedGuesses() : bytes_(build_tiny_kind(kinds()[3])), machine_(*bytes_) {}
  void SetUp() override {
    ASSERT_TRUE(machine_.status().ok()) << machine_.status().text();
    session_ = session_of(machine_, KvType::kF16, 80);
    text_ = random_tokens(kTokens, machine_.vocab_size());
    SessionCall::state_of(*session_).predictions.follows = true;
    ASSERT_TRUE(session_->eval(span(text_, 0, 25), LogitRows::kNone, nullptr).ok());
    ASSERT_TRUE(session_->eval(span(text_, 25), LogitRows::kNone, nullptr).ok());
    saved_ = save(*session_).bytes;
    const Predictions& own = SessionCall::state_of(*session_).predictions;
    ASSERT_EQ(own.begin(), 0);
    ASSERT_EQ(own.done(), kDone);
    ASSERT_EQ(own.n_kept(), size_t{kTokens} - kDone);
  }
  size_t at_numbers() const { return saved_.size() - kMore; }
  /// The file with other numbers of the layer, and the hash that is then right.
  Bytes with_numbers(int32_t begin, int32_t done, int32_t n_kept) const {
    Bytes bytes = saved_;
    const int32_t numbers[4] = {begin, done, n_kept, 0};
    size_t at = at_numbers();
    std::memcpy(bytes.data() + at, numbers, sizeof numbers);
    uint64_t hash = 0;
    std::memcpy(&hash, bytes.data() + at - sizeof hash, sizeof hash);
    const auto take = [&](size_t n) {
      hash = XXH64(bytes.data() + at, n, hash);
      at += n;
    };
    take(sizeof numbers);
    for (int side = 0; side < 2 * kHeads; ++side) take(kDone * 20 * 2);
    take((kTokens - kDone) * 32 * 4);
    std::memcpy(bytes.data() + at, &hash, sizeof hash);
    EXPECT_EQ(at + sizeof hash, bytes.size());
    return bytes;
  }
  static constexpr int kHeads = 2;
  static constexpr size_t kTokens = 30, kDone = 24;
  static constexpr size_t kMore = 16 + kDone * 2 * kHeads * 20 * 2 + (kTokens - kDone) * 32 * 4 + 8;
  std::unique_ptr<MemorySink> bytes_;
  Machine machine_;
  Box<Session> session_;
  Tokens text_;
  Bytes saved_;
};

TEST_F(SavedGuesses, CutsAndFlippedBitsAreFound) {
  EXPECT_EQ(saved_[10], 1);  // the minor version
  for (size_t i = at_numbers() - 8; i < saved_.size(); i += i < at_numbers() + 20 ? 1 : 29) {
    const Bytes cut(saved_.begin(), saved_.begin() + static_cast<std::ptrdiff_t>(i));
    EXPECT_EQ(load(*session_, cut).code(), MOE_ERR_FORMAT) << i;
    EXPECT_EQ(session_->position(), static_cast<int32_t>(kTokens));
    Bytes bad = saved_;
    bad[i] ^= static_cast<uint8_t>(1 << i % 8);
    const Status status = load(*session_, bad);
    EXPECT_TRUE(status.code() == MOE_ERR_CORRUPT || status.code() == MOE_ERR_FORMAT)
        << i << ": " << status.text();
    EXPECT_EQ(session_->position(), 0);
    EXPECT_EQ(SessionCall::state_of(*session_).predictions.end(), 0);
    ASSERT_TRUE(load(*session_, saved_).ok());
    EXPECT_EQ(save(*session_).bytes, saved_);
  }
}

TEST_F(SavedGuesses, NumbersThatDoNotFitAreRefused) {
  const auto done = static_cast<int32_t>(kDone), kept = static_cast<int32_t>(kTokens - kDone);
  EXPECT_EQ(with_numbers(0, done, kept), saved_);
  const int32_t wrong[][3] = {
      {1, done, kept},         {0, done + 1, kept},     {0, done, kept - 1}, {-1, done - 1, kept},
      {0, done + 1, kept - 1}, {1, done + 1, kept},     {5, 4, kept},        {0, done, -1},
      {0, INT32_MAX, kept},    {INT32_MIN, done, kept}, {0, 0, 30}};
  for (const auto& numbers : wrong) {
    const Status status = load(*session_, with_numbers(numbers[0], numbers[1], numbers[2]));
    EXPECT_EQ(status.code(), MOE_ERR_FORMAT) << status.text();
    EXPECT_NE(std::string(status.text()).find("the layer that guesses"), std::string::npos)
        << status.text();
    EXPECT_EQ(session_->position(), 0);
  }
}

// A session of a device that leaves the layer out, and one of an earlier version, has no rows of
// it.
TEST_F(SavedGuesses, AFileMayLackThemAndADeviceToo) {
  TinyKind without = kinds()[3];
  without.change = [](ModelConfig&, TinyOptions&) {};
  const auto bytes = build_tiny_kind(without);
  Machine machine(*bytes);
  const Box<Session> other = session_of(machine, KvType::kF16, 80);
  ASSERT_TRUE(other->eval(span(text_), LogitRows::kNone, nullptr).ok());
  Bytes plain;
  const SaveSink sink = {[](void* user, const void* from, size_t n) -> Status {
                           const auto* const b = static_cast<const uint8_t*>(from);
                           static_cast<Bytes*>(user)->insert(static_cast<Bytes*>(user)->end(), b,
                                                             b + n);
                           return {};
                         },
                         &plain};
  ASSERT_TRUE(save_session(*other, name_of(*session_), sink).ok());
  EXPECT_EQ(plain.size() + kMore, saved_.size());
  EXPECT_EQ(plain[10], 0);
  ASSERT_TRUE(load(*session_, plain).ok());
  const Predictions& own = SessionCall::state_of(*session_).predictions;
  EXPECT_EQ(own.n_kept(), 0u);
  ASSERT_TRUE(session_->eval(span(text_, 0, 3), LogitRows::kNone, nullptr).ok());
  EXPECT_EQ(own.begin(), static_cast<int32_t>(kTokens));
  ASSERT_TRUE(other->reset().ok());
  const Status status =
      load_session(*other, name_of(*session_), {saved_.size(), read_bytes, &saved_});
  ASSERT_TRUE(status.ok()) << status.text();
  EXPECT_EQ(Tokens(other->tokens().begin(), other->tokens().end()), text_);
}

TEST_F(SavedTest, AnotherModelIsNamed) {
  TinyKind other = kinds()[0];
  other.change = [](ModelConfig&, TinyOptions& o) { o.seed = 2; };
  const auto bytes = build_tiny_kind(other);
  Machine machine(*bytes);
  const Status status = load(*machine.session(), saved_);
  EXPECT_EQ(status.code(), MOE_ERR_ARGUMENT);
  EXPECT_NE(std::string(status.text()).find("another model file"), std::string::npos);
}

TEST_F(SavedTest, WhatDoesNotFitIsRefused) {
  const Box<Session> int8 = session_of(machine_, KvType::kInt8);
  EXPECT_EQ(load(*int8, saved_).code(), MOE_ERR_ARGUMENT);
  const Box<Session> small = session_of(machine_, KvType::kF16, 11);
  EXPECT_EQ(load(*small, saved_).code(), MOE_ERR_TOO_LONG);
  const Box<Session> enough = session_of(machine_, KvType::kF16, 12);
  EXPECT_TRUE(load(*enough, saved_).ok());
}

TEST(Saved, ALatentCacheDoesNotLoadIntoAnotherType) {
  const auto bytes =
      build_tiny_kind({"latent", [](ModelConfig& c, TinyOptions& o) { set_latent(c, o); }});
  Machine machine(*bytes);
  ASSERT_TRUE(machine.status().ok()) << machine.status().text();
  const Box<Session> latent = session_of(machine, KvType::kLatent);
  const Box<Session> f16 = session_of(machine, KvType::kF16);
  const Tokens text = random_tokens(10, machine.vocab_size());
  ASSERT_TRUE(latent->eval(span(text), LogitRows::kNone, nullptr).ok());
  const Saving saved = save(*latent);
  // Ten tokens: the ids, and 12 + 4 and 21 + 4 numbers of two bytes, between a header and a
  // checksum.
  EXPECT_EQ(saved.bytes.size(), 64u + 10 * (4 + 2 * (16 + 25)) + 8);
  EXPECT_STREQ(load(*f16, saved.bytes).text(),
               "saved session: keys and values are latent, those of this session f16");
}

TEST_F(SavedTest, PositionsThatDependOnTheContextNeedTheSameOne) {
  TinyKind longrope = kinds()[0];
  longrope.change = [](ModelConfig& c, TinyOptions&) {
    static const float kFactors[16] = {1, 1.5f, 2, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    each_attention(c, [](AttentionConfig& a) {
      a.rope.scaling = RopeScaling::kLongrope;
      a.rope.original_context = 32;
      a.rope.short_factor = kFactors;
      a.rope.long_factor = kFactors + 4;
    });
  };
  const auto bytes = build_tiny_kind(longrope);
  Machine machine(*bytes);
  ASSERT_TRUE(machine.status().ok()) << machine.status().text();
  const Box<Session> from = session_of(machine, KvType::kF16, 30);
  ASSERT_TRUE(from->eval(span(text_), LogitRows::kNone, nullptr).ok());
  const Bytes saved = save(*from).bytes;
  const Box<Session> other = session_of(machine, KvType::kF16, 60);
  const Status status = load(*other, saved);
  EXPECT_EQ(status.code(), MOE_ERR_ARGUMENT);
  EXPECT_NE(std::string(status.text()).find("context of 30"), std::string::npos) << status.text();
  const Box<Session> same = session_of(machine, KvType::kF16, 30);
  EXPECT_TRUE(load(*same, saved).ok());
}

TEST_F(SavedTest, AWriterThatFailsAndAReaderThatFailsSaySo) {
  for (const size_t most : {size_t{0}, size_t{64}, saved_.size() - 1}) {
    EXPECT_EQ(save(*session_, most).status.code(), MOE_ERR_IO);
    EXPECT_EQ(session_->position(), 12);
  }
  struct Failing {
    const Bytes* bytes;
    size_t good;
    static Status read(void* user, uint64_t offset, void* to, size_t n) {
      auto* f = static_cast<Failing*>(user);
      if (f->good-- == 0) return Status::error(MOE_ERR_IO, "gone");
      std::memcpy(to, f->bytes->data() + offset, n);
      return {};
    }
  };
  for (const size_t good : {size_t{0}, size_t{1}, size_t{3}}) {
    ASSERT_TRUE(load(*session_, saved_).ok());
    Failing failing{&saved_, good};
    EXPECT_EQ(load_session(*session_, name_of(*session_), {saved_.size(), Failing::read, &failing})
                  .code(),
              MOE_ERR_IO);
    EXPECT_EQ(session_->position(), good == 0 ? 12 : 0);
  }
}

TEST_F(SavedTest, AForkKeepsTheRouter) {
  ASSERT_TRUE(session_->reset().ok());
  ASSERT_TRUE(set_router(*session_, "topk:1").ok());
  ASSERT_TRUE(session_->eval(span(text_), LogitRows::kNone, nullptr).ok());
  auto made = fork_session(*session_, machine_.model(), system_allocator());
  ASSERT_TRUE(made.ok());
  const Tokens more = random_tokens(9, machine_.vocab_size(), 5);
  EXPECT_EQ(eval_all(*made.value(), more), eval_all(*session_, more));
  EXPECT_EQ(made.value()->router(1)->k, 1);
}

TEST_F(SavedTest, CopiesThatCannotBeMadeChangeNothing) {
  const auto refused = [&](Session& to, int32_t n, moe_status code, const char* text) {
    const Tokens before(to.tokens().begin(), to.tokens().end());
    const Status status = copy_session(*session_, n, to);
    EXPECT_EQ(status.code(), code);
    EXPECT_NE(std::string(status.text()).find(text), std::string::npos) << status.text();
    EXPECT_EQ(Tokens(to.tokens().begin(), to.tokens().end()), before);
  };
  const Box<Session> other = session_of(machine_, session_->options().kv, 10);
  ASSERT_TRUE(other->eval(span(text_, 0, 3), LogitRows::kNone, nullptr).ok());
  refused(*other, -1, MOE_ERR_RANGE, "n_positions: expected 0..12, found -1");
  refused(*other, 13, MOE_ERR_RANGE, "n_positions: expected 0..12, found 13");
  refused(*other, 11, MOE_ERR_TOO_LONG, "context holds 10, found 11");
  const Box<Session> small = session_of(machine_, KvType::kInt8);
  refused(*small, 3, MOE_ERR_ARGUMENT, "expected the KV type of the source, f16, found int8");
  Machine machine(*bytes_);
  const Box<Session> foreign = session_of(machine, session_->options().kv);
  refused(*foreign, 3, MOE_ERR_ARGUMENT, "same model");
  refused(*session_, 3, MOE_ERR_STATE, "");  // one call of a session at a time
}

TEST(Saved, AnEncoderCannotBeSaved) {
  const auto bytes = build_tiny_model(tiny_encoder());
  Machine machine(*bytes);
  const Box<Session> session = machine.session();
  EXPECT_EQ(save(*session).status.code(), MOE_ERR_UNSUPPORTED);
  EXPECT_EQ(load(*session, Bytes(100)).code(), MOE_ERR_UNSUPPORTED);
  const Box<Session> other = machine.session();
  EXPECT_EQ(copy_session(*session, 0, *other).code(), MOE_ERR_UNSUPPORTED);
}

}  // namespace
}  // namespace moe
