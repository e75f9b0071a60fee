// SPDX-License-Identifier: MIT
// BERT and NomicBert in GGUF files with the names and keys of llama.cpp's converter: outputs and
// ids must be those of `transformers` for the checkpoint that each was made from.

#include "src/convert/convert.h"
#include "src/convert/gguf/gguf_source.h"
#include "src/convert/gguf/gguf_wordpiece.h"
#include "src/convert/tokenizer/tokenizer_json.h"
#include "tests/convert/gguf_builder.h"
#include "tests/convert/golden_logits.h"
#include "tests/text/tokenizer_support.h"

namespace moe {
namespace {

using test::GgufBuilder;

using Names = std::vector<std::pair<std::string, std::string>>;

// Parts of names, the longest first.
const Names kBert = {{"embeddings.word_embeddings", "token_embd"},
                     {"embeddings.token_type_embeddings", "token_types"},
                     {"embeddings.position_embeddings", "position_embd"},
                     {"embeddings.LayerNorm", "token_embd_norm"},
                     {"encoder.layer.", "blk."},
                     {"attention.output.LayerNorm", "attn_output_norm"},
                     {"attention.output.dense", "attn_output"},
                     {"attention.self.query", "attn_q"},
                     {"attention.self.key", "attn_k"},
                     {"attention.self.value", "attn_v"},
                     {"intermediate.dense", "ffn_up"},
                     {"output.LayerNorm", "layer_output_norm"},
                     {"output.dense", "ffn_down"}};
const Names kNomic = {{"embeddings.word_embeddings", "token_embd"},
                      {"embeddings.token_type_embeddings", "token_types"},
                      {"emb_ln", "token_embd_norm"},
                      {"encoder.layers.", "blk."},
                      {"attn.Wqkv", "attn_qkv"},
                      {"attn.out_proj", "attn_output"},
                      {"norm1", "attn_output_norm"},
                      {"norm2", "layer_output_norm"},
                      {"mlp.fc11", "ffn_up"},
                      {"mlp.fc12", "ffn_gate"},
                      {"mlp.fc2", "ffn_down"}};

struct Case {
  const char* arch;
  const char* folder;
  const Names& names;
};
const Case kCases[] = {{"bert", "tests/data/encoders/bert_model", kBert},
                       {"nomic-bert", "tests/data/encoders/nomic_model", kNomic}};

class GgufEncoder : public testing::Test {
 protected:
  // Keys and tokens; `change` may add keys.
  GgufBuilder start(const Case& c) {
    GgufBuilder b;
    const std::string arch = c.arch;
    b.string("general.architecture", arch);
    for (const auto& [key, value] : {std::pair{"context_length", 40U},
                                     {"embedding_length", 24U},
                                     {"block_count", 2U},
                                     {"feed_forward_length", 20U},
                                     {"attention.head_count", 2U}}) {
      b.u32(arch + "." + key, value);
    }
    b.f32(arch + ".attention.layer_norm_epsilon", 1e-5F);
    b.pair(arch + ".attention.causal", 7, std::string(1, '\0'));
    if (arch == "nomic-bert") b.f32(arch + ".rope.freq_base", 1000);
    b.string("tokenizer.ggml.model", "bert");
    b.u32("tokenizer.ggml.token_type_count", 2);
    for (const auto& [key, id] : {std::pair{"unknown", 1U},
                                  {"seperator", 3U},
                                  {"padding", 0U},
                                  {"cls", 2U},
                                  {"mask", 74U}}) {
      b.u32(std::string("tokenizer.ggml.") + key + "_token_id", id);
    }
    add_tokens(c.folder, &b);
    return b;
  }

  // As llama.cpp's converter writes BERT's vocabulary.
  static void add_tokens(const std::string& folder, GgufBuilder* b) {
    const Json vocab = read_json_file(folder + "/tokenizer.json").at("model").at("vocab");
    std::vector<std::string> tokens(vocab.size());
    std::vector<int32_t> types(vocab.size(), 1);
    for (const auto& [text, id] : vocab.items()) {
      const bool special = text[0] == '[';
      const std::string piece = special                  ? text
                                : text.starts_with("##") ? text.substr(2)
                                                         : "▁" + text;
      tokens[id.get<size_t>()] = piece;
      if (special) types[id.get<size_t>()] = 3;
    }
    b->strings("tokenizer.ggml.tokens", tokens);
    b->numbers("tokenizer.ggml.token_type", 5, types);
  }

  static void add_tensors(const Case& c, GgufBuilder* b) {
    const InputFile file(std::string(c.folder) + "/model.safetensors");
    for (const SourceTensor& t : read_safetensors_header(file, 0)) {
      std::string name = t.name;
      for (const auto& [part, gguf] : c.names) {
        const size_t at = name.find(part);
        if (at != std::string::npos) name.replace(at, part.size(), gguf);
      }
      std::string bytes(t.n_elements * sizeof(float), '\0');
      file.read(t.offset, bytes.data(), bytes.size());
      b->tensor(name, 0, {t.shape.begin(), t.shape.end()}, bytes);
    }
  }

  Status convert(const GgufBuilder& b) {
    folder_.write("m.gguf", b.file());
    ConvertOptions options;
    options.weights = "f32";
    ConvertReport report;
    sink_.emplace();
    return convert_to_sink(folder_.file("m.gguf"), *sink_, options, &report);
  }
  std::string refused(const GgufBuilder& b) {
    const Status status = convert(b);
    EXPECT_FALSE(status.ok());
    return status.text();
  }

  test::TempFolder folder_;
  std::optional<MemorySink> sink_;
};

TEST_F(GgufEncoder, OutputsAndIdsAreThoseOfTheCheckpoint) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.arch);
    GgufBuilder b = start(c);
    add_tensors(c, &b);
    const Status status = convert(b);
    ASSERT_TRUE(status.ok()) << status.text();
    Machine machine(*sink_);
    ASSERT_TRUE(machine.status().ok()) << machine.status().text();
    EXPECT_EQ(machine.model().config().mask_token_id, 74);
    EXPECT_FALSE(machine.model().config().text_vector.known);
    const auto loaded =
        load(read_tokenizer(open_checkpoint(folder_.file("m.gguf")), "tokenizer.json"));
    ASSERT_TRUE(loaded->status.ok()) << loaded->status.text();
    const std::string folder = c.folder;
    const InputFile file(folder + "/golden.safetensors");
    const std::vector<SourceTensor> tensors = read_safetensors_header(file, 0);
    const Json cases = read_json_file(folder + "/golden.json").at("cases");
    for (size_t i = 0; i < cases.size(); ++i) {
      const auto ids = cases[i].at("ids").get<Tokens>();
      const std::string text = cases[i].at("text").text();
      const IdList found = encode(*loaded->tokenizer, text, true);
      EXPECT_EQ(IdList(ids.begin(), ids.end()), found) << text;
      const Floats expected = test::read_tensor(file, tensors, "outputs." + std::to_string(i));
      Floats hidden(expected.size());
      Encoding out;
      out.hidden = hidden.data();
      const Status encoded = machine.session()->encode({ids.data(), ids.size()}, out);
      ASSERT_TRUE(encoded.ok()) << encoded.text();
      EXPECT_LE(test::relative(hidden, expected), 1e-5) << text;
    }
  }
}

TEST_F(GgufEncoder, SaysHowATextBecomesAVector) {
  const Case& c = kCases[0];
  for (const auto& [type, pooling] :
       {std::pair{1U, Pooling::kMean}, {2U, Pooling::kFirst}, {3U, Pooling::kLast}}) {
    GgufBuilder b = start(c);
    b.u32("bert.pooling_type", type);
    add_tensors(c, &b);
    const Status status = convert(b);
    ASSERT_TRUE(status.ok()) << status.text();
    Machine machine(*sink_);
    const TextVectorConfig& v = machine.model().config().text_vector;
    EXPECT_TRUE(v.known);
    EXPECT_TRUE(v.normalise);
    EXPECT_EQ(v.pooling, pooling);
  }
}

TEST(GgufWordpiece, AFewCapitalsDoNotMakeAVocabularyCased) {
  const auto lowers = [](std::vector<std::string> tokens) {
    tokens.resize(120, "word");
    Json out = Json::object();
    put_wordpiece(tokens, Json::object(), "[UNK]", &out);
    return out.at("normalizer").at("lowercase").get<bool>();
  };
  EXPECT_TRUE(lowers({"[PAD]", "[UNK]", "<S>", "<T>"}));  // as in Chinese BERT
  EXPECT_FALSE(lowers({"[PAD]", "[UNK]", "The", "He", "##A"}));
  EXPECT_EQ(wordpiece_text("<mask>", true), "<mask>");
  EXPECT_EQ(wordpiece_text("ing", false), "##ing");
}

TEST_F(GgufEncoder, ErrorsAreInTheFilesWords) {
  const Case& c = kCases[0];
  const auto with = [&](auto change) {
    GgufBuilder b = start(c);
    change(b);
    return refused(b);
  };
  EXPECT_NE(with([&](GgufBuilder& b) {
              b.u32("bert.pooling_type", 4);
              add_tensors(c, &b);
            }).find("key bert.pooling_type is 4: a reranker"),
            std::string::npos);
  EXPECT_NE(with([&](GgufBuilder& b) {
              b.u32("bert.new", 4);
              b.u32("bert.newer", 5);
              add_tensors(c, &b);
            }).find("m.gguf: keys bert.new (4), bert.newer (5) are not known"),
            std::string::npos);
  EXPECT_NE(with([&](GgufBuilder& b) {
              b.u32("bert.attention.head_count_kv", 1);
              add_tensors(c, &b);
            }).find("key bert.attention.head_count_kv with value 1 is not supported"),
            std::string::npos);
  const std::string missing = with([&](GgufBuilder& b) {
    b.f32_tensor("token_embd.weight", {75, 24});
    b.f32_tensor("token_types.weight", {2, 24});
    b.f32_tensor("position_embd.weight", {40, 24});
  });
  EXPECT_NE(missing.find("tensor token_embd_norm.weight"), std::string::npos) << missing;
  EXPECT_EQ(missing.find("embeddings"), std::string::npos) << missing;
}

}  // namespace
}  // namespace moe
