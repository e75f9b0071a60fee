// SPDX-License-Identifier: MIT
#pragma once
// Memory for the activations of one forward pass.

#include "src/base/host_buffer.h"
#include "src/run/device_buffer.h"
#include "src/run/forward.h"
#include "src/run/memory.h"

namespace moe {

/// Device memory of a forward pass of up to `rows` rows, and the host lists that describe it.
struct WorkMemory {
  explicit WorkMemory(const Allocator& a) : lists(a) {}
  Status init(Device& device, const ModelConfig& config, const PassShape& shape);
  static bool device_bytes(const Device& device, const ModelConfig& config, const PassShape& shape,
                           uint64_t* out);
  /// Host memory that init() allocates.
  static uint64_t host_bytes(const ModelConfig& config, const PassShape& shape);
  void lay_out(Carver& c, const Device& device, const ModelConfig& config, const PassShape& shape);
  void lay_out_lists(Carver& c, const ModelConfig& config, const PassShape& shape);
  void place_scratch_logits(const Device& device, int32_t n_outputs);

  float* x = nullptr;         // (rows, d_model) the residual stream
  float* q = nullptr;         // (rows, widest n_heads * head_dim)
  float* k = nullptr;         // (rows, widest n_kv_heads * head_dim)
  float* v = nullptr;         // (rows, widest n_kv_heads * head_dim)
  float* mixer_in = nullptr;  // (rows, widest MixerWidths::in); null when no layer has a mixer
  float* gate = nullptr;      // (rows, widest n_heads * head_dim) of output gates; null if unused
  float* latent = nullptr;    // (rows, widest latent + rope.dims); null when no layer has one
  float* q_latent = nullptr;  // (rows, widest q_latent); the same
  // For latent caches: scratch of LatentHeads.
  float* mla_key = nullptr;  // (mla_rows, widest latent + rope.dims)
  float* mla_q = nullptr;    // (mla_rows, widest n_heads * (latent + rope.dims))
  float* mla_out = nullptr;  // (mla_rows, widest n_heads * latent)
  int32_t mla_rows = 0;
  float* mixed = nullptr;      // (rows, widest n_heads * head_dim or MixerWidths::out)
  float* branch = nullptr;     // (rows, d_model) normed, or to be normed; null if unused
  float* beside = nullptr;     // (rows, d_model) of experts beside their shared one; null if unused
  float* inputs = nullptr;     // (rows, n_layers * layer_input.width); null if unused, as the next
  float* projected = nullptr;  // the same: what is added to them
  float* input_gate = nullptr;  // (rows, layer_input.width)
  // The layer that guesses reads embeddings (rows, d_model), and hidden states
  // (rows + Predictions::kMost, d_model), some of them from earlier passes; null if unused.
  float* embedded = nullptr;
  float* hidden = nullptr;
  float* logits = nullptr;  // (logit_rows, n_outputs)
  int32_t logit_rows = 0;
  // (scratch_logit_rows, n_outputs) in memory that the layers no longer need when the head runs; on
  // a device with its own memory the same as `logits`.
  float* scratch_logits = nullptr;
  int32_t scratch_logit_rows = 0;
  float* device_logits =
      nullptr;               // (vocab_size) the session's own row; null unless Device::can_sample
  std::span<BatchRow> rows;  // (rows)
  std::span<KvCacheView> caches;   // (rows) one per part
  std::span<RoutingStats*> stats;  // the same, of the layer at hand
  std::span<MixerState> states;    // likewise
  std::span<BatchPart> parts;      // (rows)
  DeviceBuffer memory;
  HostBuffer lists;
};

}  // namespace moe
