// SPDX-License-Identifier: MIT
// Encoders and encoder-decoders in the formats of torchscale and XMoE, converted and run: outputs
// must be those of torchscale, or for XMoE those of a PyTorch model written for this test
// (tests/data/papers, written by tests/parity/papers.py).

#include "src/convert/convert.h"
#include "src/run/translate.h"
#include "tests/convert/checkpoint_builder.h"
#include "tests/convert/golden_logits.h"

namespace moe {
namespace {

const char* const kFolder = "tests/data/papers";

std::vector<std::string> paper_names() { return test::folder_names(kFolder); }

Status convert_paper(const std::string& folder, MemorySink& sink) {
  ConvertReport report;
  ConvertOptions options;
  options.weights = "f32";
  return convert_to_sink(folder, sink, options, &report);
}

// The outputs of the head, or the hidden states if there is none.
Floats encode(Session& session, const Tokens& ids) {
  const ModelConfig& c = session.model().config();
  const bool bare = c.head.kind == HeadKind::kNone;
  Floats found(ids.size() * static_cast<size_t>(bare ? c.d_model : c.n_outputs()));
  Encoding out;
  (bare ? out.hidden : out.outputs) = found.data();
  const Status status = session.encode(span(ids), out);
  EXPECT_TRUE(status.ok()) << status.text();
  return found;
}

Floats outputs_of(Session& session, const Json& c) {
  if (c.contains("ids")) return encode(session, c.at("ids").get<Tokens>());
  const auto source = c.at("source").get<Tokens>();
  EXPECT_TRUE(read_source(session, span(source)).ok());
  return eval_all(session, c.at("text").get<Tokens>());
}

class Papers : public testing::TestWithParam<std::string> {};

TEST_P(Papers, OutputsAgree) {
  const std::string folder = std::string(kFolder) + "/" + GetParam();
  const Json golden = read_json_file(folder + "/golden.json");
  const InputFile file(folder + "/golden.safetensors");
  const std::vector<SourceTensor> tensors = read_safetensors_header(file, 0);
  MemorySink sink;
  const Status status = convert_paper(folder, sink);
  ASSERT_TRUE(status.ok()) << status.text();
  Machine machine(sink);
  ASSERT_TRUE(machine.status().ok()) << machine.status().text();
  SessionOptions exact;
  exact.kv = KvType::kF32;
  const Box<Session> session = machine.session(exact);
  for (size_t i = 0; i < golden.at("cases").size(); ++i) {
    const Floats expected = test::read_tensor(file, tensors, "outputs." + std::to_string(i));
    EXPECT_LE(test::relative(outputs_of(*session, golden.at("cases")[i]), expected), 1e-4) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Checkpoints, Papers, testing::ValuesIn(paper_names()),
                         [](const auto& name) { return name.param; });
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Papers);

TEST(PaperCases, FilesExist) { EXPECT_EQ(paper_names().size(), 11u); }

// translator_top2 in the research layout.
const char* const kResearch = R"({"model_type": "moe_research", "layout_version": 1,
  "vocab_size": 40, "d_model": 32, "n_layers": 4, "context_length": 40, "source_length": 40,
  "norm": {"kind": "layer"}, "positions": "learned", "tie_embeddings": true,
  "embedding_multiplier": 5.656854249492381, "n_encoder_layers": 2, "encoder_norm": true,
  "start_token_id": 2, "eos_token_ids": [2], "pad_token_id": 1,
  "layer_defaults": {"attention": {"n_heads": 4}, "ffn": {"kind": "dense", "d_ff": 48, "act": "relu",
    "moe": {"n_experts": 6, "router": {"kind": "softmax", "k": 2}}}},
  "layers": [
    {"index": [0, 1], "attention": {"n_heads": 2, "causal": false}, "ffn": {"d_ff": 40}},
    {"index": [2, 3], "cross_attention": {"n_heads": 4}},
    {"index": 1, "ffn": {"kind": "moe", "d_ff": 10}},
    {"index": 3, "ffn": {"kind": "moe", "d_ff": 12}}]})";

// The order matters: a word may contain a word of a later row.
const char* const kWords[][2] = {{"decoder.embed_tokens", "embedding"},
                                 {"encoder.embed_positions", "source_position_embedding"},
                                 {"decoder.embed_positions", "position_embedding"},
                                 {"encoder.layer_norm", "encoder_norm"},
                                 {"decoder.layer_norm", "final_norm"},
                                 {"encoder.layers.", "layers."},
                                 {"decoder.layers.0", "layers.2"},
                                 {"decoder.layers.1", "layers.3"},
                                 {"self_attn_layer_norm", "attention_norm"},
                                 {"encoder_attn_layer_norm", "cross_attention_norm"},
                                 {"final_layer_norm", "ffn_norm"},
                                 {"self_attn", "attention"},
                                 {"encoder_attn", "cross_attention"},
                                 {"out_proj", "o"},
                                 {"_proj", ""},
                                 {"gate.wg", "moe.router"},
                                 {"experts.yyh_local_experts", "moe.experts"}};

std::string research_name(std::string name) {
  for (const auto& [word, by] : kWords) {
    const size_t at = name.find(word);
    if (at != std::string::npos) name.replace(at, std::string_view(word).size(), by);
  }
  const std::string ffn = name.find("experts") == std::string::npos ? "ffn." : "";
  for (const auto& [word, by] : {std::pair("fc1", "up"), std::pair("fc2", "down")}) {
    const size_t at = name.find(word);
    if (at != std::string::npos) name.replace(at, 3, ffn + by);
  }
  return name;
}

test::RawTensors research_tensors(const std::string& from) {
  test::RawTensors tensors;
  const InputFile file(from + "/model.safetensors");
  for (const SourceTensor& t : read_safetensors_header(file, 0)) {
    const bool twice = t.name.find("version") != std::string::npos ||
                       t.name == "encoder.embed_tokens.weight" ||
                       t.name == "decoder.output_projection.weight";
    if (twice) continue;
    const size_t skipped = t.name.find("embed_positions") == std::string::npos ? 0 : 2 * 32;
    Floats values(t.n_elements - skipped);
    file.read(t.offset + skipped * sizeof(float), values.data(), values.size() * sizeof(float));
    std::vector<int64_t> shape = t.shape;
    if (skipped > 0) shape[0] -= 2;
    tensors[research_name(t.name)] = test::f32_tensor(shape, values);
  }
  return tensors;
}

TEST(PaperCases, TheResearchLayoutSaysTheSameModel) {
  const std::string from = std::string(kFolder) + "/translator_top2";
  test::TempFolder folder;
  folder.write("config.json", kResearch);
  folder.write("model.safetensors", test::safetensors_text(research_tensors(from)));
  const Json golden = read_json_file(from + "/golden.json");
  std::vector<Floats> found;
  for (const std::string& path : {from, folder.path()}) {
    MemorySink sink;
    const Status status = convert_paper(path, sink);
    ASSERT_TRUE(status.ok()) << status.text();
    Machine machine(sink);
    ASSERT_TRUE(machine.status().ok()) << machine.status().text();
    const Box<Session> session = machine.session();
    found.push_back(outputs_of(*session, golden.at("cases")[0]));
  }
  EXPECT_EQ(found[0], found[1]);
}

test::RawTensors paper_tensors(const std::string& from) {
  test::RawTensors tensors;
  const InputFile file(from + "/model.safetensors");
  const std::vector<SourceTensor> found = read_safetensors_header(file, 0);
  for (const SourceTensor& t : found) {
    tensors[t.name] = test::f32_tensor(t.shape, test::read_tensor(file, found, t.name));
  }
  return tensors;
}

TEST(PaperCases, SharedTablesThatDifferAreRefused) {
  for (const char* kind : {"translator_xmoe", "translator_threshold"}) {
    const std::string from = std::string(kFolder) + "/" + kind;
    for (const char* name : {"encoder.embed_tokens.weight", "decoder.output_projection.weight"}) {
      test::RawTensors tensors = paper_tensors(from);
      ASSERT_EQ(tensors.count(name), 1u) << kind;
      tensors[name].bytes.back() ^= 1;
      test::TempFolder folder;
      folder.write("config.json", read_json_file(from + "/config.json").dump());
      folder.write("model.safetensors", test::safetensors_text(tensors));
      MemorySink sink;
      const Status status = convert_paper(folder.path(), sink);
      EXPECT_EQ(status.code(), MOE_ERR_UNSUPPORTED);
      EXPECT_NE(std::string(status.text()).find(name), std::string::npos) << status.text();
    }
  }
}

// A tied head may be missing from the file.
TEST(PaperCases, ATiedHeadNeedNotBeInTheFile) {
  const std::string from = std::string(kFolder) + "/encoder_xmoe_top2";
  const std::string head = "encoder.output_projection.weight";
  test::RawTensors tensors = paper_tensors(from);
  tensors[head] = tensors.at("encoder.embed_tokens.weight");
  Json config = read_json_file(from + "/config.json");
  const Tokens ids = read_json_file(from + "/golden.json").at("cases")[0].at("ids").get<Tokens>();
  std::vector<Floats> outputs;
  for (const bool tied : {false, true}) {
    config["share_encoder_input_output_embed"] = tied;
    if (tied) tensors.erase(head);
    test::TempFolder folder;
    folder.write("config.json", config.dump());
    folder.write("model.safetensors", test::safetensors_text(tensors));
    MemorySink sink;
    const Status status = convert_paper(folder.path(), sink);
    ASSERT_TRUE(status.ok()) << status.text();
    Machine machine(sink);
    ASSERT_TRUE(machine.status().ok()) << machine.status().text();
    outputs.push_back(encode(*machine.session(), ids));
  }
  EXPECT_EQ(outputs[0].size(), ids.size() * 40);
  EXPECT_EQ(outputs[0], outputs[1]);
}

// The error message for a changed config.json.
std::string paper_refusal(const char* kind, const char* patch) {
  const std::string from = std::string(kFolder) + "/" + kind;
  Json config = read_json_file(from + "/config.json");
  config.merge_patch(parse_json(patch, "test"));
  test::TempFolder folder;
  folder.write("config.json", config.dump());
  std::filesystem::copy(from + "/model.safetensors", folder.path() + "/model.safetensors");
  MemorySink sink;
  const Status status = convert_paper(folder.path(), sink);
  EXPECT_FALSE(status.ok()) << patch;
  return status.text();
}

TEST(PaperCases, RefuseWhatCannotBeSaid) {
  const auto names = [](const char* kind, const char* patch, const char* word) {
    const std::string text = paper_refusal(kind, patch);
    EXPECT_NE(text.find(word), std::string::npos) << text;
  };
  names("encoder_xmoe_top1", R"({"rel_pos_buckets": 32, "max_rel_pos": 128})", "rel_pos_buckets");
  names("encoder_xmoe_top1", R"({"multiway": true})", "multiway");
  names("encoder_xmoe_top1", R"({"xpos_rel_pos": true})", "xpos_rel_pos");
  names("encoder_xmoe_top1", R"({"activation_fn": "tanh"})", "activation_fn");
  names("encoder_xmoe_top1", R"({"encoder_layers": 3})", "encoder.layers.2");
  names("encoder_xmoe_top1", R"({"some_new_key": 1})", "some_new_key");
  names("encoder_deepnorm", R"({"encoder_normalize_before": true})", "encoder_normalize_before");
  names("translator_xmoe", R"({"deepnorm": true, "subln": false})", "deepnorm");
  names("translator_xmoe", R"({"share_all_embeddings": false})", "share_all_embeddings");
  names("translator_xmoe", R"({"encoder_embed_dim": 32})", "encoder_embed_dim");
  names("translator_threshold", R"({"share_all_embeddings": false})", "share_all_embeddings");
  names("translator_threshold", R"({"encoder_embed_dim": 16})", "encoder_embed_dim");
  names("translator_threshold", R"({"no_cross_attention": true})", "no_cross_attention");
  names("translator_threshold", R"({"encoder_learned_pos": true})", "encoder.embed_positions");
}

}  // namespace
}  // namespace moe
