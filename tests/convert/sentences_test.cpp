// SPDX-License-Identifier: MIT
// Folders of sentence-transformers, and BERT's tokenizer as vocab.txt. The right vectors are those
// of the package (tests/data/encoders/sentences, written by tests/parity/encoders.py).

#include "src/c_api/load_tokenizer.h"
#include "src/convert/convert.h"
#include "src/convert/tokenizer/tokenizer_json.h"
#include "src/convert/tokenizer/tokenizer_write.h"
#include "tests/convert/checkpoint_builder.h"
#include "tests/convert/golden_logits.h"

namespace moe {
namespace {

const std::string kSentenceFolder = "tests/data/encoders/sentences";
const std::string kBertFolder = "tests/data/encoders/bert_model";

// A copy of a folder, to be changed.
class CopiedFolder {
 public:
  explicit CopiedFolder(const std::string& from) {
    std::filesystem::copy(from, folder_.path(), std::filesystem::copy_options::recursive);
  }
  void put(const std::string& name, const std::string& text) const { folder_.write(name, text); }
  void remove(const std::string& name) const { std::filesystem::remove(folder_.file(name)); }
  const std::string& path() const { return folder_.path(); }

  Status convert(MemorySink& sink) const {
    ConvertOptions options;
    options.weights = "f32";
    ConvertReport report;
    return convert_to_sink(folder_.path(), sink, options, &report);
  }
  std::string refused() const {
    MemorySink sink;
    const Status status = convert(sink);
    EXPECT_FALSE(status.ok());
    return status.text();
  }

 private:
  test::TempFolder folder_;
};

#define EXPECT_SAYS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

Floats vector_of(Session& session, const Tokens& tokens) {
  const ModelConfig& c = session.model().config();
  Floats out(static_cast<size_t>(c.d_model));
  Encoding e;
  e.pooled = out.data();
  e.pooling = c.text_vector.pooling;
  e.normalise = c.text_vector.normalise;
  const Status status = session.encode({tokens.data(), tokens.size()}, e);
  EXPECT_TRUE(status.ok()) << status.text();
  return out;
}

// The first `most` tokens, of which the last is the text's last.
Tokens encoded(const TokenizerData& data, const std::string& text, size_t most) {
  flatbuffers::FlatBufferBuilder b;
  b.Finish(write_tokenizer(b, data));
  const auto* table = flatbuffers::GetRoot<fbs::Tokenizer>(b.GetBufferPointer());
  const Box<Tokenizer> tokenizer = take(load_tokenizer(*table, 0, system_allocator()));
  Array<int32_t> ids;
  check(tokenizer->encode(text, true, false, ids));
  Tokens out(ids.begin(), ids.end());
  if (out.size() <= most) return out;
  out[most - 1] = out.back();
  out.resize(most);
  return out;
}

TEST(Sentences, VectorsAreThoseOfThePackage) {
  MemorySink sink;
  ConvertOptions options;
  options.weights = "f32";
  ConvertReport report;
  const Status status = convert_to_sink(kSentenceFolder, sink, options, &report);
  ASSERT_TRUE(status.ok()) << status.text();
  EXPECT_EQ(sink.data()[10], 5);  // minor version 5, since readers of 1.4 would pool otherwise
  Machine machine(sink);
  ASSERT_TRUE(machine.status().ok()) << machine.status().text();
  const TextVectorConfig& v = machine.model().config().text_vector;
  EXPECT_TRUE(v.known);
  EXPECT_EQ(v.pooling, Pooling::kFirst);
  EXPECT_TRUE(v.normalise);
  EXPECT_EQ(v.max_tokens, 16);
  EXPECT_EQ(v.default_prompt, -1);
  std::map<std::string, std::string> prompts;
  for (const Prompt& p : v.prompts) prompts[p.name] = p.text;
  EXPECT_EQ(prompts, (std::map<std::string, std::string>{
                         {"document", ""}, {"passage", ""}, {"query", "the dog: "}}));
  const TokenizerData tokenizer = read_tokenizer(kSentenceFolder);
  const Json golden = read_json_file(kSentenceFolder + "/golden.json");
  for (const Json& c : golden.at("cases")) {
    const std::string text = prompts.at(c.at("prompt").text()) + c.at("text").text();
    const Floats found = vector_of(*machine.session(), encoded(tokenizer, text, 16));
    EXPECT_LE(test::relative(found, c.at("vector").get<Floats>()), 1e-5) << text;
  }
}

TEST(Sentences, OlderFoldersSayTheSame) {
  const CopiedFolder folder(kSentenceFolder);
  folder.put("1_Pooling/config.json",
             R"({"word_embedding_dimension": 24, "pooling_mode_cls_token": false,
                 "pooling_mode_mean_tokens": false, "pooling_mode_lasttoken": true})");
  folder.put("config_sentence_transformers.json",
             R"({"prompts": {"a": "x ", "b": "y "}, "default_prompt_name": "b"})");
  folder.put("sentence_bert_config.json", R"({"max_seq_length": 512, "do_lower_case": true})");
  folder.put("modules.json", R"([
    {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
    {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"}])");
  MemorySink sink;
  const Status status = folder.convert(sink);
  ASSERT_TRUE(status.ok()) << status.text();
  Machine machine(sink);
  const TextVectorConfig& v = machine.model().config().text_vector;
  EXPECT_EQ(v.pooling, Pooling::kLast);
  EXPECT_FALSE(v.normalise);
  EXPECT_EQ(v.max_tokens, 0);  // the context holds fewer
  ASSERT_EQ(v.default_prompt, 1);
  EXPECT_STREQ(v.prompts[1].text, "y ");
}

TEST(Sentences, WhatWouldChangeVectorsIsRefusedByName) {
  const auto refused = [](const char* file, const char* text) {
    const CopiedFolder folder(kSentenceFolder);
    folder.put(file, text);
    return folder.refused();
  };
  const char* const pooling = "1_Pooling/config.json";
  EXPECT_SAYS(refused(pooling, R"({"pooling_mode_max_tokens": true})"), "\"max_tokens\"");
  EXPECT_SAYS(refused(pooling, R"({"pooling_mode": ["cls", "mean"]})"), "one pooling at a time");
  EXPECT_SAYS(
      refused(pooling, R"({"pooling_mode_cls_token": true, "pooling_mode_mean_tokens": true})"),
      "at once");
  EXPECT_SAYS(refused(pooling, R"({"pooling_mode": "cls", "other": 1})"), "other");
  EXPECT_SAYS(refused(pooling, R"({"pooling_mode": "cls", "include_prompt": false})"),
              "include_prompt");
  EXPECT_SAYS(refused("modules.json", R"([{"path": "", "type": "x.Transformer"},
      {"path": "1_Pooling", "type": "x.Pooling"}, {"path": "2_Dense", "type": "x.Dense"}])"),
              "Dense");
  EXPECT_SAYS(refused("modules.json", R"([{"path": "", "type": "x.Transformer"},
      {"path": "../1_Pooling", "type": "x.Pooling"}])"),
              "a folder beside it");
  EXPECT_SAYS(refused("modules.json", R"([{"path": "", "type": "x.Transformer"}])"), "Pooling");
  EXPECT_SAYS(refused("modules.json", "{}"), "modules.json");
  EXPECT_SAYS(refused("config_sentence_transformers.json",
                      R"({"prompts": {"a": "x"}, "default_prompt_name": "b"})"),
              "default_prompt_name");
  EXPECT_SAYS(refused("sentence_bert_config.json", R"({"max_seq_length": 0})"), "max_seq_length");
}

TEST(VocabTxt, GivesTheIdsOfTokenizerJson) {
  const CopiedFolder folder(kBertFolder);
  const Json tokenizer = read_json_file(kBertFolder + "/tokenizer.json");
  std::map<int64_t, std::string> pieces;
  for (const auto& [piece, id] : tokenizer.at("model").at("vocab").items()) {
    pieces[id.get<int64_t>()] = piece;
  }
  std::string lines;
  for (const auto& [id, piece] : pieces) lines += piece + (id % 2 == 0 ? "\n" : "\r\n");
  folder.remove("tokenizer.json");
  folder.put("vocab.txt", lines);
  folder.put("tokenizer_config.json",
             R"({"tokenizer_class": "BertTokenizer", "do_lower_case": true})");
  MemorySink sink;
  const Status status = folder.convert(sink);
  ASSERT_TRUE(status.ok()) << status.text();
  Machine machine(sink);
  EXPECT_EQ(machine.model().config().mask_token_id, static_cast<int32_t>(pieces.size()) - 1);
  const Checkpoint checkpoint(folder.path());
  const TokenizerData data = read_tokenizer(checkpoint, "vocab.txt");
  const Json golden = read_json_file(kBertFolder + "/golden.json");
  const Json& last =
      golden.at("cases")[golden.at("cases").size() - 1];  // no mask, which is text here
  EXPECT_EQ(encoded(data, last.at("text").text(), 64), last.at("ids").get<Tokens>());
  folder.put("tokenizer_config.json", R"({"do_lower_case": false})");
  EXPECT_NE(encoded(read_tokenizer(checkpoint, "vocab.txt"), last.at("text").text(), 64),
            last.at("ids").get<Tokens>());
}

// null is no mask, and the file has no other; a wish for lower case is met by vocab.txt's steps.
TEST(VocabTxt, WithoutAMaskToken) {
  const CopiedFolder folder(kBertFolder);
  folder.remove("tokenizer.json");
  folder.put("vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\n");
  const Checkpoint checkpoint(folder.path());
  const auto mask_of = [&](const char* config) {
    folder.put("tokenizer_config.json", config);
    return read_tokenizer(checkpoint, "vocab.txt").mask_id;
  };
  EXPECT_EQ(mask_of("{}"), 4);
  EXPECT_EQ(mask_of(R"({"mask_token": null})"), -1);
  EXPECT_EQ(mask_of(R"({"mask_token": "a", "unk_token": null})"), 5);
}

TEST(VocabTxt, LowersTextForSentences) {
  const CopiedFolder folder(kSentenceFolder);
  const Json tokenizer = read_json_file(kSentenceFolder + "/tokenizer.json");
  std::map<int64_t, std::string> pieces;
  for (const auto& [piece, id] : tokenizer.at("model").at("vocab").items()) {
    pieces[id.get<int64_t>()] = piece;
  }
  std::string lines;
  for (const auto& [id, piece] : pieces) lines += piece + "\n";
  folder.remove("tokenizer.json");
  folder.put("vocab.txt", lines);
  folder.put("sentence_bert_config.json", R"({"max_seq_length": 12, "do_lower_case": true})");
  folder.put("tokenizer_config.json", "{}");
  MemorySink sink;
  const Status status = folder.convert(sink);
  EXPECT_TRUE(status.ok()) << status.text();
  folder.put("tokenizer_config.json", R"({"do_lower_case": false})");
  EXPECT_SAYS(folder.refused(), "do_lower_case");
}

TEST(VocabTxt, OtherClassesAreRefused) {
  const CopiedFolder folder(kBertFolder);
  folder.remove("tokenizer.json");
  folder.put("vocab.txt", "[UNK]\na\n");
  folder.put("tokenizer_config.json", R"({"tokenizer_class": "BertJapaneseTokenizer"})");
  EXPECT_SAYS(folder.refused(), "BertJapaneseTokenizer");
  folder.put("tokenizer_config.json", R"({"do_basic_tokenize": false})");
  EXPECT_SAYS(folder.refused(), "do_basic_tokenize");
}

}  // namespace
}  // namespace moe
