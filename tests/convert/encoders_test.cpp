// SPDX-License-Identifier: MIT
// XLM-R, BERT and ModernBERT with their heads, saved by `transformers`, converted and run: the
// outputs must be those of `transformers` (tests/data/encoders, written by
// tests/parity/encoders.py).

#include "src/convert/convert.h"
#include "tests/convert/checkpoint_builder.h"
#include "tests/convert/golden_logits.h"

namespace moe {
namespace {

const char* const kEncoderFolder = "tests/data/encoders";

const char* const kSentences = "sentences";  // sentences_test.cpp

std::vector<std::string> encoder_names() {
  std::vector<std::string> names = test::folder_names(kEncoderFolder);
  std::erase(names, kSentences);
  return names;
}

class Encoders : public testing::TestWithParam<std::string> {};

TEST_P(Encoders, OutputsAgree) {
  const std::string folder = std::string(kEncoderFolder) + "/" + GetParam();
  const Json golden = read_json_file(folder + "/golden.json");
  MemorySink sink;
  ConvertReport report;
  ConvertOptions options;
  options.weights = "f32";
  const Status status = convert_to_sink(folder, sink, options, &report);
  ASSERT_TRUE(status.ok()) << status.text();
  EXPECT_TRUE(report.tokenizer);
  EXPECT_EQ(sink.data()[10], 1);  // minor version 1, since readers of 1.0 do not support encoders
  Machine machine(sink);
  ASSERT_TRUE(machine.status().ok()) << machine.status().text();
  const ModelConfig& config = machine.model().config();
  EXPECT_EQ(config.mask_token_id, config.vocab_size - 1);
  EXPECT_EQ(config.context_length, 40);  // XLM-R's table of positions begins with two unused rows
  const InputFile file(folder + "/golden.safetensors");
  const std::vector<SourceTensor> tensors = read_safetensors_header(file, 0);
  const Box<Session> session = machine.session();
  const auto d = static_cast<size_t>(config.d_model);
  for (size_t i = 0; i < golden.at("cases").size(); ++i) {
    const auto ids = golden.at("cases")[i].at("ids").get<Tokens>();
    const Floats expected = test::read_tensor(file, tensors, "outputs." + std::to_string(i));
    Floats hidden(ids.size() * d), outputs(expected.size());
    Encoding out;
    out.hidden = hidden.data();
    const bool bare = config.head.kind == HeadKind::kNone;
    if (!bare) out.outputs = outputs.data();
    const Status encoded = session->encode({ids.data(), ids.size()}, out);
    ASSERT_TRUE(encoded.ok()) << encoded.text();
    EXPECT_LE(test::relative(bare ? hidden : outputs, expected), 1e-5) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Checkpoints, Encoders, testing::ValuesIn(encoder_names()),
                         [](const auto& name) { return name.param; });
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Encoders);

// A copy of a test checkpoint with a changed config.json and more tensors.
class ChangedEncoder {
 public:
  explicit ChangedEncoder(const std::string& patch) {
    const std::string from = std::string(kEncoderFolder) + "/xlmr_maskedlm";
    Json config = read_json_file(from + "/config.json");
    config.merge_patch(parse_json(patch, "test"));
    folder_.write("config.json", config.dump());
    const InputFile file(from + "/model.safetensors");
    for (const SourceTensor& t : read_safetensors_header(file, 0)) {
      Floats values(t.n_elements);
      file.read(t.offset, values.data(), values.size() * sizeof(float));
      tensors[t.name] = test::f32_tensor(t.shape, values);
    }
  }

  Status run(const Tokens& tokens, Floats* outputs) {
    folder_.write("model.safetensors", test::safetensors_text(tensors));
    MemorySink sink;
    ConvertOptions options;
    options.weights = "f32";
    ConvertReport report;
    MOE_TRY(convert_to_sink(folder_.path(), sink, options, &report));
    Machine machine(sink);
    MOE_TRY(machine.status());
    const ModelConfig& c = machine.model().config();
    outputs->resize(tokens.size() * static_cast<size_t>(c.vocab_size));
    Encoding out;
    out.outputs = outputs->data();
    return machine.session()->encode({tokens.data(), tokens.size()}, out);
  }

  test::RawTensors tensors;

 private:
  test::TempFolder folder_;
};

TEST(EncoderConfig, KeysOfPublishedCheckpointsAreUnderstood) {
  Floats outputs;
  ChangedEncoder published(R"({"output_past": true, "is_encoder_decoder": false, "layerdrop": 0.0,
                               "cls_token_id": 0, "mask_token_id": 50, "summary_type": "first"})");
  const Status status = published.run({0, 5, 2}, &outputs);
  EXPECT_TRUE(status.ok()) << status.text();
  ChangedEncoder both(R"({"is_encoder_decoder": true})");
  EXPECT_EQ(both.run({0, 5, 2}, &outputs).code(), MOE_ERR_UNSUPPORTED);
}

TEST(EncoderConfig, AnUntiedHeadAddsTheBiasOfItsMatrix) {
  const Tokens tokens = {0, 5, 2};
  Floats tied, untied;
  ASSERT_TRUE(ChangedEncoder("{}").run(tokens, &tied).ok());
  ChangedEncoder changed(R"({"tie_word_embeddings": false})");
  changed.tensors["lm_head.decoder.weight"] =
      changed.tensors.at("roberta.embeddings.word_embeddings.weight");
  const auto n = static_cast<size_t>(changed.tensors.at("lm_head.bias").shape[0]);
  changed.tensors["lm_head.decoder.bias"] = changed.tensors.at("lm_head.bias");
  changed.tensors["lm_head.bias"] = test::f32_tensor({static_cast<int64_t>(n)}, Floats(n, 100.0f));
  const Status status = changed.run(tokens, &untied);
  ASSERT_TRUE(status.ok()) << status.text();
  EXPECT_EQ(untied, tied);
}

TEST(EncoderCases, FilesExist) { EXPECT_EQ(encoder_names().size(), 11u); }

}  // namespace
}  // namespace moe
