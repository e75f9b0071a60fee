#include "src/convert/shapes.h"

namespace moe {
namespace {

// Pre-norm decoder with RoPE over whole heads; every layer gets the same attention.
LayerConfig base_layer(int32_t n_heads, int32_t n_kv_heads, int32_t head_dim, float theta) {
  LayerConfig layer;
  layer.attention.n_heads = n_heads;
  layer.attention.n_kv_heads = n_kv_heads;
  layer.attention.head_dim = head_dim;
  layer.attention.rope.kind = RopeKind::kHalf;
  layer.attention.rope.dims = head_dim;
  layer.attention.rope.theta = theta;
  layer.ffn.gated = true;
  return layer;
}

void set_sizes(ModelConfig* c, int32_t vocab_size, int32_t d_model, int32_t context_length, float eps) {
  c->vocab_size = vocab_size;
  c->d_model = d_model;
  c->context_length = context_length;
  c->norm_eps = eps;
}

void set_experts(LayerConfig* layer, int32_t n_experts, int32_t k, int32_t d_ff, RouterWeights weights) {
  layer->ffn.kind = FfnKind::kMoe;
  layer->ffn.d_ff = d_ff;
  layer->ffn.moe.n_experts = n_experts;
  layer->ffn.moe.router.k = k;
  layer->ffn.moe.router.weights = weights;
}

Status repeat(ModelConfig* c, int32_t n_layers, const LayerConfig& layer) {
  for (int32_t i = 0; i < n_layers; ++i) MOE_TRY(c->layers.push(layer));
  return {};
}

// Dense and MoE layers in turn, a dense one first.
Status alternate(ModelConfig* c, int32_t n_layers, const LayerConfig& dense, const LayerConfig& moe) {
  for (int32_t i = 0; i < n_layers; ++i) MOE_TRY(c->layers.push(i % 2 == 0 ? dense : moe));
  return {};
}

Status tiny(ModelConfig* c) {
  set_sizes(c, 256, 64, 1024, 1e-5f);
  c->tie_embeddings = true;
  LayerConfig layer = base_layer(4, 2, 16, 10000);
  set_experts(&layer, 8, 2, 64, RouterWeights::kRaw);
  layer.ffn.moe.multi_head = true;
  layer.ffn.moe.n_subheads = 2;
  return repeat(c, 2, layer);
}

Status olmoe_1b_7b(ModelConfig* c) {
  set_sizes(c, 50304, 2048, 4096, 1e-5f);
  LayerConfig layer = base_layer(16, 16, 128, 10000);
  layer.attention.qk_norm = QkNorm::kWhole;
  set_experts(&layer, 64, 8, 1024, RouterWeights::kRaw);
  return repeat(c, 16, layer);
}

Status maple_20b_a1b(ModelConfig* c) {
  set_sizes(c, 151936, 2048, 131072, 1e-6f);
  LayerConfig sliding = base_layer(16, 4, 128, 10000);
  sliding.attention.qk_norm = QkNorm::kHead;
  sliding.attention.rope.dims = 64;
  sliding.attention.window = 513;
  sliding.ffn.act.limit = 7;
  set_experts(&sliding, 256, 8, 512, RouterWeights::kRenormalised);
  LayerConfig full = sliding;
  full.attention.rope = RopeConfig{};
  full.attention.window = 0;
  for (int32_t i = 0; i < 24; ++i) MOE_TRY(c->layers.push(i % 4 == 3 ? full : sliding));
  return {};
}

Status bitnet_2b_4t(ModelConfig* c) {
  set_sizes(c, 128256, 2560, 4096, 1e-5f);
  c->tie_embeddings = true;
  LayerConfig layer = base_layer(20, 5, 128, 500000);
  layer.attention.sub_norm = true;
  layer.ffn.sub_norm = true;
  layer.ffn.d_ff = 6912;
  layer.ffn.act.kind = Activation::kRelu2;
  return repeat(c, 30, layer);
}

Status mh_moe_768x12_h3(ModelConfig* c) {
  set_sizes(c, 32000, 768, 4096, 1e-5f);
  LayerConfig dense = base_layer(12, 12, 64, 10000);
  dense.ffn.d_ff = 2048;
  LayerConfig moe = dense;
  set_experts(&moe, 96, 3, 512, RouterWeights::kRaw);
  moe.ffn.moe.multi_head = true;
  moe.ffn.moe.n_subheads = 3;
  return alternate(c, 12, dense, moe);
}

Status xmoe_323m(ModelConfig* c) {
  set_sizes(c, 50257, 768, 1024, 1e-5f);
  c->norm = NormKind::kLayer;
  c->positions = PositionKind::kLearned;
  c->tie_embeddings = true;
  LayerConfig dense = base_layer(12, 12, 64, 10000);
  dense.attention.rope = RopeConfig{};
  dense.ffn.gated = false;
  dense.ffn.act.kind = Activation::kGeluTanh;
  dense.ffn.d_ff = 3072;
  LayerConfig moe = dense;
  set_experts(&moe, 64, 1, 384, RouterWeights::kRaw);
  moe.ffn.moe.router.kind = RouterKind::kThreshold;
  moe.ffn.moe.router.threshold = 0.9f;
  return alternate(c, 12, dense, moe);
}

Status edge_moe_768x12(ModelConfig* c) {
  set_sizes(c, 32000, 768, 4096, 1e-5f);
  LayerConfig layer = base_layer(12, 12, 64, 10000);
  set_experts(&layer, 8, 1, 2048, RouterWeights::kRaw);
  return repeat(c, 12, layer);
}

constexpr Shape kShapes[] = {
    {"tiny", "made up", ActPrecision::kA8, ScaleKind::kTensor, tiny},
    {"olmoe-1b-7b", "config of allenai/OLMoE-1B-7B-0924", ActPrecision::kA8Block, ScaleKind::kRow, olmoe_1b_7b},
    {"maple-20b-a1b", "config of deepgrove/maple-preview", ActPrecision::kA8Block, ScaleKind::kRow, maple_20b_a1b},
    {"bitnet-2b-4t", "config of microsoft/bitnet-b1.58-2B-4T", ActPrecision::kA8, ScaleKind::kTensor, bitnet_2b_4t},
    {"mh-moe-768x12-h3", "arXiv 2411.16205", ActPrecision::kA8, ScaleKind::kTensor, mh_moe_768x12_h3},
    {"xmoe-323m", "arXiv 2403.18926", ActPrecision::kA8Block, ScaleKind::kRow, xmoe_323m},
    {"edge-moe-768x12", "made up", ActPrecision::kA8, ScaleKind::kTensor, edge_moe_768x12},
};

}  // namespace

const Shape* find_shape(const std::string& name) {
  for (const Shape& shape : kShapes) {
    if (name == shape.name) return &shape;
  }
  return nullptr;
}

const char* shape_names() {
  static const std::string names = [] {
    std::string all;
    for (const Shape& shape : kShapes) all += (all.empty() ? "" : ", ") + std::string(shape.name);
    return all;
  }();
  return names.c_str();
}

}  // namespace moe
