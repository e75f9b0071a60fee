// SPDX-License-Identifier: MIT
// The importers of `transformers` checkpoints: what they read from the files beside the weights,
// and what they refuse.

#include <gtest/gtest.h>

#include <cmath>

#include "formats/import/failure.h"
#include "kernels/rope.h"
#include "src/convert/convert.h"
#include "tests/convert/transformers_fixture.h"

namespace moe {
namespace {

const char* const kMixtral = R"({
  "model_type": "mixtral", "hidden_size": 24, "vocab_size": 40, "num_hidden_layers": 1,
  "num_attention_heads": 4, "intermediate_size": 20, "hidden_act": "silu", "rms_norm_eps": 1e-5,
  "max_position_embeddings": 64, "rope_theta": 1e6, "num_local_experts": 4, "num_experts_per_tok": 2})";

const char* const kDeepseek = R"({
  "model_type": "deepseek_v2", "hidden_size": 24, "vocab_size": 40, "num_hidden_layers": 3,
  "num_attention_heads": 4, "num_key_value_heads": 4, "intermediate_size": 20, "hidden_act": "silu",
  "rms_norm_eps": 1e-6, "max_position_embeddings": 64, "rope_theta": 1e4, "q_lora_rank": null,
  "rope_scaling": {"type": "yarn", "factor": 40, "mscale": 0.7, "mscale_all_dim": 0.7,
                   "original_max_position_embeddings": 16, "beta_fast": 32, "beta_slow": 1},
  "kv_lora_rank": 10, "qk_nope_head_dim": 6, "qk_rope_head_dim": 4, "v_head_dim": 8,
  "n_routed_experts": 6, "num_experts_per_tok": 2, "n_shared_experts": 2,
  "moe_intermediate_size": 5, "first_k_dense_replace": 1, "topk_method": "greedy", "n_group": 1,
  "scoring_func": "softmax", "norm_topk_prob": false, "routed_scaling_factor": 1.5})";

const char* const kGemma2 = R"({
  "model_type": "gemma2", "hidden_size": 24, "vocab_size": 40, "num_hidden_layers": 3,
  "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "intermediate_size": 20,
  "rms_norm_eps": 1e-6, "max_position_embeddings": 64, "sliding_window": 16,
  "query_pre_attn_scalar": 64})";

TEST_F(TransformersTest, ReadsALlama) {
  const Imported in = read(kLlama);
  EXPECT_EQ(in.importer, "llama");
  const ModelConfig& c = in.config;
  EXPECT_EQ(c.n_layers(), 2);
  EXPECT_EQ(c.context_length, 64);
  EXPECT_EQ(c.layers[1].attention.head_dim, 6);
  EXPECT_EQ(c.layers[1].attention.rope.dims, 6);
  EXPECT_EQ(c.layers[0].ffn.d_ff, 20);
  EXPECT_TRUE(c.layers[0].ffn.gated);
  EXPECT_EQ(c.bos_token_id, 1);
  ASSERT_EQ(c.eos_token_ids.size(), 1u);
  EXPECT_EQ(in.tokenizer, TokenizerKind::kNone);
}

// Phi-3's checkpoints have no factor. Its cosines and sines are scaled as far as the checkpoint's
// context was extended, in a session of any length.
TEST_F(TransformersTest, LongropesScaleIsTheCheckpoints) {
  const auto scale = [&](const char* rope, int32_t context) {
    const Json scaling = parse_json(rope, "rope");
    Json config = parse_json(kLlama, "test");
    config.merge_patch({{"model_type", "phi3"},
                        {"max_position_embeddings", 128},
                        {"original_max_position_embeddings", 32},
                        {"rope_scaling", scaling}});
    const Imported in = read(config.dump());
    std::vector<float> table(static_cast<size_t>(context) * 6);
    check(build_rope_table(in.config.layers[0].attention.rope, context, table.data()));
    return table[0];  // the first cosine
  };
  const char* const bare = R"({"type": "longrope", "short_factor": [1, 1.1, 1.2],
                               "long_factor": [1.5, 2, 4]})";
  const auto expected = [](double factor) {
    return static_cast<float>(std::sqrt(1 + std::log(factor) / std::log(32.0)));
  };
  for (const int32_t context : {1, 32, 64, 128}) EXPECT_FLOAT_EQ(scale(bare, context), expected(4));
  EXPECT_FLOAT_EQ(scale(R"({"type": "longrope", "factor": 8, "short_factor": [1, 1.1, 1.2],
                            "long_factor": [1.5, 2, 4]})",
                        32),
                  expected(8));
  EXPECT_FLOAT_EQ(
      scale(R"({"type": "longrope", "attention_factor": 1.25, "long_factor": [1.5, 2, 4],
                            "short_factor": [1, 1.1, 1.2]})",
            32),
      1.25f);
}

TEST_F(TransformersTest, ReadsALatentAttention) {
  const Imported in = read(kDeepseek);
  const LayerConfig& last = in.config.layers[2];
  EXPECT_EQ(last.attention.latent, 10);
  EXPECT_EQ(last.attention.head_dim, 10);
  EXPECT_EQ(last.attention.rope.dims, 4);
  EXPECT_EQ(last.attention.rope.kind, RopeKind::kInterleaved);
  EXPECT_EQ(last.attention.rope.attention_factor, 1);
  const float strength = 0.1f * 0.7f * std::log(40.0f) + 1;
  EXPECT_FLOAT_EQ(last.attention.multiplier, strength * strength / std::sqrt(10.0f));
  EXPECT_EQ(in.config.layers[0].ffn.kind, FfnKind::kDense);
  EXPECT_EQ(last.ffn.moe.shared.d_ff, 10);
  EXPECT_EQ(last.ffn.moe.router.scale, 1.5f);
  const auto refused = [&](const char* patch) {
    return error(patch, MOE_ERR_UNSUPPORTED, kDeepseek);
  };
  EXPECT_EQ(last.attention.q_latent, 0);
  EXPECT_EQ(last.ffn.moe.router.n_groups, 1);
  refused(R"({"scoring_func": "sigmoid"})");
  refused(R"({"norm_topk_prob": true})");
  refused(R"({"moe_layer_freq": 2})");
  refused(R"({"v_head_dim": 11})");
  refused(R"({"num_key_value_heads": 2})");
  EXPECT_EQ(last.attention.latent_eps, 0);  // as the others, unless they have another
  const Imported other = read_patched(R"({"rms_norm_eps": 1e-5})", kDeepseek);
  EXPECT_EQ(other.config.norm_eps, 1e-5f);
  EXPECT_EQ(other.config.layers[0].attention.latent_eps, 1e-6f);
}

TEST_F(TransformersTest, ReadsGroupsOfExperts) {
  const Imported v2 = read_patched(
      R"({"q_lora_rank": 12, "topk_method": "group_limited_greedy", "n_group": 3,
          "topk_group": 2})",
      kDeepseek);
  EXPECT_EQ(v2.config.layers[2].attention.q_latent, 12);
  const RouterConfig& limited = v2.config.layers[2].ffn.moe.router;
  EXPECT_EQ(limited.kind, RouterKind::kSoftmax);
  EXPECT_EQ(limited.n_groups, 3);
  EXPECT_EQ(limited.top_groups, 2);
  EXPECT_EQ(limited.k, 2);
  EXPECT_EQ(limited.scale, 1.5f);
  const char* const sigmoid = R"({
    "model_type": "kimi_k2", "topk_method": "noaux_tc", "scoring_func": "sigmoid",
    "n_group": 2, "topk_group": 1, "norm_topk_prob": true, "num_nextn_predict_layers": 1})";
  const std::string v3 = test::patched(sigmoid, kDeepseek);
  const Imported in = read(v3);
  const RouterConfig& router = in.config.layers[2].ffn.moe.router;
  EXPECT_EQ(router.kind, RouterKind::kSigmoid);
  EXPECT_EQ(router.weights, RouterWeights::kRenormalised);
  EXPECT_EQ(router.n_groups, 2);
  EXPECT_EQ(router.top_groups, 1);
  EXPECT_EQ(in.config.layers[2].attention.rope.kind, RopeKind::kInterleaved);
  const auto wrong = [&](const char* patch, moe_status code) {
    return error(patch, code, v3.c_str());
  };
  EXPECT_EQ(wrong(R"({"n_group": 4, "topk_group": 1})", MOE_ERR_SHAPE),
            "config.json: n_group: 4 does not divide n_routed_experts 6");
  EXPECT_NE(wrong(R"({"topk_group": 3})", MOE_ERR_FORMAT).find("topk_group"), std::string::npos);
  EXPECT_NE(wrong(R"({"n_group": 0})", MOE_ERR_FORMAT).find("n_group"), std::string::npos);
  EXPECT_NE(wrong(R"({"num_experts_per_tok": 4})", MOE_ERR_FORMAT)
                .find("num_experts_per_tok: expected an integer in 1..3, found 4"),
            std::string::npos);
  EXPECT_NE(wrong(R"({"q_lora_rank": -1})", MOE_ERR_FORMAT).find("q_lora_rank"), std::string::npos);
  wrong(R"({"topk_method": "greedy"})", MOE_ERR_UNSUPPORTED);
  wrong(R"({"scoring_func": "softmax"})", MOE_ERR_UNSUPPORTED);
  wrong(R"({"num_nextn_predict_layers": 65})", MOE_ERR_FORMAT);
  wrong(R"({"routed_scaling_factor": null})", MOE_ERR_NOT_FOUND);
  error(R"({"topk_method": "noaux_tc"})", MOE_ERR_FORMAT, kDeepseek);
  EXPECT_NE(
      wrong(R"({"quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}})",
            MOE_ERR_UNSUPPORTED)
          .find("convert an unquantised checkpoint or a GGUF file"),
      std::string::npos);
}

TEST_F(TransformersTest, ReadsCapsAndWindows) {
  const Imported in = read(kGemma2);
  EXPECT_EQ(in.config.logit_cap, 30);
  EXPECT_EQ(in.config.layers[0].attention.window, 16);
  EXPECT_EQ(in.config.layers[1].attention.window, 0);
  EXPECT_EQ(in.config.layers[2].attention.window, 16);
  EXPECT_EQ(in.config.layers[1].attention.score_cap, 50);
  EXPECT_EQ(in.config.layers[1].attention.multiplier, 0.125f);
  EXPECT_EQ(in.config.layers[1].attention.rope.theta, 10000);
  std::string text = kGemma2;  // a patch with null would remove the key
  text.insert(text.size() - 1,
              R"(, "attn_logit_softcapping": null, "final_logit_softcapping": 2.5)");
  const Imported other = read(text);
  EXPECT_EQ(other.config.logit_cap, 2.5f);
  EXPECT_EQ(other.config.layers[0].attention.score_cap, 0);
  EXPECT_EQ(error(R"({"attn_logit_softcapping": 0})", MOE_ERR_UNSUPPORTED, kGemma2),
            "config.json: attn_logit_softcapping: 0 is not supported; a number above 0 and at most "
            "1000 or null is");
  EXPECT_NE(error(R"({"final_logit_softcapping": -30.0})", MOE_ERR_UNSUPPORTED, kGemma2)
                .find("final_logit_softcapping: -30.0"),
            std::string::npos);
  error(R"({"final_logit_softcapping": "30"})", MOE_ERR_FORMAT, kGemma2);
  error(R"({"query_pre_attn_scalar": 0})", MOE_ERR_UNSUPPORTED, kGemma2);
  error(R"({"use_bidirectional_attention": true})", MOE_ERR_UNSUPPORTED, kGemma2);
  error(R"({"layer_types": ["sliding_attention"]})", MOE_ERR_SHAPE, kGemma2);
}

TEST_F(TransformersTest, ActivationsHaveSeveralNames) {
  const auto kind_of = [&](const char* name) {
    const std::string patch = std::string(R"({"hidden_act": ")") + name + "\"}";
    return read_patched(patch.c_str()).config.layers[0].ffn.act.kind;
  };
  for (const char* tanh : {"gelu_new", "gelu_pytorch_tanh", "gelu_fast", "gelu_accurate"}) {
    EXPECT_EQ(kind_of(tanh), Activation::kGeluTanh) << tanh;
  }
  EXPECT_EQ(kind_of("gelu"), Activation::kGelu);
  EXPECT_EQ(kind_of("swish"), Activation::kSilu);
  EXPECT_EQ(kind_of("relu2"), Activation::kRelu2);
}

TEST_F(TransformersTest, AnUnknownModelTypeListsTheKnownOnes) {
  const std::string text = error(R"({"model_type": "gpt2"})", MOE_ERR_UNSUPPORTED);
  for (const char* part : {"unknown model_type \"gpt2\"", "llama", "olmoe", "moe_research",
                           "more; moe_research describes any model"}) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  }
  EXPECT_NE(error(R"({"model_type": "deepseek2"})", MOE_ERR_UNSUPPORTED)
                .find("unknown model_type \"deepseek2\"; a GGUF file of it is read"),
            std::string::npos);
  EXPECT_NE(
      error(R"({"model_type": null, "architectures": ["GPT2LMHeadModel"]})", MOE_ERR_UNSUPPORTED)
          .find("unknown architecture \"GPT2LMHeadModel\""),
      std::string::npos);
}

TEST_F(TransformersTest, KeysThatMayChangeTheMathsAreErrorsWithTheirValue) {
  EXPECT_NE(error(R"({"logit_softcap": 30.0})", MOE_ERR_UNSUPPORTED)
                .find("key \"logit_softcap\" with value 30.0"),
            std::string::npos);
  const std::string window = error(R"({"sliding_window": 8})", MOE_ERR_UNSUPPORTED);
  EXPECT_NE(window.find("key \"sliding_window\" with value 8 changes what the model computes"),
            std::string::npos)
      << window;
  EXPECT_EQ(window.find("--ignore-key"), std::string::npos) << window;
  EXPECT_NE(error(R"({"hidden_act": "tanh"})", MOE_ERR_FORMAT).find("\"tanh\""), std::string::npos);
  EXPECT_NE(error(R"({"rope_scaling": {"rope_type": "ntk", "factor": 2}})", MOE_ERR_UNSUPPORTED)
                .find("\"ntk\" is not supported"),
            std::string::npos);
  EXPECT_NE(error(R"({"model_type": "olmoe", "num_experts": 4, "clip_qkv": 0.0})",
                  MOE_ERR_UNSUPPORTED, kMixtral)
                .find("clip_qkv: 0.0 is not supported; a number above 0 or null is"),
            std::string::npos);
  error(R"({"rope_scaling": {"rope_type": "linear", "factor": 2, "surprise": 1}})",
        MOE_ERR_UNSUPPORTED);
  EXPECT_NE(
      error(R"({"quantization_config": {"quant_method": "gptq", "bits": 4}})", MOE_ERR_UNSUPPORTED)
          .find("quant_method: \"gptq\" is not supported"),
      std::string::npos);
  error(R"({"num_experts_per_tok": 5})", MOE_ERR_FORMAT, kMixtral);
  // A key that is null or concerns training is ignored.
  read_patched(R"({"logit_softcap": null, "attention_dropout": 0.1, "_name_or_path": "x"})");
}

// Published files name what their architecture has in any case.
TEST_F(TransformersTest, KeysMaySayWhatTheArchitectureImplies) {
  for (const char* patch :
       {R"({"model_type": "phi3", "full_attn_mod": 1, "interpolate_factor": 1,
            "lm_head_bias": false, "mlp_bias": false, "attention_bias": false})",
        R"({"model_type": "qwen3_moe", "num_experts": 4, "num_experts_per_tok": 2,
            "moe_intermediate_size": 8, "use_qk_norm": true, "qkv_bias": false})",
        R"({"model_type": "mistral", "attention_bias": false, "sliding_window": 0,
            "layer_types": ["full_attention", "full_attention"]})",
        R"({"model_type": "mistral", "sliding_window": 8,
            "layer_types": ["sliding_attention", "sliding_attention"]})",
        R"({"model_type": "qwen2", "attention_bias": false})", R"({"bias": false})"}) {
    const Status status = guarded([&] { read_patched(patch); });
    EXPECT_TRUE(status.ok()) << patch << ": " << status.text();
  }
  for (const char* patch :
       {R"({"model_type": "phi3", "full_attn_mod": 2})",
        R"({"model_type": "phi3", "interpolate_factor": 2})",
        R"({"model_type": "phi3", "attention_bias": true})",
        R"({"model_type": "qwen3_moe", "num_experts": 4, "num_experts_per_tok": 2,
            "moe_intermediate_size": 8, "use_qk_norm": false})",
        R"({"model_type": "mistral", "attention_bias": true})",
        R"({"model_type": "mistral", "sliding_window": 8,
            "layer_types": ["full_attention", "full_attention"]})",
        R"({"layer_types": ["full_attention", "sliding_attention"]})", R"({"bias": true})"}) {
    error(patch, MOE_ERR_UNSUPPORTED);
  }
}

TEST_F(TransformersTest, DynamicRopeIsUnscaledUpToTheContext) {
  const Imported in = read_patched(R"({"rope_scaling": {"type": "dynamic", "factor": 2.0}})");
  EXPECT_EQ(in.config.layers[0].attention.rope.scaling, RopeScaling::kNone);
  EXPECT_EQ(in.config.layers[0].attention.rope.theta, 10000);
  EXPECT_EQ(in.config.context_length, 64);
  EXPECT_NE(error(R"({"rope_scaling": {"rope_type": "dynamic"}})", MOE_ERR_FORMAT).find("factor"),
            std::string::npos);
  EXPECT_NE(error(R"({"rope_scaling": {"rope_type": "dynamic", "factor": 0}})", MOE_ERR_FORMAT)
                .find("factor: expected a number of at least 1e-30"),
            std::string::npos);
  error(R"({"rope_scaling": {"rope_type": "dynamic", "factor": 2, "alpha": 1000}})",
        MOE_ERR_UNSUPPORTED);
}

TEST_F(TransformersTest, MissingKeysAreNamed) {
  EXPECT_NE(error(R"({"rms_norm_eps": null})", MOE_ERR_FORMAT).find("rms_norm_eps"),
            std::string::npos);
  EXPECT_NE(error(R"({"rope_theta": null})", MOE_ERR_FORMAT, kMixtral).find("rope_theta"),
            std::string::npos);
  EXPECT_EQ(read_patched(R"({"rope_theta": null})").config.layers[0].attention.rope.theta, 1e4f);
}

TEST_F(TransformersTest, BothWaysToWriteRopeAreRead) {
  for (
      const char* patch :
      {R"({"rope_theta": 5e5, "rope_scaling": {"rope_type": "yarn", "factor": 4, "beta_fast": 16,
            "original_max_position_embeddings": 16, "mscale": 1.0, "mscale_all_dim": 0.5}})",
       R"({"rope_theta": null, "rope_parameters": {"rope_type": "yarn", "factor": 4, "beta_fast": 16,
            "original_max_position_embeddings": 16, "mscale": 1.0, "mscale_all_dim": 0.5,
            "rope_theta": 5e5}})"}) {
    const Imported in = read_patched(patch);
    const RopeConfig& rope = in.config.layers[0].attention.rope;
    EXPECT_EQ(rope.theta, 5e5f);
    EXPECT_EQ(rope.scaling, RopeScaling::kYarn);
    EXPECT_EQ(rope.factor, 4);
    EXPECT_EQ(rope.beta_fast, 16);
    EXPECT_EQ(rope.beta_slow, 1);
    EXPECT_EQ(rope.original_context, 16);
    const double log4 = 0.1 * std::log(4.0);
    EXPECT_FLOAT_EQ(rope.attention_factor, static_cast<float>((log4 + 1) / (0.5 * log4 + 1)));
  }
  EXPECT_EQ(read_patched(R"({"partial_rotary_factor": 0.67})").config.layers[0].attention.rope.dims,
            4);
}

// As the Qwen models say how to extend them: max_position_embeddings stays.
TEST_F(TransformersTest, YarnExtendsTheContext) {
  const auto length = [&](const char* patch) { return read_patched(patch).config.context_length; };
  EXPECT_EQ(length(R"({"rope_scaling": {"type": "yarn", "factor": 4.0,
                       "original_max_position_embeddings": 64}})"),
            256);
  EXPECT_EQ(length(R"({"rope_scaling": {"type": "yarn", "factor": 4.0,
                       "original_max_position_embeddings": 8}})"),
            64);
  EXPECT_EQ(length(R"({"rope_scaling": {"type": "yarn", "factor": 4.0}})"), 64);
  EXPECT_EQ(length(R"({"rope_scaling": {"type": "linear", "factor": 4.0}})"), 64);
}

TEST_F(TransformersTest, GenerationConfigAddsItsStopTokens) {
  folder_.write("generation_config.json",
                R"({"eos_token_id": [7, 2, 9], "temperature": 0.6})");  // sampling_advice_test.cpp
  const Imported in = read(kLlama);
  ASSERT_EQ(in.config.eos_token_ids.size(), 3u);
  EXPECT_EQ(in.config.eos_token_ids[0], 2);
  EXPECT_EQ(in.config.eos_token_ids[1], 7);
  EXPECT_EQ(in.config.eos_token_ids[2], 9);
  folder_.write("generation_config.json", R"({"eos_token_id": 40})");
  EXPECT_FALSE(guarded([&] { read(kLlama); }).ok());  // beyond the vocabulary
}

TEST_F(TransformersTest, TokenizerComesAlongOrIsAskedFor) {
  folder_.write("tokenizer.model", "x");
  const Status status = guarded([&] { read(kLlama); });
  EXPECT_EQ(status.code(), MOE_ERR_UNSUPPORTED);
  EXPECT_NE(std::string(status.text()).find("save_pretrained"), std::string::npos);
  folder_.write("tokenizer.json", "{}");
  const Imported in = read(kLlama);
  EXPECT_EQ(in.tokenizer, TokenizerKind::kFile);
  EXPECT_EQ(in.tokenizer_file, "tokenizer.json");
}

// AutoModel saves a decoder without its head, and without the prefix "model." of its tensors.
TEST_F(TransformersTest, TensorsMayLackTheirPrefix) {
  const Checkpoint original("tests/data/families/qwen2");
  const std::string whole = converted(original, [](const std::string& name) { return name; });
  EXPECT_FALSE(whole.empty());
  EXPECT_EQ(converted(original,
                      [](const std::string& name) {
                        EXPECT_TRUE(name.starts_with("model."));
                        return name.substr(6);
                      }),
            whole);
}

TEST_F(TransformersTest, WindowsAndLayerTypes) {
  const char* const window = R"({"model_type": "mistral", "sliding_window": 8})";
  EXPECT_EQ(read_patched(window).config.layers[1].attention.window, 8);
  EXPECT_EQ(read_patched(R"({"model_type": "mistral"})").config.layers[1].attention.window, 4096);
  EXPECT_EQ(read_patched(R"({"model_type": "qwen2", "sliding_window": 8})")
                .config.layers[1]
                .attention.window,
            0);
  const Imported types = read_patched(R"({"model_type": "qwen2", "sliding_window": 8,
      "use_sliding_window": true, "layer_types": ["full_attention", "sliding_attention"]})");
  EXPECT_EQ(types.config.layers[0].attention.window, 0);
  EXPECT_EQ(types.config.layers[1].attention.window, 8);
  error(R"({"model_type": "qwen2", "layer_types": ["full_attention"]})", MOE_ERR_SHAPE);
  error(R"({"model_type": "qwen2", "layer_types": ["full_attention", "chunked_attention"]})",
        MOE_ERR_FORMAT);
  error(R"({"model_type": "qwen2", "layer_types": ["full_attention", "sliding_attention"]})",
        MOE_ERR_RANGE);
}

TEST_F(TransformersTest, TorchscaleVariantsWithoutACounterpartAreRefused) {
  const char* const base =
      R"({"model_type": "torchscale", "vocab_size": 40, "decoder_embed_dim": 24,
    "decoder_attention_heads": 4, "decoder_ffn_embed_dim": 20, "decoder_layers": 4, "moe_freq": 2,
    "moe_expert_count": 4, "moe_top1_expert": true})";
  const Imported in = read(base);
  EXPECT_EQ(in.config.positions, PositionKind::kNone);  // the checkpoint has no table of positions
  EXPECT_EQ(in.config.layers[0].ffn.kind, FfnKind::kDense);
  EXPECT_EQ(in.config.layers[3].ffn.moe.router.k, 1);
  EXPECT_TRUE(in.config.layers[3].ffn.sub_norm);
  const ModelConfig deep = read_patched(R"({"deepnorm": true})", base).config;
  EXPECT_FLOAT_EQ(deep.residual_multiplier, 1 / std::sqrt(std::sqrt(8.0f)));
  EXPECT_FALSE(deep.layers[0].ffn.sub_norm);
  EXPECT_TRUE(deep.layers[0].ffn.norms.post);
  EXPECT_EQ(
      error(R"({"deepnorm": true, "decoder_normalize_before": true})", MOE_ERR_UNSUPPORTED, base),
      "config.json: deepnorm: true is not supported; without decoder_normalize_before it is");
  error(R"({"rel_pos_buckets": 32})", MOE_ERR_UNSUPPORTED, base);
  error(R"({"activation_fn": "tanh"})", MOE_ERR_FORMAT, base);
  error(R"({"use_xmoe": true})", MOE_ERR_NOT_FOUND, base);  // no wg_reduction
  error(R"({"retention_alpha": 0.5})", MOE_ERR_UNSUPPORTED, base);
}

// The keys of the decoder in MH-MoE's repository, all of which its configuration has.
TEST_F(TransformersTest, TheDecoderOfMhMoeIsThatOfItsRepository) {
  const char* const base =
      R"({"model_type": "torchscale", "vocab_size": 40, "decoder_embed_dim": 24,
    "decoder_attention_heads": 3, "decoder_ffn_embed_dim": 20, "decoder_layers": 4, "moe_freq": 2,
    "moe_expert_count": 4, "moe_top1_expert": false, "moe_top_k": 3, "mhmoe_heads_number": 3,
    "moe_ffn_dim": 12, "rms_norm": true, "layernorm_eps": 1e-6, "rotary_embed": true,
    "partial_rotary_factor": 0.5, "n_kv_heads": 1, "no_bias": true, "glu": true, "subln": false,
    "activation_fn": "silu", "max_target_positions": 64, "flash_attention": true,
    "weight_bits": 32, "input_bits": 32, "input_quant_method": "absmax_per_token",
    "weight_quant_method": "absmean", "moe_normalize_gate_prob_before_dropping": true})";
  const ModelConfig c = read(base).config;
  EXPECT_EQ(c.norm, NormKind::kRms);
  EXPECT_EQ(c.positions, PositionKind::kRope);
  EXPECT_EQ(c.context_length, 64);
  EXPECT_EQ(c.layers[0].attention.n_kv_heads, 1);
  EXPECT_EQ(c.layers[0].attention.rope.dims, 4);
  EXPECT_EQ(c.layers[0].ffn.d_ff, 20);
  const FfnConfig& ffn = c.layers[1].ffn;
  EXPECT_EQ(ffn.d_ff, 12);
  EXPECT_EQ(ffn.moe.n_subheads, 3);
  EXPECT_TRUE(ffn.moe.head && ffn.moe.merge);
  EXPECT_EQ(ffn.moe.router.k, 3);
  EXPECT_EQ(ffn.moe.router.weights, RouterWeights::kRaw);
  const auto squared = R"({"activation_fn": "relu", "relu_squared": true})";
  EXPECT_EQ(read_patched(squared, base).config.layers[1].ffn.act.kind, Activation::kRelu2);
  EXPECT_EQ(error(R"({"relu_squared": true})", MOE_ERR_UNSUPPORTED, base),
            "config.json: relu_squared: true is not supported; with \"activation_fn\": \"relu\" "
            "it is");
  EXPECT_EQ(error(R"({"moe_top_k": null})", MOE_ERR_UNSUPPORTED, base),
            "config.json: mhmoe_heads_number: 3 is not supported; with \"moe_top_k\" it is: "
            "MH-MoE's repository writes both");
  error(R"({"moe_top_k": 5})", MOE_ERR_FORMAT, base);
  error(R"({"moe_ffn_dim": 0})", MOE_ERR_FORMAT, base);
  error(R"({"weight_bits": null})", MOE_ERR_UNSUPPORTED, base);
  error(R"({"partial_rotary_factor": 0.1})", MOE_ERR_UNSUPPORTED, base);
  for (const char* patch :
       {R"({"weight_bits": 1})", R"({"input_bits": 8})", R"({"moe_lora_rank": 4})",
        R"({"key_norm": true})", R"({"xpos_rel_pos": true})", R"({"group_norm_size": 2})",
        R"({"negative_slope": 0.1})", R"({"binary_attn": true})"}) {
    SCOPED_TRACE(patch);
    error(patch, MOE_ERR_UNSUPPORTED, base);
  }
  error(R"({"input_quant_method": "absmax_per_token_relu"})", MOE_ERR_FORMAT, base);
}

// torchscale's constructors use pre-norm whenever subln is true, which is the default.
TEST_F(TransformersTest, TorchscalesNormsStandBehindTheSumsOnlyWhereSublnIsWritten) {
  const char* const base =
      R"({"model_type": "torchscale", "vocab_size": 40, "decoder_embed_dim": 24,
    "decoder_attention_heads": 4, "decoder_ffn_embed_dim": 20, "decoder_layers": 1})";
  EXPECT_EQ(error(R"({"decoder_normalize_before": false})", MOE_ERR_UNSUPPORTED, base),
            "config.json: decoder_normalize_before: false is not supported; with \"subln\" written "
            "too it is, as torchscale makes it true wherever subln is true, its default");
  const char* const plain = R"({"decoder_normalize_before": false, "subln": false})";
  EXPECT_TRUE(read_patched(plain, base).config.layers[0].ffn.norms.post);
  const char* const written = R"({"decoder_normalize_before": false, "subln": true})";
  EXPECT_TRUE(read_patched(written, base).config.layers[0].ffn.norms.post);
  const char* const deep = R"({"decoder_normalize_before": false, "deepnorm": true})";
  EXPECT_TRUE(read_patched(deep, base).config.layers[0].ffn.norms.post);
}

TEST_F(TransformersTest, TorchscalesEncodersHaveTheHeadThatTheConfigSays) {
  const char* const base =
      R"({"model_type": "torchscale", "vocab_size": 40, "encoder_embed_dim": 24,
    "encoder_attention_heads": 4, "encoder_ffn_embed_dim": 20, "encoder_layers": 1})";
  const auto table = test::f32_tensor({40, 24}, std::vector<float>(960));
  const char* const embedding = "encoder.embed_tokens.weight";
  folder_.write("model.safetensors", test::safetensors_text({{embedding, table}}));
  const ModelConfig tied =
      read_patched(R"({"share_encoder_input_output_embed": true})", base).config;
  EXPECT_EQ(tied.head.kind, HeadKind::kTokens);
  EXPECT_TRUE(tied.tie_embeddings);
  for (const char* patch :
       {R"({"no_output_layer": true})",
        R"({"no_output_layer": true, "share_encoder_input_output_embed": true})"}) {
    const ModelConfig bare = read_patched(patch, base).config;
    EXPECT_EQ(bare.head.kind, HeadKind::kNone) << patch;
    EXPECT_FALSE(bare.tie_embeddings) << patch;
  }
  EXPECT_EQ(error("{}", MOE_ERR_NOT_FOUND, base),
            "tensor encoder.output_projection.weight is missing; without it config.json says "
            "\"no_output_layer\": true");
  // A head that was passed to the constructor is in the file even so.
  const char* const head = "encoder.output_projection.weight";
  folder_.write("model.safetensors", test::safetensors_text({{embedding, table}, {head, table}}));
  EXPECT_EQ(read_patched(R"({"no_output_layer": true})", base).config.head.kind, HeadKind::kTokens);
  const auto other = test::f32_tensor({40, 24}, std::vector<float>(960, 1.0f));
  folder_.write("model.safetensors", test::safetensors_text({{embedding, table}, {head, other}}));
  EXPECT_EQ(
      error(R"({"share_encoder_input_output_embed": true})", MOE_ERR_UNSUPPORTED, base),
      "tensor encoder.output_projection.weight: row 0 is not that of encoder.embed_tokens.weight, "
      "though config.json says that they are one");
}

// fairseq stores a buffer for sinusoidal positions, which identifies them.
TEST_F(TransformersTest, TorchscalesPositionsMayBeAFormula) {
  const char* const name = "decoder.embed_positions._float_tensor";
  const char* const embedding = "decoder.embed_tokens.weight";
  const char* const config = R"({"model_type": "torchscale", "vocab_size": 40,
    "decoder_embed_dim": 24, "decoder_attention_heads": 4, "decoder_ffn_embed_dim": 20,
    "decoder_layers": 1, "max_target_positions": 16})";
  test::RawTensors tensors = {{name, test::f32_tensor({1}, {0.0f})}};
  folder_.write("model.safetensors", test::safetensors_text(tensors));
  EXPECT_EQ(error("{}", MOE_ERR_NOT_FOUND, config),
            "tensor decoder.embed_tokens.weight is missing");
  tensors[embedding] = test::f32_tensor({40, 24}, std::vector<float>(960));
  folder_.write("model.safetensors", test::safetensors_text(tensors));
  const Imported in = read(config);
  EXPECT_EQ(in.config.positions, PositionKind::kLearned);
  EXPECT_EQ(in.config.context_length, 16);
  ASSERT_EQ(in.derived.size(), 1u);
  EXPECT_FLOAT_EQ(in.derived[0].values[12], std::cos(2.0f));
}

// Maple's config.json has no model_type and other names for some keys.
TEST_F(TransformersTest, MapleIsKnownByItsArchitecture) {
  const Imported in = read(R"({"architectures": ["MapleForCausalLM"], "hidden_size": 24,
    "vocab_size": 40, "num_hidden_layers": 4, "num_attention_heads": 2, "num_key_value_heads": 1,
    "head_dim": 8, "hidden_act": "silu", "max_position_embeddings": 64, "rms_norm_eps": 1e-6,
    "rope_theta": 10000, "partial_rotary_factor": 0.5, "sliding_window": 5, "num_experts": 4,
    "num_experts_per_tok": 2, "moe_intermediate_size": 12, "norm_topk_prob": true})");
  EXPECT_EQ(in.importer, "maple");
  const AttentionConfig& slides = in.config.layers[0].attention;
  const AttentionConfig& full = in.config.layers[3].attention;
  EXPECT_EQ(slides.window, 6);
  EXPECT_EQ(slides.rope.dims, 4);
  EXPECT_EQ(full.window, 0);
  EXPECT_EQ(full.rope.kind, RopeKind::kNone);
  EXPECT_EQ(in.config.layers[0].ffn.act.limit, 7);
}

}  // namespace
}  // namespace moe
