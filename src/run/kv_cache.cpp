#include "src/run/kv_cache.h"

namespace moe {
namespace {

constexpr int32_t kKeyBlock = 64;

int32_t capacity_for(int32_t context) { return round_up(context, kKeyBlock); }

uint64_t element_bytes(KvType type) { return type == KvType::kInt8 ? 1 : 2; }

}  // namespace

bool KvCache::bytes(const ModelConfig& config, int32_t context, KvType type, uint64_t* out) {
  const uint64_t capacity = static_cast<uint64_t>(capacity_for(context));
  BufferSize size;
  for (const LayerConfig& layer : config.layers) {
    const AttentionConfig& a = layer.attention;
    const uint64_t n_scales = static_cast<uint64_t>(a.n_kv_heads) * capacity;
    for (int side = 0; side < 2; ++side) {
      size.add(n_scales * static_cast<uint64_t>(a.head_dim), element_bytes(type));
      if (type == KvType::kInt8) size.add(n_scales, sizeof(float));
    }
  }
  *out = size.total();
  return size.ok();
}

Status KvCache::init(Device& device, const ModelConfig& config, int32_t context, KvType type) {
  type_ = type;
  capacity_ = capacity_for(context);
  uint64_t total = 0;
  if (!bytes(config, context, type, &total)) return out_of_memory("KV cache", ~0ULL);
  MOE_TRY(layers_.resize(config.layers.size()));
  MOE_TRY(memory_.init(device, total));
  for (size_t l = 0; l < layers_.size(); ++l) {
    const AttentionConfig& a = config.layers[l].attention;
    const uint64_t n_scales =
        static_cast<uint64_t>(a.n_kv_heads) * static_cast<uint64_t>(capacity_);
    const uint64_t n_bytes = n_scales * static_cast<uint64_t>(a.head_dim) * element_bytes(type);
    KvLayer& layer = layers_[l];
    layer.k = memory_.take<uint8_t>(n_bytes);
    if (type == KvType::kInt8) layer.k_scale = memory_.take<float>(n_scales);
    layer.v = memory_.take<uint8_t>(n_bytes);
    if (type == KvType::kInt8) layer.v_scale = memory_.take<float>(n_scales);
  }
  return {};
}

}  // namespace moe
