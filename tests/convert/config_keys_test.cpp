// SPDX-License-Identifier: MIT
// Errors about config.json, of every family: they say the key as the file spells it, what is wrong
// with its value, and which keys contradict each other.

#include <gtest/gtest.h>

#include <cctype>
#include <cmath>
#include <functional>
#include <iterator>

#include "formats/import/failure.h"
#include "src/convert/gguf/gguf_source.h"
#include "src/convert/importer.h"
#include "src/convert/packed/packed_checkpoint.h"
#include "tests/convert/golden_logits.h"
#include "tests/convert/transformers_fixture.h"
#include "tests/support/every_nth.h"

namespace moe {
namespace {

const std::string kFamilies = "tests/data/families/";

// The families that have a config.json.
std::vector<std::string> families() {
  std::vector<std::string> out;
  for (const std::string& family : test::folder_names(kFamilies)) {
    if (path_exists(kFamilies + family + "/config.json")) out.push_back(family);
  }
  return out;
}

// The error for `config`, empty if it is read.
std::string import_error(const Json& config, const Checkpoint& checkpoint) {
  return guarded([&] { (void)import_config(JsonNode(config, "config.json"), checkpoint); }).text();
}

// Calls f(member, its key) for every member, and for those of objects within that are read.
template <class F>
void each_member(Json* object, const F& f) {
  std::vector<std::string> keys;
  for (const auto& [key, value] : object->items()) keys.push_back(key);
  for (const std::string& key : keys) {
    Json& member = (*object)[key];
    if (key == "quantization_config" || key == "vision_config" || key == "audio_config") continue;
    if (member.is_object()) each_member(&member, f);
    f(&member, key);
  }
}

// Calls f(family, checkpoint, config, member, key) for every member of every family's config.json.
template <class F>
void each_key(const F& f) {
  for (const std::string& family : families()) {
    const Checkpoint checkpoint = open_checkpoint(kFamilies + family, [] {}, {});
    Json config = checkpoint.document("config.json");
    each_member(&config, [&](Json* member, const std::string& key) {
      f(family, checkpoint, &config, member, key);
    });
  }
}

// As a whole word: keys such as "n" are in many others.
bool names(const std::string& text, const std::string& key) {
  const auto in_word = [&](size_t at) {
    return at < text.size() &&
           (std::isalnum(static_cast<unsigned char>(text[at])) != 0 || text[at] == '_');
  };
  for (size_t at = text.find(key); at != text.npos; at = text.find(key, at + 1)) {
    if (!in_word(at - 1) && !in_word(at + key.size())) return true;
  }
  return false;
}

bool names_any(const std::string& text, Json* config) {
  bool found = false;
  each_member(config, [&](Json*, const std::string& key) { found = found || names(text, key); });
  return found;
}

// 7 contradicts other keys, of which the error may name one instead, and tensors.
TEST(ConfigKeys, ABadNumberIsNamed) {
  int n_errors = 0;
  test::EveryNth turn(4);
  each_key([&](const std::string& family, const Checkpoint& checkpoint, Json* config, Json* member,
               const std::string& key) {
    if (!member->is_number() || !turn.take()) return;
    const Json good = *member;
    for (const Json& bad :
         {Json("x"), Json(-1), Json(0), Json(1e-40), Json(1e-30), Json(1e30), Json(7)}) {
      *member = bad;
      const std::string text = import_error(*config, checkpoint);
      if (text.empty() || (bad == 7 && text.starts_with("tensor "))) continue;
      ++n_errors;
      EXPECT_TRUE(names(text, key) || (bad == 7 && names_any(text, config)))
          << family << ": " << key << " " << bad.dump() << ": " << text;
    }
    *member = good;
  });
  EXPECT_GT(n_errors, test::EveryNth::kLeavesOut ? 700 : 3000);
}

// Lists with an entry for each layer or each factor: too short, and empty.
TEST(ConfigKeys, AListOfWrongLengthIsNamed) {
  int n_lists = 0;
  each_key([&](const std::string& family, const Checkpoint& checkpoint, Json* config, Json* member,
               const std::string& key) {
    // Lists of any length, and those of other objects.
    for (const char* other :
         {"architectures", "eos_token_id", "mlp_only_layers", "short_factor", "long_factor",
          "layers_block_type", "mtp_layers_block_type", "keys_to_ignore_at_inference",
          "full_attn_idxs", "num_experts", "lr", "moe_capacity"}) {
      if (key == other) return;
    }
    if (!member->is_array() || member->size() == 0) return;
    ++n_lists;
    const Json good = *member;
    for (const size_t n : {size_t{0}, good.size() - 1}) {
      *member = Json(Json::Array(good.begin(), good.begin() + static_cast<std::ptrdiff_t>(n)));
      const std::string wanted = key + ": expected " + std::to_string(good.size()) +
                                 " entries, found " + std::to_string(n);
      const std::string text = import_error(*config, checkpoint);
      EXPECT_NE(text.find(wanted), text.npos) << family << ": " << wanted << ", not " << text;
    }
    *member = good;
  });
  EXPECT_GT(n_lists, 20);
}

// A family's configuration without its weights.
class FamilyKeys : public TransformersTest {
 protected:
  void load(const char* family) { load_file(kFamilies + family + "/config.json"); }
  void load_file(const std::string& path) { config_ = read_text_file(path, 1u << 20); }
  std::string refused(const char* patch, moe_status code = MOE_ERR_UNSUPPORTED) {
    return error(patch, code, config_.c_str());
  }
  void accepted(const char* patch) {
    const Status status = guarded([&] { read_patched(patch, config_.c_str()); });
    EXPECT_TRUE(status.ok()) << patch << ": " << status.text();
  }
  std::string config_;
};

constexpr const char* kWay = "; moe convert --ignore-key leaves one of them out";

// Each row: a family, one of its keys' other names with another value, the error, and the same
// value.
TEST_F(FamilyKeys, TwoNamesOfOneThing) {
  struct Row {
    const char* family;
    const char* other;
    const char* text;
    const char* same;
  };
  const Row rows[] = {
      {"kimi_linear", R"({"num_experts_per_tok": 2})",
       "num_experts_per_token is 3, but num_experts_per_tok, which means the same, is 2",
       R"({"num_experts_per_tok": 3})"},
      {"kimi_linear", R"({"n_routed_experts": 6})",
       "num_experts is 8, but n_routed_experts, which means the same, is 6",
       R"({"n_routed_experts": 8})"},
      {"kimi_linear", R"({"n_group": 2})",
       "num_expert_group is 1, but n_group, which means the same, is 2", R"({"n_group": 1})"},
      {"kimi_linear", R"({"max_position_embeddings": 64})",
       "model_max_length is 128, but max_position_embeddings, which means the same, is 64",
       R"({"max_position_embeddings": 128})"},
      {"kimi_linear", R"({"norm_topk_prob": false})",
       "moe_renormalize is true, but norm_topk_prob, which means the same, is false",
       R"({"norm_topk_prob": true})"},
      {"kimi_linear", R"({"scoring_func": "softmax", "moe_router_activation_func": "sigmoid"})",
       "moe_router_activation_func is \"sigmoid\", but scoring_func, which means the same, is "
       "\"softmax\"",
       R"({"scoring_func": "sigmoid", "moe_router_activation_func": "sigmoid"})"},
      {"kimi_linear", R"({"linear_attn_config": {"head_dim": 9}})",
       "linear_attn_config.head_dim is 9, but linear_head_dim, which means the same, is 8",
       R"({"linear_attn_config": {"head_dim": 8}})"},
      {"kimi_linear",
       R"({"linear_attn_config": {"full_attn_layers": [4], "kda_layers": [1, 2, 3]}})",
       "linear_attn_config[2] is \"linear_attention\", but layer_types[2], which means the same, "
       "is \"full_attention\"",
       R"({"linear_attn_config": {"full_attn_layers": [3], "kda_layers": [1, 2, 4]}})"},
      {"bailing_hybrid", R"({"short_conv_kernel_size": 3})",
       "short_conv_kernel_size is 3, but linear_conv_kernel_dim, which means the same, is 4",
       R"({"short_conv_kernel_size": 4})"},
      {"bailing_hybrid", R"({"rope_theta": 5000})",
       "rope_theta is 5000, but rope_parameters.rope_theta, which means the same, is 6000000.0",
       R"({"rope_theta": 6000000})"},
      // transformers writes its defaults beside others.
      {"bailing_hybrid", R"({"rope_theta": 5000, "short_conv_kernel_size": 4})",
       "rope_theta is 5000, but",
       R"({"rope_parameters": {"rope_theta": 1e4}, "linear_conv_kernel_dim": 3})"},
      {"bailing_moe", R"({"n_routed_experts": 5})",
       "n_routed_experts is 5, but num_experts, which means the same, is 6",
       R"({"n_routed_experts": 6})"},
      {"lfm2", R"({"norm_eps": 1e-6, "rms_norm_eps": 1e-5})",
       "norm_eps is 1e-06, but rms_norm_eps, which means the same, is 1e-05",
       R"({"norm_eps": 1e-5, "rms_norm_eps": 1e-5})"},
      {"nemotron_h", R"({"norm_eps": 1e-6, "layer_norm_epsilon": 1e-5})",
       "layer_norm_epsilon is 1e-05, but norm_eps, which means the same, is 1e-06",
       R"({"norm_eps": 1e-5, "layer_norm_epsilon": 1e-5})"},
      {"nemotron_h", R"({"hybrid_override_pattern": "MMMMM"})", "which means the same", "{}"},
      {"minimax", R"({"attn_type_list": [0, 1, 0, 1]})",
       "attn_type_list[3] is 1, but layer_types[3], which means the same, is \"linear_attention\"",
       R"({"attn_type_list": [0, 1, 0, 0]})"},
      {"minimax", R"({"layernorm_mlp_alpha": 2})",
       "layernorm_mlp_alpha is 2, but mlp_alpha_factor, which means the same, is "
       "3.5565588200778455",
       R"({"layernorm_mlp_alpha": 3.5565588200778455})"},
      {"granitemoehybrid", R"({"layers_block_type": ["mamba", "mamba", "mamba"]})",
       "which means the same, is \"mamba\"", "{}"},
      {"mixtral", R"({"num_experts": 5})",
       "num_local_experts is 6, but num_experts, which means the same, is 5",
       R"({"num_experts": 6})"},
      {"gemma2", R"({"hidden_act": "silu"})",
       "hidden_activation is \"gelu_pytorch_tanh\", but hidden_act, which means the same, is "
       "\"silu\"",
       R"({"hidden_act": "gelu_pytorch_tanh"})"},
      {"gemma3", R"({"hidden_activation": null, "hidden_act": "silu"})",
       "hidden_activation (by default) is \"gelu_pytorch_tanh\", but hidden_act, which means the "
       "same, is \"silu\"",
       R"({"hidden_activation": null, "hidden_act": "gelu_pytorch_tanh"})"},
      {"gemma3_with_images", R"({"text_config": {"tie_word_embeddings": false}})",
       "tie_word_embeddings is true, but text_config.tie_word_embeddings, which means the same, is "
       "false",
       "{}"},
      {"gemma4_with_images", R"({"text_config": {"tie_word_embeddings": false}})",
       "tie_word_embeddings is true, but text_config.tie_word_embeddings, which means the same, is "
       "false",
       "{}"},
      {"qwen3_5_with_images", R"({"text_config": {"tie_word_embeddings": true}})",
       "tie_word_embeddings is false, but text_config.tie_word_embeddings, which means the same, "
       "is true",
       R"({"tie_word_embeddings": true, "text_config": {"tie_word_embeddings": true}})"},
      {"gemma3_with_images", R"({"eos_token_id": [1, 7]})",
       "eos_token_id is [1,7], but text_config.eos_token_id, which means the same, is 2",
       R"({"eos_token_id": [1, 2]})"},
      {"gemma4_with_images", R"({"eos_token_id": 7})",
       "eos_token_id is 7, but text_config.eos_token_id, which means the same, is 2",
       R"({"eos_token_id": 2})"},
      {"qwen3_5_with_images", R"({"eos_token_id": [7]})",
       "eos_token_id is [7], but text_config.eos_token_id, which means the same, is 2",
       R"({"eos_token_id": [7, 2]})"},
      {"gemma4_with_images",
       R"({"quantization_config": {"quant_method": "fp8"},
           "text_config": {"quantization_config": {"quant_method": "mxfp4"}}})",
       "quantization_config.quant_method is \"fp8\", but "
       "text_config.quantization_config.quant_method, which means the same, is \"mxfp4\"",
       "{}"},
      {"gemma3_with_images", R"({"bos_token_id": 7})",
       "bos_token_id is 7, but text_config.bos_token_id, which means the same, is 1",
       R"({"bos_token_id": 1})"},
      {"gemma4_with_images", R"({"pad_token_id": 7, "text_config": {"pad_token_id": 3}})",
       "pad_token_id is 7, but text_config.pad_token_id, which means the same, is 3",
       R"({"pad_token_id": 7})"},
      {"qwen3_5_with_images", R"({"bos_token_id": 7})",
       "bos_token_id is 7, but text_config.bos_token_id, which means the same, is 1",
       R"({"bos_token_id": 1})"},
      {"gpt_oss", R"({"experts_per_token": 4})",
       "num_experts_per_tok is 2, but experts_per_token, which means the same, is 4",
       R"({"experts_per_token": 2})"},
      {"llama_rope_yarn", R"({"rope_scaling": {"rope_type": "yarn", "type": "linear"}})",
       "rope_scaling.rope_type is \"yarn\", but rope_scaling.type, which means the same, is "
       "\"linear\"",
       R"({"rope_scaling": {"rope_type": "yarn", "type": "yarn"}})"},
      {"llama", R"({"rope_scaling": {"rope_type": "linear", "factor": 2},
                    "rope_parameters": {"rope_type": "linear", "factor": 4}})",
       "rope_scaling.factor is 2, but rope_parameters.factor, which means the same, is 4",
       R"({"rope_scaling": {"rope_type": "linear", "factor": 2},
           "rope_parameters": {"rope_type": "linear", "factor": 2}})"}};
  for (const Row& row : rows) {
    load(row.family);
    const std::string text = refused(row.other);
    EXPECT_TRUE(text.starts_with("config.json: ") && text.ends_with(kWay)) << text;
    EXPECT_NE(text.find(row.text), text.npos) << row.family << ": " << text;
    accepted(row.same);
  }
}

// The readers' names are others.
TEST_F(FamilyKeys, TheFilesOwnNames) {
  load("kimi_linear");
  EXPECT_EQ(refused(R"({"num_experts_per_token": 0})", MOE_ERR_FORMAT),
            "config.json: num_experts_per_token: expected an integer in 1..8, found 0");
  EXPECT_EQ(refused(R"({"num_expert_group": 3})", MOE_ERR_SHAPE),
            "config.json: num_expert_group: 3 does not divide num_experts 8");
  EXPECT_EQ(refused(R"({"num_experts_per_token": null, "num_experts": 4})", MOE_ERR_FORMAT),
            "config.json: num_experts_per_tok (by default): expected an integer in 1..4, found 8");
  EXPECT_EQ(refused(R"({"qk_rope_head_dim": "x"})", MOE_ERR_FORMAT),
            "config.json: qk_rope_head_dim: expected an integer in 1..1048576, found \"x\"");
  load("nemotron_h");
  EXPECT_EQ(refused(R"({"conv_kernel": 0})", MOE_ERR_FORMAT),
            "config.json: conv_kernel: expected an integer in 1..64, found 0");
  load("gemma2");
  EXPECT_TRUE(refused(R"({"hidden_activation": "x", "hidden_act": null})", MOE_ERR_FORMAT)
                  .starts_with("config.json: hidden_activation: expected one of "));
  load("gemma3_with_images");
  EXPECT_NE(refused(R"({"text_config": {"head_dim": 0}})", MOE_ERR_FORMAT)
                .find("config.json: text_config: head_dim: expected an integer"),
            std::string::npos);
  load("gemma3");
  EXPECT_EQ(
      refused(R"({"rope_parameters": {"sliding_attention": {"rope_theta": 0}}})", MOE_ERR_FORMAT),
      "config.json: rope_parameters.sliding_attention.rope_theta: expected a number of at least "
      "1e-30 and below 1e30, found 0");
  load("minimax");
  EXPECT_EQ(refused(R"({"rms_norm_eps": -1})", MOE_ERR_FORMAT),
            "config.json: rms_norm_eps: expected a number above 0 and at most 1, found -1");
  const auto alphas = [&](const std::string& alpha, moe_status code) {
    return refused((R"({"full_attn_alpha_factor": )" + alpha + R"(, "linear_attn_alpha_factor": )" +
                    alpha + R"(, "mlp_alpha_factor": )" + alpha + "}")
                       .c_str(),
                   code);
  };
  EXPECT_EQ(alphas("1e-3", MOE_ERR_UNSUPPORTED),
            "config.json: mlp_alpha_factor: 0.001 is not supported; one whose square is above "
            "rms_norm_eps, 1e-05, and not endlessly large, is");
  EXPECT_TRUE(alphas("1e-30", MOE_ERR_UNSUPPORTED)
                  .starts_with("config.json: mlp_alpha_factor: 1e-30 is not supported"));
  EXPECT_EQ(alphas("1e5", MOE_ERR_FORMAT),
            "config.json: full_attn_alpha_factor: expected a number above 0 and at most 10000, "
            "found 100000.0");
}

// Keys that models with images have beside the text part, too.
class BesideTheText : public FamilyKeys {
 protected:
  ModelConfig imported(const char* patch) {
    Imported in;
    const Status status = guarded([&] { in = read_patched(patch, config_.c_str()); });
    EXPECT_TRUE(status.ok()) << patch << ": " << status.text();
    return std::move(in.config);
  }
};

TEST_F(BesideTheText, AnErrorNamesThePlaceInTheFile) {
  for (const char* family : {"gemma3_with_images", "gemma4_with_images", "qwen3_5_with_images"}) {
    load(family);
    EXPECT_EQ(refused(R"({"tie_word_embeddings": "x"})", MOE_ERR_FORMAT),
              "config.json: tie_word_embeddings: expected true or false, found \"x\"");
    EXPECT_EQ(refused(R"({"tie_word_embeddings": null,
                          "text_config": {"tie_word_embeddings": "x"}})",
                      MOE_ERR_FORMAT),
              "config.json: text_config: tie_word_embeddings: expected true or false, found \"x\"");
    EXPECT_EQ(refused(R"({"eos_token_id": [2, "x"]})", MOE_ERR_FORMAT),
              "config.json: eos_token_id[1]: expected an integer in -1..16777216, found \"x\"");
  }
  for (const char* family : {"gemma3_with_images", "qwen3_5_with_images"}) {
    load(family);
    EXPECT_TRUE(refused(R"({"quantization_config": {"quant_method": "x"}})")
                    .starts_with("config.json: quantization_config.quant_method: \"x\" is not"))
        << family;
  }
}

// Both places give the weights of the usual one.
TEST(ConfigKeys, AQuantizationWithinTheText) {
  const std::string folder = kFamilies + "deepseek_v3_fp8";
  Checkpoint usual(folder);
  const Json config = usual.document("config.json");
  const Json quantization = config.at("quantization_config");
  unpack_checkpoint(&usual);
  const std::string name = "model.layers.0.self_attn.o_proj.weight";
  ASSERT_NE(usual.find(name), nullptr);
  std::vector<float> wanted(usual.find(name)->n_elements), found(wanted.size());
  usual.read(*usual.find(name), 0, wanted.size(), wanted.data());
  for (const bool beside : {false, true}) {
    Json other = config;
    other["text_config"] = {{"quantization_config", quantization}};
    if (!beside) other.erase("quantization_config");
    Checkpoint checkpoint(folder);
    checkpoint.put_document("config.json", std::move(other));
    unpack_checkpoint(&checkpoint);
    EXPECT_EQ(checkpoint.tensors().size(), usual.tensors().size());
    ASSERT_NE(checkpoint.find(name), nullptr);
    checkpoint.read(*checkpoint.find(name), 0, found.size(), found.data());
    EXPECT_EQ(found, wanted);
    const Json left = checkpoint.document("config.json");
    EXPECT_FALSE(JsonNode(left, "config.json").has("quantization_config"));
    EXPECT_FALSE(JsonNode(left.at("text_config"), "text_config").has("quantization_config"));
  }
  Json both = config;
  both["text_config"] = {{"quantization_config", {{"quant_method", "gptq"}}}};
  Checkpoint checkpoint(folder);
  checkpoint.put_document("config.json", std::move(both));
  const std::string text = guarded([&] { unpack_checkpoint(&checkpoint); }).text();
  EXPECT_TRUE(
      text.starts_with("config.json: quantization_config.quant_method is \"fp8\", but "
                       "text_config.quantization_config.quant_method, which means the same, is "
                       "\"gptq\""))
      << text;
}

// transformers 5.24 takes those beside the text, and saves its defaults within: tying in Gemma 3
// and 4, none in Qwen 3.5, and the token 1 in Gemma.
TEST_F(BesideTheText, WhatTransformersSavesIsRead) {
  for (const char* family : {"gemma3_with_images", "gemma4_with_images"}) {
    load(family);
    EXPECT_FALSE(imported(R"({"tie_word_embeddings": false,
                              "text_config": {"tie_word_embeddings": true}})")
                     .tie_embeddings);
    EXPECT_FALSE(imported(R"({"tie_word_embeddings": null,
                              "text_config": {"tie_word_embeddings": false}})")
                     .tie_embeddings);
    const ModelConfig ends =
        imported(R"({"eos_token_id": [5, 6], "text_config": {"eos_token_id": 1}})");
    ASSERT_EQ(ends.eos_token_ids.size(), 2u);
    EXPECT_EQ(ends.eos_token_ids[0], 5);
    EXPECT_EQ(ends.eos_token_ids[1], 6);
    const ModelConfig begins = imported(
        R"({"bos_token_id": 7, "pad_token_id": 8,
            "text_config": {"bos_token_id": 2, "pad_token_id": null}})");
    EXPECT_EQ(begins.bos_token_id, 7);
    EXPECT_EQ(begins.pad_token_id, 8);
  }
  load("qwen3_5_with_images");
  EXPECT_TRUE(imported(R"({"tie_word_embeddings": true,
                           "text_config": {"tie_word_embeddings": false}})")
                  .tie_embeddings);
  EXPECT_EQ(
      imported(R"({"eos_token_id": 5, "text_config": {"eos_token_id": null}})").eos_token_ids[0],
      5);
  EXPECT_EQ(imported(R"({"bos_token_id": 5, "text_config": {"bos_token_id": null}})").bos_token_id,
            5);
}

TEST_F(FamilyKeys, GptOssByItsOwnName) {
  load("gpt_oss");
  const Imported in =
      read_patched(R"({"num_experts_per_tok": null, "experts_per_token": 3})", config_.c_str());
  EXPECT_EQ(in.config.layers[0].ffn.moe.router.k, 3);
  EXPECT_EQ(refused(R"({"num_experts_per_tok": null, "experts_per_token": 0})", MOE_ERR_FORMAT)
                .substr(0, 60),
            "config.json: experts_per_token: expected an integer in 1..6,");
}

TEST_F(FamilyKeys, ADivisorWithoutAReciprocal) {
  load("granite");
  EXPECT_EQ(refused(R"({"logits_scaling": 1e-40})", MOE_ERR_FORMAT),
            "config.json: logits_scaling: expected a number of at least 1e-30 and below 1e30, "
            "found 1e-40");
}

TEST_F(FamilyKeys, HeadsThatDoNotDivideTheWidth) {
  struct Row {
    const char* folder;
    const char* heads;
    const char* width;
  };
  const Row rows[] = {{"families/mixtral", "num_attention_heads", "hidden_size"},
                      {"families/xmoe_megatron", "num_attention_heads", "hidden_size"},
                      {"families/torchscale_xmoe", "decoder_attention_heads", "decoder_embed_dim"},
                      {"encoders/bert_model", "num_attention_heads", "hidden_size"},
                      {"encoders/xlmr_model", "num_attention_heads", "hidden_size"},
                      {"encoders/modernbert_maskedlm", "num_attention_heads", "hidden_size"},
                      {"encoders/nomic_model", "num_attention_heads", "hidden_size"},
                      {"translation/bart", "encoder_attention_heads", "d_model"},
                      {"translation/bart", "decoder_attention_heads", "d_model"}};
  for (const Row& row : rows) {
    load_file(std::string("tests/data/") + row.folder + "/config.json");
    const std::string width = parse_json(config_, "test").at(row.width).dump();
    const std::string patch = std::string("{\"") + row.heads +
                              "\": 5, \"head_dim\": null, \"num_key_value_heads\": null}";
    const std::string text = refused(patch.c_str(), MOE_ERR_SHAPE);
    EXPECT_TRUE(text.starts_with(std::string("config.json: ") + row.heads + ": 5 does not divide " +
                                 row.width + " " + width))
        << row.folder << ": " << text;
  }
  load_file("tests/data/encoders/nomic_model/config.json");
  EXPECT_EQ(refused(R"({"num_attention_heads": null, "n_head": 5, "hidden_size": null,
                        "n_embd": 24, "head_dim": null})",
                    MOE_ERR_SHAPE),
            "config.json: n_head: 5 does not divide n_embd 24");
}

// The list counts: `transformers` saves a default number beside it.
TEST_F(FamilyKeys, TwoKeysForTheLayersWithoutExperts) {
  for (const char* family : {"kimi_linear", "bailing_hybrid", "glm4_moe_lite", "deepseek_v3"}) {
    load(family);
    Json config = parse_json(config_, "test");
    Json list = Json::array();
    const auto n = config.at("num_hidden_layers").get<size_t>();
    for (size_t l = 0; l < n; ++l) list.push_back(l == 1 ? "dense" : "sparse");
    config["mlp_layer_types"] = list;
    config_ = config.dump();
    const auto warnings = [&](const char* patch) {
      const Imported in = read_patched(patch, config_.c_str());
      for (size_t l = 0; l < n; ++l) {
        EXPECT_EQ(in.config.layers[l].ffn.kind, l == 1 ? FfnKind::kDense : FfnKind::kMoe)
            << family << ": " << patch;
      }
      return in.warnings;
    };
    EXPECT_EQ(warnings(R"({"first_k_dense_replace": null})"), std::vector<std::string>());
    const std::vector<std::string> unused = {
        "config.json: first_k_dense_replace is not used: the dense layers of mlp_layer_types are "
        "others"};
    EXPECT_EQ(warnings(R"({"first_k_dense_replace": 0})"), unused) << family;
    EXPECT_EQ(warnings(R"({"first_k_dense_replace": 2})"), unused) << family;
    config["mlp_layer_types"][0] = "dense";
    config_ = config.dump();
    EXPECT_EQ(read_patched(R"({"first_k_dense_replace": 2})", config_.c_str()).warnings,
              std::vector<std::string>());
  }
}

// `transformers` replaces it by the width of what is rotated; a head has qk_head_dim numbers.
TEST_F(FamilyKeys, KimisHeadDimHasNoEffect) {
  load("kimi_linear");
  for (const char* patch : {R"({"head_dim": 72})", R"({"head_dim": null})", "{}"}) {
    const Imported in = read_patched(patch, config_.c_str());
    EXPECT_EQ(in.config.layers[2].attention.head_dim, 12) << patch;
  }
}

// Not "missing".
TEST_F(FamilyKeys, ABaseOfZero) {
  for (const char* family : {"mixtral", "llama", "olmoe", "qwen3_moe", "lfm2", "granitemoehybrid",
                             "minimax", "olmo3", "gemma2", "phi3", "deepseek_v3"}) {
    load(family);
    EXPECT_EQ(
        refused(R"({"rope_parameters": null, "rope_theta": 0})", MOE_ERR_FORMAT),
        "config.json: rope_theta: expected a number of at least 1e-30 and below 1e30, found 0")
        << family;
  }
  load_file("tests/data/encoders/nomic_model/config.json");
  EXPECT_EQ(
      refused(R"({"rope_parameters": null, "rotary_emb_base": 0})", MOE_ERR_FORMAT),
      "config.json: rotary_emb_base: expected a number of at least 1e-30 and below 1e30, found 0");
  load_file("tests/data/encoders/modernbert_maskedlm/config.json");
  EXPECT_EQ(refused(R"({"rope_parameters": null, "local_rope_theta": 0})", MOE_ERR_FORMAT),
            "config.json: local_rope_theta: expected a number of at least 1e-30 and below 1e30, "
            "found 0");
  EXPECT_EQ(
      refused(R"({"rope_parameters": {"full_attention": {"rope_theta": 0}}})", MOE_ERR_FORMAT),
      "config.json: rope_parameters.full_attention.rope_theta: expected a number of at least "
      "1e-30 and below 1e30, found 0");
}

TEST_F(FamilyKeys, TwoBasesOfModernBert) {
  load_file("tests/data/encoders/modernbert_maskedlm/config.json");
  const std::string text = refused(R"({"global_rope_theta": 5000})");
  EXPECT_TRUE(
      text.starts_with("config.json: global_rope_theta is 5000, but rope_parameters."
                       "full_attention.rope_theta, which means the same, is 160000"))
      << text;
  accepted(R"({"global_rope_theta": 160000})");
}

// The family's file is of bfloat16, saved by transformers.
class Decays : public testing::Test {
 protected:
  std::string error(const char* buffer, const std::function<void(std::vector<float>*)>& change,
                    std::vector<int64_t> shape = {}) {
    Checkpoint checkpoint = open_checkpoint(kFamilies + "minimax", [] {}, {});
    const std::string name = std::string("model.layers.2.self_attn.") + buffer;
    const SourceTensor tensor = *checkpoint.find(name);
    std::vector<float> values(tensor.n_elements);
    checkpoint.read(tensor, 0, values.size(), values.data());
    change(&values);
    checkpoint.remove_tensor(name);
    if (shape.empty()) shape = tensor.shape;
    checkpoint.put_tensor(name, shape, std::move(values));
    return guarded([&] { (void)import_checkpoint(checkpoint); }).text();
  }
};

// The four heads' rates in the third of four layers: 2^(-2h) (1 - 2 / (3 + 1e-5) + 1e-5), and their
// powers, in double precision by Python.
constexpr double kRates[] = {0.08333638888703705, 0.020834097221759263, 0.005208524305439816,
                             0.001302131076359954};

TEST_F(Decays, AreThoseOfTheFormula) {
  const auto filled = [&](const char* buffer, auto steps, int64_t rows, int64_t cols) {
    return error(buffer, [&](std::vector<float>* values) {
      size_t i = 0;
      for (const double rate : kRates) {
        for (int64_t r = 0; r < rows; ++r) {
          for (int64_t c = 0; c < cols; ++c) {
            const int n = static_cast<int>(steps(r, c));
            (*values)[i++] = n < 0 ? 0 : static_cast<float>(std::exp(-rate * n));
          }
        }
      }
    });
  };
  EXPECT_EQ(error("slope_rate",
                  [](std::vector<float>* v) { v->assign(std::begin(kRates), std::end(kRates)); }),
            "");
  EXPECT_EQ(filled(
                "query_decay", [](int64_t r, int64_t) { return r + 1; }, 16, 1),
            "");
  EXPECT_EQ(filled(
                "key_decay", [](int64_t r, int64_t) { return 15 - r; }, 16, 1),
            "");
  EXPECT_EQ(filled(
                "diagonal_decay", [](int64_t r, int64_t c) { return r - c; }, 16, 16),
            "");
  // In F32 no rounding of bfloat16 is accepted.
  EXPECT_EQ(error("slope_rate", [](std::vector<float>*) {}),
            "tensor model.layers.2.self_attn.slope_rate: element 0 of head 0: expected 0.0833364, "
            "file has 0.0834961; only the decays that follow from the numbers of heads and "
            "layers are supported");
}

TEST_F(Decays, OthersAreRefused) {
  for (const char* buffer : {"slope_rate", "query_decay", "key_decay", "diagonal_decay"}) {
    const std::string tensor = std::string("tensor model.layers.2.self_attn.") + buffer;
    for (const float other : {0.5f, NAN, -1.0f}) {
      const std::string text =
          error(buffer, [&](std::vector<float>* values) { values->back() = other; });
      EXPECT_TRUE(text.starts_with(tensor + ": element ")) << text;
    }
    const std::string shape = error(buffer, [](std::vector<float>*) {}, {1, 1});
    EXPECT_TRUE(shape.starts_with(tensor + ": expected (")) << shape;
  }
}

TEST_F(FamilyKeys, MinimaxM2sList) {
  load("minimax_m2");
  EXPECT_EQ(refused(R"({"attn_type_list": [1]})", MOE_ERR_SHAPE),
            "config.json: attn_type_list: expected 2 entries, found 1");
  EXPECT_EQ(refused(R"({"attn_type_list": []})", MOE_ERR_SHAPE),
            "config.json: attn_type_list: expected 2 entries, found 0");
  load("minimax");
  EXPECT_EQ(refused(R"({"attn_type_list": [], "layer_types": null})", MOE_ERR_SHAPE),
            "config.json: attn_type_list: expected 4 entries, found 0");
}

}  // namespace
}  // namespace moe
