// SPDX-License-Identifier: MIT
// Encoding: hidden states, pooling, outputs of heads, and arguments that are refused.

#include <cmath>

#include "tests/run/tiny_run.h"

namespace moe {
namespace {

struct Outputs {
  Status status;
  Floats hidden, pooled, outputs;
};

Outputs encode(Session& session, const Tokens& tokens, const Tokens& rows = {}) {
  const ModelConfig& c = session.model().config();
  Outputs o;
  const size_t n = c.head.kind == HeadKind::kClasses ? 1
                   : rows.empty()                    ? tokens.size()
                                                     : rows.size();
  o.hidden.resize(tokens.size() * static_cast<size_t>(c.d_model));
  o.pooled.resize(static_cast<size_t>(c.d_model));
  o.outputs.resize(n * static_cast<size_t>(c.n_outputs()));
  Encoding e;
  e.hidden = o.hidden.data();
  e.pooled = o.pooled.data();
  e.outputs = o.outputs.data();
  e.rows = span(rows);
  o.status = session.encode(span(tokens), e);
  return o;
}

TEST(Encode, HasTheSameBitsOnAnyNumberOfThreads) {
  TinyOptions options;
  options.biases = true;
  const auto bytes = build_tiny_model(tiny_encoder(), options);
  const Tokens tokens = random_tokens(61, 64);
  Outputs first;
  for (const int threads : {1, 3}) {
    Machine machine(*bytes, threads);
    ASSERT_TRUE(machine.status().ok()) << machine.status().text();
    const Outputs found = encode(*machine.session(), tokens);
    ASSERT_TRUE(found.status.ok()) << found.status.text();
    if (threads == 1) first = found;
    EXPECT_EQ(found.hidden, first.hidden);
    EXPECT_EQ(found.outputs, first.outputs);
    EXPECT_EQ(found.pooled, first.pooled);
  }
}

TEST(Encode, ATokenSeesWhatComesAfterItAndNoTextBefore) {
  const auto bytes = build_tiny_model(tiny_encoder());
  Machine machine(*bytes);
  const Box<Session> session = machine.session();
  Tokens tokens = random_tokens(9, 64);
  const Outputs first = encode(*session, tokens);
  const Outputs again = encode(*session, tokens);
  EXPECT_EQ(first.hidden, again.hidden);
  EXPECT_EQ(session->position(), 0);
  tokens.back() ^= 1;
  const Outputs other = encode(*session, tokens);
  EXPECT_NE(Floats(first.hidden.begin(), first.hidden.begin() + 32),
            Floats(other.hidden.begin(), other.hidden.begin() + 32));
}

TEST(Encode, OutputsOfSomeRowsAreThoseOfAll) {
  const auto bytes = build_tiny_model(tiny_encoder());
  Machine machine(*bytes);
  const Box<Session> session = machine.session();
  const Tokens tokens = random_tokens(20, 64), rows = {0, 7, 8, 19};
  const Outputs all = encode(*session, tokens), some = encode(*session, tokens, rows);
  ASSERT_TRUE(some.status.ok()) << some.status.text();
  for (size_t i = 0; i < rows.size(); ++i) {
    for (size_t v = 0; v < 64; ++v) {
      ASSERT_EQ(some.outputs[i * 64 + v], all.outputs[static_cast<size_t>(rows[i]) * 64 + v]);
    }
  }
}

TEST(Encode, EveryHeadHasItsOutputs) {
  for (const HeadKind kind : {HeadKind::kClasses, HeadKind::kTags, HeadKind::kSpan}) {
    ModelConfig c = tiny_encoder();
    c.tie_embeddings = false;
    c.head = {kind, kind == HeadKind::kSpan ? 2 : 3, kind == HeadKind::kClasses, false,
              Activation::kTanh};
    const auto bytes = build_tiny_model(c);
    Machine machine(*bytes);
    ASSERT_TRUE(machine.status().ok()) << machine.status().text();
    const Outputs found = encode(*machine.session(), random_tokens(7, 64));
    EXPECT_TRUE(found.status.ok()) << found.status.text();
    EXPECT_NE(found.outputs[0], found.outputs[1]);
    if (kind == HeadKind::kClasses) continue;
    const Outputs some = encode(*machine.session(), random_tokens(7, 64), {1, 6});
    ASSERT_TRUE(some.status.ok()) << some.status.text();
    const size_t width = found.outputs.size() / 7;
    for (size_t i = 0; i < width; ++i) {
      EXPECT_EQ(some.outputs[i], found.outputs[width + i]);
      EXPECT_EQ(some.outputs[width + i], found.outputs[6 * width + i]);
    }
  }
}

TEST(Encode, BadArgumentsAreRefused) {
  const auto bytes = build_tiny_model(tiny_encoder());
  Machine machine(*bytes);
  const Box<Session> session = machine.session();
  const auto code = [&](const Tokens& tokens, const Tokens& rows = {}) {
    return encode(*session, tokens, rows).status.code();
  };
  EXPECT_EQ(code({}), MOE_ERR_RANGE);
  EXPECT_EQ(code(random_tokens(65, 64)), MOE_ERR_TOO_LONG);
  EXPECT_EQ(code({1, 64}), MOE_ERR_RANGE);
  EXPECT_EQ(code({1, 2, 3}, {0, 3}), MOE_ERR_RANGE);
  EXPECT_EQ(code({1, 2, 3}, {1, 1}), MOE_ERR_RANGE);
  SessionOptions small;
  small.chunk = 16;
  EXPECT_EQ(session->context(), 64);
  EXPECT_EQ(machine.session(small)->context(), 16);
  const Outputs cut = encode(*machine.session(small), random_tokens(17, 64));
  EXPECT_EQ(cut.status.code(), MOE_ERR_TOO_LONG);
  EXPECT_NE(std::string(cut.status.text()).find("--chunk"), std::string::npos);
  const Outputs most = encode(*session, random_tokens(65, 64));
  EXPECT_NE(std::string(most.status.text()).find("the limit is"), std::string::npos);
  small.context = 32;
  const Outputs grow = encode(*machine.session(small), random_tokens(33, 64));
  EXPECT_NE(std::string(grow.status.text()).find("(--context), at most 64"), std::string::npos);
  EXPECT_EQ(session->eval(span(random_tokens(3, 64)), LogitRows::kNone, nullptr).code(),
            MOE_ERR_UNSUPPORTED);
  const auto decoder = build_tiny_model(tiny_config());
  Machine other(*decoder);
  EXPECT_EQ(encode(*other.session(), {1, 2}).status.code(),
            MOE_ERR_UNSUPPORTED);  // a decoder has no outputs of a head
}

ModelConfig tiny_reranker(Pooling pooling) {
  ModelConfig c = tiny_encoder();
  c.tie_embeddings = false;
  c.second_positions = true;
  c.head = {.kind = HeadKind::kClasses,
            .n_labels = 2,
            .dense = true,
            .act = Activation::kTanh,
            .pooling = pooling};
  return c;
}

struct Scored {
  Status status;
  Floats hidden, outputs;
};

Scored score(Session& session, const Tokens& tokens, size_t second, bool with_hidden = true) {
  Scored s;
  s.hidden.resize(tokens.size() * static_cast<size_t>(session.model().config().d_model));
  s.outputs.resize(2);
  Encoding e;
  e.hidden = with_hidden ? s.hidden.data() : nullptr;
  e.outputs = s.outputs.data();
  e.second = second;
  s.status = session.encode(span(tokens), e);
  return s;
}

TEST(EncodePairs, TheSecondTextHasPositionsOfItsOwn) {
  const Tokens tokens = random_tokens(21, 64);
  Scored first;
  for (const int threads : {1, 3}) {
    const auto bytes = build_tiny_model(tiny_reranker(Pooling::kFirst));
    Machine machine(*bytes, threads);
    ASSERT_TRUE(machine.status().ok()) << machine.status().text();
    const Box<Session> session = machine.session();
    const Scored pair = score(*session, tokens, 8);
    ASSERT_TRUE(pair.status.ok()) << pair.status.text();
    EXPECT_NE(pair.outputs, score(*session, tokens, 0).outputs);
    EXPECT_NE(pair.outputs, score(*session, tokens, 9).outputs);
    if (threads == 1) first = pair;
    EXPECT_EQ(pair.hidden, first.hidden);
    EXPECT_EQ(pair.outputs, first.outputs);
  }
  // Where there are no such positions, a second text makes no difference.
  ModelConfig plain = tiny_reranker(Pooling::kFirst);
  plain.second_positions = false;
  const auto bytes = build_tiny_model(plain);
  Machine machine(*bytes);
  const Box<Session> session = machine.session();
  EXPECT_EQ(score(*session, tokens, 8).outputs, score(*session, tokens, 0).outputs);
}

TEST(EncodePairs, ClassesOfTheMeanDependOnEveryToken) {
  const auto bytes = build_tiny_model(tiny_reranker(Pooling::kMean));
  Machine machine(*bytes);
  ASSERT_TRUE(machine.status().ok()) << machine.status().text();
  const Box<Session> session = machine.session();
  const Tokens tokens = random_tokens(21, 64);
  const Scored mean = score(*session, tokens, 8);
  ASSERT_TRUE(mean.status.ok()) << mean.status.text();
  EXPECT_EQ(score(*session, tokens, 8, false).outputs, mean.outputs);
  const auto other = build_tiny_model(tiny_reranker(Pooling::kFirst));
  Machine first(*other);
  const Scored of_first = score(*first.session(), tokens, 8);
  EXPECT_EQ(of_first.hidden, mean.hidden);  // the same weights
  EXPECT_NE(of_first.outputs, mean.outputs);
  // The mean of one token is its own state.
  EXPECT_EQ(score(*session, {7}, 0).outputs, score(*first.session(), {7}, 0).outputs);
}

TEST(EncodePairs, BadArgumentsAreRefused) {
  const auto bytes = build_tiny_model(tiny_reranker(Pooling::kMean));
  Machine machine(*bytes);
  const Scored none = score(*machine.session(), {1, 2, 3}, 3);
  EXPECT_EQ(none.status.code(), MOE_ERR_RANGE);
  EXPECT_STREQ(none.status.text(), "second: expected below the number of tokens, 3, found 3");
  const auto decoder = build_tiny_model(tiny_config());
  Machine other(*decoder);
  const Tokens tokens = {1, 2, 3};
  Floats hidden(3 * 64);
  Encoding e;
  e.hidden = hidden.data();
  e.second = 1;
  EXPECT_EQ(other.session()->encode(span(tokens), e).code(), MOE_ERR_UNSUPPORTED);
}

struct States {
  Status status;
  Floats hidden, mean, first, last;
};

// The hidden states of a text and its pooled vectors, each from a separate call.
States states_of(Session& session, const Tokens& tokens) {
  const auto d = static_cast<size_t>(session.model().config().d_model);
  States s;
  s.hidden.resize(tokens.size() * d);
  s.hidden.reserve(1);  // not null for no tokens
  for (Floats* f : {&s.mean, &s.first, &s.last}) f->resize(d);
  Encoding e;
  e.hidden = s.hidden.data();
  s.status = session.encode(span(tokens), e);
  e.hidden = nullptr;
  const std::pair<Pooling, Floats*> poolings[] = {
      {Pooling::kMean, &s.mean}, {Pooling::kFirst, &s.first}, {Pooling::kLast, &s.last}};
  for (const auto& [pooling, to] : poolings) {
    e.pooling = pooling;
    e.pooled = to->data();
    if (s.status.ok()) s.status = session.encode(span(tokens), e);
  }
  return s;
}

TEST(Encode, AnEncoderPoolsToo) {
  const auto bytes = build_tiny_model(tiny_encoder());
  Machine machine(*bytes);
  const States s = states_of(*machine.session(), random_tokens(9, 64));
  ASSERT_TRUE(s.status.ok()) << s.status.text();
  EXPECT_EQ(s.first, Floats(s.hidden.begin(), s.hidden.begin() + 32));
  EXPECT_EQ(s.last, Floats(s.hidden.end() - 32, s.hidden.end()));
  EXPECT_NE(s.mean, s.last);
}

// A decoder's hidden states are those after the final norm, and pooling takes their mean, first and
// last.
TEST(Encode, ADecodersStatesAreWhatItsHeadSees) {
  ModelConfig config = tiny_config();
  const auto bytes = build_tiny_model(config);
  Machine machine(*bytes);
  ASSERT_TRUE(machine.status().ok()) << machine.status().text();
  ASSERT_TRUE(config.final_norm);
  const Tokens tokens = random_tokens(21, machine.vocab_size());
  SessionOptions options;
  options.chunk = 8;
  const Box<Session> session = machine.session(options);
  const States s = states_of(*session, tokens);
  ASSERT_TRUE(s.status.ok()) << s.status.text();
  EXPECT_EQ(session->position(), 0);
  const auto d = static_cast<size_t>(config.d_model);
  for (size_t i = 0; i < d; ++i) {
    double sum = 0;
    for (size_t t = 0; t < tokens.size(); ++t) sum += static_cast<double>(s.hidden[t * d + i]);
    EXPECT_EQ(s.mean[i], static_cast<float>(sum / 21));
    EXPECT_EQ(s.first[i], s.hidden[i]);
    EXPECT_EQ(s.last[i], s.hidden[20 * d + i]);
  }
  // After the final norm the mean square is not close to 0.
  double square = 0;
  for (const float v : s.last) square += static_cast<double>(v) * static_cast<double>(v);
  EXPECT_GT(square / static_cast<double>(d), 0.01);
}

TEST(Encode, ADecodersTokenSeesWhatIsInFrontOfItAlone) {
  const auto bytes = build_tiny_model(tiny_config());
  Machine machine(*bytes);
  const Tokens tokens = random_tokens(20, machine.vocab_size());
  const Tokens front(tokens.begin(), tokens.begin() + 13), back(tokens.begin() + 13, tokens.end());
  SessionOptions small;
  small.chunk = 3;
  const States whole = states_of(*machine.session(), tokens);
  EXPECT_EQ(states_of(*machine.session(small), tokens).hidden, whole.hidden);
  const States part = states_of(*machine.session(), front);
  const size_t n_front = part.hidden.size();
  EXPECT_TRUE(std::equal(part.hidden.begin(), part.hidden.end(), whole.hidden.begin()));
  // The session's tokens precede the text, and encoding changes neither them nor their logits.
  const Box<Session> session = machine.session();
  ASSERT_TRUE(session->eval(span(front), LogitRows::kNone, nullptr).ok());
  TokenLogprob before{}, after{};
  ASSERT_TRUE(session->sample({}, &before, nullptr, 0).ok());
  EXPECT_EQ(
      states_of(*session, back).hidden,
      Floats(whole.hidden.begin() + static_cast<std::ptrdiff_t>(n_front), whole.hidden.end()));
  EXPECT_EQ(session->position(), 13);
  ASSERT_TRUE(session->sample({}, &after, nullptr, 0).ok());
  EXPECT_EQ(after.token, before.token);
  EXPECT_EQ(after.logprob, before.logprob);
  EXPECT_EQ(eval_all(*session, back), [&] {
    const Box<Session> fresh = machine.session();
    (void)eval_all(*fresh, front);
    return eval_all(*fresh, back);
  }());
}

TEST(Encode, BadArgumentsOfADecoderAreRefused) {
  const auto bytes = build_tiny_model(tiny_config());
  Machine machine(*bytes);
  SessionOptions options;
  options.context = 10;
  const Box<Session> session = machine.session(options);
  EXPECT_EQ(states_of(*session, {}).status.code(), MOE_ERR_RANGE);
  EXPECT_EQ(states_of(*session, {1, 64}).status.code(), MOE_ERR_RANGE);
  EXPECT_EQ(states_of(*session, random_tokens(11, 64)).status.code(), MOE_ERR_TOO_LONG);
  EXPECT_TRUE(states_of(*session, random_tokens(10, 64)).status.ok());
  const Outputs outputs = encode(*session, {1, 2});
  EXPECT_EQ(outputs.status.code(), MOE_ERR_UNSUPPORTED);
  EXPECT_NE(std::string(outputs.status.text()).find("logits"), std::string::npos);
}

// Two layers with a window of 3 carry a token's influence two positions to each side.
TEST(Encode, AnEncodersWindowIsAsWideOnBothSides) {
  ModelConfig c = tiny_encoder();
  for (LayerConfig& layer : c.layers) layer.attention.window = 3;
  const auto bytes = build_tiny_model(c);
  Machine machine(*bytes);
  ASSERT_TRUE(machine.status().ok()) << machine.status().text();
  ASSERT_EQ(c.n_layers(), 2);
  Tokens tokens = random_tokens(20, 64);
  const Floats before = states_of(*machine.session(), tokens).hidden;
  tokens[9] = (tokens[9] + 1) % 64;
  const Floats after = states_of(*machine.session(), tokens).hidden;
  for (size_t i = 0; i < tokens.size(); ++i) {
    const auto row = [&](const Floats& f) {
      return Floats(f.begin() + static_cast<long>(32 * i),
                    f.begin() + static_cast<long>(32 * i + 32));
    };
    EXPECT_EQ(row(before) == row(after), i < 7 || i > 11) << i;
  }
}

TEST(Encode, AWindowOfTheWholeTextIsNone) {
  ModelConfig c = tiny_encoder();
  const Tokens tokens = random_tokens(20, 64);
  const auto whole = build_tiny_model(c);
  for (LayerConfig& layer : c.layers) layer.attention.window = 39;
  const auto windowed = build_tiny_model(c);
  Machine a(*whole), b(*windowed);
  EXPECT_EQ(states_of(*a.session(), tokens).hidden, states_of(*b.session(), tokens).hidden);
  c.layers[1].attention.window = 4;
  EXPECT_EQ(validate(c).code(), MOE_ERR_ARGUMENT);
}

TEST(Encode, NormalisedVectorsHaveTheLengthOne) {
  for (const bool encoder : {true, false}) {
    const auto bytes = build_tiny_model(encoder ? tiny_encoder() : tiny_config());
    Machine machine(*bytes);
    const Tokens tokens = random_tokens(9, 64);
    Floats plain(32), unit(32);
    Encoding e;
    e.pooled = plain.data();
    ASSERT_TRUE(machine.session()->encode(span(tokens), e).ok());
    e.pooled = unit.data();
    e.normalise = true;
    ASSERT_TRUE(machine.session()->encode(span(tokens), e).ok());
    double length = 0, unit_length = 0;
    for (const float v : plain) length += double{v} * double{v};
    for (const float v : unit) unit_length += double{v} * double{v};
    EXPECT_NEAR(unit_length, 1, 1e-6);
    for (size_t i = 0; i < 32; ++i) EXPECT_NEAR(unit[i], plain[i] / std::sqrt(length), 1e-6);
  }
}

TEST(Encode, ALayerWithACausalMaskAmongOthersIsNoEncoder) {
  ModelConfig c = tiny_encoder();
  c.layers[1].attention.causal = true;
  EXPECT_EQ(validate(c).code(), MOE_ERR_ARGUMENT);
  c = tiny_config();
  c.head = {HeadKind::kTags, 3, false, false, Activation::kGelu};
  c.tie_embeddings = false;
  EXPECT_EQ(validate(c).code(), MOE_ERR_ARGUMENT);
}

}  // namespace
}  // namespace moe
