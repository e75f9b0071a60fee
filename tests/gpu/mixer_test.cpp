// SPDX-License-Identifier: MIT
// Token mixers on the CUDA device: each has the bits of the CPU, and the same fault.

#include <cmath>

#include "kernels/mixers/table.h"
#include "src/run/saved.h"
#include "tests/gpu/gpu_machine.h"
#include "tests/gpu/on_device.h"
#include "tests/kernels/random_floats.h"
#include "tests/support/cpu_devices.h"

namespace moe {
namespace {

struct GpuMixerCase {
  const char* mixer;
  int32_t d_model;
  std::vector<float> params;
};

// Single numbers, odd sizes, several heads to a group, the sizes of real models, the largest.
const std::vector<GpuMixerCase> kGpuMixerCases = {
    {"gated_delta", 8, {1, 1, 1, 1, 1}},
    {"gated_delta", 8, {2, 6, 5, 7, 4}},
    {"gated_delta", 8, {3, 3, 16, 33, 64, 1e-5f, 2}},
    {"gated_delta", 8, {1, 2, 128, 128, 4}},
    {"gated_delta", 8, {1, 1, 256, 256, 2}},
    {"kimi_delta", 8, {1, 1, 1, 1, 1}},
    {"kimi_delta", 8, {3, 5, 7, 4, 6}},
    {"kimi_delta", 8, {3, 5, 7, 4, 0, 1e-5f, -5}},
    {"kimi_delta", 8, {2, 128, 128, 4, 16}},
    {"lightning", 8, {1, 1}},
    {"lightning", 8, {3, 33, 1e-3f}},
    {"lightning", 8, {2, 256}},
    {"mamba2", 8, {1, 1, 1, 1, 1}},
    {"mamba2", 8, {6, 17, 3, 15, 4}},
    {"mamba2", 8, {3, 33, 1, 16, 64, 0.1f, 0.5f, 1e-3f}},
    {"mamba2", 8, {4, 64, 1, 128, 4}},
    {"mamba2", 8, {1, 256, 1, 256, 4}},
    {"short_conv", 1, {1}},
    {"short_conv", 300, {3}},
    {"short_conv", 33, {64}},
};

// Those above that this build has, and small sizes of every mixer.
std::vector<std::pair<int32_t, MixerConfig>> gpu_mixers() {
  std::vector<std::pair<int32_t, MixerConfig>> all;
  for (const GpuMixerCase& c : kGpuMixerCases) {
    const MixerInfo* const info = find_mixer(c.mixer);
    if (info == nullptr) continue;
    MixerConfig config = default_mixer(*info);
    std::copy(c.params.begin(), c.params.end(), config.params);
    all.emplace_back(c.d_model, config);
  }
  for (size_t m = 0; m < kMixers; ++m) {
    MixerConfig config = default_mixer(kMixerRows[m]);
    for (int i = 0; i < kMixerRows[m].n_params(); ++i) {
      const MixerParam& p = kMixerRows[m].params[i];
      if (p.required) config.params[i] = p.whole ? std::clamp(3.0f, p.low, p.high) : p.high;
    }
    all.emplace_back(17, config);
  }
  return all;
}

/// A mixer with numbers, on both devices.
class MixerPair {
 public:
  MixerPair(const MixerConfig& config, int32_t d_model, const std::vector<int32_t>& texts,
            float scale = 1)
      : config_(config), d_(d_model), widths_(mixer_widths(config, d_model)) {
    const MixerInfo& info = mixer_info(config);
    for (size_t t = 0; t < texts.size(); ++t) {
      for (int32_t i = 0; i < texts[t]; ++i) {
        rows_.push_back({static_cast<int32_t>(t), static_cast<int32_t>(10 * t) + i, 0});
      }
    }
    in = random_floats(rows_.size() * static_cast<size_t>(ld_in()), 1, scale);
    for (int w = 0; w < info.n_weights(); ++w) {
      const MixerUse use = info.weights[w].use;
      const bool has = use == MixerUse::kVector || use == MixerUse::kBias;
      const size_t n = has ? static_cast<size_t>(info.weights[w].n(config, d_model)) : 0;
      vectors_.push_back(random_floats(n, static_cast<unsigned>(w) + 2, 0.5f));
    }
    const auto size = static_cast<size_t>(mixer_state(config, d_model));
    for (size_t t = 0; t < texts.size(); ++t) {
      // Every third text begins.
      before_.push_back(random_floats(t % 3 == 0 ? 0 : size, static_cast<unsigned>(t) + 50, 0.5f));
    }
  }

  /// Without the biases and other vectors that files may leave out.
  void leave_out_biases() {
    const MixerInfo& info = mixer_info(config_);
    for (int w = 0; w < info.n_weights(); ++w) {
      if (info.weights[w].use == MixerUse::kBias) vectors_[static_cast<size_t>(w)].clear();
    }
  }

  int64_t ld_in() const { return widths_.in + 3; }
  const BatchRow& row(size_t r) const { return rows_[r]; }

  struct Outcome {
    Floats y;
    std::vector<Floats> states;
    Status status;
  };

  Outcome on_cpu(Device& device) {
    return run(device, [](const Floats& v) { return Held(v); });
  }
  Outcome on_gpu(Device& device) {
    return run(device, [](const Floats& v) { return cuda::OnDevice<float>(v); });
  }

  Floats in;  // (rows, ld_in)

 private:
  /// As OnDevice, in host memory.
  struct Held {
    explicit Held(const Floats& v) : memory(std::make_shared<Floats>(v)) {}
    float* get() const { return memory->data(); }
    Floats values() const { return *memory; }
    std::shared_ptr<Floats> memory;
  };

  template <class Put>
  Outcome run(Device& device, const Put& put) {
    StreamShape shape;
    shape.max_rows = static_cast<int32_t>(rows_.size());
    shape.d_model = d_;
    Result<Stream*> opened = device.open_stream(shape);
    EXPECT_TRUE(opened.ok()) << opened.status().text();
    Stream& stream = *opened.value();
    const auto given = put(in);
    const auto y = put(Floats(rows_.size() * static_cast<size_t>(widths_.out), 7.0f));
    std::vector<decltype(put(in))> held;
    std::vector<const float*> vectors;
    for (const Floats& v : vectors_) {
      held.push_back(put(v));
      vectors.push_back(v.empty() ? nullptr : held.back().get());
    }
    std::vector<decltype(put(in))> to;
    std::vector<MixerState> states;
    const auto size = static_cast<size_t>(mixer_state(config_, d_));
    for (const Floats& before : before_) {
      held.push_back(put(before));
      to.push_back(put(Floats(size, 7.0f)));
      states.push_back({before.empty() ? nullptr : held.back().get(), to.back().get()});
    }
    MixerOp op;
    op.n_rows = static_cast<int32_t>(rows_.size());
    op.rows = rows_.data();
    op.layer = 3;
    op.d_model = d_;
    op.config = config_;
    op.in = given.get();
    op.ld_in = ld_in();
    op.out = y.get();
    op.ld_out = widths_.out;
    op.vectors = vectors.data();
    op.states = states.data();
    device.mix(stream, op);
    Outcome out;
    out.status = device.sync(stream);
    out.y = y.values();
    for (const auto& state : to) out.states.push_back(state.values());
    device.close_stream(&stream);
    return out;
  }

  MixerConfig config_;
  int32_t d_;
  MixerWidths widths_;
  std::vector<BatchRow> rows_;
  std::vector<Floats> vectors_;
  std::vector<Floats> before_;
};

class GpuMixer : public testing::TestWithParam<std::pair<int32_t, MixerConfig>> {
 protected:
  void SetUp() override {
    Result<Device*> opened = cuda::open_cuda_device({}, system_allocator());
    ASSERT_TRUE(opened.ok()) << opened.status().text();
    gpu_ = opened.value();
  }
  void TearDown() override { cuda::close_cuda_device(gpu_); }

  MixerPair pair(const std::vector<int32_t>& texts, float scale = 1) const {
    return {GetParam().second, GetParam().first, texts, scale};
  }
  void expect_the_same(MixerPair& pair) {
    const MixerPair::Outcome expected = pair.on_cpu(*cpu_.device);
    const MixerPair::Outcome found = pair.on_gpu(*gpu_);
    ASSERT_TRUE(expected.status.ok()) << expected.status.text();
    ASSERT_TRUE(found.status.ok()) << found.status.text();
    EXPECT_SAME_BITS(found.y, expected.y);
    for (size_t t = 0; t < expected.states.size(); ++t) {
      SCOPED_TRACE(t);
      EXPECT_SAME_BITS(found.states[t], expected.states[t]);
    }
  }

  OpenedDevice cpu_{nullptr, 1};
  Device* gpu_ = nullptr;
};

TEST_P(GpuMixer, HasTheBitsOfTheCpu) {
  for (const auto& texts : {std::vector<int32_t>{1}, {7, 1}, {3, 64, 9}}) {
    MixerPair all = pair(texts);
    expect_the_same(all);
  }
}

TEST_P(GpuMixer, HasThemWithoutBiasesAndWithExtremeInputs) {
  for (const float scale : {1e-20f, 0.0f, 60.0f}) {
    MixerPair few = pair({2, 10}, scale);
    few.leave_out_biases();
    expect_the_same(few);
  }
}

TEST_P(GpuMixer, HasThemInABatchOfMoreTextsThanALaunchTakes) {
  if (mixer_state(GetParam().second, GetParam().first) > 4000) GTEST_SKIP() << "the small ones do";
  MixerPair many = pair(std::vector<int32_t>(45, 2));
  expect_the_same(many);
}

TEST_P(GpuMixer, NamesTheFirstTokenWhoseStateIsNotFinite) {
  for (const float bad : {NAN, INFINITY}) {
    MixerPair spoilt = pair({4, 12, 5});
    // All inputs of two rows of the second text, and one of the last.
    for (const size_t row : {size_t{9}, size_t{13}, size_t{17}}) {
      const auto begin = spoilt.in.begin() + static_cast<std::ptrdiff_t>(row) * spoilt.ld_in();
      std::fill(begin, begin + spoilt.ld_in(), bad);
    }
    const MixerPair::Outcome expected = spoilt.on_cpu(*cpu_.device);
    const MixerPair::Outcome found = spoilt.on_gpu(*gpu_);
    EXPECT_EQ(found.status.code(), expected.status.code());
    EXPECT_STREQ(found.status.text(), expected.status.text());
    EXPECT_EQ(found.status.code(), MOE_ERR_NON_FINITE);
  }
}

INSTANTIATE_TEST_SUITE_P(All, GpuMixer, testing::ValuesIn(gpu_mixers()), [](const auto& c) {
  return std::string(mixer_info(c.param.second).name) + "_" + std::to_string(c.index);
});

// A convolution beside attention, then each mixer with a matrix.
std::unique_ptr<MemorySink> mixers_of_all_kinds() {
  return build_tiny_kind({"mixers", [](ModelConfig& c, TinyOptions& o) {
                            c.context_length = 400;
                            const LayerConfig plain = c.layers[1];
                            add_mixer(c.layers[1], "short_conv", {4});
                            for (const char* name : {"gated_delta", "mamba2", "kimi_delta"}) {
                              LayerConfig layer = plain;
                              set_mixer(layer, name, {2, 6, 2, 5, 4});
                              EXPECT_TRUE(c.layers.push(layer).ok());
                            }
                            set_mixer(c.layers[0], "lightning", {3, 6});
                            o.biases = true;
                          }});
}

class GpuMixerSession : public testing::Test {
 protected:
  GpuMixerSession() : bytes_(mixers_of_all_kinds()), machine_(*bytes_) {}
  void SetUp() override {
    ASSERT_TRUE(machine_.status().ok()) << machine_.status().text();
    text_ = random_tokens(120, machine_.vocab_size());
    session_ = session();
    (void)eval_all(*session_, part(0, 100));
    expected_ = eval_all(*session_, part(100, 120));
  }
  Box<Session> session() {
    SessionOptions options;
    options.chunk = 32;
    return machine_.session(options);
  }
  Tokens part(size_t begin, size_t end) const {
    return {text_.begin() + static_cast<std::ptrdiff_t>(begin),
            text_.begin() + static_cast<std::ptrdiff_t>(end)};
  }
  // The session has the first 100 tokens.
  void expect_continues(Session& session) {
    ASSERT_EQ(session.position(), 100);
    EXPECT_EQ(eval_all(session, part(100, 120)), expected_);
  }

  std::unique_ptr<MemorySink> bytes_;
  GpuMachine machine_;
  Tokens text_;
  Floats expected_;
  Box<Session> session_;
};

TEST_F(GpuMixerSession, RewindsToAnyPosition) {
  ASSERT_TRUE(session_->rewind(100).ok());
  expect_continues(*session_);
  ASSERT_TRUE(session_->rewind(37).ok());
  (void)eval_all(*session_, part(37, 100));
  expect_continues(*session_);
}

TEST_F(GpuMixerSession, ForksCopiesSavesAndLoads) {
  ASSERT_TRUE(session_->rewind(100).ok());
  Result<Box<Session>> fork = fork_session(*session_, machine_.model(), system_allocator());
  ASSERT_TRUE(fork.ok()) << fork.status().text();
  expect_continues(*fork.value());

  const Box<Session> copy = session();
  ASSERT_TRUE(copy_session(*session_, 100, *copy).ok());
  expect_continues(*copy);

  std::vector<uint8_t> saved;
  const auto write = [](void* user, const void* from, size_t n) -> Status {
    auto* to = static_cast<std::vector<uint8_t>*>(user);
    const auto* b = static_cast<const uint8_t*>(from);
    to->insert(to->end(), b, b + n);
    return {};
  };
  ASSERT_TRUE(save_session(*session_, {1, 2}, {write, &saved}).ok());
  const auto read = [](void* user, uint64_t at, void* to, size_t n) -> Status {
    std::memcpy(to, static_cast<std::vector<uint8_t>*>(user)->data() + at, n);
    return {};
  };
  const Box<Session> loaded = session();
  const Status status = load_session(*loaded, {1, 2}, {saved.size(), read, &saved});
  ASSERT_TRUE(status.ok()) << status.text();
  expect_continues(*loaded);
}

// More steps than a session has states: later ones alternate between two, and are replayed.
TEST_F(GpuMixerSession, ReplayedStepsAreTheSameSteps) {
  const Box<Session> counted = session();
  ASSERT_TRUE(counted->count_routing(true).ok());  // such steps are not captured
  const Box<Session> replayed = session();
  EXPECT_EQ(decode(*replayed, text_), decode(*counted, text_));
}

TEST_F(GpuMixerSession, SessionsTogetherGiveWhatEachGivesAlone) {
  const auto vocab = static_cast<size_t>(machine_.vocab_size());
  Box<Session> member[3];
  Session* together[3];
  for (size_t i = 0; i < 3; ++i) {
    member[i] = session();
    together[i] = member[i].get();
    ASSERT_TRUE(member[i]->eval(span(text_, 0, 100 - 7 * i), LogitRows::kNone, nullptr).ok());
  }
  for (size_t step = 0; step < 40; ++step) {
    Tokens next;
    for (size_t i = 0; i < 3; ++i) next.push_back(text_[(100 - 7 * i + step) % text_.size()]);
    Floats logits(3 * vocab);
    const Status s = sessions_eval({together, 3}, next.data(), nullptr, logits.data());
    ASSERT_TRUE(s.ok()) << s.text();
    if (step >= 20) continue;
    const Floats first(logits.begin(), logits.begin() + static_cast<std::ptrdiff_t>(vocab));
    const auto at = expected_.begin() + static_cast<std::ptrdiff_t>(step * vocab);
    expect_close(first, Floats(at, at + static_cast<std::ptrdiff_t>(vocab)), 1e-5);
  }
}

TEST(GpuMixerFault, IsTheOneOfTheCpuAndLeavesTheSession) {
  const auto bytes = build_tiny_kind({"overflow", [](ModelConfig& c, TinyOptions& o) {
                                        c.norm = NormKind::kLayer;
                                        c.tie_embeddings = false;
                                        c.layers[1] = c.layers[0];
                                        set_mixer(c.layers[1], "gated_delta", {2, 4, 5, 7, 4});
                                        o.biases = true;
                                        o.huge_token = 5;
                                      }});
  GpuMachine gpu(*bytes);
  ASSERT_TRUE(gpu.status().ok()) << gpu.status().text();
  const Box<Session> session = gpu.session();
  const Box<Session> other = gpu.session();
  const Tokens good = {1, 2, 3};
  for (const Tokens& bad : {Tokens{4, 5, 6}, Tokens{5}}) {
    ASSERT_TRUE(session->reset().ok());
    ASSERT_TRUE(other->reset().ok());
    (void)eval_all(*session, good);
    (void)eval_all(*other, good);
    const Status status = session->eval(span(bad), LogitRows::kLast, Floats(64).data());
    EXPECT_EQ(status.code(), MOE_ERR_NON_FINITE);
    EXPECT_EQ(status.text(),
              "layer 1: the state of gated_delta is not finite after the token at position " +
                  std::to_string(bad.size() == 1 ? 3 : 4));
    EXPECT_EQ(session->position(), 3);
    EXPECT_EQ(eval_all(*session, good), eval_all(*other, good));
  }
}

}  // namespace
}  // namespace moe
