// The experts that PyTorch computed are those that the session counts (tests/data/pytorch).

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "src/convert/convert.h"
#include "tests/run/tiny_run.h"

namespace moe {
namespace {

using nlohmann::json;

const std::string kFolder = "tests/data/pytorch/";

std::vector<std::string> golden_models() {
  std::vector<std::string> names;
  std::error_code ignored;  // without the folder the list stays empty, and a test says so
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
      if (stats == nullptr) continue;
      const FfnConfig& ffn = config.layers[static_cast<size_t>(l)].ffn;
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

TEST(PytorchRoutingCases, AreThere) { EXPECT_GE(golden_models().size(), 40u); }

}  // namespace
}  // namespace moe
