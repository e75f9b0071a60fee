// SPDX-License-Identifier: MIT
// One function per shape, with the numbers of its published config.json.
#include "src/convert/shapes.h"

#include <algorithm>
#include <string_view>

#include "formats/import/failure.h"
#include "src/convert/mixer.h"

namespace moe {
namespace {

ModelConfig model(const char* name, int32_t vocab, int32_t d, int32_t context, float eps) {
  ModelConfig c;
  check(c.name.assign(name));
  c.vocab_size = vocab;
  c.d_model = d;
  c.context_length = context;
  c.norm_eps = eps;
  return c;
}

LayerConfig layer(int32_t n_heads, int32_t n_kv_heads, int32_t head_dim, float theta) {
  LayerConfig l;
  l.attention.n_heads = n_heads;
  l.attention.n_kv_heads = n_kv_heads;
  l.attention.head_dim = head_dim;
  l.attention.rope.kind = RopeKind::kHalf;
  l.attention.rope.dims = head_dim;
  l.attention.rope.theta = theta;
  return l;
}

void set_ffn(LayerConfig* l, int32_t d_ff, Activation act, bool gated) {
  l->ffn.kind = FfnKind::kDense;
  l->ffn.d_ff = d_ff;
  l->ffn.gated = gated;
  l->ffn.act.kind = act;
}

void set_experts(LayerConfig* l, int32_t n_experts, int32_t k, int32_t d_ff,
                 RouterWeights weights) {
  l->ffn.kind = FfnKind::kMoe;
  l->ffn.d_ff = d_ff;
  l->ffn.moe.n_experts = n_experts;
  l->ffn.moe.router.k = k;
  l->ffn.moe.router.weights = weights;
}

// In place of attention; the other parameters have their defaults.
void set_mixer(LayerConfig* l, const char* name, std::span<const float> params) {
  l->has_attention = false;
  l->attention = {};
  l->has_mixer = true;
  l->mixer.mixer = built_mixer(name);
  std::copy(params.begin(), params.end(), l->mixer.mixer.params);
}

// Byte tokens: every kind of layer for a first test in a few hundred kB.
ModelConfig tiny() {
  ModelConfig c = model("tiny", 256, 128, 512, 1e-5f);
  c.tie_embeddings = true;
  LayerConfig l = layer(4, 2, 32, 1e4f);
  set_ffn(&l, 256, Activation::kSilu, true);
  for (int32_t i = 0; i < 4; ++i) {
    LayerConfig own = l;
    if (i % 2 == 1) set_experts(&own, 8, 2, 64, RouterWeights::kRenormalised);
    check(c.layers.push(own));
  }
  return c;
}

// allenai/OLMoE-1B-7B-0924, config.json.
ModelConfig olmoe() {
  ModelConfig c = model("olmoe-1b-7b", 50304, 2048, 4096, 1e-5f);
  LayerConfig l = layer(16, 16, 128, 1e4f);
  l.attention.qk_norm = QkNorm::kWhole;
  set_ffn(&l, 1024, Activation::kSilu, true);
  set_experts(&l, 64, 8, 1024, RouterWeights::kRaw);
  for (int32_t i = 0; i < 16; ++i) check(c.layers.push(l));
  return c;
}

// Qwen/Qwen3-30B-A3B, config.json.
ModelConfig qwen3_moe() {
  ModelConfig c = model("qwen3-30b-a3b", 151936, 2048, 40960, 1e-6f);
  LayerConfig l = layer(32, 4, 128, 1e6f);
  l.attention.qk_norm = QkNorm::kHead;
  set_ffn(&l, 768, Activation::kSilu, true);
  set_experts(&l, 128, 8, 768, RouterWeights::kRenormalised);
  for (int32_t i = 0; i < 48; ++i) check(c.layers.push(l));
  return c;
}

// Qwen3-Next and Qwen3.5: every fourth layer has attention, the others a gated delta rule.
ModelConfig qwen_hybrid(const char* name, int32_t vocab, int32_t n_layers, int32_t n_experts,
                        int32_t k) {
  ModelConfig c = model(name, vocab, 2048, 262144, 1e-6f);
  LayerConfig attention = layer(16, 2, 256, 1e7f);
  attention.attention.rope.dims = 64;
  attention.attention.qk_norm = QkNorm::kHead;
  attention.attention.output_gate = true;
  set_ffn(&attention, 512, Activation::kSilu, true);
  set_experts(&attention, n_experts, k, 512, RouterWeights::kRenormalised);
  attention.ffn.moe.shared = {.d_ff = 512, .gated = true};
  LayerConfig delta = attention;
  const float sizes[] = {16, 32, 128, 128, 4};
  set_mixer(&delta, "gated_delta", sizes);
  for (int32_t i = 0; i < n_layers; ++i) check(c.layers.push(i % 4 == 3 ? attention : delta));
  return c;
}

// Qwen/Qwen3-Next-80B-A3B-Instruct, config.json.
ModelConfig qwen3_next() { return qwen_hybrid("qwen3-next-80b-a3b", 151936, 48, 512, 10); }

// Qwen/Qwen3.6-35B-A3B, text_config of config.json.
ModelConfig qwen3_6() { return qwen_hybrid("qwen3.6-35b-a3b", 248320, 40, 256, 8); }

// ibm-granite/granite-4.0-h-tiny, config.json.
ModelConfig granite_4_h() {
  ModelConfig c = model("granite-4-h-tiny", 100352, 1536, 131072, 1e-5f);
  c.tie_embeddings = true;
  c.embedding_multiplier = 12;
  c.residual_multiplier = 0.22f;
  c.logit_multiplier = 1.0f / 6;
  LayerConfig attention = layer(12, 4, 128, 1e4f);
  attention.attention.rope = {};
  attention.attention.multiplier = 0.0078125f;
  set_ffn(&attention, 512, Activation::kSilu, true);
  set_experts(&attention, 64, 6, 512, RouterWeights::kChosen);
  attention.ffn.moe.shared.d_ff = 1024;
  LayerConfig mamba = attention;
  const float sizes[] = {48, 64, 1, 128, 4};
  set_mixer(&mamba, "mamba2", sizes);
  for (int32_t i = 0; i < 40; ++i) check(c.layers.push(i % 10 == 5 ? attention : mamba));
  return c;
}

// prism-ml/Ternary-Bonsai-27B, which has the sizes of Qwen/Qwen3.5-27B, text_config of config.json.
ModelConfig bonsai() {
  ModelConfig c = model("bonsai-27b", 248320, 5120, 262144, 1e-6f);
  LayerConfig attention = layer(24, 4, 256, 1e7f);
  attention.attention.rope.dims = 64;
  attention.attention.qk_norm = QkNorm::kHead;
  attention.attention.output_gate = true;
  set_ffn(&attention, 17408, Activation::kSilu, true);
  LayerConfig delta = attention;
  const float sizes[] = {16, 48, 128, 128, 4};
  set_mixer(&delta, "gated_delta", sizes);
  for (int32_t i = 0; i < 64; ++i) check(c.layers.push(i % 4 == 3 ? attention : delta));
  return c;
}

// prism-ml/Ternary-Bonsai-2-27B: the same sizes, with rotated inputs in blocks of 1024. Here all
// signs are 1, which costs the same.
ModelConfig bonsai_2() {
  ModelConfig c = bonsai();
  check(c.name.assign("bonsai-2-27b"));
  c.rotation.block = 1024;
  return c;
}

// deepseek-ai/DeepSeek-V2-Lite, config.json.
ModelConfig deepseek_v2_lite() {
  ModelConfig c = model("deepseek-v2-lite", 102400, 2048, 163840, 1e-6f);
  LayerConfig l = layer(16, 16, 128 + 64, 1e4f);
  l.attention.latent = 512;
  l.attention.multiplier = 0.11472138f;  // (0.0707 ln 40 + 1)^2 / sqrt(192)
  RopeConfig& rope = l.attention.rope;
  rope.kind = RopeKind::kInterleaved;
  rope.dims = 64;
  rope.scaling = RopeScaling::kYarn;
  rope.factor = 40;
  rope.original_context = 4096;
  rope.attention_factor = 1;
  set_ffn(&l, 10944, Activation::kSilu, true);
  check(c.layers.push(l));
  set_experts(&l, 64, 6, 1408, RouterWeights::kRaw);
  l.ffn.moe.shared.d_ff = 2816;
  for (int32_t i = 1; i < 27; ++i) check(c.layers.push(l));
  return c;
}

void set_sigmoid(LayerConfig* l, float scale, int32_t shared) {
  RouterConfig& router = l->ffn.moe.router;
  router.kind = RouterKind::kSigmoid;
  router.scale = scale;
  l->ffn.moe.shared.d_ff = shared;
}

// nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16, config.json: a block in each layer.
ModelConfig nemotron_3_nano() {
  ModelConfig c = model("nemotron-3-nano-30b-a3b", 131072, 2688, 262144, 1e-5f);
  LayerConfig experts = layer(32, 2, 128, 1e4f);
  set_ffn(&experts, 1856, Activation::kRelu2, false);
  set_experts(&experts, 128, 6, 1856, RouterWeights::kRenormalised);
  set_sigmoid(&experts, 2.5f, 3712);
  LayerConfig attention = experts;
  attention.attention.rope = {};
  attention.has_ffn = false;
  attention.ffn = {};
  LayerConfig mamba = attention;
  const float sizes[] = {64, 64, 8, 128, 4};
  set_mixer(&mamba, "mamba2", sizes);
  experts.has_attention = false;
  experts.attention = {};
  for (const char block :
       std::string_view("MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME")) {
    check(c.layers.push(block == 'M' ? mamba : block == 'E' ? experts : attention));
  }
  return c;
}

// moonshotai/Kimi-Linear-48B-A3B-Instruct, config.json.
ModelConfig kimi_linear() {
  ModelConfig c = model("kimi-linear-48b-a3b", 163840, 2304, 1048576, 1e-5f);
  for (int32_t i = 0; i < 27; ++i) {
    LayerConfig l = layer(32, 32, 128 + 64, 1e4f);
    l.attention.rope = {};
    l.attention.rope.dims = 64;  // shared by all heads, and not rotated
    l.attention.latent = 512;
    l.attention.latent_eps = 1e-6f;
    const float sizes[] = {32, 128, 128, 4, 128};
    if (i % 4 != 3 && i != 26) set_mixer(&l, "kimi_delta", sizes);
    set_ffn(&l, 9216, Activation::kSilu, true);
    if (i > 0) set_experts(&l, 256, 8, 1024, RouterWeights::kRenormalised);
    if (i > 0) set_sigmoid(&l, 2.446f, 1024);
    check(c.layers.push(l));
  }
  return c;
}

// zai-org/GLM-4.7-Flash, config.json.
ModelConfig glm_flash() {
  ModelConfig c = model("glm-4.7-flash", 154880, 2048, 202752, 1e-5f);
  LayerConfig l = layer(20, 20, 192 + 64, 1e6f);
  l.attention.latent = 512;
  l.attention.q_latent = 768;
  l.attention.latent_eps = 1e-6f;
  l.attention.rope.kind = RopeKind::kInterleaved;
  l.attention.rope.dims = 64;
  set_ffn(&l, 10240, Activation::kSilu, true);
  check(c.layers.push(l));
  set_experts(&l, 64, 4, 1536, RouterWeights::kRenormalised);
  set_sigmoid(&l, 1.8f, 1536);
  for (int32_t i = 1; i < 47; ++i) check(c.layers.push(l));
  return c;
}

// google/gemma-4-26B-A4B-it, text_config of config.json. Its factors of layers' results are
// weights.
ModelConfig gemma4() {
  ModelConfig c = model("gemma-4-26b-a4b", 262144, 2816, 262144, 1e-6f);
  c.tie_embeddings = true;
  c.embedding_multiplier = __builtin_sqrtf(2816);
  c.logit_cap = 30;
  for (int32_t i = 0; i < 30; ++i) {
    const bool whole = i % 6 == 5;
    LayerConfig l = whole ? layer(16, 2, 512, 1e6f) : layer(16, 8, 256, 1e4f);
    AttentionConfig& a = l.attention;
    a.window = whole ? 0 : 1024;
    a.multiplier = 1;
    a.qk_norm = QkNorm::kHead;
    a.v_norm = true;
    a.v_from_k = whole;
    if (whole) {
      a.rope.scaling = RopeScaling::kProportional;
      a.rope.turning = 128;
    }
    set_ffn(&l, 704, Activation::kGeluTanh, true);
    set_experts(&l, 128, 8, 704, RouterWeights::kRenormalised);
    l.ffn.moe.shared.d_ff = 2112;
    l.ffn.moe.apart = l.ffn.moe.router_norm = l.ffn.moe.expert_scale = true;
    a.norms = l.ffn.norms = {.pre = true, .out = true};
    check(c.layers.push(l));
  }
  return c;
}

// inclusionAI/Ling-mini-2.0, config.json.
ModelConfig ling_mini() {
  ModelConfig c = model("ling-mini-2.0", 157184, 2048, 32768, 1e-6f);
  LayerConfig l = layer(16, 4, 128, 6e5f);
  l.attention.qk_norm = QkNorm::kHead;
  l.attention.rope.dims = 64;
  set_ffn(&l, 5120, Activation::kSilu, true);
  check(c.layers.push(l));
  set_experts(&l, 256, 8, 512, RouterWeights::kRenormalised);
  set_sigmoid(&l, 2.5f, 512);
  l.ffn.moe.router.n_groups = 8;
  l.ffn.moe.router.top_groups = 4;
  for (int32_t i = 1; i < 20; ++i) check(c.layers.push(l));
  return c;
}

// inclusionAI/Ling-3.0-tiny, config.json: every fourth layer attends.
ModelConfig ling_3_tiny() {
  ModelConfig c = model("ling-3-tiny", 157184, 1536, 262144, 1e-6f);
  for (int32_t i = 0; i < 24; ++i) {
    LayerConfig l = layer(16, 16, 128 + 64, 6e6f);
    l.attention.latent = 512;
    l.attention.q_latent = 256;
    l.attention.latent_eps = 1e-6f;
    l.attention.rope.kind = RopeKind::kInterleaved;
    l.attention.rope.dims = 64;
    l.attention.output_gate = l.attention.gate_by_head = true;
    const float sizes[] = {16, 128, 128, 4, 0, 1e-6f, -5};
    if (i % 4 != 3) set_mixer(&l, "kimi_delta", sizes);
    set_ffn(&l, 4608, Activation::kSilu, true);
    if (i > 0) {
      set_experts(&l, 128, 8, 512, RouterWeights::kRenormalised);
      set_sigmoid(&l, 2.5f, 512);
      l.ffn.moe.router.n_groups = 8;
      l.ffn.moe.router.top_groups = 4;
    }
    check(c.layers.push(l));
  }
  return c;
}

// MiniMaxAI/MiniMax-M2, config.json.
ModelConfig minimax_m2() {
  ModelConfig c = model("minimax-m2", 200064, 3072, 196608, 1e-6f);
  LayerConfig l = layer(48, 8, 128, 5e6f);
  l.attention.qk_norm = QkNorm::kWhole;
  l.attention.rope.dims = 64;
  set_ffn(&l, 1536, Activation::kSilu, true);
  set_experts(&l, 256, 8, 1536, RouterWeights::kRenormalised);
  set_sigmoid(&l, 1, 0);
  for (int32_t i = 0; i < 62; ++i) check(c.layers.push(l));
  return c;
}

// MiniMaxAI/MiniMax-Text-01, config.json: every eighth layer attends. The factors of its blocks are
// those that an import stores.
ModelConfig minimax_text_01() {
  constexpr float kAlpha = 3.5565588200778455f;
  ModelConfig c = model("minimax-text-01", 200064, 6144, 10240000, 1e-5f / (kAlpha * kAlpha));
  c.embedding_norm = true;
  c.final_norm = false;
  c.embedding_multiplier = c.residual_multiplier = 1 / kAlpha;
  for (int32_t i = 0; i < 80; ++i) {
    LayerConfig l = layer(64, 8, 128, 1e7f);
    l.attention.rope.dims = 64;
    const float sizes[] = {64, 128};
    if (i % 8 != 7) set_mixer(&l, "lightning", sizes);
    set_ffn(&l, 9216, Activation::kSilu, true);
    set_experts(&l, 32, 2, 9216, RouterWeights::kRenormalised);
    const BlockNorms behind = {.pre = false, .post = true};
    l.ffn.norms = behind;
    (l.has_mixer ? l.mixer.norms : l.attention.norms) = behind;
    check(c.layers.push(l));
  }
  return c;
}

// LiquidAI/LFM2-8B-A1B, config.json.
ModelConfig lfm2_moe() {
  ModelConfig c = model("lfm2-8b-a1b", 65536, 2048, 128000, 1e-5f);
  c.tie_embeddings = true;
  for (int32_t i = 0; i < 24; ++i) {
    LayerConfig l = layer(32, 8, 64, 1e6f);
    l.attention.qk_norm = QkNorm::kHead;
    const bool attends = i == 21 || (i % 4 == 2 && i < 20);
    const float length[] = {3};
    if (!attends) set_mixer(&l, "short_conv", length);
    set_ffn(&l, 7168, Activation::kSilu, true);
    if (i >= 2) set_experts(&l, 32, 4, 1792, RouterWeights::kRenormalised);
    if (i >= 2) l.ffn.moe.router.kind = RouterKind::kSigmoid;
    check(c.layers.push(l));
  }
  return c;
}

// deepgrove/maple-preview, config.json and modelling code.
ModelConfig maple() {
  ModelConfig c = model("maple-20b-a1b", 151936, 2048, 131072, 1e-6f);
  LayerConfig l = layer(16, 4, 128, 1e4f);
  l.attention.qk_norm = QkNorm::kHead;
  set_ffn(&l, 512, Activation::kSilu, true);
  set_experts(&l, 256, 8, 512, RouterWeights::kRenormalised);
  l.ffn.act.limit = 7;
  for (int32_t i = 0; i < 24; ++i) {
    LayerConfig own = l;
    if (i % 4 == 3) {  // full attention, no positions
      own.attention.rope = RopeConfig{};
    } else {
      own.attention.rope.dims = 64;
      own.attention.window = 513;
    }
    check(c.layers.push(own));
  }
  return c;
}

// microsoft/bitnet-b1.58-2B-4T, config.json.
ModelConfig bitnet() {
  ModelConfig c = model("bitnet-2b-4t", 128256, 2560, 4096, 1e-5f);
  c.tie_embeddings = true;
  LayerConfig l = layer(20, 5, 128, 5e5f);
  l.attention.sub_norm = true;
  set_ffn(&l, 6912, Activation::kRelu2, true);
  l.ffn.sub_norm = true;
  for (int32_t i = 0; i < 30; ++i) check(c.layers.push(l));
  return c;
}

// arXiv 2411.16205: the sizes with parity to 8 experts of 2048, top-1.
ModelConfig mh_moe() {
  ModelConfig c = model("mh-moe-768x12-h3", 32000, 768, 2048, 1e-5f);
  c.tie_embeddings = true;
  LayerConfig l = layer(12, 12, 64, 1e4f);
  set_ffn(&l, 2048, Activation::kSilu, true);
  for (int32_t i = 0; i < 12; ++i) {
    LayerConfig own = l;
    if (i % 2 == 1) {
      set_experts(&own, 96, 3, 512, RouterWeights::kRaw);
      own.ffn.moe.n_subheads = 3;
      own.ffn.moe.head = own.ffn.moe.merge = true;
    }
    check(c.layers.push(own));
  }
  return c;
}

// arXiv 2403.18926: GPT-2 small with experts of an eighth of its FFN in every second layer.
ModelConfig xmoe() {
  ModelConfig c = model("xmoe-323m", 50257, 768, 1024, 1e-5f);
  c.tie_embeddings = true;
  c.norm = NormKind::kLayer;
  c.positions = PositionKind::kLearned;
  LayerConfig l = layer(12, 12, 64, 1e4f);
  l.attention.rope = RopeConfig{};
  set_ffn(&l, 3072, Activation::kGeluTanh, false);
  for (int32_t i = 0; i < 12; ++i) {
    LayerConfig own = l;
    if (i % 2 == 1) {
      set_experts(&own, 64, 1, 384, RouterWeights::kRaw);
      own.ffn.moe.router.kind = RouterKind::kThreshold;
      own.ffn.moe.router.threshold = 0.9f;
    }
    check(c.layers.push(own));
  }
  return c;
}

ModelConfig edge_moe() {
  ModelConfig c = model("edge-moe-768x12", 32000, 768, 2048, 1e-5f);
  c.tie_embeddings = true;
  LayerConfig l = layer(12, 12, 64, 1e4f);
  set_ffn(&l, 2048, Activation::kSilu, true);
  set_experts(&l, 8, 1, 2048, RouterWeights::kRaw);
  for (int32_t i = 0; i < 12; ++i) check(c.layers.push(l));
  return c;
}

constexpr Shape kShapes[] = {
    {"tiny", tiny, ScaleKind::kTensor, ActPrecision::kA8, FormatId::kF32, true},
    {"olmoe-1b-7b", olmoe, ScaleKind::kTensor, ActPrecision::kA8, FormatId::kBf16, false},
    {"qwen3-30b-a3b", qwen3_moe, ScaleKind::kTensor, ActPrecision::kA8, FormatId::kBf16, false},
    {"qwen3-next-80b-a3b", qwen3_next, ScaleKind::kTensor, ActPrecision::kA8, FormatId::kBf16,
     false},
    {"qwen3.6-35b-a3b", qwen3_6, ScaleKind::kTensor, ActPrecision::kA8, FormatId::kBf16, false},
    {"granite-4-h-tiny", granite_4_h, ScaleKind::kTensor, ActPrecision::kA8, FormatId::kBf16,
     false},
    {"nemotron-3-nano-30b-a3b", nemotron_3_nano, ScaleKind::kTensor, ActPrecision::kA8,
     FormatId::kBf16, false},
    {"kimi-linear-48b-a3b", kimi_linear, ScaleKind::kTensor, ActPrecision::kA8, FormatId::kBf16,
     false},
    {"bonsai-27b", bonsai, ScaleKind::kRow, ActPrecision::kA8Block, FormatId::kBf16, false},
    {"bonsai-2-27b", bonsai_2, ScaleKind::kRow, ActPrecision::kA8Block, FormatId::kBf16, false},
    {"deepseek-v2-lite", deepseek_v2_lite, ScaleKind::kTensor, ActPrecision::kA8, FormatId::kBf16,
     false},
    {"glm-4.7-flash", glm_flash, ScaleKind::kTensor, ActPrecision::kA8, FormatId::kBf16, false,
     true},
    {"gemma-4-26b-a4b", gemma4, ScaleKind::kTensor, ActPrecision::kA8, FormatId::kBf16, false},
    {"ling-mini-2.0", ling_mini, ScaleKind::kTensor, ActPrecision::kA8, FormatId::kBf16, false},
    {"ling-3-tiny", ling_3_tiny, ScaleKind::kTensor, ActPrecision::kA8, FormatId::kBf16, false},
    {"minimax-m2", minimax_m2, ScaleKind::kTensor, ActPrecision::kA8, FormatId::kBf16, false},
    {"minimax-text-01", minimax_text_01, ScaleKind::kTensor, ActPrecision::kA8, FormatId::kBf16,
     false},
    {"lfm2-8b-a1b", lfm2_moe, ScaleKind::kTensor, ActPrecision::kA8, FormatId::kBf16, false},
    {"maple-20b-a1b", maple, ScaleKind::kRow, ActPrecision::kA8Block, FormatId::kBf16, false},
    {"bitnet-2b-4t", bitnet, ScaleKind::kTensor, ActPrecision::kA8, FormatId::kBf16, false},
    {"mh-moe-768x12-h3", mh_moe, ScaleKind::kTensor, ActPrecision::kA8, FormatId::kF32, false},
    {"xmoe-323m", xmoe, ScaleKind::kTensor, ActPrecision::kA8, FormatId::kF32, false},
    {"edge-moe-768x12", edge_moe, ScaleKind::kTensor, ActPrecision::kA8, FormatId::kF32, false},
};

}  // namespace

const Shape* find_shape(const char* name) {
  for (const Shape& shape : kShapes) {
    if (std::string_view(name) == shape.name) return &shape;
  }
  return nullptr;
}

const char* shape_names() {
  return "tiny, olmoe-1b-7b, qwen3-30b-a3b, qwen3-next-80b-a3b, qwen3.6-35b-a3b, granite-4-h-tiny, "
         "nemotron-3-nano-30b-a3b, kimi-linear-48b-a3b, bonsai-27b, bonsai-2-27b, "
         "deepseek-v2-lite, glm-4.7-flash, gemma-4-26b-a4b, ling-mini-2.0, ling-3-tiny, "
         "minimax-m2, minimax-text-01, lfm2-8b-a1b, maple-20b-a1b, bitnet-2b-4t, "
         "mh-moe-768x12-h3, xmoe-323m, edge-moe-768x12";
}

const char* shape_name(size_t index) {
  return index < std::size(kShapes) ? kShapes[index].name : nullptr;
}

std::span<const Shape> shapes() { return {kShapes, std::size(kShapes)}; }

}  // namespace moe
