// SPDX-License-Identifier: MIT
// Lays out the cache of all layers in one allocation; the same function measures and places it.
#include "src/run/kv_cache.h"

#include <algorithm>
#include <cstring>

namespace moe {
namespace {

KvShape whole_blocks(KvShape shape) {
  shape.context = round_up(shape.context, kKeyBlock);
  shape.source = round_up(shape.source, kKeyBlock);
  return shape;
}

int32_t encoder_layers(const ModelConfig& config) {
  return config.is_encoder() ? config.n_layers() : config.n_encoder_layers;
}

int64_t key_bytes(const AttentionConfig& a, int32_t capacity, KvType type) {
  const KvWidths w = kv_widths(a, type);
  return int64_t{w.n_heads} * capacity * w.key * element_bytes(type);
}

void take_side(Carver& c, int64_t n_bytes, int64_t n_scales, void** values, float** scales) {
  uint8_t* bytes = nullptr;
  c.take(&bytes, n_bytes);
  *values = bytes;
  if (n_scales > 0) c.take(scales, n_scales);
}

void take_layer(Carver& c, const AttentionConfig& a, int32_t capacity, KvType type,
                KvLayer* layer) {
  const int64_t n_bytes = key_bytes(a, capacity, type);
  const int64_t n_scales = type == KvType::kInt8 ? int64_t{a.n_kv_heads} * capacity : 0;
  take_side(c, n_bytes, n_scales, &layer->k, &layer->k_scale);
  if (!is_latent(type)) take_side(c, n_bytes, n_scales, &layer->v, &layer->v_scale);
}

// All layers of an encoder share this memory, one after the other.
KvLayer take_shared(Carver& c, const ModelConfig& config, int32_t n_layers, int32_t capacity) {
  int64_t n_bytes = 0;
  for (int32_t l = 0; l < n_layers; ++l) {
    const AttentionConfig& a = config.layers[static_cast<size_t>(l)].attention;
    n_bytes = std::max(n_bytes, key_bytes(a, capacity, KvType::kF32));
  }
  KvLayer shared;
  take_side(c, n_bytes, 0, &shared.k, &shared.k_scale);
  take_side(c, n_bytes, 0, &shared.v, &shared.v_scale);
  return shared;
}

}  // namespace

KvWidths kv_widths(const AttentionConfig& a, KvType type) {
  if (is_latent(type)) return {1, a.rope.dims + a.latent, 0};
  return {a.n_kv_heads, a.head_dim, a.head_dim};
}

// Without layers_ it only measures.
void KvCache::lay_out_rows(Carver& c, const ModelConfig& config) {
  KvLayer unused;
  const auto place = [&](std::span<KvLayer> layers, size_t i) {
    return layers.empty() ? &unused : &layers[i];
  };
  const int32_t n_layers = config.n_layers();
  if (n_encoder_ > 0) {
    const int32_t capacity = config.is_encoder() ? shape_.context : shape_.source;
    const KvLayer shared = take_shared(c, config, n_encoder_, capacity);
    for (int32_t l = 0; l < n_encoder_; ++l) *place(layers_, static_cast<size_t>(l)) = shared;
  }
  for (int32_t i = 0; i < shape_.n_texts * n_layers; ++i) {
    const LayerConfig& layer = config.layers[static_cast<size_t>(i % n_layers)];
    if (i % n_layers < n_encoder_) continue;
    if (const int32_t source = layer.attention.kv_layer; source >= 0) {
      KvLayer* const own = place(layers_, static_cast<size_t>(i));
      *own = *place(layers_, static_cast<size_t>(i - i % n_layers + source));
      continue;
    }
    take_layer(c, layer.attention, shape_.context, shape_.type,
               place(layers_, static_cast<size_t>(i)));
  }
  for (int32_t l = 0; l < n_layers; ++l) {
    const LayerConfig& layer = config.layers[static_cast<size_t>(l)];
    if (!layer.has_cross) continue;
    take_layer(c, layer.cross, shape_.source, shape_.type, place(sources_, static_cast<size_t>(l)));
  }
}

bool KvCache::bytes(const ModelConfig& config, const KvShape& shape, uint64_t* out) {
  KvCache measured;
  measured.shape_ = whole_blocks(shape);
  measured.n_encoder_ = encoder_layers(config);
  return measure([&](Carver& c) { measured.lay_out_rows(c, config); }, out);
}

void KvCache::lay_out(Carver& c, const ModelConfig& config, const KvShape& shape) {
  c.take(&layers_, int64_t{shape.n_texts} * config.n_layers());
  if (config.is_encoder_decoder()) c.take(&sources_, config.n_layers());
}

Status KvCache::init(Device& device, const ModelConfig& config, const KvShape& shape) {
  shape_ = whole_blocks(shape);
  n_encoder_ = encoder_layers(config);
  return memory_.init(device, "KV cache", [&](Carver& c) { lay_out_rows(c, config); });
}

KvCacheView KvCache::view(int32_t layer, int32_t text) const {
  const auto n_layers = static_cast<int32_t>(layers_.size()) / shape_.n_texts;
  const KvLayer& of = layers_[static_cast<size_t>(text * n_layers + layer)];
  if (layer >= n_encoder_) return {shape_.type, shape_.context, of};
  const bool alone = n_encoder_ == n_layers;
  return {KvType::kF32, alone ? shape_.context : shape_.source, of};
}

void KvCache::copy_text(const ModelConfig& config, int32_t from, int32_t to, int32_t n) {
  const int32_t rows = round_up(n, kKeyBlock);  // a key's vectors also hold its neighbours
  for (int32_t l = n_encoder_; l < config.n_layers(); ++l) {
    const AttentionConfig& a = config.layers[static_cast<size_t>(l)].attention;
    if (a.shares_kv()) continue;
    const KvLayer source = view(l, from).layer, target = view(l, to).layer;
    const auto bytes = static_cast<size_t>(int64_t{rows} * a.head_dim * element_bytes(shape_.type));
    const size_t scales = static_cast<size_t>(rows) * sizeof(float);
    for (int32_t h = 0; h < a.n_kv_heads; ++h) {
      const int64_t first = int64_t{h} * shape_.context;
      const auto at = static_cast<size_t>(first * a.head_dim * element_bytes(shape_.type));
      std::memcpy(static_cast<uint8_t*>(target.k) + at, static_cast<uint8_t*>(source.k) + at,
                  bytes);
      std::memcpy(static_cast<uint8_t*>(target.v) + at, static_cast<uint8_t*>(source.v) + at,
                  bytes);
      if (source.k_scale == nullptr) continue;
      std::memcpy(target.k_scale + first, source.k_scale + first, scales);
      std::memcpy(target.v_scale + first, source.v_scale + first, scales);
    }
  }
}

}  // namespace moe
