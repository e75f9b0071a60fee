#include "src/run/kv_cache.h"

#include <algorithm>

namespace moe {
namespace {

int32_t capacity_for(int32_t context) { return round_up(context, kKeyBlock); }

int64_t element_bytes(KvType type) {
  if (type == KvType::kF32) return sizeof(float);
  return type == KvType::kInt8 ? 1 : 2;
}

int64_t key_bytes(const AttentionConfig& a, int32_t capacity, KvType type) {
  return int64_t{a.n_kv_heads} * capacity * a.head_dim * element_bytes(type);
}

void take_side(Carver& c, int64_t n_bytes, int64_t n_scales, void** values, float** scales) {
  uint8_t* bytes = nullptr;
  c.take(&bytes, n_bytes);
  *values = bytes;
  if (n_scales > 0) c.take(scales, n_scales);
}

// The layers of an encoder use the same memory, one after the other.
void lay_out_shared(Carver& c, const ModelConfig& config, int32_t capacity, KvLayer* layers) {
  int64_t n_bytes = 0;
  for (const LayerConfig& layer : config.layers) {
    n_bytes = std::max(n_bytes, key_bytes(layer.attention, capacity, KvType::kF32));
  }
  KvLayer shared;
  take_side(c, n_bytes, 0, &shared.k, &shared.k_scale);
  take_side(c, n_bytes, 0, &shared.v, &shared.v_scale);
  for (int32_t l = 0; layers != nullptr && l < config.n_layers(); ++l) layers[l] = shared;
}

// Without `layers` it only measures.
void lay_out(Carver& c, const ModelConfig& config, int32_t capacity, KvType type, KvLayer* layers) {
  if (type == KvType::kF32) return lay_out_shared(c, config, capacity, layers);
  for (int32_t l = 0; l < config.n_layers(); ++l) {
    const AttentionConfig& a = config.layers[static_cast<size_t>(l)].attention;
    const int64_t n_bytes = key_bytes(a, capacity, type);
    const int64_t n_scales = type == KvType::kInt8 ? int64_t{a.n_kv_heads} * capacity : 0;
    KvLayer unused;
    KvLayer& layer = layers == nullptr ? unused : layers[l];
    take_side(c, n_bytes, n_scales, &layer.k, &layer.k_scale);
    take_side(c, n_bytes, n_scales, &layer.v, &layer.v_scale);
  }
}

}  // namespace

bool KvCache::bytes(const ModelConfig& config, int32_t context, KvType type, uint64_t* out) {
  return measure([&](Carver& c) { lay_out(c, config, capacity_for(context), type, nullptr); }, out);
}

Status KvCache::init(Device& device, const ModelConfig& config, int32_t context, KvType type) {
  type_ = type;
  capacity_ = capacity_for(context);
  MOE_TRY(layers_.resize(config.layers.size()));
  return memory_.init(device, "KV cache",
                      [&](Carver& c) { lay_out(c, config, capacity_, type, layers_.data()); });
}

}  // namespace moe
