#include <algorithm>

#include "src/run/session_state.h"

namespace moe {
namespace {

struct Widths {
  uint64_t q = 0;
  uint64_t kv = 0;
  uint64_t latent = 0;
  uint64_t branch = 0;
};

Widths widest(const ModelConfig& config) {
  Widths w;
  for (const LayerConfig& layer : config.layers) {
    const AttentionConfig& a = layer.attention;
    const uint64_t head_dim = static_cast<uint64_t>(a.head_dim);
    w.q = std::max(w.q, static_cast<uint64_t>(a.n_heads) * head_dim);
    w.kv = std::max(w.kv, static_cast<uint64_t>(a.n_kv_heads) * head_dim);
    if (a.latent > 0) w.latent = std::max(w.latent, static_cast<uint64_t>(a.latent + a.rope.dims));
    if (a.norms.out || layer.ffn.norms.out) w.branch = static_cast<uint64_t>(config.d_model);
  }
  return w;
}

int32_t logit_rows_of(const Device& device, int32_t chunk) {
  return std::min(chunk, device.uses_host_memory() ? kLogitRows : kDeviceLogitRows);
}

}  // namespace

bool WorkMemory::device_bytes(const Device& device, const ModelConfig& config, int32_t chunk,
                              uint64_t* out) {
  const Widths w = widest(config);
  const uint64_t n = static_cast<uint64_t>(chunk);
  const uint64_t n_logits = static_cast<uint64_t>(logit_rows_of(device, chunk));
  BufferSize size;
  size.add(n * static_cast<uint64_t>(config.d_model), sizeof(float));
  size.add(n * w.q, sizeof(float));
  size.add(n * w.kv, sizeof(float));
  size.add(n * w.kv, sizeof(float));
  if (w.latent > 0) size.add(n * w.latent, sizeof(float));
  size.add(n * w.q, sizeof(float));
  if (w.branch > 0) size.add(n * w.branch, sizeof(float));
  size.add(n_logits * static_cast<uint64_t>(config.vocab_size), sizeof(float));
  if (device.can_choose()) size.add(static_cast<uint64_t>(config.vocab_size), sizeof(float));
  *out = size.total();
  return size.ok();
}

uint64_t WorkMemory::host_bytes(int32_t chunk) {
  return static_cast<uint64_t>(chunk) *
         (sizeof(BatchRow) + sizeof(KvCacheView) + sizeof(BatchPart));
}

Status WorkMemory::init(Device& device, const ModelConfig& config, int32_t chunk) {
  uint64_t total = 0;
  if (!device_bytes(device, config, chunk, &total)) return out_of_memory("activations", ~0ULL);
  MOE_TRY(memory.init(device, total));
  const Widths widths = widest(config);
  const uint64_t n = static_cast<uint64_t>(chunk);
  logit_rows = logit_rows_of(device, chunk);
  x = memory.take<float>(n * static_cast<uint64_t>(config.d_model));
  q = memory.take<float>(n * widths.q);
  k = memory.take<float>(n * widths.kv);
  v = memory.take<float>(n * widths.kv);
  if (widths.latent > 0) latent = memory.take<float>(n * widths.latent);
  mixed = memory.take<float>(n * widths.q);
  if (widths.branch > 0) branch = memory.take<float>(n * widths.branch);
  logits = memory.take<float>(static_cast<uint64_t>(logit_rows) *
                              static_cast<uint64_t>(config.vocab_size));
  if (device.can_choose()) kept = memory.take<float>(static_cast<uint64_t>(config.vocab_size));
  MOE_TRY(rows.resize(static_cast<size_t>(n)));
  MOE_TRY(caches.resize(static_cast<size_t>(n)));
  return parts.resize(static_cast<size_t>(n));
}

}  // namespace moe
