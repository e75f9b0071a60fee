// SPDX-License-Identifier: MIT
// BART, mBART and Marian saved by `transformers`, converted and run: the logits of given texts and
// the results of a beam search must be those of `transformers` (tests/data/translation, written by
// tests/parity/translation.py).

#include "src/convert/convert.h"
#include "src/run/translate.h"
#include "tests/convert/checkpoint_builder.h"
#include "tests/convert/golden_logits.h"

namespace moe {
namespace {

const char* const kTranslationFolder = "tests/data/translation";

Status convert_folder(const std::string& folder, MemorySink& sink) {
  ConvertReport report;
  ConvertOptions options;
  options.weights = "f32";
  return convert_to_sink(folder, sink, options, &report);
}

class Translators : public testing::TestWithParam<std::string> {
 protected:
  std::string folder_ = std::string(kTranslationFolder) + "/" + GetParam();
};

void expect_search(Session& session, const Json& c, const char* name, BeamStop stop,
                   int32_t max_tokens) {
  const auto source = c.at("source").get<Tokens>();
  TranslateOptions options;
  options.search.n_best = 5;
  options.search.min_tokens = 0;
  options.search.max_tokens = max_tokens;
  options.search.stop = stop;
  Translations found(system_allocator());
  const Status status = translate(session, span(source), options, &found);
  ASSERT_TRUE(status.ok()) << status.text();
  const auto texts = c.at(name).get<std::vector<Tokens>>();
  const auto scores = c.at(std::string(name) + "_scores").get<Floats>();
  ASSERT_EQ(found.texts.size(), texts.size());
  for (size_t i = 0; i < texts.size(); ++i) {
    const Translations::Text& text = found.texts[i];
    EXPECT_EQ(Tokens(text.tokens, text.tokens + text.n_tokens), texts[i]) << name << " " << i;
    EXPECT_NEAR(text.score, scores[i], 1e-4);
  }
}

TEST_P(Translators, LogitsAndSearchesAgree) {
  const Json golden = read_json_file(folder_ + "/golden.json");
  const InputFile file(folder_ + "/golden.safetensors");
  const std::vector<SourceTensor> tensors = read_safetensors_header(file, 0);
  MemorySink sink;
  const Status status = convert_folder(folder_, sink);
  ASSERT_TRUE(status.ok()) << status.text();
  Machine machine(sink);
  ASSERT_TRUE(machine.status().ok()) << machine.status().text();
  SessionOptions exact;
  exact.kv = KvType::kF32;
  const Box<Session> session = machine.session(exact);
  for (size_t i = 0; i < golden.at("cases").size(); ++i) {
    const Json& c = golden.at("cases")[i];
    const auto source = c.at("source").get<Tokens>(), text = c.at("text").get<Tokens>();
    ASSERT_TRUE(read_source(*session, span(source)).ok());
    const Floats expected = test::read_tensor(file, tensors, "logits." + std::to_string(i));
    EXPECT_LE(test::relative(eval_all(*session, text), expected), 1e-5) << i;
    const auto most = golden.at("max_tokens").get<int32_t>();
    expect_search(*session, c, "step", BeamStop::kStep, most);
    expect_search(*session, c, "bound", BeamStop::kBound, most);
  }
}

INSTANTIATE_TEST_SUITE_P(Checkpoints, Translators,
                         testing::ValuesIn(test::folder_names(kTranslationFolder)),
                         [](const auto& name) { return name.param; });
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Translators);

/// A copy of a checkpoint's weights and its config.json with a patch.
struct Changed {
  explicit Changed(const std::string& kind, const Json& patch = Json::object()) {
    const std::string from = std::string(kTranslationFolder) + "/" + kind;
    Json config = read_json_file(from + "/config.json");
    config.merge_patch(patch);
    folder.write("config.json", config.dump());
    std::filesystem::copy(from + "/model.safetensors", folder.path() + "/model.safetensors");
  }
  test::TempFolder folder;
};

// Marian is published with two SentencePiece models instead of a tokenizer.json.
TEST(TranslatorsTake, MarianWithoutItsTokenizers) {
  const Changed marian("marian");
  for (const char* name : {"vocab.json", "source.spm", "target.spm"})
    marian.folder.write(name, "{}");
  MemorySink sink;
  const Status status = convert_folder(marian.folder.path(), sink);
  ASSERT_TRUE(status.ok()) << status.text();
}

int32_t forced_token(const Changed& checkpoint) {
  MemorySink sink;
  const Status status = convert_folder(checkpoint.folder.path(), sink);
  EXPECT_TRUE(status.ok()) << status.text();
  return Machine(sink).model().config().forced_token_id;
}

TEST(TranslatorsTake, TheForcedTokenWhereTransformersFindsIt) {
  const Json old = parse_json(R"({"forced_bos_token_id": null, "bos_token_id": 0,
      "force_bos_token_to_be_generated": true})",
                              "test");
  EXPECT_EQ(forced_token(Changed("bart", old)), 0);
  EXPECT_EQ(forced_token(Changed("bart", parse_json(R"({"forced_bos_token_id": 5})", "test"))), 5);
  const Changed both("bart", parse_json(R"({"forced_bos_token_id": 5})", "test"));
  both.folder.write("generation_config.json", R"({"decoder_start_token_id": 2})");
  EXPECT_EQ(forced_token(both), -1);
}

// The error message for a changed config.json.
std::string refusal(const char* patch, const char* kind = "bart") {
  const Changed changed(kind, parse_json(patch, "test"));
  MemorySink sink;
  const Status status = convert_folder(changed.folder.path(), sink);
  EXPECT_FALSE(status.ok()) << patch;
  return status.text();
}

TEST(TranslatorsRefuse, UnsupportedSettings) {
  const auto names = [](const char* patch, const char* word) {
    const std::string text = refusal(patch);
    EXPECT_NE(text.find(word), std::string::npos) << text;
  };
  names(R"({"tie_word_embeddings": false})", "tie_word_embeddings");
  names(R"({"normalize_before": true})", "normalize_before");
  names(R"({"encoder_attention_heads": 3})", "encoder_attention_heads");
  names(R"({"decoder_start_token_id": 51})", "decoder_start_token_id");
  names(R"({"decoder_start_token_id": null, "bos_token_id": null})", "decoder_start_token_id");
  names(R"({"eos_token_id": null})", "eos_token_ids");
  names(R"({"d_model": 16})", "embed_positions");
  names(R"({"decoder_layers": 3})", "decoder.layers.2");
  names(R"({"some_new_key": 1})", "some_new_key");
  const std::string text =
      refusal(R"({"max_position_embeddings": 1048576, "d_model": 1048576})", "marian");
  EXPECT_NE(text.find("max_position_embeddings"), std::string::npos) << text;
}

}  // namespace
}  // namespace moe
