// SPDX-License-Identifier: MIT
// XLM-R, BERT, ModernBERT and NomicBert with their heads, saved by `transformers`, converted and
// run: the outputs must be those of `transformers` (tests/data/encoders, written by
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
  Machine machine(sink);
  ASSERT_TRUE(machine.status().ok()) << machine.status().text();
  const ModelConfig& config = machine.model().config();
  // Minor version 1, since readers of 1.0 do not support encoders, those of 1.5 no mean of classes.
  EXPECT_EQ(sink.data()[10], config.head.of_mean() ? 6 : 1);
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
    const Json* const second = golden.at("cases")[i].find("second");
    if (second != nullptr) out.second = second->get<size_t>();
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
  explicit ChangedEncoder(const std::string& patch, const char* name = "xlmr_maskedlm") {
    const std::string from = std::string(kEncoderFolder) + "/" + name;
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
    const bool bare = c.head.kind == HeadKind::kNone;
    outputs->resize(tokens.size() * static_cast<size_t>(bare ? c.d_model : c.vocab_size));
    Encoding out;
    (bare ? out.hidden : out.outputs) = outputs->data();
    return machine.session()->encode({tokens.data(), tokens.size()}, out);
  }

  // new_name(): of a tensor.
  template <class F>
  void rename(F new_name) {
    test::RawTensors renamed;
    for (auto& [name, tensor] : tensors) renamed[new_name(name)] = tensor;
    tensors = std::move(renamed);
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

TEST(EncoderNames, MayHaveAModuleInFront) {
  const Tokens tokens = {2, 5, 3};
  for (const auto& [name, prefix] : {std::pair{"xlmr_maskedlm", "model."},
                                     {"xlmr_model", "bert."},
                                     {"bert_model", "0.auto_model."},
                                     {"bert_maskedlm", "encoder.model."},
                                     {"modernbert_maskedlm", "transformer."},
                                     {"nomic_model", "model."}}) {
    SCOPED_TRACE(name);
    Floats expected, found;
    ChangedEncoder changed("{}", name);
    ASSERT_TRUE(changed.run(tokens, &expected).ok());
    changed.rename([p = prefix](const std::string& n) { return p + n; });
    const Status status = changed.run(tokens, &found);
    EXPECT_TRUE(status.ok()) << status.text();
    EXPECT_EQ(found, expected);
  }
}

// Keys of nomic-embed-text, and the tensors' names inside `transformers`.
TEST(NomicBert, PublishedKeysAndOtherNames) {
  const Tokens tokens = {2, 5, 9, 3};
  Floats expected, found;
  const char* const kName = "nomic_model";
  ASSERT_TRUE(ChangedEncoder("{}", kName).run(tokens, &expected).ok());
  ChangedEncoder published(R"({"hidden_size": null, "num_attention_heads": null, "hidden_act": null,
      "intermediate_size": null, "num_hidden_layers": null, "max_position_embeddings": null,
      "layer_norm_eps": null, "rope_parameters": null, "head_dim": null, "n_embd": 24, "n_head": 2,
      "n_inner": 20, "n_layer": 2, "n_positions": 40, "layer_norm_epsilon": 1e-5,
      "rotary_emb_base": 1000, "rotary_emb_fraction": 1.0, "rotary_emb_interleaved": false,
      "rotary_emb_scale_base": null, "rotary_scaling_factor": null, "activation_function": "swiglu",
      "causal": false, "prenorm": false, "use_rms_norm": false, "mlp_fc1_bias": false,
      "qkv_proj_bias": false, "scale_attn_weights": true, "use_flash_attn": true,
      "fused_bias_fc": true, "pad_vocab_size_multiple": 64})",
                           kName);
  Status status = published.run(tokens, &found);
  ASSERT_TRUE(status.ok()) << status.text();
  EXPECT_EQ(found, expected);
  for (const char* patch :
       {R"({"prenorm": true})", R"({"moe_every_n_layers": 2})", R"({"qkv_proj_bias": true})",
        R"({"rotary_scaling_factor": 2})", R"({"activation_function": "gelu"})"}) {
    EXPECT_FALSE(ChangedEncoder(patch, kName).run(tokens, &found).ok()) << patch;
  }
  ChangedEncoder typed("{}", kName);  // the row of the text type belongs to every token
  typed.tensors.at("embeddings.token_type_embeddings.weight").bytes[3] ^= '\x40';
  ASSERT_TRUE(typed.run(tokens, &found).ok());
  EXPECT_NE(found, expected);
  typed.tensors.at("embeddings.token_type_embeddings.weight").shape = {4, 12};
  status = typed.run(tokens, &found);
  EXPECT_EQ(status.code(), MOE_ERR_SHAPE) << status.text();
}

TEST(EncoderCases, FilesExist) { EXPECT_EQ(encoder_names().size(), 15u); }

}  // namespace
}  // namespace moe
