// SPDX-License-Identifier: MIT
// The session counts the experts that PyTorch computed (tests/data/pytorch), and the positive
// activations of dense layers.

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "quant/formats.h"
#include "src/convert/convert.h"
#include "tests/run/tiny_run.h"
#include "tests/support/every_isa.h"

namespace moe {
namespace {

using nlohmann::json;

const std::string kFolder = "tests/data/pytorch/";

std::vector<std::string> golden_models() {
  std::vector<std::string> names;
  std::error_code ignored;  // if the folder is missing, the list is empty and a test fails
  for (const auto& entry : std::filesystem::directory_iterator(kFolder, ignored)) {
    if (entry.is_directory()) names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

class PytorchRoutingTest : public testing::TestWithParam<std::string> {};

TEST_P(PytorchRoutingTest, ExpertsAgree) {
  MemorySink bytes;
  ConvertReport report;
  const Status s = convert_to_sink(kFolder + GetParam(), bytes, {}, &report);
  ASSERT_TRUE(s.ok()) << s.text();
  Machine machine(bytes, 2);
  ASSERT_TRUE(machine.status().ok()) << machine.status().text();
  std::ifstream file(kFolder + GetParam() + "/golden.json");
  const json golden = json::parse(file);
  const ModelConfig& config = machine.model().config();

  for (size_t sequence = 0; sequence < golden.at("sequences").size(); ++sequence) {
    const Tokens tokens = golden.at("sequences")[sequence];
    const Box<Session> session = machine.session();
    ASSERT_TRUE(session->count_routing(true).ok());
    ASSERT_TRUE(session->eval(span(tokens), LogitRows::kNone, nullptr).ok());
    size_t moe_layer = 0;
    for (int32_t l = 0; l < config.n_layers(); ++l) {
      const RoutingStats* stats = session->routing_stats(l);
      const FfnConfig& ffn = config.layers[static_cast<size_t>(l)].ffn;
      if (ffn.kind != FfnKind::kMoe) continue;
      const size_t n_experts = static_cast<size_t>(ffn.moe.n_experts);
      std::vector<uint64_t> per_expert(n_experts);
      std::vector<uint64_t> per_token(n_experts + 1);
      for (const json& row : golden.at("experts")[sequence].at(moe_layer)) {
        for (const size_t expert : row) ++per_expert.at(expert);
        ++per_token.at(row.size());
      }
      EXPECT_EQ(
          std::vector<uint64_t>(stats->tokens_per_expert, stats->tokens_per_expert + n_experts),
          per_expert)
          << "layer " << l;
      EXPECT_EQ(
          std::vector<uint64_t>(stats->experts_per_token, stats->experts_per_token + n_experts + 1),
          per_token)
          << "layer " << l;
      ++moe_layer;
    }
    EXPECT_EQ(moe_layer, golden.at("experts")[sequence].size());
  }
}

INSTANTIATE_TEST_SUITE_P(Golden, PytorchRoutingTest, testing::ValuesIn(golden_models()),
                         [](const auto& name) { return name.param; });
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(PytorchRoutingTest);

TEST(PytorchRoutingCases, FilesExist) { EXPECT_GE(golden_models().size(), 40u); }

// Row `row` of x after an RMSNorm.
std::vector<double> normed(const FfnOp& op, int32_t row) {
  const float* x = op.x + int64_t{row} * op.d_model;
  double squares = 0;
  for (int32_t i = 0; i < op.d_model; ++i) squares += double{x[i]} * x[i];
  const double scale = 1 / std::sqrt(squares / op.d_model + op.norm.eps);
  std::vector<double> y;
  for (int32_t i = 0; i < op.d_model; ++i) y.push_back(x[i] * scale * op.norm.weight[i]);
  return y;
}

// The number of inner activations above zero. Every activation function here has the sign of its
// argument.
uint64_t positive_of(const FfnOp& op) {
  const Ffn& ffn = *op.shared;
  const Matrix& m = ffn.gate.empty() ? ffn.up : ffn.gate;
  const float* bias = ffn.gate.empty() ? ffn.up_bias : ffn.gate_bias;
  Floats weights(static_cast<size_t>(m.cols));
  uint64_t n = 0;
  for (int32_t row = 0; row < op.n_rows; ++row) {
    const std::vector<double> x = normed(op, row);
    for (int32_t unit = 0; unit < m.rows; ++unit) {
      read_row(m, unit, weights.data());
      double sum = bias == nullptr ? 0 : bias[unit];
      for (size_t i = 0; i < x.size(); ++i) sum += x[i] * weights[i];
      n += sum > 0;
    }
  }
  return n;
}

class DenseLayersTest : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    ConvertReport report;
    const Status s = convert_to_sink(kFolder + GetParam(), bytes_, {}, &report);
    ASSERT_TRUE(s.ok()) << s.text();
  }

  // The counts of each layer; `expected` receives those by definition.
  std::vector<uint64_t> count(int threads, const char* isa, size_t call,
                              std::vector<uint64_t>* expected = nullptr) {
    Machine machine(bytes_, threads, isa);
    EXPECT_TRUE(machine.status().ok()) << machine.status().text();
    const ModelConfig& config = machine.model().config();
    const auto n_layers = static_cast<size_t>(config.n_layers());
    if (expected != nullptr) {
      expected->resize(n_layers);
      machine.hook().watch_ffn(
          [=](const FfnOp& op) { expected->at(static_cast<size_t>(op.layer)) += positive_of(op); });
    }
    const Box<Session> session = machine.session();
    EXPECT_TRUE(session->count_routing(true).ok());
    const Tokens text = random_tokens(kTokens, machine.vocab_size());
    eval_all(*session, text, call);
    std::vector<uint64_t> counted;
    for (size_t l = 0; l < n_layers; ++l) {
      const RoutingStats& s = *session->routing_stats(static_cast<int32_t>(l));
      EXPECT_EQ(s.n_activations, kTokens * static_cast<uint64_t>(config.layers[l].ffn.d_ff));
      counted.push_back(s.n_positive);
    }
    return counted;
  }

  static constexpr size_t kTokens = 30;
  MemorySink bytes_;
};

TEST_P(DenseLayersTest, PositiveActivationsAreThoseOfTheDefinition) {
  std::vector<uint64_t> expected;
  EXPECT_EQ(count(2, nullptr, kTokens, &expected), expected);
  ASSERT_EQ(expected.size(), 5u);  // SiLU, ReLU, GELU, its tanh form, squared ReLU
  for (const uint64_t n : expected) EXPECT_GT(n, 0u);
  EXPECT_EQ(count(3, nullptr, 7), expected);
  for (const CpuKernels* kernels : every_isa()) {
    EXPECT_EQ(count(1, kernels->name, 1), expected) << kernels->name;
  }
}

INSTANTIATE_TEST_SUITE_P(Dense, DenseLayersTest, testing::Values("dense_gated", "dense_plain"),
                         [](const auto& name) { return name.param; });

}  // namespace
}  // namespace moe
