// SPDX-License-Identifier: MIT
// Computes the widest buffer of each kind over all layers and lays them out.
#include "src/run/work_memory.h"

#include <algorithm>

#include "src/run/predictions.h"

namespace moe {
namespace {

constexpr int32_t kMlaRows = 32;  // queries are as wide as the latent in all heads

struct Widths {
  int64_t q = 0;
  int64_t gate = 0;
  int64_t kv = 0;
  int64_t latent = 0;
  int64_t q_latent = 0;
  int64_t mla_q = 0;
  int64_t mla_out = 0;
  int64_t branch = 0;
  int64_t beside = 0;
  int64_t mixer_in = 0;
  int64_t mixed = 0;
};

Widths widest_of(const ModelConfig& config) {
  Widths w;
  if (config.is_encoder() && config.final_norm) w.branch = config.d_model;
  for (const LayerConfig& layer : config.layers) {
    const AttentionConfig& a = layer.attention;
    const AttentionConfig& cross = layer.cross;
    if (kHasMixers && layer.has_mixer) {
      const MixerWidths widths = mixer_widths(layer.mixer.mixer, config.d_model);
      w.mixer_in = std::max(w.mixer_in, widths.in);
      w.mixed = std::max(w.mixed, widths.out);
      if (layer.mixer.norms.out) w.branch = config.d_model;
    }
    w.q = std::max({w.q, int64_t{a.n_heads} * a.head_dim, int64_t{cross.n_heads} * cross.head_dim});
    w.gate = std::max(w.gate, int64_t{a.n_gates()});
    w.kv = std::max(
        {w.kv, int64_t{a.n_kv_heads} * a.head_dim, int64_t{cross.n_kv_heads} * cross.head_dim});
    if (a.latent > 0) w.latent = std::max(w.latent, int64_t{a.latent} + a.rope.dims);
    w.mla_q = std::max(w.mla_q, a.n_heads * (int64_t{a.latent} + a.rope.dims));
    w.mla_out = std::max(w.mla_out, int64_t{a.n_heads} * a.latent);
    w.q_latent = std::max(w.q_latent, int64_t{a.q_latent});
    if (a.norms.out || cross.norms.out || layer.ffn.norms.out) w.branch = config.d_model;
    if (config.layer_input.width > 0) w.branch = config.d_model;
    if (a.in_norms) w.branch = config.d_model;
    if (layer.ffn.moe.apart) w.branch = w.beside = config.d_model;
  }
  w.mixed = std::max(w.mixed, w.q);
  return w;
}

}  // namespace

void WorkMemory::lay_out(Carver& c, const Device& device, const ModelConfig& config,
                         const PassShape& shape) {
  const Widths widest = widest_of(config);
  const int32_t chunk = shape.rows;
  logit_rows = std::min(chunk, device.uses_host_memory() ? kLogitRows : kDeviceLogitRows);
  c.take(&x, chunk, config.d_model);
  c.take(&q, chunk, widest.q);
  c.take(&k, chunk, widest.kv);
  c.take(&v, chunk, widest.kv);
  if (widest.mixer_in > 0) c.take(&mixer_in, chunk, widest.mixer_in);
  if (widest.gate > 0) c.take(&gate, chunk, widest.gate);
  if (widest.latent > 0) c.take(&latent, chunk, widest.latent);
  if (widest.q_latent > 0) c.take(&q_latent, chunk, widest.q_latent);
  if (shape.latent) {
    mla_rows = std::min(chunk, kMlaRows);
    c.take(&mla_key, mla_rows, widest.latent);
    c.take(&mla_q, mla_rows, widest.mla_q);
    c.take(&mla_out, mla_rows, widest.mla_out);
  }
  c.take(&mixed, chunk, widest.mixed);
  if (widest.branch > 0) c.take(&branch, chunk, widest.branch);
  if (widest.beside > 0) c.take(&beside, chunk, widest.beside);
  if (const int32_t width = config.layer_input.width; width > 0) {
    c.take(&inputs, chunk, int64_t{config.n_layers()} * width);
    c.take(&projected, chunk, int64_t{config.n_layers()} * width);
    c.take(&input_gate, chunk, width);
  }
  if (config.n_predictions > 0) {
    c.take(&embedded, chunk, config.d_model);
    c.take(&hidden, chunk + int64_t{Predictions::kMost}, config.d_model);
  }
  c.take(&logits, logit_rows, config.n_outputs());
  place_scratch_logits(device, config.n_outputs());
  if (device.can_sample()) c.take(&device_logits, config.vocab_size);
}

// The head runs last in a pass: memory between q and the logits is then free. Devices with their
// own memory record steps with `logits` and wait for each downloaded row, so they use `logits`.
void WorkMemory::place_scratch_logits(const Device& device, int32_t n_outputs) {
  scratch_logits = logits;
  scratch_logit_rows = logit_rows;
  if (logits == nullptr || n_outputs == 0 || !device.uses_host_memory()) return;
  scratch_logits = q;
  const int64_t n_floats = logits + int64_t{logit_rows} * n_outputs - q;
  scratch_logit_rows =
      static_cast<int32_t>(std::min<int64_t>(n_floats / n_outputs, kScratchLogitRows));
}

bool WorkMemory::device_bytes(const Device& device, const ModelConfig& config,
                              const PassShape& shape, uint64_t* out) {
  WorkMemory unused{system_allocator()};
  return measure([&](Carver& c) { unused.lay_out(c, device, config, shape); }, out);
}

void WorkMemory::lay_out_lists(Carver& c, const ModelConfig& config, const PassShape& shape) {
  c.take(&rows, shape.rows);
  c.take(&caches, shape.rows);
  c.take(&stats, shape.rows);
  c.take(&parts, shape.rows);
  if (config.has_mixers()) c.take(&states, shape.rows);
}

uint64_t WorkMemory::host_bytes(const ModelConfig& config, const PassShape& shape) {
  WorkMemory work(system_allocator());
  return measured([&](Carver& c) { work.lay_out_lists(c, config, shape); });
}

Status WorkMemory::init(Device& device, const ModelConfig& config, const PassShape& shape) {
  MOE_TRY(
      memory.init(device, "activations", [&](Carver& c) { lay_out(c, device, config, shape); }));
  return lists.init("a pass", [&](Carver& c) { lay_out_lists(c, config, shape); });
}

}  // namespace moe
