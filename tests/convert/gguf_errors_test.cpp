// SPDX-License-Identifier: MIT
// Errors about a GGUF file are in its own words; parts of a split model.

#include <gtest/gtest.h>

#include <cmath>

#include "formats/import/checkpoint.h"
#include "formats/import/failure.h"
#include "formats/import/file.h"
#include "formats/import/gguf_parts.h"
#include "src/convert/convert.h"
#include "src/convert/gguf/gguf_source.h"
#include "tests/convert/converted_model.h"
#include "tests/convert/gguf_builder.h"
#include "tests/support/every_nth.h"

namespace moe {
namespace {

using test::GgufBuilder;

// A key and its value: type and bytes.
struct Pair {
  std::string key;
  uint32_t type;
  std::string bytes;
};

template <class T>
std::string raw(T value) {
  return GgufBuilder::raw(value);
}

std::string strings(const std::vector<std::string>& list) {
  std::string bytes = raw<uint32_t>(8) + raw<uint64_t>(list.size());
  for (const std::string& s : list) bytes += GgufBuilder::text(s);
  return bytes;
}

std::vector<std::string> vocabulary() {
  std::vector<std::string> tokens = {"<unk>", "<s>", "</s>"};
  for (char c = 'a'; c <= 'l'; ++c) tokens.push_back(std::string(1, c));
  tokens.push_back("ab");
  return tokens;
}

// A Mixtral of one layer with YaRN and a SentencePiece vocabulary: keys of most kinds.
std::vector<Pair> pairs() {
  const auto u32 = [](uint32_t v) { return raw(v); };
  std::vector<Pair> out = {{"general.architecture", 8, GgufBuilder::text("llama")},
                           {"llama.attention.layer_norm_rms_epsilon", 6, raw(1e-5f)},
                           {"llama.rope.freq_base", 6, raw(1e4f)},
                           {"llama.rope.scaling.type", 8, GgufBuilder::text("yarn")},
                           {"llama.rope.scaling.factor", 6, raw(4.0f)},
                           {"tokenizer.ggml.model", 8, GgufBuilder::text("llama")}};
  for (const auto& [key, value] : {std::pair{"context_length", 64u},
                                   {"embedding_length", 8u},
                                   {"block_count", 1u},
                                   {"feed_forward_length", 12u},
                                   {"vocab_size", 16u},
                                   {"expert_count", 2u},
                                   {"expert_used_count", 1u},
                                   {"attention.head_count", 2u},
                                   {"attention.head_count_kv", 1u},
                                   {"rope.scaling.original_context_length", 32u},
                                   {"rope.dimension_count", 4u}}) {
    out.push_back({std::string("llama.") + key, 4, u32(value)});
  }
  out.push_back({"tokenizer.ggml.bos_token_id", 4, u32(1)});
  out.push_back({"tokenizer.ggml.eos_token_id", 4, u32(2)});
  out.push_back({"tokenizer.ggml.tokens", 9, strings(vocabulary())});
  std::string scores = raw<uint32_t>(6) + raw<uint64_t>(16);
  for (int i = 0; i < 16; ++i) scores += raw(static_cast<float>(-i));
  out.push_back({"tokenizer.ggml.scores", 9, scores});
  std::string types = raw<uint32_t>(5) + raw<uint64_t>(16);
  for (int i = 0; i < 16; ++i) types += raw(i == 0 ? 2 : i < 3 ? 3 : 1);
  out.push_back({"tokenizer.ggml.token_type", 9, types});
  return out;
}

using Tensors = std::map<std::string, std::vector<uint64_t>>;

Tensors tensors() {
  Tensors out = {{"token_embd.weight", {16, 8}}, {"output_norm.weight", {8}},
                 {"output.weight", {16, 8}},     {"blk.0.ffn_gate_inp.weight", {2, 8}},
                 {"blk.0.ffn_norm.weight", {8}}, {"blk.0.attn_norm.weight", {8}}};
  for (const char* name : {"attn_q", "attn_output"})
    out[std::string("blk.0.") + name + ".weight"] = {8, 8};
  for (const char* name : {"attn_k", "attn_v"})
    out[std::string("blk.0.") + name + ".weight"] = {4, 8};
  for (const char* name : {"gate", "up"})
    out[std::string("blk.0.ffn_") + name + "_exps.weight"] = {2, 12, 8};
  out["blk.0.ffn_down_exps.weight"] = {2, 8, 12};
  return out;
}

class GgufErrors : public testing::Test {
 protected:
  Status convert_with(const std::vector<Pair>& keys, const Tensors& shapes) {
    GgufBuilder b;
    for (const Pair& p : keys) b.pair(p.key, p.type, p.bytes);
    for (const auto& [name, shape] : shapes) b.f32_tensor(name, shape);
    return convert_text("m.gguf", b.file());
  }
  Status convert_text(const std::string& name, const std::string& text) {
    folder_.write(name, text);
    ConvertReport report;
    return convert(folder_.file(name), folder_.file("m.moe"), {}, &report);
  }
  // Without the file's path.
  std::string said(const Status& status) const {
    std::string text = status.text();
    for (size_t at = text.find(folder_.path()); at != std::string::npos;
         at = text.find(folder_.path())) {
      text.erase(at, folder_.path().size() + 1);
    }
    return text;
  }
  void expect_own_words(const Status& status, const std::string& what) {
    const std::string text = said(status);
    for (const char* made :
         {".json", "hidden_size", "num_", "vocab_size\"", "rms_norm", "rope_scaling", "rope_theta",
          "max_position", "intermediate", "partial_rotary", "model.", "lm_head", "head_dim",
          "added_tokens", "eos_token_id["}) {
      std::string rest = text;
      for (size_t at = rest.find("tokenizer.ggml.model"); at != std::string::npos;
           at = rest.find("tokenizer.ggml.model")) {
        rest.erase(at, 20);
      }
      EXPECT_EQ(rest.find(made), std::string::npos) << what << ": " << text;
    }
  }
  test::TempFolder folder_;
};

TEST_F(GgufErrors, TheIntactFileConverts) {
  const Status status = convert_with(pairs(), tensors());
  EXPECT_TRUE(status.ok()) << status.text();
}

TEST_F(GgufErrors, AConvolutionNeedsItsLength) {
  std::vector<Pair> keys = pairs();
  for (Pair& p : keys) {
    if (p.key.starts_with("llama.")) p.key.replace(0, 5, "lfm2");
  }
  keys[0].bytes = GgufBuilder::text("lfm2");
  const std::string text = said(convert_with(keys, tensors()));
  EXPECT_TRUE(text.starts_with("m.gguf: key lfm2.shortconv.l_cache is missing")) << text;
}

// Each key in turn has another type or value, or is missing.
TEST_F(GgufErrors, NameKeysOfTheFile) {
  const Pair values[] = {{"a word", 8, GgufBuilder::text("word")},
                         {"0", 4, raw<uint32_t>(0)},
                         {"huge", 4, raw<uint32_t>(4000000000u)},
                         {"negative", 5, raw<int32_t>(-7)},
                         {"a fraction", 6, raw(0.37f)},
                         {"not a number", 6, raw<uint32_t>(0x7FC00000)},
                         {"true", 7, std::string(1, '\1')},
                         {"an empty list", 9, raw<uint32_t>(4) + raw<uint64_t>(0)},
                         {"a list", 9, raw<uint32_t>(4) + raw<uint64_t>(1) + raw<uint32_t>(3)}};
  const std::vector<Pair> whole = pairs();
  size_t n_errors = 0;
  const auto attempt = [&](const std::vector<Pair>& keys, const std::string& key,
                           const std::string& how) {
    const Status status = convert_with(keys, tensors());
    if (status.ok()) return;
    ++n_errors;
    expect_own_words(status, key + " is " + how);
    // The key itself, or one that contradicts it, or a tensor.
    const std::string text = said(status);
    const bool named = text.find(key) != std::string::npos ||
                       text.find("llama.") != std::string::npos ||
                       text.find("tokenizer.ggml.") != std::string::npos ||
                       text.find(".weight") != std::string::npos;
    EXPECT_TRUE(named) << key << " is " << how << ": " << text;
    EXPECT_EQ(text.find("m.gguf"), text.rfind("m.gguf")) << text;
  };
  for (size_t i = 0; i < whole.size(); ++i) {
    std::vector<Pair> keys = whole;
    for (const Pair& value : values) {
      keys[i] = {whole[i].key, value.type, value.bytes};
      attempt(keys, whole[i].key, value.key);
    }
    keys.erase(keys.begin() + static_cast<ptrdiff_t>(i));
    attempt(keys, whole[i].key, "missing");
  }
  EXPECT_GT(n_errors, 100u);
}

TEST_F(GgufErrors, SayWhatToDo) {
  const auto changed = [&](const std::string& key, uint32_t type, const std::string& bytes) {
    std::vector<Pair> keys = pairs();
    for (Pair& p : keys) {
      if (p.key == key) p = {key, type, bytes};
    }
    return said(convert_with(keys, tensors()));
  };
  EXPECT_EQ(changed("llama.embedding_length", 8, GgufBuilder::text("x")),
            "m.gguf: key llama.embedding_length: expected a number, found \"x\"; take another "
            "file of the model, or correct the key with gguf-set-metadata (pip install gguf)");
  EXPECT_EQ(
      changed("tokenizer.ggml.scores", 4, raw<uint32_t>(0)),
      "m.gguf: key tokenizer.ggml.scores: expected an array, found 0; without the tokenizer: moe "
      "convert --ignore-key tokenizer.ggml.model");
  EXPECT_TRUE(changed("tokenizer.ggml.eos_token_id", 8, GgufBuilder::text("x"))
                  .ends_with("; without it: moe convert --ignore-key tokenizer.ggml.eos_token_id"));
  std::vector<Pair> keys = pairs();
  keys.push_back({"llama.new_a", 4, raw<uint32_t>(1)});
  keys.push_back({"llama.new.b", 4, raw<uint32_t>(2)});
  EXPECT_EQ(said(convert_with(keys, tensors())),
            "m.gguf: keys llama.new.b (2), llama.new_a (1) are not known to this importer and may "
            "change what the model computes; if they do not: moe convert --ignore-key "
            "llama.new.b,llama.new_a");
}

TEST(StoredTensorNames, AreThoseOfTheFile) {
  for (const auto& [name, stored] :
       {std::pair{"mlp.gate.e_score_correction_bias", "exp_probs_b.bias"},
        {"mlp.gate.expert_bias", "exp_probs_b.bias"},
        {"mlp.gate.weight", "ffn_gate_inp.weight"},
        {"mlp.experts.3.up_proj.weight", "ffn_up_exps.weight"},
        {"attention.query_key_value.weight", "attn_qkv.weight"},
        {"attention.dense.bias", "attn_output.bias"}}) {
    EXPECT_EQ(stored_tensor_name(std::string("model.layers.2.") + name, "llama"),
              std::string("blk.2.") + stored);
  }
  EXPECT_EQ(stored_tensor_name("model.word_embeddings.weight", "llama"), "token_embd.weight");
}

// Without the rotation the model would compute something else.
TEST_F(GgufErrors, RotatedInputs) {
  const auto rotated = [this](const Pair& changed) {
    std::vector<Pair> keys = pairs();
    std::vector<Pair> more = {
        {"version", 4, raw<uint32_t>(1)},
        {"block_size", 4, raw<uint32_t>(4)},
        {"transform", 8, GgufBuilder::text("normalized-sylvester-walsh-hadamard")},
        {"axis", 8, GgufBuilder::text("input-last-dimension")},
        {"sign_mode", 8, GgufBuilder::text("identity")},
        {"weight_names", 9, strings({"blk.0.attn_q.weight"})}};
    std::erase_if(more, [&](const Pair& p) { return p.key == changed.key; });
    if (!changed.bytes.empty()) more.push_back(changed);
    for (Pair& p : more) {
      p.key = "prism.hadamard." + p.key;
      keys.push_back(p);
    }
    return said(convert_with(keys, tensors()));
  };
  const Pair all_three = {"weight_names", 9,
                          strings({"blk.0.attn_q.weight", "blk.0.attn_k.weight",
                                   "blk.0.attn_v.weight", "output.weight"})};
  EXPECT_EQ(rotated(all_three), "");
  EXPECT_EQ(rotated({"transform", 8, ""}), "m.gguf: \"prism.hadamard.transform\" is missing");
  EXPECT_EQ(rotated({"axis", 8, GgufBuilder::text("rows")}),
            "m.gguf: prism.hadamard.axis: \"rows\" is not supported; only input-last-dimension is");
  EXPECT_EQ(rotated({"padding", 4, raw<uint32_t>(1)}),
            "m.gguf: key \"prism.hadamard.padding\" with value 1 is not known to this importer and "
            "may change what the model computes; if it does not: moe convert --ignore-key "
            "prism.hadamard.padding");
  EXPECT_EQ(rotated({"sign_mode", 8, GgufBuilder::text("random")}),
            "m.gguf: prism.hadamard.sign_mode: expected one of identity, explicit, found "
            "\"random\"");
  EXPECT_EQ(rotated({"sign_mode", 8, GgufBuilder::text("explicit")}),
            "m.gguf: \"prism.hadamard.sign_widths\" is missing");
  EXPECT_EQ(rotated({"block_size", 4, raw<uint32_t>(3)}),
            "m.gguf: rotation.block: expected a power of two, found 3");
  EXPECT_EQ(rotated({"block_size", 4, raw<uint32_t>(16)}),
            "tensor blk.0.attn_q.weight: its 8 inputs are not whole blocks of 16, or have no "
            "signs");
  const auto named = [&](const char* key, const char* tensor) {
    return rotated({key, 9, strings({tensor})});
  };
  EXPECT_EQ(named("weight_names", "blk.7.attn_q.weight"),
            "m.gguf: prism.hadamard.weight_names[0]: \"blk.7.attn_q.weight\": there is no matrix "
            "of this name");
  EXPECT_EQ(named("weight_names", "blk.0.ffn_up_exps.weight"),
            "m.gguf: prism.hadamard.weight_names[0]: \"blk.0.ffn_up_exps.weight\": there is no "
            "matrix of this name");
  EXPECT_EQ(named("weight_names", "token_embd.weight"),
            "m.gguf: prism.hadamard.weight_names[0]: \"token_embd.weight\" is not supported; of "
            "the embedding only the key prism.hadamard.inverse_weight_names is");
  EXPECT_EQ(named("inverse_weight_names", "output.weight"),
            "m.gguf: prism.hadamard.inverse_weight_names[0]: \"output.weight\" is not supported; "
            "only token_embd.weight is");
  EXPECT_EQ(named("weight_names", "blk.0.ffn_gate_inp.weight"),
            "tensor blk.0.ffn_gate_inp.weight: rotated inputs are not supported here");
  EXPECT_EQ(named("weight_names", "blk.0.attn_v.weight"),
            "tensor blk.0.attn_v.weight reads the same inputs as blk.0.attn_q.weight, but only "
            "those of one are rotated");
}

// A file's name and its keys are anyone's, and the way out is a line for a shell.
TEST_F(GgufErrors, AnOriginalLengthWithoutScalingChangesNothing) {
  std::vector<Pair> keys = pairs();
  std::erase_if(keys, [](const Pair& p) {
    return p.key == "llama.rope.scaling.type" || p.key == "llama.rope.scaling.factor";
  });
  const Status status = convert_with(keys, tensors());
  EXPECT_TRUE(status.ok()) << status.text();
}

// Embedding models such as Qwen3-Embedding are decoders.
TEST_F(GgufErrors, ADecoderMayPoolItsTokens) {
  std::vector<Pair> keys = pairs();
  keys.push_back({"llama.pooling_type", 4, raw<uint32_t>(3)});
  const Status status = convert_with(keys, tensors());
  ASSERT_TRUE(status.ok()) << status.text();
  const test::ConvertedModel model(folder_.file("m.moe"));
  EXPECT_TRUE(model.config().text_vector.known);
  EXPECT_EQ(model.config().text_vector.pooling, Pooling::kLast);
  keys.back().bytes = raw<uint32_t>(4);
  EXPECT_EQ(said(convert_with(keys, tensors())).substr(0, 68),
            "m.gguf: key llama.pooling_type is 4: a reranker, which gives a score");
}

TEST_F(GgufErrors, OfferedLinesQuoteWhatTheFileSays) {
  const std::string hostile = "tokenizer.$(id>pwn)_token_id";
  std::vector<Pair> keys = pairs();
  keys.push_back({"tokenizer.ggml.$(id>pwn)_token_id", 8, GgufBuilder::text("x")});
  const std::string named = said(convert_with(keys, tensors()));
  EXPECT_TRUE(named.ends_with("moe convert --ignore-key 'tokenizer.ggml.$(id>pwn)_token_id'"))
      << named;
  for (const auto& [key, way] :
       {std::pair{"llama.embedding_length", "(pip install gguf)"},
        {"tokenizer.ggml.scores", "moe convert --ignore-key tokenizer.ggml.model"},
        {"tokenizer.ggml.eos_token_id", "moe convert --ignore-key tokenizer.ggml.eos_token_id"}}) {
    GgufBuilder b;
    for (const Pair& p : pairs()) {
      p.key == key ? b.pair(key, 8, GgufBuilder::text("x")) : b.pair(p.key, p.type, p.bytes);
    }
    for (const auto& [name, shape] : tensors()) b.f32_tensor(name, shape);
    const std::string text = said(convert_text(hostile + ".gguf", b.file()));
    EXPECT_TRUE(text.ends_with(way)) << text;
    EXPECT_EQ(text.find(hostile), text.rfind(hostile)) << text;
  }
}

// In the files of all families each tensor in turn has a name that stands for none: an error says
// which one is missing, or which one is superfluous if the file may lack it.
TEST_F(GgufErrors, TheMissingTensorIsNamedInEveryFamily) {
  int n_files = 0;
  test::EveryNth turn(4);
  for (const std::string& family : names_in_folder("tests/data/families")) {
    if (!family.starts_with("gguf_")) continue;
    ++n_files;
    const std::string path = "tests/data/families/" + family + "/model.gguf";
    const std::string whole = read_text_file(path, 1 << 22);
    const Checkpoint checkpoint(path);
    for (const auto& [name, tensor] : checkpoint.tensors()) {
      if (!turn.take()) continue;
      const std::string other = "x" + name.substr(1);
      std::string changed = whole;
      const size_t at = changed.find(raw<uint64_t>(name.size()) + name);
      ASSERT_NE(at, std::string::npos) << name;
      changed[at + sizeof(uint64_t)] = 'x';
      const Status status = convert_text("m.gguf", changed);
      ASSERT_FALSE(status.ok()) << family << ": " << name;
      const std::string text = said(status);
      EXPECT_TRUE(text.find(name) != text.npos || text.find(other) != text.npos)
          << family << ": " << name << ": " << text;
    }
  }
  EXPECT_GE(n_files, 18);
}

// Gemma has norms around both parts of a block, also where the first block lacks one.
TEST_F(GgufErrors, TheMissingNormOfGemmaIsNamed) {
  std::vector<Pair> keys = {{"general.architecture", 8, GgufBuilder::text("gemma2")},
                            {"gemma2.attention.layer_norm_rms_epsilon", 6, raw(1e-5f)}};
  for (const auto& [key, value] : {std::pair{"context_length", 64u},
                                   {"embedding_length", 8u},
                                   {"block_count", 2u},
                                   {"feed_forward_length", 12u},
                                   {"attention.head_count", 2u},
                                   {"attention.head_count_kv", 1u},
                                   {"attention.key_length", 4u},
                                   {"attention.value_length", 4u},
                                   {"attention.sliding_window", 32u}}) {
    keys.push_back({std::string("gemma2.") + key, 4, raw(value)});
  }
  Tensors whole = {{"token_embd.weight", {16, 8}}, {"output_norm.weight", {8}}};
  const char* const norms[] = {"attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm"};
  for (const std::string block : {"blk.0.", "blk.1."}) {
    for (const char* norm : norms) whole[block + norm + ".weight"] = {8};
    for (const char* name : {"attn_q", "attn_output"}) whole[block + name + ".weight"] = {8, 8};
    for (const char* name : {"attn_k", "attn_v"}) whole[block + name + ".weight"] = {4, 8};
    for (const char* name : {"ffn_gate", "ffn_up"}) whole[block + name + ".weight"] = {12, 8};
    whole[block + "ffn_down.weight"] = {8, 12};
  }
  EXPECT_EQ(said(convert_with(keys, whole)), "");
  for (const std::string block : {"blk.0.", "blk.1."}) {
    for (const char* norm : norms) {
      Tensors changed = whole;
      const std::string name = block + norm + ".weight";
      ASSERT_EQ(changed.erase(name), 1u);
      EXPECT_EQ(said(convert_with(keys, changed)), "tensor " + name + " is missing");
    }
  }
}

// Each tensor in turn is missing or has another shape.
TEST_F(GgufErrors, NameTensorsOfTheFile) {
  for (const auto& [name, shape] : tensors()) {
    if (name == "output.weight") continue;  // then the head is the embedding
    Tensors changed = tensors();
    changed.erase(name);
    const Status missing = convert_with(pairs(), changed);
    EXPECT_FALSE(missing.ok()) << name;
    expect_own_words(missing, name);
    EXPECT_NE(said(missing).find(name), std::string::npos) << missing.text();
    changed[name] = shape;
    changed[name].back() *= 2;
    const Status wide = convert_with(pairs(), changed);
    EXPECT_FALSE(wide.ok()) << name;
    expect_own_words(wide, name);
    EXPECT_NE(said(wide).find(name), std::string::npos) << wide.text();
  }
  Tensors more = tensors();
  more["blk.0.attn_q.bias"] = {8};
  more["blk.0.attn_q_norm.weight"] = {4};
  const Status extra = convert_with(pairs(), more);
  EXPECT_FALSE(extra.ok());
  expect_own_words(extra, "extra tensors");
}

TEST_F(GgufErrors, NameTensorsOfBadValues) {
  for (const auto& [bad, shape] : tensors()) {
    GgufBuilder b;
    for (const Pair& p : pairs()) b.pair(p.key, p.type, p.bytes);
    for (const auto& [name, dims] : tensors()) b.f32_tensor(name, dims, name == bad ? NAN : 0.5f);
    const Status status = convert_text("m.gguf", b.file());
    EXPECT_EQ(status.code(), MOE_ERR_NON_FINITE) << bad;
    expect_own_words(status, bad);
    EXPECT_NE(said(status).find(bad), std::string::npos) << status.text();
  }
}

TEST(GgufWords, APathIsLeftAsItIs) {
  GgufBuilder b;
  for (const Pair& p : pairs()) b.pair(p.key, p.type, p.bytes);
  for (const auto& [name, shape] : tensors()) b.f32_tensor(name, shape);
  test::TempFolder folder;
  folder.write("config.json describes.gguf", b.file());
  const Checkpoint checkpoint = open_checkpoint(folder.file("config.json describes.gguf"));
  const auto said = [&](const std::string& text) {
    return std::string(
        in_gguf_words(checkpoint, Status::error(MOE_ERR_FORMAT, "%s", text.c_str())).text());
  };
  const std::string path = checkpoint.path();
  EXPECT_EQ(said("tokenizer_config.json: x"), path + ": x");
  EXPECT_EQ(said(path + "/tokenizer_config.json: x"), path + ": x");
  EXPECT_EQ(said(path + "/config.json: x"), path + ": x");
  EXPECT_EQ(said("config.json: x, config.json says y"), path + ": x, the file's keys say y");
  EXPECT_EQ(said("see tokenizer_config.json"), "see " + path);
}

class GgufParts : public GgufErrors {
 protected:
  // One of the parts of a model; the first has its keys.
  std::string part(int no, int count, int n_tensors = -1) {
    GgufBuilder b;
    if (no == 0) {
      for (const Pair& p : pairs()) b.pair(p.key, p.type, p.bytes);
    }
    b.pair("split.no", 2, raw(static_cast<uint16_t>(no)));
    b.pair("split.count", 2, raw(static_cast<uint16_t>(count)));
    b.pair(
        "split.tensors.count", 5,
        raw(static_cast<int32_t>(n_tensors < 0 ? static_cast<int>(tensors().size()) : n_tensors)));
    int i = 0;
    for (const auto& [name, shape] : tensors()) {
      if (i++ % count == no) b.f32_tensor(name, shape);
    }
    return b.file();
  }
  Status convert_file(const std::string& name) {
    report_ = {};
    return convert(folder_.file(name), folder_.file("m.moe"), {}, &report_);
  }
  void refused(const std::string& name, const std::string& expected) {
    const Status status = convert_file(name);
    EXPECT_FALSE(status.ok());
    EXPECT_NE(said(status).find(expected), std::string::npos) << said(status);
  }
  void write_three() {
    for (int i = 0; i < 3; ++i) {
      folder_.write("a-0000" + std::to_string(i + 1) + "-of-00003.gguf", part(i, 3));
    }
  }
  ConvertReport report_;
};

TEST_F(GgufParts, AnyPartLeadsToAll) {
  write_three();
  ASSERT_TRUE(convert_with(pairs(), tensors()).ok());
  for (const int i : {1, 2, 3}) {
    const Status status = convert_file("a-0000" + std::to_string(i) + "-of-00003.gguf");
    EXPECT_TRUE(status.ok()) << status.text();
    EXPECT_EQ(report_.warnings.size(), i == 1 ? 0u : 1u);
    EXPECT_EQ(report_.name, "a-00001-of-00003");
    EXPECT_EQ(report_.n_matrices, 13u);
  }
}

TEST_F(GgufParts, MissingRenamedAndMixedParts) {
  write_three();
  std::filesystem::remove(folder_.file("a-00002-of-00003.gguf"));
  std::filesystem::remove(folder_.file("a-00003-of-00003.gguf"));
  refused("a-00001-of-00003.gguf",
          "a-00002-of-00003.gguf, a-00003-of-00003.gguf are missing (2 of 3 files that their names "
          "say); download them");
  for (const int i : {0, 1, 2}) {
    folder_.write("b.gguf", part(i, 3));
    const std::string number = std::to_string(i + 1);
    refused("b.gguf",
            "b.gguf: this is part " + number + " of 3 of a split model (split.no, split.count)");
    refused("b.gguf", "this one b-0000" + number + "-of-00003.gguf");
  }
  folder_.write("b.gguf", part(0, 3) + part(1, 3) + part(2, 3));
  refused("b.gguf", "cat does not join them");
  write_three();
  folder_.write("a-00002-of-00003.gguf", part(2, 3));
  refused("a-00001-of-00003.gguf", "a-00002-of-00003.gguf: this is part 3 of 3");
  folder_.write("c-00001-of-00001.gguf", part(0, 3));
  refused("c-00001-of-00001.gguf", "this one c-00001-of-00003.gguf");
  write_three();
  folder_.write("a-00001-of-00003.gguf", part(0, 3, 20));
  refused("a-00001-of-00003.gguf", "split.tensors.count is 20, the parts have 13 tensors");
  folder_.write("a.gguf-split-a", part(0, 1));
  refused("a.gguf-split-a", "a.gguf-split-a: a piece of a.gguf; join all pieces in order with cat");
  folder_.write("d.gguf", part(0, 1));
  EXPECT_TRUE(convert_file("d.gguf").ok());
}

TEST_F(GgufParts, FilesThatWereCutOff) {
  GgufBuilder b;
  for (const Pair& p : pairs()) b.pair(p.key, p.type, p.bytes);
  for (const auto& [name, shape] : tensors()) b.f32_tensor(name, shape);
  const std::string whole = b.file();
  size_t n_header = 0;
  for (size_t n = 0; n < whole.size(); n += 61) {
    const std::string text = said(convert_text("m.gguf", whole.substr(0, n)));
    const std::string missing = "m.gguf: cut off: " + std::to_string(whole.size() - n) + " of its ";
    const bool known = text.starts_with(missing);
    n_header += known ? 0 : 1;
    const bool cut = known || text.starts_with("m.gguf: cut off in the header") ||
                     (n == 0 && text.starts_with("m.gguf is empty (0 bytes)"));
    EXPECT_TRUE(cut) << n << ": " << text;
  }
  EXPECT_GT(whole.size() / 61, 2 * n_header);  // most of the file is data
  EXPECT_EQ(said(convert_text("m.gguf", "<html>\n<body>Not found")).substr(0, 46),
            "m.gguf is text that begins with \"<html>\": a we");
  EXPECT_EQ(said(convert_text("m.gguf", std::string(100, '\0'))),
            "m.gguf: not a GGUF file: it begins with zeros (an incomplete download?)");
  folder_.write("a-00001-of-00002.gguf", part(0, 2));
  folder_.write("a-00002-of-00002.gguf", part(1, 2).substr(0, part(1, 2).size() - 100));
  refused("a-00001-of-00002.gguf", "a-00002-of-00002.gguf: cut off: 100 of its ");
}

// A download that stopped after its space was reserved may end anywhere in the header.
TEST_F(GgufParts, ZerosInTheHeader) {
  GgufBuilder b;
  for (const Pair& p : pairs()) b.pair(p.key, p.type, p.bytes);
  const std::string keys = b.file();
  for (const auto& [name, shape] : tensors()) b.f32_tensor(name, shape);
  const std::string whole = b.file();
  const auto from = [&](size_t first) {
    std::string text = whole;
    std::fill(text.begin() + static_cast<ptrdiff_t>(first), text.end(), '\0');
    return said(convert_text("m.gguf", text));
  };
  const size_t first_key = 24;
  EXPECT_EQ(from(first_key),
            "m.gguf: key 1, at byte 24, has no name (zeros of an incomplete download?); download "
            "it again");
  const size_t end = whole.find("token_embd.weight");
  EXPECT_TRUE(from(end - 8).find("has no name (zeros of an incomplete download?)") !=
              std::string::npos)
      << from(end - 8);
  for (size_t n = first_key; n < keys.size() / 2; n += 97) {
    EXPECT_NE(from(n).find("zeros"), std::string::npos) << n << ": " << from(n);
  }
  EXPECT_NE(said(convert_text("m.gguf", whole + std::string(4000, 'x')))
                .find(" for it, up to its end (more than one file in it?); download it again"),
            std::string::npos);
}

TEST_F(GgufParts, OtherByteOrderAndOneTensorTwice) {
  GgufBuilder b;
  for (const Pair& p : pairs()) b.pair(p.key, p.type, p.bytes);
  EXPECT_TRUE(said(convert_text("m.gguf", b.file(3U << 24)))
                  .starts_with("m.gguf: a big-endian GGUF file; gguf-convert-endian FILE little"));
  b.f32_tensor("token_embd.weight", {16, 8});
  b.f32_tensor("token_embd.weight", {16, 8});
  EXPECT_EQ(said(convert_text("m.gguf", b.file())), "m.gguf: two tensors are token_embd.weight");
}

TEST_F(GgufParts, OtherKindsOfFiles) {
  std::vector<Pair> keys = pairs();
  keys.push_back({"general.type", 8, GgufBuilder::text("adapter")});
  EXPECT_NE(said(convert_with(keys, tensors())).find("general.type is \"adapter\""),
            std::string::npos);
}

TEST(GgufPartNames, AreThoseOfTheTool) {
  EXPECT_EQ(gguf_parts("x/a-00002-of-00003.gguf"),
            (std::vector<std::string>{"x/a-00001-of-00003.gguf", "x/a-00002-of-00003.gguf",
                                      "x/a-00003-of-00003.gguf"}));
  for (const char* name :
       {"a.gguf", "a-00004-of-00003.gguf", "a-00000-of-00003.gguf", "a-1-of-3.gguf",
        "a-00001-of-0000x.gguf", "a-00001-of-00003", "-00001-of-00001.gguf"}) {
    EXPECT_TRUE(gguf_parts(name).empty()) << name;
  }
}

}  // namespace
}  // namespace moe
