// SPDX-License-Identifier: MIT
// Keys that the importers of single families read from config.json or refuse; their logits
// are in families_test.cpp.

#include "src/convert/convert.h"
#include "tests/convert/transformers_fixture.h"

namespace moe {
namespace {

using DecoderFamilies = TransformersTest;

std::string kinds_of_layers(const Imported& in) {
  std::string text;
  for (const LayerConfig& l : in.config.layers) text += l.ffn.kind == FfnKind::kMoe ? 'm' : 'd';
  return text;
}

const char* const kErnie = R"({
  "model_type": "ernie4_5_moe", "hidden_size": 24, "vocab_size": 40, "num_hidden_layers": 4,
  "num_attention_heads": 4, "intermediate_size": 20, "hidden_act": "silu", "rms_norm_eps": 1e-5,
  "max_position_embeddings": 64, "moe_num_experts": 4, "moe_k": 2, "moe_intermediate_size": 5,
  "moe_num_shared_experts": 3, "moe_layer_start_index": 1, "moe_layer_end_index": 2,
  "moe_gate": "topk", "moe_use_aux_free": true, "num_nextn_predict_layers": 1})";

TEST_F(DecoderFamilies, Ernie) {
  folder_.write("model.safetensors",
                test::safetensors_text(test::RawTensors{
                    {"model.mtp_emb_norm.0.weight", test::f32_tensor({2}, {1, 1})}}));
  const Imported in = read(kErnie);
  EXPECT_EQ(in.n_skipped_layers, 0);
  EXPECT_EQ(in.config.n_predictions, 1);
  EXPECT_TRUE(in.config.raw_predictions);
  EXPECT_TRUE(in.config.tie_embeddings);
  const LayerConfig& layer = in.config.layers[2];
  EXPECT_EQ(layer.attention.rope.kind, RopeKind::kInterleaved);
  EXPECT_EQ(layer.attention.rope.theta, 500000);
  EXPECT_EQ(layer.ffn.moe.router.kind, RouterKind::kSoftmax);
  EXPECT_EQ(layer.ffn.moe.router.weights, RouterWeights::kRenormalised);
  EXPECT_EQ(layer.ffn.moe.router.k, 2);
  EXPECT_EQ(layer.ffn.moe.shared.d_ff, 15);
  EXPECT_EQ(kinds_of_layers(in), "dmmdd");  // the last one guesses
  EXPECT_EQ(kinds_of_layers(read_patched(R"({"moe_layer_end_index": -1})", kErnie)), "dmmmd");
  EXPECT_EQ(kinds_of_layers(read_patched(R"({"moe_layer_interval": 2, "moe_layer_start_index": 0,
                                   "moe_layer_end_index": null})",
                                         kErnie)),
            "dmdmd");
  for (const char* patch : {R"({"use_bias": true})", R"({"moe_use_aux_free": false})",
                            R"({"moe_norm_min": 1e-3})", R"({"compression_ratio": 2.0})"}) {
    error(patch, MOE_ERR_UNSUPPORTED, kErnie);
  }
  error(R"({"moe_gate": "hash"})", MOE_ERR_FORMAT, kErnie);
  EXPECT_NE(error(R"({"moe_k": null})", MOE_ERR_FORMAT, kErnie).find("moe_k"), std::string::npos);
}

const char* const kDots = R"({
  "model_type": "dots1", "hidden_size": 24, "vocab_size": 40, "num_hidden_layers": 3,
  "num_attention_heads": 4, "intermediate_size": 20, "hidden_act": "silu", "rms_norm_eps": 1e-5,
  "max_position_embeddings": 64, "n_routed_experts": 4, "num_experts_per_tok": 2,
  "n_shared_experts": 2, "moe_intermediate_size": 5, "first_k_dense_replace": 1,
  "routed_scaling_factor": 2.5, "scoring_func": "noaux_tc", "sliding_window": null})";

TEST_F(DecoderFamilies, Dots) {
  const Imported in = read(kDots);
  EXPECT_EQ(in.config.layers[0].ffn.kind, FfnKind::kDense);
  const LayerConfig& layer = in.config.layers[2];
  EXPECT_EQ(layer.attention.qk_norm, QkNorm::kHead);
  EXPECT_EQ(layer.attention.window, 0);
  EXPECT_EQ(layer.ffn.moe.router.kind, RouterKind::kSigmoid);
  EXPECT_EQ(layer.ffn.moe.router.weights, RouterWeights::kRaw);
  EXPECT_EQ(layer.ffn.moe.router.scale, 2.5f);
  EXPECT_EQ(layer.ffn.moe.shared.d_ff, 10);
  const Imported windows = read_patched(R"({"sliding_window": 8, "max_window_layers": 2})", kDots);
  EXPECT_EQ(windows.config.layers[1].attention.window, 0);
  EXPECT_EQ(windows.config.layers[2].attention.window, 8);
  for (const char* patch : {R"({"n_group": 2})", R"({"topk_group": 2})",
                            R"({"topk_method": "greedy"})", R"({"moe_layer_freq": 2})"}) {
    error(patch, MOE_ERR_UNSUPPORTED, kDots);
  }
  error(R"({"scoring_func": "softmax"})", MOE_ERR_FORMAT, kDots);
}

const char* const kGlmLite = R"({
  "model_type": "glm4_moe_lite", "hidden_size": 24, "vocab_size": 40, "num_hidden_layers": 3,
  "num_attention_heads": 5, "num_key_value_heads": 5, "intermediate_size": 20, "hidden_act": "silu",
  "rms_norm_eps": 1e-5, "max_position_embeddings": 64, "n_routed_experts": 4,
  "num_experts_per_tok": 2, "n_shared_experts": 1, "moe_intermediate_size": 5,
  "routed_scaling_factor": 1.8, "kv_lora_rank": 8, "q_lora_rank": 6, "qk_nope_head_dim": 12,
  "qk_rope_head_dim": 4, "v_head_dim": 16, "topk_method": "noaux_tc", "partial_rotary_factor": 1.0})";

TEST_F(DecoderFamilies, GlmLite) {
  const Imported in = read(kGlmLite);
  EXPECT_EQ(kinds_of_layers(in), "dmm");
  EXPECT_EQ(in.config.norm_eps, 1e-5f);
  const LayerConfig& layer = in.config.layers[1];
  EXPECT_EQ(layer.attention.latent_eps, 1e-6f);
  EXPECT_EQ(layer.attention.head_dim, 16);
  EXPECT_EQ(layer.attention.rope.dims, 4);
  EXPECT_EQ(layer.ffn.moe.router.kind, RouterKind::kSigmoid);
  EXPECT_EQ(layer.ffn.moe.router.n_groups, 1);
  EXPECT_EQ(kinds_of_layers(read_patched(R"({"first_k_dense_replace": 2})", kGlmLite)), "ddm");
  const char* const types = R"({"mlp_layer_types": ["sparse", "dense", "sparse"]})";
  EXPECT_EQ(kinds_of_layers(read_patched(types, kGlmLite)), "mdm");
  EXPECT_NE(error(R"({"mlp_layer_types": ["sparse"]})", MOE_ERR_SHAPE, kGlmLite)
                .find("mlp_layer_types: expected 3 entries, found 1"),
            std::string::npos);
  EXPECT_NE(error(R"({"partial_rotary_factor": 0.5})", MOE_ERR_UNSUPPORTED, kGlmLite)
                .find("partial_rotary_factor"),
            std::string::npos);
  // With the latents' eps there is nothing to say.
  EXPECT_EQ(
      read_patched(R"({"rms_norm_eps": 1e-6})", kGlmLite).config.layers[1].attention.latent_eps, 0);
}

const char* const kLing = R"({
  "model_type": "bailing_moe", "architectures": ["BailingMoeForCausalLM"], "hidden_size": 24,
  "vocab_size": 40, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
  "head_dim": 8, "intermediate_size": 20, "hidden_act": "silu", "rms_norm_eps": 1e-6,
  "max_position_embeddings": 64, "num_experts": 8, "num_experts_per_tok": 2,
  "num_shared_experts": 2, "moe_intermediate_size": 5, "first_k_dense_replace": 1,
  "use_bias": false, "norm_head": false, "norm_softmax": false})";
const char* const kLing2 = R"({"architectures": ["BailingMoeV2ForCausalLM"], "n_group": 4,
  "topk_group": 2, "routed_scaling_factor": 2.5, "score_function": "sigmoid",
  "router_dtype": "fp32", "partial_rotary_factor": 0.5, "moe_shared_expert_intermediate_size": 3})";

TEST_F(DecoderFamilies, Ling) {
  const Imported in = read(kLing);
  EXPECT_EQ(kinds_of_layers(in), "dm");
  const LayerConfig& layer = in.config.layers[1];
  EXPECT_EQ(layer.attention.rope.theta, 10000);
  EXPECT_EQ(layer.attention.qk_norm, QkNorm::kNone);
  EXPECT_EQ(layer.ffn.moe.router.kind, RouterKind::kSoftmax);
  EXPECT_EQ(layer.ffn.moe.router.weights, RouterWeights::kRenormalised);
  EXPECT_EQ(layer.ffn.moe.shared.d_ff, 10);
  const auto weights = [&](const char* patch) {
    return read_patched(patch, kLing).config.layers[1].ffn.moe.router.weights;
  };
  EXPECT_EQ(weights(R"({"norm_topk_prob": false})"), RouterWeights::kRaw);
  EXPECT_EQ(weights(R"({"num_experts_per_tok": 1})"), RouterWeights::kRaw);
  for (const char* patch : {R"({"score_function": "sigmoid"})", R"({"use_qk_norm": true})",
                            R"({"routed_scaling_factor": 2.5})", R"({"use_sliding_window": true})",
                            R"({"norm_head": true, "tie_word_embeddings": true})"}) {
    error(patch, MOE_ERR_UNSUPPORTED, kLing);
  }
}

TEST_F(DecoderFamilies, HeadsInOneTensorMayBeTooWide) {
  const char* const wide = R"({"num_attention_heads": 1000000, "head_dim": 1000000})";
  EXPECT_NE(error(wide, MOE_ERR_RANGE, kLing).find("are too wide"), std::string::npos);
  EXPECT_NE(error(wide, MOE_ERR_RANGE, test::patched(R"({"model_type": "phi3"})", kLlama).c_str())
                .find("are too wide"),
            std::string::npos);
}

TEST_F(DecoderFamilies, LingOfTheSecondVersion) {
  const std::string second = test::patched(kLing2, kLing);
  const Imported in = read(second);
  const LayerConfig& layer = in.config.layers[1];
  EXPECT_EQ(layer.attention.rope.theta, 600000);
  EXPECT_EQ(layer.attention.rope.dims, 4);
  EXPECT_EQ(layer.attention.qk_norm, QkNorm::kHead);
  const RouterConfig& router = layer.ffn.moe.router;
  EXPECT_EQ(router.kind, RouterKind::kSigmoid);
  EXPECT_EQ(router.n_groups, 4);
  EXPECT_EQ(router.top_groups, 2);
  EXPECT_EQ(router.scale, 2.5f);
  EXPECT_EQ(layer.ffn.moe.shared.d_ff, 6);
  for (const char* patch :
       {R"({"score_function": "softmax"})", R"({"moe_router_enable_expert_bias": false})",
        R"({"norm_head": true})", R"({"norm_topk_prob": false})"}) {
    error(patch, MOE_ERR_UNSUPPORTED, second.c_str());
  }
  error(R"({"n_group": 3})", MOE_ERR_SHAPE, second.c_str());
  // Without the class, keys of the second version tell it; other classes are other models.
  EXPECT_EQ(read_patched(R"({"architectures": null})", second.c_str())
                .config.layers[1]
                .ffn.moe.router.kind,
            RouterKind::kSigmoid);
  EXPECT_NE(error(R"({"architectures": ["BailingMoeLinearForCausalLM"]})", MOE_ERR_UNSUPPORTED,
                  second.c_str())
                .find("BailingMoeV2ForCausalLM"),
            std::string::npos);
}

// transformers 5 renames keys of the published files.
TEST_F(DecoderFamilies, SarvamInBothForms) {
  const auto form = [&](const char* patch) {
    Json config = parse_json(test::patched(patch, kLing).c_str(), "test");
    config.merge_patch({{"model_type", "sarvam_moe"}, {"architectures", nullptr}});
    return read(config.dump());
  };
  const Imported published = form(R"({})");
  const Imported saved = form(R"({"num_experts": null, "n_routed_experts": 8,
      "num_shared_experts": null, "n_shared_experts": 2, "attention_bias": false})");
  for (const Imported* in : {&published, &saved}) {
    const LayerConfig& layer = in->config.layers[1];
    EXPECT_EQ(layer.attention.rope.theta, 8000000);
    EXPECT_EQ(layer.attention.qk_norm, QkNorm::kHead);
    EXPECT_EQ(layer.ffn.moe.n_experts, 8);
    EXPECT_EQ(layer.ffn.moe.router.n_groups, 1);
    EXPECT_EQ(layer.ffn.moe.shared.d_ff, 10);
  }
}

TEST_F(DecoderFamilies, Gemma) {
  const char* const gemma = R"({"model_type": "gemma", "head_dim": 8, "hidden_act": "gelu",
                                "tie_word_embeddings": null})";
  const auto act = [&](const char* patch) {
    return read_patched(patch, test::patched(gemma, kLlama).c_str()).config.layers[0].ffn.act.kind;
  };
  EXPECT_EQ(act("{}"), Activation::kGeluTanh);
  EXPECT_EQ(act(R"({"hidden_act": null})"), Activation::kGeluTanh);
  EXPECT_EQ(act(R"({"hidden_act": "silu"})"), Activation::kSilu);
  EXPECT_EQ(act(R"({"hidden_act": "silu", "hidden_activation": "gelu_pytorch_tanh"})"),
            Activation::kGeluTanh);
  const Imported in = read_patched(gemma);
  EXPECT_TRUE(in.config.tie_embeddings);
  EXPECT_FALSE(in.config.layers[0].attention.norms.out);
  EXPECT_EQ(in.config.layers[0].attention.multiplier, 0);
}

const char* const kMinimax = R"({
  "model_type": "minimax_m2", "hidden_size": 24, "vocab_size": 40, "num_hidden_layers": 2,
  "num_attention_heads": 4, "head_dim": 12, "intermediate_size": 20, "hidden_act": "silu",
  "rms_norm_eps": 1e-6, "max_position_embeddings": 64, "num_local_experts": 4,
  "num_experts_per_tok": 2, "rotary_dim": 6, "attn_type_list": [1, 1],
  "shared_intermediate_size": 0, "use_mtp": true, "num_mtp_modules": 3})";

TEST_F(DecoderFamilies, MinimaxM2) {
  const LayerConfig layer = read(kMinimax).config.layers[1];
  EXPECT_EQ(layer.attention.rope.dims, 6);
  EXPECT_EQ(layer.attention.rope.theta, 5000000);
  EXPECT_EQ(layer.attention.qk_norm, QkNorm::kWhole);
  EXPECT_EQ(layer.ffn.moe.router.kind, RouterKind::kSigmoid);
  EXPECT_EQ(layer.ffn.moe.router.weights, RouterWeights::kRenormalised);
  read_patched(R"({"partial_rotary_factor": 0.5})", kMinimax);
  for (const char* patch : {R"({"partial_rotary_factor": 0.25})", R"({"attn_type_list": [1, 0]})",
                            R"({"use_qk_norm": false})", R"({"qk_norm_type": "per_head"})",
                            R"({"scoring_func": "softmax"})", R"({"use_routing_bias": false})",
                            R"({"shared_intermediate_size": 8})", R"({"sliding_window": 8})"}) {
    error(patch, MOE_ERR_UNSUPPORTED, kMinimax);
  }
  EXPECT_NE(error(R"({"head_dim": null})", MOE_ERR_FORMAT, kMinimax).find("head_dim"),
            std::string::npos);
}

// The scaling is that of the layers without a window; in both forms.
TEST_F(DecoderFamilies, Olmo3) {
  const char* const yarn =
      R"({"rope_type": "yarn", "factor": 4, "original_max_position_embeddings": 16})";
  Json config = parse_json(kLlama, "test");
  config.merge_patch({{"model_type", "olmo3"},
                      {"num_hidden_layers", 4},
                      {"sliding_window", 8},
                      {"rope_scaling", parse_json(yarn, "test")}});
  Json both = config;
  both.merge_patch({{"rope_scaling", nullptr}, {"rope_theta", nullptr}});
  both["rope_parameters"] = {{"full_attention", parse_json(yarn, "test")},
                             {"sliding_attention", {{"rope_theta", 10000.0}}}};
  both["rope_parameters"]["full_attention"]["rope_theta"] = 10000.0;
  for (const Json& form : {config, both}) {
    const Imported in = read(form.dump());
    for (size_t l = 0; l < 4; ++l) {
      const AttentionConfig& a = in.config.layers[l].attention;
      EXPECT_EQ(a.window, l == 3 ? 0 : 8);
      EXPECT_EQ(a.rope.scaling, l == 3 ? RopeScaling::kYarn : RopeScaling::kNone);
      EXPECT_EQ(a.rope.theta, 10000);
      EXPECT_FALSE(a.norms.pre);
      EXPECT_TRUE(a.norms.out);
    }
  }
  both["rope_parameters"]["chunked_attention"] = {{"rope_theta", 10000.0}};
  EXPECT_EQ(guarded([&] { read(both.dump()); }).code(), MOE_ERR_FORMAT);
}

TEST_F(DecoderFamilies, Smollm3) {
  const auto rotates = [](const Imported& in, size_t l) {
    return in.config.layers[l].attention.rope.kind != RopeKind::kNone;
  };
  const char* const patch = R"({"model_type": "smollm3", "num_hidden_layers": 4})";
  const Imported fourth = read_patched(patch);
  for (size_t l = 0; l < 4; ++l) EXPECT_EQ(rotates(fourth, l), l != 3);
  const Imported listed = read_patched(R"({"model_type": "smollm3", "no_rope_layers": [0, 1, 1],
      "use_sliding_window": true, "sliding_window": 8})");
  EXPECT_FALSE(rotates(listed, 0));
  EXPECT_TRUE(rotates(listed, 1));
  EXPECT_EQ(listed.config.layers[0].attention.window, 8);
  EXPECT_EQ(listed.config.layers[1].attention.window, 0);
  EXPECT_EQ(read_patched(R"({"model_type": "smollm3", "no_rope_layers": [0, 1],
                             "sliding_window": 8})")
                .config.layers[0]
                .attention.window,
            0);
  EXPECT_NE(error(R"({"model_type": "smollm3", "no_rope_layers": [1]})", MOE_ERR_SHAPE)
                .find("no_rope_layers: expected 2 entries, found 1"),
            std::string::npos);
}

TEST_F(DecoderFamilies, Gemma3WithImages) {
  const char* const config = R"({
    "model_type": "gemma3", "eos_token_id": [1, 106], "image_token_index": 262144,
    "mm_tokens_per_image": 256, "vision_config": {"hidden_size": 16},
    "text_config": {"hidden_size": 24, "intermediate_size": 20, "num_hidden_layers": 6,
                    "sliding_window": 16, "rope_scaling": {"rope_type": "linear", "factor": 8.0}}})";
  const Imported in = read(config);
  EXPECT_EQ(in.importer, "gemma3");
  EXPECT_EQ(in.config.vocab_size, 262208);
  EXPECT_EQ(in.config.context_length, 131072);
  EXPECT_EQ(in.config.eos_token_ids.size(), 2u);
  EXPECT_TRUE(in.config.tie_embeddings);
  const AttentionConfig& last = in.config.layers[5].attention;
  EXPECT_EQ(last.n_heads, 8);
  EXPECT_EQ(last.n_kv_heads, 4);
  EXPECT_EQ(last.head_dim, 256);
  EXPECT_EQ(last.window, 0);
  EXPECT_EQ(last.rope.scaling, RopeScaling::kLinear);
  EXPECT_EQ(in.config.layers[0].attention.window, 16);
  EXPECT_EQ(in.config.layers[0].attention.rope.scaling, RopeScaling::kNone);
  error(R"({"audio_config": {}})", MOE_ERR_UNSUPPORTED, config);
  error(R"({"text_config": {"final_logit_softcapping": 30.0}})", MOE_ERR_UNSUPPORTED, config);
  error(R"({"text_config": null})", MOE_ERR_FORMAT, config);
}

// As published and saved by transformers 4, and as the modules are called.
TEST_F(DecoderFamilies, TheTextPartHasEitherPrefix) {
  const Checkpoint original("tests/data/families/gemma3_with_images");
  const auto as_modules = [](const std::string& name) {
    const std::string text = "language_model.model.";
    return "model." +
           (name.starts_with(text) ? "language_model." + name.substr(text.size()) : name);
  };
  const std::string published = converted(original, [](const std::string& name) { return name; });
  EXPECT_FALSE(published.empty());
  EXPECT_EQ(converted(original, as_modules), published);
}

// Queries and keys normed after the rotation have no counterpart.
TEST_F(DecoderFamilies, HunyuanIsRefusedByName) {
  EXPECT_NE(error(R"({"model_type": "hunyuan_v1_moe"})", MOE_ERR_UNSUPPORTED)
                .find("unknown model_type \"hunyuan_v1_moe\""),
            std::string::npos);
}

// As docs/support.md says.
TEST_F(DecoderFamilies, Gemma3nIsRefusedByName) {
  for (const char* type : {"gemma3n", "gemma3n_text"}) {
    EXPECT_EQ(
        error((R"({"model_type": ")" + std::string(type) + "\"}").c_str(), MOE_ERR_UNSUPPORTED),
        "config.json: model_type \"" + std::string(type) +
            "\" is not supported: no layer here computes Gemma 3n's several copies of each token's "
            "state (AltUp), low-rank residuals (LAuReL) and activations cut at a quantile");
  }
}

}  // namespace
}  // namespace moe
