// SPDX-License-Identifier: MIT
// Checkpoints of tests/data/families with one error each: the message names it, and nothing is
// written.

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "formats/import/failure.h"
#include "formats/import/safetensors.h"
#include "src/base/number.h"
#include "src/convert/convert.h"
#include "tests/convert/golden_logits.h"
#include "tests/convert/tiny_checkpoint.h"
#include "tests/support/every_nth.h"

namespace moe {
namespace {

class DamagedFamily : public testing::Test {
 protected:
  void load(const std::string& name) {
    const std::string from = "tests/data/families/" + name;
    config_ = read_text_file(from + "/config.json", 1u << 20);
    tensors_.clear();
    const InputFile file(from + "/model.safetensors");
    for (const SourceTensor& t : read_safetensors_header(file, 0)) {
      const SourceTypeInfo& info = source_type_info(t.type);
      test::RawTensor& raw = tensors_[t.name];
      raw = {info.name, t.shape, std::string(t.n_elements * info.bytes, '\0')};
      file.read(t.offset, raw.bytes.data(), raw.bytes.size());
    }
  }
  std::string error(moe_status code) {
    test::write_checkpoint(source_, config_, tensors_);
    return convert_error(code);
  }
  std::string convert_error(moe_status code) {
    ConvertReport report;
    const Status status = convert(source_.path(), target_.file("m.moe"), {}, &report);
    EXPECT_EQ(status.code(), code) << status.text();
    EXPECT_TRUE(target_.names().empty());
    return status.text();
  }
  /// Converts with the layer that predicts further tokens, or without it.
  Status convert_without(bool without, ConvertReport* report) {
    test::write_checkpoint(source_, config_, tensors_);
    MemorySink sink;
    ConvertOptions options;
    options.no_predictions = without;
    return convert_to_sink(source_.path(), sink, options, report);
  }

  test::TempFolder source_, target_;
  std::string config_;
  test::RawTensors tensors_;
};

// Where a slot may have one of several names, the error says the one that this file would have.
TEST_F(DamagedFamily, TheMissingTensorIsNamed) {
  for (const auto& [family, name] :
       {std::pair{"deepseek_v2", "model.layers.0.self_attn.kv_b_proj.weight"},
        {"deepseek_v3", "model.layers.0.self_attn.q_b_proj.weight"},
        {"deepseek_v3", "model.layers.1.mlp.gate.e_score_correction_bias"},
        {"kimi_linear", "model.layers.1.block_sparse_moe.experts.0.w1.weight"},
        {"kimi_linear", "model.layers.1.block_sparse_moe.gate.weight"},
        {"bailing_moe_v2", "model.layers.0.attention.query_layernorm.weight"},
        {"maple", "model.layers.0.self_attn.k_norm.weight"},
        {"gemma3", "model.layers.0.pre_feedforward_layernorm.weight"},
        {"kimi_k2", "model.layers.2.eh_proj.weight"},
        {"kimi_k2", "model.layers.2.mlp.experts.3.up_proj.weight"},
        {"qwen3_5_mtp", "mtp.pre_fc_norm_hidden.weight"},
        {"qwen3_5_mtp", "mtp.layers.0.self_attn.q_norm.weight"},
        {"mh_moe", "decoder.layers.0.ffn.fc3.weight"},
        {"mh_moe", "decoder.layers.1.moe_layer.experts.0.fc3.weight"},
        {"awq", "model.layers.0.mlp.down_proj.qweight"},
        {"gptq", "model.layers.0.mlp.down_proj.qweight"},
        {"w4a16", "model.layers.0.self_attn.q_proj.weight_packed"},
        {"mxfp4", "model.layers.0.mlp.down_proj.weight_packed"},
        {"nvfp4", "model.layers.0.mlp.down_proj.weight_packed"}}) {
    load(family);
    ASSERT_EQ(tensors_.erase(name), 1u) << name;
    const std::string text = error(MOE_ERR_NOT_FOUND);
    EXPECT_TRUE(text.starts_with(std::string("tensor ") + name + " is missing")) << text;
  }
}

// Tensors that a checkpoint of their family may lack, or that no model needs.
bool may_be_missing(const std::string& name) {
  for (const char* pattern :
       {"model.layers.*.embed_tokens.weight", "*.shared_head.head.weight", "*.eh_proj.weight",
        "*.g_idx", "*.weight_format", "*.inv_freq", "*.slope_rate", "*_decay",
        "decoder.embed_positions.*", "decoder.output_projection.weight", "decoder.version",
        "*.yyh_local_experts.*.dense_4h_to_h.bias"}) {
    if (matches(pattern, name)) return true;
  }
  return false;
}

// `name` without its numbers.
std::string without_numbers(const std::string& name) {
  std::string out;
  for (const char c : name) {
    if (!is_digit(c) || !out.ends_with('.')) out += c;
  }
  return out;
}

// The same of every family: each tensor in turn; of those that differ in the number of a layer or
// an expert, the first. Blocks of MiniMax's layers have norms of the layers behind, so that there
// each layer counts.
TEST_F(DamagedFamily, EveryMissingTensorIsNamed) {
  int n_families = 0;
  test::EveryNth turn(5);
  for (const std::string& family : test::folder_names("tests/data/families")) {
    if (!path_exists("tests/data/families/" + family + "/model.safetensors")) continue;
    if (family.ends_with("_with_images")) continue;  // with tensors of no text model
    ++n_families;
    load(family);
    const test::RawTensors good = tensors_;
    std::set<std::string> seen;
    for (const auto& [name, tensor] : good) {
      const bool first = seen.insert(without_numbers(name)).second;
      const bool by_layer = family == "minimax" && name.find(".experts.") == name.npos;
      if ((!first && !by_layer) || !turn.take()) continue;
      tensors_ = good;
      tensors_.erase(name);
      test::write_checkpoint(source_, config_, tensors_);
      ConvertReport report;
      MemorySink sink;
      const Status status = convert_to_sink(source_.path(), sink, {}, &report);
      if (status.ok() && may_be_missing(name)) continue;
      const std::string text = status.text();
      EXPECT_TRUE(text.starts_with("tensor " + name) && text.find(" is missing") != text.npos)
          << family << ": without " << name << ": " << text;
    }
  }
  EXPECT_GE(n_families, 60);
}

TEST_F(DamagedFamily, PackedTernary) {
  load("bitnet_packed");
  const test::RawTensors good = tensors_;
  const std::string up = "model.layers.1.mlp.up_proj.weight";  // (40, 32) packed into (10, 32)
  tensors_[up].bytes[32 * 2 + 5] = static_cast<char>(3 << 4);
  EXPECT_EQ(error(MOE_ERR_CORRUPT),
            "tensor " + up + ": row 22, column 5: packed value 3 stands for no ternary weight");
  tensors_ = good;
  tensors_.erase(up + "_scale");
  EXPECT_EQ(error(MOE_ERR_NOT_FOUND), "tensor " + up + "_scale is missing, the scales of " + up);
  tensors_ = good;
  tensors_[up + "_scale"] = test::f32_tensor({1}, {NAN});
  error(MOE_ERR_NON_FINITE);
  tensors_[up + "_scale"] = test::f32_tensor({2}, {1, 1});
  EXPECT_EQ(error(MOE_ERR_SHAPE), "tensor " + up + "_scale: expected (1), file has (2)");
  tensors_[up + "_scale"] = {"I32", {1}, std::string(4, '\1')};
  error(MOE_ERR_FORMAT);
  tensors_ = good;
  tensors_[up] = {"U8", {9, 32}, std::string(9 * 32, '\0')};
  EXPECT_EQ(error(MOE_ERR_SHAPE), "tensor " + up + ": expected (40, 32), file has (36, 32)");
  // The same bytes in a checkpoint whose config.json does not say that they are packed.
  tensors_ = good;
  config_ = test::patched(R"({"quantization_config": null})", config_.c_str());
  error(MOE_ERR_SHAPE);
}

TEST_F(DamagedFamily, Mxfp4) {
  load("gpt_oss_mxfp4");
  const test::RawTensors good = tensors_;
  const std::string name = "model.layers.0.mlp.experts.down_proj";
  tensors_[name + "_scales"].bytes[3] = static_cast<char>(255);
  EXPECT_EQ(error(MOE_ERR_NON_FINITE),
            "tensor " + name + "_blocks: element (3, 0) of layers.0.moe.experts.0.down is NaN");
  tensors_ = good;
  tensors_.erase(name + "_scales");
  error(MOE_ERR_NOT_FOUND);
  tensors_ = good;
  tensors_[name + "_scales"].dtype = "I8";
  EXPECT_EQ(error(MOE_ERR_FORMAT), "tensor " + name + "_scales: expected U8, file has I8");
  tensors_ = good;
  tensors_[name + "_blocks"].shape = {6, 64, 2, 8};
  EXPECT_EQ(error(MOE_ERR_SHAPE),
            "tensor " + name + "_blocks: expected (6, 64, 1, 16), file has (6, 64, 2, 8)");
}

TEST_F(DamagedFamily, TensorsThatConfigContradicts) {
  load("mixtral");
  const std::string good = config_;
  config_ = test::patched(R"({"num_local_experts": 7})", good.c_str());
  EXPECT_EQ(error(MOE_ERR_SHAPE),
            "tensor model.layers.0.block_sparse_moe.gate.weight: expected (7, 32), file has (6, "
            "32)");
  config_ = test::patched(R"({"num_hidden_layers": 1})", good.c_str());
  EXPECT_NE(error(MOE_ERR_FORMAT).find("config.json describes no such tensor"), std::string::npos);
  config_ = test::patched(R"({"vocab_size": 97})", good.c_str());
  EXPECT_EQ(error(MOE_ERR_SHAPE),
            "tensor model.embed_tokens.weight: expected (97, 32), file has (96, 32)");
  load("llama");
  config_ = test::patched(R"({"attention_bias": true})", config_.c_str());
  EXPECT_EQ(error(MOE_ERR_NOT_FOUND), "tensor model.layers.0.self_attn.q_proj.bias is missing");
}

// The model has one table, the file two that differ.
TEST_F(DamagedFamily, TiedTensorsThatDiffer) {
  const auto expect = [&](const std::string& copy, const std::string& original, const char* way) {
    tensors_[copy] = tensors_.at(original);
    test::write_checkpoint(source_, config_, tensors_);
    ConvertReport report;
    MemorySink sink;
    const Status equal = convert_to_sink(source_.path(), sink, {}, &report);
    EXPECT_TRUE(equal.ok()) << equal.text();
    std::string& bytes = tensors_[copy].bytes;
    const auto rows = static_cast<size_t>(tensors_[copy].shape[0]);
    bytes[(rows - 1) * (bytes.size() / rows)] ^= 1;
    EXPECT_EQ(error(MOE_ERR_UNSUPPORTED), "tensor " + copy + ": row " + std::to_string(rows - 1) +
                                              " is not that of " + original +
                                              ", though config.json says that they are one" + way);
  };
  const char* const way = "; to use both, set tie_word_embeddings to false in config.json";
  load("llama");
  config_ = test::patched(R"({"tie_word_embeddings": true})", config_.c_str());
  expect("lm_head.weight", "model.embed_tokens.weight", way);
  load("../encoders/xlmr_maskedlm");
  expect("lm_head.decoder.weight", "roberta.embeddings.word_embeddings.weight", way);
  load("../translation/bart");
  expect("lm_head.weight", "model.shared.weight", "");
  load("../translation/bart");
  expect("model.decoder.embed_tokens.weight", "model.shared.weight", "");
}

// A layer that predicts further tokens is checked like any other, and can be left out.
TEST_F(DamagedFamily, PredictionLayers) {
  ConvertReport report;
  load("kimi_k2");
  const test::RawTensors good = tensors_;
  tensors_["model.layers.2.eh_proj.weight"].shape = {64, 32};
  EXPECT_EQ(error(MOE_ERR_SHAPE),
            "tensor model.layers.2.eh_proj.weight: expected (32, 64), file has (64, 32)");
  EXPECT_TRUE(convert_without(true, &report).ok());
  tensors_.erase("model.layers.2.eh_proj.weight");
  EXPECT_EQ(error(MOE_ERR_NOT_FOUND),
            "tensor model.layers.2.eh_proj.weight is missing; --no-mtp (no_predictions) leaves out "
            "the layer that needs it");
  EXPECT_TRUE(convert_without(true, &report).ok());
  EXPECT_EQ(report.n_skipped_layers, 1);
  tensors_ = good;
  tensors_["model.layers.2.shared_head.head.weight"].bytes[100] ^= 1;
  ASSERT_TRUE(convert_without(false, &report).ok());
  EXPECT_EQ(report.n_skipped_layers, 1);
  ASSERT_EQ(report.warnings.size(), 1u);
  EXPECT_NE(report.warnings[0].find("has an embedding or a head of its own"), std::string::npos);
  tensors_ = good;
  tensors_["model.layers.2.other.weight"] = test::f32_tensor({2}, {1, 1});
  EXPECT_EQ(error(MOE_ERR_FORMAT),
            "tensor model.layers.2.other.weight: config.json describes no such tensor");
  EXPECT_TRUE(convert_without(true, &report).ok());

  load("bailing_hybrid_mtp");
  ASSERT_TRUE(convert_without(false, &report).ok());
  EXPECT_EQ(report.n_skipped_layers, 0);
  for (const char* name : {"eh_proj", "hnorm", "final_layernorm", "attention.g_proj",
                           "attention.kv_b_proj", "mlp.experts.3.up_proj"}) {
    const std::string tensor = std::string("model.layers.4.") + name + ".weight";
    const test::RawTensor kept = tensors_.at(tensor);
    tensors_.erase(tensor);
    EXPECT_EQ(error(MOE_ERR_NOT_FOUND),
              "tensor " + tensor +
                  " is missing; --no-mtp (no_predictions) leaves out the layer that needs it");
    ASSERT_TRUE(convert_without(true, &report).ok());
    EXPECT_EQ(report.n_skipped_layers, 1);
    tensors_[tensor] = kept;
  }

  load("qwen3_5_mtp");
  const std::string config = config_;
  for (const char* change :
       {R"({"mtp_use_dedicated_embeddings": true})", R"({"mtp_num_hidden_layers": 0})"}) {
    config_ = test::patched(change, config.c_str());
    ASSERT_TRUE(convert_without(false, &report).ok());
    EXPECT_EQ(report.warnings.size(), 1u);
    EXPECT_EQ(report.n_skipped_layers, 1);
  }
  config_ = test::patched(R"({"mtp_num_hidden_layers": 2})", config.c_str());
  ASSERT_TRUE(convert_without(false, &report).ok());
  EXPECT_EQ(report.n_skipped_layers, 1);
  config_ = test::patched(R"({"mtp_num_hidden_layers": 65})", config.c_str());
  error(MOE_ERR_FORMAT);
  config_ = config;
  tensors_["mtp.fc.weight"].shape = {64, 32};
  EXPECT_EQ(error(MOE_ERR_SHAPE), "tensor mtp.fc.weight: expected (32, 64), file has (64, 32)");
}

// The same of layers that are outside the others. The first of several is kept.
TEST_F(DamagedFamily, PredictionLayersApart) {
  const auto expect_needed = [&](std::initializer_list<const char*> names) {
    ConvertReport report;
    for (const std::string name : names) {
      const test::RawTensor kept = tensors_.at(name);
      tensors_.erase(name);
      EXPECT_EQ(error(MOE_ERR_NOT_FOUND),
                "tensor " + name +
                    " is missing; --no-mtp (no_predictions) leaves out the layer that needs it");
      EXPECT_TRUE(convert_without(true, &report).ok());
      EXPECT_EQ(report.n_skipped_layers, 1);
      tensors_[name] = kept;
    }
    tensors_["model.mtp_other.weight"] = test::f32_tensor({2}, {1, 1});
    EXPECT_EQ(error(MOE_ERR_FORMAT),
              "tensor model.mtp_other.weight: config.json describes no such tensor");
    tensors_.erase("model.mtp_other.weight");
  };
  ConvertReport report;
  load("ernie4_5_moe_mtp");
  expect_needed({"model.mtp_emb_norm.0.weight", "model.mtp_hidden_norm.0.weight",
                 "model.mtp_linear_proj.0.weight", "model.mtp_block.0.mlp.up_proj.weight"});
  tensors_["model.mtp_emb_norm.1.weight"] = tensors_.at("model.mtp_emb_norm.0.weight");
  tensors_["model.mtp_block.1.other.weight"] = test::f32_tensor({2}, {1, 1});
  EXPECT_TRUE(convert_without(false, &report).ok());
  EXPECT_EQ(report.n_skipped_layers, 1);
  EXPECT_TRUE(convert_without(true, &report).ok());
  EXPECT_EQ(report.n_skipped_layers, 2);
  load("mimo_mtp");
  expect_needed(
      {"model.mtp_layers.0.token_layernorm.weight", "model.mtp_layers.0.final_layernorm.weight",
       "model.mtp_layers.0.input_proj.weight", "model.mtp_layers.0.self_attn.k_proj.bias"});
  const std::string config = config_;
  config_ = test::patched(R"({"num_nextn_predict_layers": 0})", config.c_str());
  EXPECT_TRUE(convert_without(false, &report).ok());
  EXPECT_EQ(report.n_skipped_layers, 1);
  EXPECT_EQ(report.warnings.size(), 1u);
  config_ = test::patched(R"({"attention_bias": false})", config.c_str());
  EXPECT_NE(error(MOE_ERR_UNSUPPORTED).find("attention_bias: false"), std::string::npos);
  config_ = test::patched(R"({"num_nextn_predict_layers": 2})", config.c_str());
  EXPECT_TRUE(convert_without(false, &report).ok());
  EXPECT_EQ(report.n_skipped_layers, 0);
  tensors_["model.mtp_layers.1.other.weight"] = test::f32_tensor({2}, {1, 1});
  EXPECT_TRUE(convert_without(false, &report).ok());
  EXPECT_EQ(report.n_skipped_layers, 1);
  for (const char* family : {"mimo_mtp", "ernie4_5_moe_mtp"}) {  // with a second layer alone
    load(family);
    std::erase_if(tensors_, [](const auto& t) { return t.first.find("mtp_") != t.first.npos; });
    const bool mimo = family == std::string("mimo_mtp");
    const char* const name = mimo ? "model.mtp_layers.1.a.weight" : "model.mtp_block.1.a.weight";
    tensors_[name] = test::f32_tensor({2}, {1, 1});
    EXPECT_TRUE(convert_without(false, &report).ok());
    EXPECT_EQ(report.n_skipped_layers, 1);
  }
}

TEST_F(DamagedFamily, UnsupportedSettings) {
  load("gemma3");
  const std::string gemma = config_;
  config_ = test::patched(R"({"final_logit_softcapping": 30})", gemma.c_str());
  EXPECT_NE(error(MOE_ERR_UNSUPPORTED).find("final_logit_softcapping: 30"), std::string::npos);
  config_ = test::patched(R"({"query_pre_attn_scalar": 0})", gemma.c_str());
  EXPECT_NE(error(MOE_ERR_UNSUPPORTED).find("query_pre_attn_scalar: 0"), std::string::npos);
  config_ =
      test::patched(R"({"rope_parameters": {"full_attention": {}, "other": {}}})", gemma.c_str());
  EXPECT_NE(error(MOE_ERR_FORMAT).find("other"), std::string::npos);
  config_ = gemma;
  tensors_.erase("model.layers.1.pre_feedforward_layernorm.weight");
  EXPECT_NE(error(MOE_ERR_NOT_FOUND).find("layers.1.pre_feedforward_layernorm.weight"),
            std::string::npos);
  load("glm4_moe");
  config_ = test::patched(R"({"n_group": 2})", config_.c_str());
  EXPECT_NE(error(MOE_ERR_UNSUPPORTED).find("n_group: 2"), std::string::npos);
  load("bailing_moe");
  const std::string bailing = config_;
  config_ = test::patched(R"({"intermediate_size": null, "moe_intermediate_size": null})",
                          bailing.c_str());
  EXPECT_NE(error(MOE_ERR_FORMAT).find("moe_intermediate_size"), std::string::npos);
  config_ = bailing;
  tensors_.erase("model.layers.1.attention.query_key_value.weight");
  EXPECT_EQ(error(MOE_ERR_NOT_FOUND),
            "tensor model.layers.1.attention.query_key_value.weight is missing");
  load("lfm2");
  const std::string lfm2 = config_;
  for (const char* length : {"0", "65"}) {
    config_ =
        test::patched((R"({"conv_L_cache": )" + std::string(length) + "}").c_str(), lfm2.c_str());
    EXPECT_NE(error(MOE_ERR_FORMAT).find("conv_L_cache: expected an integer in 1..64"),
              std::string::npos);
  }
  config_ = test::patched(R"({"conv_dim": 64})", lfm2.c_str());
  EXPECT_NE(error(MOE_ERR_UNSUPPORTED).find("conv_dim: 64"), std::string::npos);
  config_ = test::patched(R"({"layer_types": ["conv"]})", lfm2.c_str());
  EXPECT_NE(error(MOE_ERR_SHAPE).find("layer_types: expected 4 entries"), std::string::npos);
  config_ = lfm2;
  tensors_["model.layers.2.conv.conv.weight"].shape = {32, 3, 1};
  EXPECT_EQ(error(MOE_ERR_SHAPE),
            "tensor model.layers.2.conv.conv.weight: expected (32, 1, 3), file has (32, 3, 1)");
  tensors_.erase("model.layers.2.conv.conv.weight");
  EXPECT_NE(error(MOE_ERR_NOT_FOUND).find("layers.2.conv.conv.weight"), std::string::npos);
  load("phi3");
  tensors_["model.layers.0.self_attn.qkv_proj.weight"].shape = {32, 64};
  EXPECT_EQ(
      error(MOE_ERR_SHAPE),
      "tensor model.layers.0.self_attn.qkv_proj.weight: expected (64, 32), file has (32, 64)");
}

TEST_F(DamagedFamily, GatedDeltaRules) {
  load("qwen3_next");
  const std::string good = config_;
  const auto changed = [&](const char* change, moe_status status) {
    config_ = test::patched(change, good.c_str());
    return error(status);
  };
  for (const char* length : {"0", "65"}) {
    const std::string change = R"({"linear_conv_kernel_dim": )" + std::string(length) + "}";
    EXPECT_NE(changed(change.c_str(), MOE_ERR_FORMAT)
                  .find("linear_conv_kernel_dim: expected an integer in 1..64"),
              std::string::npos);
  }
  EXPECT_NE(changed(R"({"linear_key_head_dim": 257})", MOE_ERR_FORMAT)
                .find("linear_key_head_dim: expected an integer in 1..256"),
            std::string::npos);
  EXPECT_EQ(changed(R"({"linear_num_value_heads": 3})", MOE_ERR_SHAPE),
            "config.json: linear_num_key_heads: 2 does not divide linear_num_value_heads 3");
  EXPECT_NE(changed(R"({"layer_types": ["linear_attention"]})", MOE_ERR_SHAPE)
                .find("layer_types: expected 4 entries"),
            std::string::npos);
  EXPECT_NE(changed(R"({"attn_output_gate": false})", MOE_ERR_UNSUPPORTED).find("attn_output_gate"),
            std::string::npos);
  config_ = good;
  const test::RawTensors tensors = tensors_;
  tensors_["model.layers.0.linear_attn.conv1d.weight"].shape = {80, 4, 1};
  EXPECT_EQ(
      error(MOE_ERR_SHAPE),
      "tensor model.layers.0.linear_attn.conv1d.weight: expected (80, 1, 4), file has (80, 4, 1)");
  tensors_ = tensors;
  tensors_["model.layers.1.linear_attn.in_proj_qkvz.weight"].shape = {32, 128};
  EXPECT_EQ(error(MOE_ERR_SHAPE),
            "tensor model.layers.1.linear_attn.in_proj_qkvz.weight: expected (128, 32), file has "
            "(32, 128)");
  tensors_ = tensors;
  tensors_.erase("model.layers.2.linear_attn.A_log");
  EXPECT_NE(error(MOE_ERR_NOT_FOUND).find("layers.2.linear_attn.A_log"), std::string::npos);
}

TEST_F(DamagedFamily, Gemma4) {
  load("gemma4_moe");
  const std::string good = config_;
  const auto changed = [&](const char* change, moe_status status) {
    config_ = test::patched(change, good.c_str());
    return error(status);
  };
  EXPECT_NE(changed(R"({"layer_types": ["full_attention"]})", MOE_ERR_SHAPE)
                .find("layer_types: expected 4 entries"),
            std::string::npos);
  EXPECT_NE(changed(R"({"use_bidirectional_attention": "all"})", MOE_ERR_UNSUPPORTED)
                .find("use_bidirectional_attention: \"all\""),
            std::string::npos);
  EXPECT_NE(changed(R"({"num_kv_shared_layers": 3})", MOE_ERR_UNSUPPORTED)
                .find("no layer before them has keys of the kind of layer 1"),
            std::string::npos);
  EXPECT_NE(changed(R"({"num_kv_shared_layers": 4})", MOE_ERR_FORMAT).find("num_kv_shared_layers"),
            std::string::npos);
  EXPECT_NE(changed(R"({"final_logit_softcapping": 0})", MOE_ERR_UNSUPPORTED)
                .find("final_logit_softcapping"),
            std::string::npos);
  EXPECT_NE(changed(R"({"per_layer_config": {"1": {"sliding_window": 3}}})", MOE_ERR_FORMAT)
                .find("per_layer_config.1"),
            std::string::npos);
  EXPECT_NE(changed(R"({"top_k_experts": 7})", MOE_ERR_FORMAT).find("top_k_experts"),
            std::string::npos);
  config_ = good;
  tensors_["model.layers.2.layer_scalar"] = tensors_["model.layers.1.router.per_expert_scale"];
  EXPECT_NE(error(MOE_ERR_SHAPE).find("layer_scalar: expected one number, found 6"),
            std::string::npos);
  load("gemma4_moe");
  tensors_.erase("model.layers.2.layer_scalar");
  EXPECT_NE(error(MOE_ERR_NOT_FOUND).find("model.layers.2.layer_scalar is missing"),
            std::string::npos);
  load("gemma4_moe");
  tensors_["model.layers.1.router.per_expert_scale"].shape = {3, 2};
  EXPECT_EQ(error(MOE_ERR_SHAPE),
            "tensor model.layers.1.router.per_expert_scale: expected (6, 1), file has (3, 2)");
}

TEST_F(DamagedFamily, Gemma4HeadsByLayer) {
  load("gemma4_heads_by_layer");
  const std::string good = config_;
  for (const char* index : {"12", "012", "-1", "+1", "", "1 ", "0x1", "full_attention", "comment",
                            "18446744073709551617"}) {
    const std::string change =
        R"({"per_layer_config": {")" + std::string(index) + R"(": {"head_dim": 16}}})";
    config_ = test::patched(change.c_str(), good.c_str());
    EXPECT_EQ(error(MOE_ERR_FORMAT),
              "config.json: per_layer_config: expected the index of a layer, 0 to 11, found \"" +
                  std::string(index) + "\"");
  }
  config_ = test::patched(R"({"per_layer_config": {"5": {"head_dim": 16}}})", good.c_str());
  EXPECT_EQ(error(MOE_ERR_FORMAT), "config.json: per_layer_config.5: layer 5 is there twice");
  config_ = test::patched(R"({"per_layer_config": 3})", good.c_str());
  EXPECT_NE(error(MOE_ERR_FORMAT).find("per_layer_config: expected an object"), std::string::npos);
}

TEST_F(DamagedFamily, Gemma4Rope) {
  load("gemma4");
  const std::string good = config_;
  for (const char* kind : {"full_attention", "sliding_attention"}) {
    const std::string change = R"({"rope_parameters": {")" + std::string(kind) +
                               R"(": {"rope_type": "linear", "factor": 2, "rope_theta": 100,
                                      "partial_rotary_factor": 0.5}}})";
    config_ = test::patched(change.c_str(), good.c_str());
    EXPECT_EQ(error(MOE_ERR_UNSUPPORTED),
              "config.json: rope_parameters." + std::string(kind) +
                  ": partial_rotary_factor: 0.5 is not supported; only the type proportional has "
                  "one other than 1");
  }
  config_ = test::patched(R"({"partial_rotary_factor": 0.5})", good.c_str());
  EXPECT_NE(error(MOE_ERR_UNSUPPORTED).find("partial_rotary_factor"), std::string::npos);
  config_ =
      test::patched(R"({"rope_scaling": {"rope_type": "linear", "factor": 2}})", good.c_str());
  EXPECT_NE(error(MOE_ERR_UNSUPPORTED).find("rope_scaling"), std::string::npos);
}

// `transformers` ignores a factor of the default type, and gives the last layer full attention.
TEST_F(DamagedFamily, Gemma4KeysWithoutAnEffect) {
  load("gemma4");
  const std::string good = config_;
  const auto converted = [&](const std::string& config, std::vector<std::string> warnings) {
    test::write_checkpoint(source_, config, tensors_);
    MemorySink sink;
    ConvertReport report;
    const Status status = convert_to_sink(source_.path(), sink, {}, &report);
    EXPECT_TRUE(status.ok()) << status.text();
    EXPECT_EQ(report.warnings, warnings);
    return std::string(reinterpret_cast<const char*>(sink.data()), sink.size());
  };
  const std::string plain = converted(good, {});
  EXPECT_EQ(
      converted(test::patched(
                    R"({"rope_parameters": {"sliding_attention": {"partial_rotary_factor": 0.5}}})",
                    good.c_str()),
                {"rope_parameters.sliding_attention.partial_rotary_factor is not "
                 "used: it has no meaning for the type default of this architecture"}),
      plain);
  EXPECT_EQ(converted(test::patched(R"({"layer_types": ["sliding_attention", "full_attention",
                                                  "sliding_attention", "sliding_attention"]})",
                                    good.c_str()),
                      {"the last layer has full attention, whatever layer_types says: transformers "
                       "does the same"}),
            plain);
}

// Also without a layer's factor, readers of 1.5 would leave out the norm of values.
TEST_F(DamagedFamily, NormedValuesAreOfVersion6) {
  load("gemma4");
  for (const char* l : {"0", "1", "2", "3"}) {
    tensors_["model.layers." + std::string(l) + ".layer_scalar"] = test::f32_tensor({1}, {1});
  }
  test::write_checkpoint(source_, config_, tensors_);
  MemorySink sink;
  ConvertReport report;
  ASSERT_TRUE(convert_to_sink(source_.path(), sink, {}, &report).ok());
  EXPECT_EQ(sink.data()[10], 6);
}

TEST_F(DamagedFamily, Gemma4WithEmbeddingsOfLayers) {
  load("gemma4_e");
  const std::string good = config_;
  config_ = test::patched(R"({"vocab_size_per_layer_input": 95})", good.c_str());
  EXPECT_NE(error(MOE_ERR_UNSUPPORTED).find("vocab_size_per_layer_input: 95 is not supported"),
            std::string::npos);
  config_ = test::patched(R"({"hidden_size_per_layer_input": 11})", good.c_str());
  EXPECT_EQ(error(MOE_ERR_SHAPE),
            "tensor model.embed_tokens_per_layer.weight: expected (96, 66), file has (96, 72)");
  config_ = good;
  tensors_.erase("model.layers.3.post_per_layer_input_norm.weight");
  EXPECT_NE(error(MOE_ERR_NOT_FOUND).find("post_per_layer_input_norm.weight"), std::string::npos);
}

TEST_F(DamagedFamily, Mamba2) {
  load("granitemoehybrid");
  const std::string good = config_;
  const auto changed = [&](const char* change, moe_status status) {
    config_ = test::patched(change, good.c_str());
    return error(status);
  };
  EXPECT_NE(
      changed(R"({"mamba_d_conv": 65})", MOE_ERR_FORMAT).find("mamba_d_conv: expected an integer"),
      std::string::npos);
  EXPECT_EQ(changed(R"({"mamba_n_heads": 5})", MOE_ERR_SHAPE),
            "config.json: mamba_n_heads 5 of mamba_d_head 16 are not 64 wide");
  EXPECT_EQ(changed(R"({"mamba_n_groups": 3})", MOE_ERR_SHAPE),
            "config.json: mamba_n_groups: 3 does not divide mamba_n_heads 4");
  for (const char* limits : {"[1.0, 0.5]", "[-1.0, 0.5]", R"([-1.0, {"__float__": "Infinity"}])"}) {
    const std::string text = changed(
        (R"({"time_step_limit": )" + std::string(limits) + "}").c_str(), MOE_ERR_UNSUPPORTED);
    EXPECT_TRUE(text.starts_with("config.json: time_step_limit: [")) << text;
    EXPECT_TRUE(text.ends_with("two numbers from 0 on in ascending order are")) << text;
  }
  config_ = good;
  tensors_["model.layers.0.mamba.in_proj.weight"].shape = {32, 156};
  EXPECT_EQ(error(MOE_ERR_SHAPE),
            "tensor model.layers.0.mamba.in_proj.weight: expected (156, 32), file has (32, 156)");
}

TEST_F(DamagedFamily, BlocksOfOneKind) {
  load("nemotron_h");
  const std::string good = config_;
  const auto changed = [&](const char* change, moe_status status) {
    config_ = test::patched(change, good.c_str());
    return error(status);
  };
  EXPECT_EQ(changed(R"({"num_hidden_layers": 4})", MOE_ERR_SHAPE),
            "config.json: num_hidden_layers 4, but 5 blocks are listed");
  EXPECT_NE(
      changed(R"({"layers_block_type": ["mamba", "window", "moe", "mlp", "mlp"]})", MOE_ERR_FORMAT)
          .find("layers_block_type[1]: expected one of mamba, linear_attention"),
      std::string::npos);
  EXPECT_EQ(
      changed(R"({"layers_block_type": null, "hybrid_override_pattern": "ME*-X"})", MOE_ERR_FORMAT),
      "config.json: hybrid_override_pattern: expected letters M, *, - and E, found "
      "\"ME*-X\"");
  EXPECT_EQ(changed(R"({"layers_block_type": null})", MOE_ERR_FORMAT),
            "config.json: \"hybrid_override_pattern\" is missing");
  EXPECT_NE(changed(R"({"moe_latent_size": 16})", MOE_ERR_UNSUPPORTED).find("moe_latent_size"),
            std::string::npos);
  EXPECT_EQ(changed(R"({"n_group": 4})", MOE_ERR_SHAPE),
            "config.json: n_group: 4 does not divide n_routed_experts 6");
  EXPECT_NE(changed(R"({"conv_kernel": 0})", MOE_ERR_FORMAT).find("expected an integer in 1..64"),
            std::string::npos);
  EXPECT_EQ(changed(R"({"intermediate_size": null})", MOE_ERR_FORMAT),
            "config.json: \"intermediate_size\" is missing");
  EXPECT_EQ(changed(R"({"n_groups": 3})", MOE_ERR_SHAPE),
            "config.json: n_groups: 3 does not divide mamba_num_heads 4");
  config_ = good;
  tensors_.erase("backbone.layers.0.mixer.norm.weight");
  EXPECT_NE(error(MOE_ERR_NOT_FOUND).find("backbone.layers.0.mixer.norm.weight"),
            std::string::npos);
}

TEST_F(DamagedFamily, MixersBesideAttention) {
  load("falcon_h1");
  const std::string good = config_;
  const auto changed = [&](const char* change, moe_status status) {
    config_ = test::patched(change, good.c_str());
    return error(status);
  };
  EXPECT_EQ(changed(R"({"mamba_d_ssm": 50})", MOE_ERR_SHAPE),
            "config.json: mamba_n_heads 4 of mamba_d_head 12 are not 50 wide");
  EXPECT_EQ(changed(R"({"ssm_multipliers": [1, 2, 3]})", MOE_ERR_SHAPE),
            "config.json: ssm_multipliers: expected 5 entries, found 3");
  EXPECT_EQ(changed(R"({"mlp_multipliers": [1, "a"]})", MOE_ERR_FORMAT),
            "config.json: mlp_multipliers[1]: expected a number, found \"a\"");
  EXPECT_NE(changed(R"({"key_multiplier": 0})", MOE_ERR_UNSUPPORTED).find("key_multiplier: 0"),
            std::string::npos);
  EXPECT_EQ(changed(R"({"mamba_rms_norm": true})", MOE_ERR_UNSUPPORTED),
            "config.json: mamba_norm_before_gate: true is not supported; only false is");
  EXPECT_NE(changed(R"({"mamba_use_mlp": false})", MOE_ERR_UNSUPPORTED).find("mamba_use_mlp"),
            std::string::npos);
  config_ = good;
  tensors_.erase("model.layers.1.mamba.D");
  EXPECT_NE(error(MOE_ERR_NOT_FOUND).find("model.layers.1.mamba.D"), std::string::npos);
}

TEST_F(DamagedFamily, KimisDeltaRule) {
  load("kimi_linear");
  const std::string good = config_;
  const auto changed = [&](const char* change, moe_status status) {
    config_ = test::patched(change, good.c_str());
    return error(status);
  };
  EXPECT_NE(changed(R"({"linear_conv_kernel_dim": 65})", MOE_ERR_FORMAT)
                .find("linear_conv_kernel_dim: expected an integer in 1..64"),
            std::string::npos);
  EXPECT_NE(changed(R"({"linear_head_dim": 257})", MOE_ERR_FORMAT)
                .find("linear_head_dim: expected an integer in 1..256"),
            std::string::npos);
  EXPECT_NE(changed(R"({"layer_types": ["linear_attention"]})", MOE_ERR_SHAPE)
                .find("layer_types: expected 4 entries, found 1"),
            std::string::npos);
  EXPECT_NE(changed(R"({"mla_use_nope": false})", MOE_ERR_UNSUPPORTED).find("mla_use_nope"),
            std::string::npos);
  const auto lists = [&](const char* full, const char* rule) {
    return std::string(R"({"layer_types": null, "linear_attn_config": {"full_attn_layers": )") +
           full + R"(, "kda_layers": )" + rule + "}}";
  };
  EXPECT_EQ(changed(lists("[3]", "[1, 2]").c_str(), MOE_ERR_SHAPE),
            "config.json: linear_attn_config: layer 4 is in neither list");
  EXPECT_NE(changed(lists("[5]", "[1, 2]").c_str(), MOE_ERR_FORMAT)
                .find("full_attn_layers[0]: expected an integer in 1..4"),
            std::string::npos);
  config_ = good;
  const test::RawTensors tensors = tensors_;
  tensors_["model.layers.0.self_attn.f_b_proj.weight"].shape = {8, 40};
  EXPECT_EQ(error(MOE_ERR_SHAPE),
            "tensor model.layers.0.self_attn.f_b_proj.weight: expected (40, 8), file has (8, 40)");
  tensors_ = tensors;
  tensors_.erase("model.layers.1.self_attn.A_log");
  EXPECT_NE(error(MOE_ERR_NOT_FOUND).find("layers.1.self_attn.A_log"), std::string::npos);
}

TEST_F(DamagedFamily, Ling3) {
  load("bailing_hybrid");
  const std::string good = config_;
  const auto changed = [&](const char* change, moe_status status) {
    config_ = test::patched(change, good.c_str());
    return error(status);
  };
  EXPECT_EQ(
      changed(R"({"architectures": ["BailingMoeV2_5ForCausalLM"]})", MOE_ERR_UNSUPPORTED),
      "config.json: architectures[0]: \"BailingMoeV2_5ForCausalLM\" is not supported; Ling 3's "
      "BailingMoeV3ForCausalLM and BailingHybridForCausalLM are");
  EXPECT_EQ(
      changed(R"({"layer_types": null})", MOE_ERR_SHAPE),
      "config.json: layer_group_size: 3 does not divide num_hidden_layers 4, and layer_types, "
      "which says what the layers after the last group are, is missing");
  EXPECT_NE(changed(R"({"kda_lower_bound": 0})", MOE_ERR_UNSUPPORTED).find("kda_lower_bound: 0"),
            std::string::npos);
  EXPECT_EQ(changed(R"({"kda_lower_bound": -2e6})", MOE_ERR_UNSUPPORTED),
            "config.json: kda_lower_bound: -2000000.0 is not supported; a number from -1000000 on "
            "and below 0 is");
  for (const char* other :
       {R"({"no_kda_lora": false})", R"({"linear_attention": "lightning"})",
        R"({"gated_attention_proj_granularity_type": "element_wise"})", R"({"rotary_dim": 2})",
        R"({"use_mla_nope": true})", R"({"moe_shared_expert_intermediate_size": 13})"}) {
    const std::string key = std::string(other).substr(2, std::string(other).find(':') - 3);
    EXPECT_NE(changed(other, MOE_ERR_UNSUPPORTED).find(key), std::string::npos) << other;
  }
  EXPECT_EQ(changed(R"({"share_expert_swiglu_limit_list": [0, 0, 5.0, 7]})", MOE_ERR_UNSUPPORTED),
            "config.json: share_expert_swiglu_limit_list[2]: 5.0 is not supported; only 0 is; "
            "--ignore-key share_expert_swiglu_limit_list converts the model without the limits, as "
            "transformers runs it");
  EXPECT_EQ(
      changed(R"({"share_expert_swiglu_limit_list": [0, 7], "expert_swiglu_limit_list": [3]})",
              MOE_ERR_UNSUPPORTED),
      "config.json: expert_swiglu_limit_list[0]: 3 is not supported; only 0 is; --ignore-key "
      "expert_swiglu_limit_list,share_expert_swiglu_limit_list converts the model without "
      "the limits, as transformers runs it");
  EXPECT_NE(changed(R"({"partial_rotary_factor": 0.5})", MOE_ERR_UNSUPPORTED)
                .find("partial_rotary_factor"),
            std::string::npos);
  EXPECT_NE(changed(R"({"linear_head_dim": 257})", MOE_ERR_FORMAT)
                .find("linear_head_dim: expected an integer in 1..256"),
            std::string::npos);
  config_ = good;
  tensors_["model.layers.2.attention.g_proj.weight"].shape = {8, 16};
  EXPECT_EQ(error(MOE_ERR_SHAPE),
            "tensor model.layers.2.attention.g_proj.weight: expected (4, 32), file has (8, 16)");
}

TEST_F(DamagedFamily, LightningAttention) {
  load("minimax");
  const std::string good = config_;
  const auto changed = [&](const char* change, moe_status status) {
    config_ = test::patched(change, good.c_str());
    return error(status);
  };
  EXPECT_EQ(changed(R"({"mlp_alpha_factor": 3})", MOE_ERR_UNSUPPORTED),
            "config.json: mlp_alpha_factor: 3 is not supported; only that of "
            "linear_attn_alpha_factor, for all blocks, is");
  EXPECT_NE(changed(R"({"full_attn_beta_factor": 0})", MOE_ERR_FORMAT)
                .find("full_attn_beta_factor: expected a number above 0"),
            std::string::npos);
  EXPECT_NE(changed(R"({"postnorm": false})", MOE_ERR_UNSUPPORTED).find("postnorm: false"),
            std::string::npos);
  EXPECT_NE(changed(R"({"hidden_act": "gelu"})", MOE_ERR_UNSUPPORTED).find("hidden_act"),
            std::string::npos);
  EXPECT_EQ(changed(R"({"layer_types": ["linear_attention"]})", MOE_ERR_SHAPE),
            "config.json: layer_types: expected 4 entries, found 1");
  EXPECT_NE(changed(R"({"attn_type_list": [0, 1, 2, 1]})", MOE_ERR_FORMAT)
                .find("attn_type_list[2]: expected an integer in 0..1"),
            std::string::npos);
  EXPECT_EQ(changed(R"({"head_dim": 258})", MOE_ERR_RANGE),
            "config.json: lightning: head_dim: expected a whole number in 1..256, found 258");
  config_ = good;
  tensors_["model.layers.0.self_attn.qkv_proj.weight"].shape = {32, 96};
  EXPECT_EQ(
      error(MOE_ERR_SHAPE),
      "tensor model.layers.0.self_attn.qkv_proj.weight: expected (96, 32), file has (32, 96)");
}

TEST_F(DamagedFamily, NumbersAndTypes) {
  load("olmoe");
  const test::RawTensors good = tensors_;
  const std::string name = "model.layers.1.mlp.experts.4.up_proj.weight";
  tensors_[name].bytes.replace(2 * (32 + 3), 2, "\xC0\x7F");  // element (1, 3): a bfloat16 NaN
  EXPECT_EQ(error(MOE_ERR_NON_FINITE),
            "tensor " + name + ": element (1, 3) of layers.1.moe.experts.4.up is NaN");
  tensors_ = good;
  tensors_[name].dtype = "I16";
  EXPECT_EQ(error(MOE_ERR_FORMAT), "tensor " + name + ": expected F32, BF16 or F16, file has I16");
}

TEST_F(DamagedFamily, Files) {
  load("llama");
  test::write_checkpoint(source_, config_, tensors_);
  const std::string whole = source_.text("model.safetensors");
  source_.write("model.safetensors", whole.substr(0, whole.size() - 10));
  EXPECT_NE(convert_error(MOE_ERR_FORMAT).find("cut off: 10 of its "), std::string::npos);
  std::filesystem::remove(source_.file("model.safetensors"));
  source_.write("pytorch_model.bin", "x");
  EXPECT_NE(convert_error(MOE_ERR_UNSUPPORTED).find("weights_only=True"), std::string::npos);
  source_.write("model.safetensors.index.json",
                R"({"weight_map": {"lm_head.weight": "model-00001-of-00002.safetensors"}})");
  EXPECT_NE(convert_error(MOE_ERR_NOT_FOUND).find("model-00001-of-00002.safetensors"),
            std::string::npos);
  source_.write("model.safetensors.index.json",
                R"({"weight_map": {"lm_head.weight": "../model.safetensors"}})");
  EXPECT_NE(convert_error(MOE_ERR_FORMAT).find("in the same folder"), std::string::npos);
}

}  // namespace
}  // namespace moe
