// SPDX-License-Identifier: MIT
// One function per shape, with the numbers of its published config.json.
#include "src/convert/shapes.h"

#include <string_view>

#include "formats/import/failure.h"

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
    {"deepseek-v2-lite", deepseek_v2_lite, ScaleKind::kTensor, ActPrecision::kA8, FormatId::kBf16,
     false},
    {"glm-4.7-flash", glm_flash, ScaleKind::kTensor, ActPrecision::kA8, FormatId::kBf16, false,
     true},
    {"ling-mini-2.0", ling_mini, ScaleKind::kTensor, ActPrecision::kA8, FormatId::kBf16, false},
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
  return "tiny, olmoe-1b-7b, qwen3-30b-a3b, deepseek-v2-lite, glm-4.7-flash, ling-mini-2.0, "
         "maple-20b-a1b, bitnet-2b-4t, mh-moe-768x12-h3, xmoe-323m, edge-moe-768x12";
}

const char* shape_name(size_t index) {
  return index < std::size(kShapes) ? kShapes[index].name : nullptr;
}

std::span<const Shape> shapes() { return {kShapes, std::size(kShapes)}; }

}  // namespace moe
