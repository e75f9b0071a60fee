// Checkpoints as `transformers` writes them, converted and run: the logits must be those of
// `transformers` (tests/data/families, remade by tests/parity/run.py, which tries many more).

#include "src/convert/convert.h"
#include "tests/convert/golden_logits.h"

namespace moe {
namespace {

const char* const kFamilyFolder = "tests/data/families";

std::vector<std::string> family_names() { return test::folder_names(kFamilyFolder); }

// The command line that the harness gave to `moe convert`.
ConvertOptions read_options(const Json& words) {
  ConvertOptions options;
  for (size_t i = 0; i + 1 < words.size(); i += 2) {
    const auto value = words[i + 1].get<std::string>();
    if (words[i] == "--weights") {
      options.weights = value;
    } else {
      EXPECT_EQ(words[i], "--set");
      options.overrides.push_back(value);
    }
  }
  return options;
}

class Families : public testing::TestWithParam<std::string> {};

TEST_P(Families, LogitsAgree) {
  const std::string folder = std::string(kFamilyFolder) + "/" + GetParam();
  const Json golden = read_json_file(folder + "/golden.json");
  MemorySink sink;
  ConvertReport report;
  const std::string gguf = folder + "/model.gguf";
  const Status status = convert_to_sink(path_exists(gguf) ? gguf : folder, sink,
                                        read_options(golden.at("convert")), &report);
  ASSERT_TRUE(status.ok()) << status.text();
  Machine machine(sink);
  ASSERT_TRUE(machine.status().ok()) << machine.status().text();

  const InputFile file(folder + "/golden.safetensors");
  const std::vector<SourceTensor> tensors = read_safetensors_header(file, 0);
  const auto sequences = golden.at("sequences").get<std::vector<Tokens>>();
  ASSERT_EQ(sequences.size(), 2u);
  std::vector<Floats> found;
  for (size_t s = 0; s < sequences.size(); ++s) {
    const Box<Session> session = machine.session();
    found.push_back(eval_all(*session, sequences[s]));
    const Floats kv16 = test::read_tensor(file, tensors, "logits_kv16." + std::to_string(s));
    EXPECT_LE(test::relative(found[s], kv16), golden.at("tolerance_kv16").get<double>());
  }
  EXPECT_LE(test::relative(found[1], test::read_tensor(file, tensors, "logits.1")),
            golden.at("tolerance").get<double>());
}

INSTANTIATE_TEST_SUITE_P(Checkpoints, Families, testing::ValuesIn(family_names()),
                         [](const auto& name) { return name.param; });
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Families);

// Kimi-K2's checkpoint has a layer that predicts a token further on.
TEST(FamilyCases, LayersLeftOutAreReported) {
  MemorySink sink;
  ConvertReport report;
  const std::string folder = kFamilyFolder;
  ASSERT_TRUE(convert_to_sink(folder + "/kimi_k2", sink, {}, &report).ok());
  EXPECT_EQ(report.n_skipped_layers, 1);
  EXPECT_NE(to_json(report).find("\"skipped_layers\":1"), std::string::npos);
  MemorySink without;
  ASSERT_TRUE(convert_to_sink(folder + "/deepseek_v3", without, {}, &report).ok());
  EXPECT_EQ(to_json(report).find("skipped_layers"), std::string::npos);
}

TEST(FamilyCases, AreThere) { EXPECT_GE(family_names().size(), 20u); }

}  // namespace
}  // namespace moe
