// SPDX-License-Identifier: MIT
// Dense FFNs split into experts: the outputs with all and with few experts, and arguments that are
// refused.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "src/convert/split/clusters.h"
#include "src/convert/split/split_ffn.h"
#include "src/run/perplexity.h"
#include "tests/convert/converted_model.h"
#include "tests/convert/tiny_checkpoint.h"
#include "tests/support/router_text.h"

namespace moe {
namespace {

using test::patched;

const char* const kPangrams =
    "Pack my box with five dozen liquor jugs. The five boxing wizards jump.";
const char* const kDenseReader = R"({"tokenizer": "bytes", "vocab_size": 256, "add_bos": false,
  "context_length": 64, "layers": [{"index": 1, "ffn": {"kind": "dense", "d_ff": 40, "act": "relu",
  "gated": false}}]})";

class SplitTest : public testing::Test {
 protected:
  Status run(const SplitOptions& split, const char* text = kPangrams, const char* weights = "f32") {
    test::write_checkpoint(source_, config_, tensors_);
    options_.weights = weights;
    options_.split = split;
    options_.calibration.reset();
    if (text != nullptr) options_.calibration = text;
    return convert(source_.path(), target_.file("m.moe"), options_, &report_);
  }
  void expect_refused(const SplitOptions& split, const char* text, moe_status code,
                      const char* why) {
    const Status status = run(split, text);
    EXPECT_EQ(status.code(), code);
    EXPECT_NE(std::string(status.text()).find(why), std::string::npos) << status.text();
    EXPECT_TRUE(target_.names().empty());
  }
  void add_biases() {
    for (auto& [name, tensor] : test::random_tensors(config_, true)) {
      if (name.find(".ffn.") != std::string::npos) tensors_[name] = tensor;
    }
  }

  // The perplexity of the text under the converted model.
  double read(const char* router = "") {
    ThreadPool pool(system_allocator());
    check(pool.start(1));
    Device* device = take(open_cpu_device(nullptr, pool, system_allocator()));
    const double perplexity = read_on(*device, router);
    close_cpu_device(device);
    return perplexity;
  }
  std::vector<float> floats(const std::string& name) {
    const Checkpoint checkpoint(source_.path());
    const SourceTensor& tensor = *checkpoint.find(name);
    std::vector<float> out(tensor.n_elements);
    checkpoint.read(tensor, 0, out.size(), out.data());
    return out;
  }
  Matrix matrix(test::ConvertedModel& model, int32_t expert, Role role) {
    return model.matrix(Part::kExperts, 0, expert, role);
  }

  test::TempFolder source_, target_;
  std::string config_ = patched(kDenseReader);
  test::RawTensors tensors_ = test::random_tensors(config_);
  ConvertOptions options_;
  ConvertReport report_;

 private:
  double read_on(Device& device, const char* router) {
    Logger logger;
    FileSource source = take(FileSource::open_path(target_.file("m.moe").c_str()));
    Box<MoeFile> file = take(MoeFile::open(std::move(source), system_allocator()));
    Box<Model> model =
        take(Model::open(std::move(file), ModelOptions(), device, logger, system_allocator()));
    SessionOptions options;
    options.context = 64;
    Box<Session> session = take(Session::create(*model, options, system_allocator()));
    if (*router != 0) check(set_router(*session, router));
    const std::string_view text = kPangrams;
    const std::vector<int32_t> tokens(text.begin(), text.end());
    Perplexity found;
    check(measure_perplexity(*session, tokens, PerplexityOptions(), &found));
    return found.perplexity;
  }
};

TEST_F(SplitTest, AllExpertsAreTheDenseModel) {
  for (const bool biases : {false, true}) {
    if (biases) add_biases();
    ASSERT_TRUE(run({}, nullptr).ok());
    EXPECT_FALSE(report_.split);
    const double dense = read();
    for (const bool clusters : {false, true}) {
      const Status status = run({4, clusters});
      ASSERT_TRUE(status.ok()) << status.text();
      EXPECT_EQ(target_.names(), std::vector<std::string>{"m.moe"});
      EXPECT_NEAR(report_.split->perplexity, dense, 1e-4 * dense);
      EXPECT_NEAR(read(), dense, 1e-5 * dense);
      EXPECT_NEAR(read("topk:4"), dense, 1e-5 * dense);
      EXPECT_GT(std::fabs(read("threshold:0.3") - dense), 1e-5 * dense);
    }
  }
}

// Every neuron is in one expert, with its row of gate, its row of up and its column of down.
TEST_F(SplitTest, ExpertsShareTheNeuronsOut) {
  for (const bool clusters : {false, true}) {
    ASSERT_TRUE(run({5, clusters}).ok());
    const std::vector<float> gate = floats("layers.0.ffn.gate.weight");
    const std::vector<float> up = floats("layers.0.ffn.up.weight");
    const std::vector<float> down = floats("layers.0.ffn.down.weight");
    test::ConvertedModel model(target_.file("m.moe"));
    std::set<int32_t> seen;
    for (int32_t e = 0; e < 5; ++e) {
      const std::vector<float> gates = model.values(matrix(model, e, Role::kGate));
      const std::vector<float> ups = model.values(matrix(model, e, Role::kUp));
      const std::vector<float> downs = model.values(matrix(model, e, Role::kDown));
      for (size_t i = 0; i < 4; ++i) {
        const auto at =
            std::search(gate.begin(), gate.end(), gates.begin() + 24 * static_cast<ptrdiff_t>(i),
                        gates.begin() + 24 * static_cast<ptrdiff_t>(i + 1));
        ASSERT_NE(at, gate.end());
        const auto neuron = static_cast<size_t>(at - gate.begin()) / 24;
        seen.insert(static_cast<int32_t>(neuron));
        if (!clusters) {
          EXPECT_EQ(neuron, static_cast<size_t>(e) * 4 + i);
        }
        for (size_t c = 0; c < 24; ++c) {
          EXPECT_EQ(ups[i * 24 + c], up[neuron * 24 + c]);
          EXPECT_EQ(downs[c * 4 + i], down[c * 20 + neuron]);
        }
      }
    }
    EXPECT_EQ(seen.size(), 20u);
  }
}

// The first ten neurons of layer 0 respond to one half of the characters, the last ten to the
// other.
TEST_F(SplitTest, TheRouterFindsTheExpertsThatAnswer) {
  std::vector<float> gate(20 * 24), embedding(256 * 24), norm(24, 1.0f);
  for (size_t c = 0; c < 256; ++c) {
    for (size_t i = 0; i < 24; ++i) embedding[c * 24 + i] = i % 2 == c % 2 ? 1.0f : 0.1f;
    embedding[c * 24 + c % 24] += 0.3f;
  }
  for (size_t n = 0; n < 20; ++n) {
    for (size_t i = 0; i < 24; ++i) gate[n * 24 + i] = (i % 2 == n / 10 ? 1.0f : -1.0f) * 0.2f;
  }
  config_ = patched(R"({"layer_defaults": {"ffn": {"act": "relu"}}})", config_.c_str());
  tensors_["embedding.weight"] = test::f32_tensor({256, 24}, embedding);
  tensors_["layers.0.ffn_norm.weight"] = test::f32_tensor({24}, norm);
  tensors_["layers.0.ffn.gate.weight"] = test::f32_tensor({20, 24}, gate);
  tensors_["layers.0.attention.o.weight"] = test::f32_tensor({24, 24}, std::vector<float>(576));
  for (const bool clusters : {false, true}) {
    ASSERT_TRUE(run({2, clusters}).ok());
    test::ConvertedModel model(target_.file("m.moe"));
    const Matrix scores = model.matrix(Part::kRouter, 0, -1, Role::kScores);
    const std::vector<float> weight = model.values(scores);
    const std::vector<float> first = model.values(matrix(model, 0, Role::kGate));
    const size_t half = first[0] > 0 ? 0 : 1;  // the characters that expert 0 responds to
    for (size_t c = 0; c < 2; ++c) {
      double difference = 0;
      for (size_t i = 0; i < 24; ++i) {
        difference += double{embedding[c * 24 + i]} * double{weight[i] - weight[24 + i]};
      }
      EXPECT_GT(c == half ? difference : -difference, 0.5) << c;
    }
    EXPECT_GT(report_.split->explained, 0.3);
    EXPECT_EQ(report_.split->n_layers, 2u);
  }
}

// Rounding of experts is compensated for the inputs routed to them, and the file can be verified.
TEST_F(SplitTest, RoundedExpertsAreCalibratedToo) {
  options_.verify = true;
  add_biases();
  for (const char* weights : {"int4", "auto", "ternary2"}) {
    std::map<std::string, MatrixReport> matrices;
    options_.on_matrix = [&](const MatrixReport& r) { matrices[r.name] = r; };
    const Status status = run({4, true}, kPangrams, weights);
    ASSERT_TRUE(status.ok()) << weights << ": " << status.text();
    ASSERT_TRUE(report_.calibration && report_.verified);
    EXPECT_TRUE(matrices["layers.0.moe.experts.3.down"].compensated);
    EXPECT_TRUE(matrices["layers.1.moe.experts.0.up"].compensated);
  }
}

TEST_F(SplitTest, WhatCannotBeSplitIsRefusedBeforeAnythingIsWritten) {
  expect_refused({3, false}, kPangrams, MOE_ERR_ARGUMENT,
                 "3 experts do not divide the 20 inner neurons of layer 0");
  expect_refused({1, false}, kPangrams, MOE_ERR_ARGUMENT, "2 experts or more, found 1");
  expect_refused({4, true}, nullptr, MOE_ERR_ARGUMENT, "none is given");
  expect_refused({4, true}, "", MOE_ERR_ARGUMENT, "expected a text of 2 tokens or more, found 0");
  config_ = patched(R"({"layer_defaults": {"ffn": {"sub_norm": true}}})", config_.c_str());
  tensors_ = test::random_tensors(config_);
  expect_refused({4, true}, kPangrams, MOE_ERR_UNSUPPORTED, "a norm over all");
  config_ = patched(R"({"tokenizer": "bytes", "vocab_size": 256})");
  tensors_ = test::random_tensors(config_);
  expect_refused({4, true}, kPangrams, MOE_ERR_UNSUPPORTED, "layer 1 has 4 experts already");
}

TEST_F(SplitTest, CancelAtEveryCallLeavesTheOldFile) {
  size_t n_calls = 0;
  options_.progress = [&](uint64_t done, uint64_t total, const char*) {
    EXPECT_LE(done, total);
    ++n_calls;
    return true;
  };
  ASSERT_TRUE(run({4, true}).ok());
  target_.write("m.moe", test::old_model());
  for (size_t stop = 1; stop <= n_calls; ++stop) {
    size_t calls = 0;
    options_.progress = [&](uint64_t, uint64_t, const char*) { return ++calls < stop; };
    ASSERT_EQ(run({4, true}).code(), MOE_ERR_CANCELLED) << stop;
    ASSERT_EQ(target_.text("m.moe"), test::old_model());
    ASSERT_EQ(target_.names().size(), 1u);
  }
}

TEST(Clusters, LikeRowsAreTogetherAndGroupsHaveOneSize) {
  constexpr int32_t kGroups = 3, kSize = 4, kDim = 6;
  std::vector<float> rows;
  for (int32_t r = 0; r < kGroups * kSize; ++r) {
    for (int32_t i = 0; i < kDim; ++i) {
      rows.push_back((i / 2 == r % kGroups ? 1.0f : 0.0f) * static_cast<float>(1 + r) +
                     0.01f * static_cast<float>((r * 7 + i * 3) % 5));
    }
  }
  std::vector<int32_t> found[2];
  int n_looks = 0;
  for (int n_threads = 1; n_threads <= 2; ++n_threads) {
    ThreadPool pool(system_allocator());
    check(pool.start(n_threads));
    found[n_threads - 1] = balanced_clusters(rows, kDim, kGroups, pool, [&] { ++n_looks; });
  }
  EXPECT_EQ(found[0], found[1]);
  EXPECT_GE(n_looks, 2 * (kGroups + 2));  // once per centre and per iteration
  std::vector<int> sizes(kGroups);
  for (size_t r = 0; r < found[0].size(); ++r) {
    EXPECT_EQ(found[0][r], found[0][r % kGroups]) << r;
    ++sizes[static_cast<size_t>(found[0][r])];
  }
  EXPECT_EQ(sizes, std::vector<int>(kGroups, kSize));
}

// More identical rows than one group can hold.
TEST(Clusters, RowsThatAreAllAlikeStillFillEveryGroup) {
  ThreadPool pool(system_allocator());
  check(pool.start(1));
  const std::vector<int32_t> groups =
      balanced_clusters(std::vector<float>(8 * 3), 3, 4, pool, [] {});
  for (int32_t g = 0; g < 4; ++g) EXPECT_EQ(std::count(groups.begin(), groups.end(), g), 2) << g;
}

TEST(Clusters, WhatTakesTooMuchMemoryIsRefused) {
  const auto code = [](int32_t n, int32_t d, int32_t n_groups, uint64_t room) {
    return guarded([&] { check_clusters(n, d, n_groups, room); }).code();
  };
  constexpr uint64_t kBytes = 8 * 100 * 10 + 4 * 110 * 6;
  EXPECT_EQ(code(100, 6, 10, kBytes), MOE_OK);
  EXPECT_EQ(code(100, 6, 10, kBytes - 1), MOE_ERR_MEMORY);
  EXPECT_EQ(code(1 << 17, 8, 1 << 14, ~uint64_t{0}),
            MOE_ERR_MEMORY);  // more pairs than 31 bits can count
}

// The inputs of a single repeated token differ by rounding alone; no router is fitted to that.
TEST_F(SplitTest, ATextOfOneRepeatedCharacterFitsNoRouter) {
  for (const size_t n : {2, 60, 300}) {
    ASSERT_TRUE(run({4, true}, std::string(n, 'a').c_str()).ok());
    EXPECT_EQ(report_.split->explained, 0) << n;
    test::ConvertedModel model(target_.file("m.moe"));
    for (int32_t layer = 0; layer < 2; ++layer) {
      const Matrix scores = model.matrix(Part::kRouter, layer, -1, Role::kScores);
      for (const float w : model.values(scores)) ASSERT_EQ(w, 0) << n << " " << layer;
    }
  }
}

TEST(SourceModel, APrefixMustLeaveRoomInAWindow) {
  struct Watcher final : InputWatcher {
    void see(const Matrix&, const LinearInput&) override {}
  } watch;
  MemorySink file;
  ConvertOptions options;
  options.weights = "f32";
  ConvertReport report;
  ASSERT_TRUE(convert_to_sink("tests/data/encoders/xlmr_maskedlm", file, options, &report).ok());
  ThreadPool pool(system_allocator());
  check(pool.start(1));
  SourceModel model(file, file.size(), 0, pool, watch);
  CalibrationText text{std::vector<int32_t>(39, 5), {5, 6, 7}};
  EXPECT_EQ(model.read_text(text, {}), 0);
  for (int i = 0; i < 2; ++i) {
    text.prefix.push_back(5);
    const Status status = guarded([&] { model.read_text(text, {}); });
    EXPECT_EQ(status.code(), MOE_ERR_RANGE);
    EXPECT_STREQ(status.text(), "calibration: a context of 40 has no room beside the prefix");
  }
}

// With memory for one layer at a time the text is read once per layer, with the same result.
TEST_F(SplitTest, LayersThatDoNotFitTakeMorePasses) {
  ASSERT_TRUE(run({}, nullptr).ok());
  const Checkpoint checkpoint(source_.path());
  const Imported imported = import_checkpoint(checkpoint);
  PrecisionPolicy policy = PrecisionPolicy::as_source();
  const Plan plan = make_plan(imported, checkpoint, &policy);
  MemorySink file;
  ASSERT_TRUE(convert_to_sink(source_.path(), file, options_, &report_).ok());
  CalibrationText text;
  for (int i = 0; i < 100; ++i) text.tokens.push_back(i * 37 % 256);
  const std::vector<NeuronGroups> layers = {{0, 5, groups_in_order(20, 5)},
                                            {1, 4, groups_in_order(40, 4)}};
  ThreadPool pool(system_allocator());
  check(pool.start(2));
  int n_looks = 0;
  const auto look = [&] { ++n_looks; };
  const RouterFits all =
      fit_routers(file, file.size(), plan, text, layers, 1 << 30, pool, look, {});
  EXPECT_EQ(n_looks, 5 + 4);
  const RouterFits each = fit_routers(file, file.size(), plan, text, layers, 1, pool, look, {});
  EXPECT_EQ(all.n_passes, 1u);
  EXPECT_EQ(each.n_passes, 2u);
  ASSERT_EQ(all.routers.size(), 2u);
  for (size_t l = 0; l < 2; ++l) {
    EXPECT_EQ(all.routers[l].weight, each.routers[l].weight);
    EXPECT_EQ(all.routers[l].bias, each.routers[l].bias);
    EXPECT_EQ(all.routers[l].weight.size(), l == 0 ? 5u * 24 : 4u * 24);
  }
}

}  // namespace
}  // namespace moe
