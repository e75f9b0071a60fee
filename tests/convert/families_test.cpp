// SPDX-License-Identifier: MIT
// Checkpoints saved by `transformers`, converted and run: the logits must be those of
// `transformers` (tests/data/families, written by tests/parity/run.py, which tries many more).

#include <algorithm>

#include "src/convert/convert.h"
#include "src/convert/packed/packed_checkpoint.h"
#include "tests/convert/golden_logits.h"
#include "tests/run/guesses.h"

namespace moe {
namespace {

const char* const kFamilyFolder = "tests/data/families";

std::vector<std::string> family_names() { return test::folder_names(kFamilyFolder); }

// The arguments of `moe convert` that the test data was made for.
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

class Families : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    const std::string folder = std::string(kFamilyFolder) + "/" + GetParam();
    golden_ = read_json_file(folder + "/golden.json");
    sequences_ = golden_.at("sequences").get<std::vector<Tokens>>();
    ASSERT_EQ(sequences_.size(), 2u);
    ConvertReport report;
    const Status status =
        convert_to_sink(source(), sink_, read_options(golden_.at("convert")), &report);
    ASSERT_TRUE(status.ok()) << status.text();
  }

  static std::string source() {
    const std::string folder = std::string(kFamilyFolder) + "/" + GetParam();
    const std::string gguf = folder + "/model.gguf";
    return path_exists(gguf) ? gguf : folder;
  }
  // The case's own options of a session; a context of 0 is the model's.
  SessionOptions session_options() const {
    SessionOptions options;
    if (const Json* context = golden_.find("context")) options.context = context->get<int32_t>();
    return options;
  }
  double tolerance(const char* name) const { return golden_.at(name).get<double>(); }
  static Floats golden(const std::string& name) {
    const InputFile file(std::string(kFamilyFolder) + "/" + GetParam() + "/golden.safetensors");
    return test::read_tensor(file, read_safetensors_header(file, 0), name);
  }

  std::vector<Tokens> sequences_;
  MemorySink sink_;

 private:
  Json golden_;
};

TEST_P(Families, LogitsAgree) {
  Machine machine(sink_);
  ASSERT_TRUE(machine.status().ok()) << machine.status().text();
  std::vector<Floats> found;
  for (size_t s = 0; s < sequences_.size(); ++s) {
    const Box<Session> session = machine.session(session_options());
    found.push_back(eval_all(*session, sequences_[s]));
    EXPECT_LE(test::relative(found[s], golden("logits_kv16." + std::to_string(s))),
              tolerance("tolerance_kv16"));
  }
  EXPECT_LE(test::relative(found[1], golden("logits.1")), tolerance("tolerance"));
}

// Rounding the latents to f16 gives other values than rounding keys and values, with errors of the
// same size. The tolerance is therefore that of f16 keys and values compared with unrounded ones.
TEST_P(Families, LogitsOfALatentCacheAgree) {
  Machine machine(sink_);
  ASSERT_TRUE(machine.status().ok()) << machine.status().text();
  const auto& layers = machine.model().config().layers;
  const bool has_latent = std::any_of(layers.begin(), layers.end(),
                                      [](const auto& layer) { return layer.attention.latent > 0; });
  const auto named = [](const char* word) { return GetParam().find(word) != std::string::npos; };
  EXPECT_EQ(has_latent, named("deepseek") || named("kimi") || named("glm4_moe_lite") ||
                            named("bailing_hybrid"));
  SessionOptions latent, exact;
  latent.kv = KvType::kLatent;
  exact.kv = KvType::kF32;
  if (!has_latent) {
    EXPECT_EQ(machine.try_session(latent).status().code(), MOE_ERR_UNSUPPORTED);
    return;
  }
  EXPECT_LE(test::relative(eval_all(*machine.session(latent), sequences_[1]), golden("logits.1")),
            tolerance("tolerance"));
  EXPECT_LE(test::relative(eval_all(*machine.session(latent), sequences_[0]),
                           eval_all(*machine.session(exact), sequences_[0])),
            tolerance("tolerance"));
}

TEST_P(Families, GuessesAgree) {
  Machine machine(sink_);
  ASSERT_TRUE(machine.status().ok()) << machine.status().text();
  const bool guesses = machine.model().config().n_predictions > 0;
  EXPECT_EQ(guesses, GetParam().ends_with("_mtp") || GetParam() == "kimi_k2" ||
                         GetParam().ends_with("bailing_moe_v2") ||
                         GetParam() == "gguf_bailing_hybrid_small");
  for (size_t s = 0; guesses && s < sequences_.size(); ++s) {
    const Floats expected = golden("guesses_kv16." + std::to_string(s));
    const auto n = expected.size() / static_cast<size_t>(machine.vocab_size());
    for (const size_t piece : {1, 3, 100}) {
      EXPECT_LE(test::relative(guess_logits(*machine.session(), sequences_[s], n, piece), expected),
                tolerance("tolerance_kv16"));
    }
  }
}

// The layer changes nothing else.
TEST_P(Families, LogitsAreTheSameWithoutGuesses) {
  Machine machine(sink_);
  ASSERT_TRUE(machine.status().ok()) << machine.status().text();
  if (machine.model().config().n_predictions == 0) return;
  MemorySink sink;
  ConvertReport report;
  ConvertOptions options;
  options.weights = "f32";
  options.no_predictions = true;
  ASSERT_TRUE(convert_to_sink(source(), sink, options, &report).ok());
  EXPECT_EQ(report.n_skipped_layers, 1);
  Machine without(sink);
  ASSERT_TRUE(without.status().ok()) << without.status().text();
  EXPECT_EQ(without.model().config().n_layers(), machine.model().config().n_main_layers());
  EXPECT_EQ(eval_all(*without.session(), sequences_[0]),
            eval_all(*machine.session(), sequences_[0]));
}

INSTANTIATE_TEST_SUITE_P(Checkpoints, Families, testing::ValuesIn(family_names()),
                         [](const auto& name) { return name.param; });
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Families);

// Kimi-K2's checkpoint has a layer that predicts further tokens.
TEST(FamilyCases, LayersLeftOutAreReported) {
  MemorySink sink;
  ConvertReport report;
  const std::string folder = kFamilyFolder;
  ConvertOptions options;
  options.no_predictions = true;
  ASSERT_TRUE(convert_to_sink(folder + "/kimi_k2", sink, options, &report).ok());
  EXPECT_EQ(report.n_skipped_layers, 1);
  EXPECT_NE(to_json(report).find("\"skipped_layers\":1"), std::string::npos);
  MemorySink without;
  ASSERT_TRUE(convert_to_sink(folder + "/deepseek_v3", without, {}, &report).ok());
  EXPECT_EQ(to_json(report).find("skipped_layers"), std::string::npos);
}

// Their weights have a scale per shard: of rows, or of columns.
TEST(FamilyCases, ShardsOfTrilmStayTernary) {
  MemorySink sink;
  ConvertReport report;
  ConvertOptions options;
  std::map<std::string, MatrixReport> matrices;
  options.on_matrix = [&](const MatrixReport& m) { matrices[m.name] = m; };
  const std::string folder = kFamilyFolder;
  ASSERT_TRUE(convert_to_sink(folder + "/trilm_shards", sink, options, &report).ok());
  for (const auto& [name, m] : matrices) {
    if (!name.starts_with("layers.")) continue;
    EXPECT_EQ(m.format, FormatId::kTernary2) << name;
    EXPECT_TRUE(m.lossless) << name;
  }
  EXPECT_EQ(matrices.size(), 9u);
}

// Compares unpacked codes with the values that the library which wrote them gives, where it can.
// bitsandbytes rounds twice: code * SCB, and that divided by 127.
TEST(FamilyCases, CodesStandForTheLibrarysNumbers) {
  const std::string name = "model.layers.0.mlp.down_proj.weight";
  int n = 0;
  for (const std::string& family : family_names()) {
    const std::string folder = std::string(kFamilyFolder) + "/" + family;
    const InputFile golden(folder + "/golden.safetensors");
    const std::vector<SourceTensor> tensors = read_safetensors_header(golden, 0);
    const auto has = [&](const SourceTensor& t) { return t.name == name; };
    if (std::none_of(tensors.begin(), tensors.end(), has)) continue;
    const Floats expected = test::read_tensor(golden, tensors, name);
    Checkpoint checkpoint(folder);
    unpack_checkpoint(&checkpoint);
    Floats found(expected.size());
    checkpoint.read(*checkpoint.find(name), 0, found.size(), found.data());
    const float most = family == "llm_int8" ? 0x1p-22f : 0.0f;
    for (size_t i = 0; i < found.size(); ++i) {
      ASSERT_LE(std::fabs(found[i] - expected[i]), most * std::fabs(expected[i]))
          << family << " " << i;
    }
    ++n;
  }
  EXPECT_EQ(n, 6);
}

TEST(FamilyCases, FilesExist) { EXPECT_GE(family_names().size(), 20u); }

}  // namespace
}  // namespace moe
