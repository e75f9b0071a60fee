// SPDX-License-Identifier: MIT
// Builds one table for all layers whose positions rotate alike.
#include "src/run/rope_tables.h"

#include "kernels/rope.h"
#include "src/base/host_buffer.h"

namespace moe {
namespace {

bool same_factors(const float* a, const float* b, int32_t dims) {
  if (a == b) return true;
  if (a == nullptr || b == nullptr) return false;
  return std::memcmp(a, b, static_cast<size_t>(dims / 2) * sizeof(float)) == 0;
}

// True if both give the same table; the kind (which pairs are rotated) does not matter.
bool same_table(const RopeConfig& a, const RopeConfig& b) {
  return a.dims == b.dims && a.theta == b.theta && a.scaling == b.scaling && a.factor == b.factor &&
         a.low_freq_factor == b.low_freq_factor && a.high_freq_factor == b.high_freq_factor &&
         a.beta_fast == b.beta_fast && a.beta_slow == b.beta_slow && a.truncate == b.truncate &&
         a.attention_factor == b.attention_factor && a.original_context == b.original_context &&
         a.turning == b.turning && same_factors(a.short_factor, b.short_factor, a.dims) &&
         same_factors(a.long_factor, b.long_factor, a.dims);
}

// The first layer with the same table as `layer`; -1 without rotation.
int32_t first_with_table(const ModelConfig& config, int32_t layer) {
  const RopeConfig& rope = config.layers[static_cast<size_t>(layer)].attention.rope;
  if (config.positions != PositionKind::kRope || rope.kind == RopeKind::kNone) return -1;
  for (int32_t l = 0; l < layer; ++l) {
    const RopeConfig& other = config.layers[static_cast<size_t>(l)].attention.rope;
    if (other.kind != RopeKind::kNone && same_table(other, rope)) return l;
  }
  return layer;
}

int32_t width(const ModelConfig& config, int32_t layer) {
  return config.layers[static_cast<size_t>(layer)].attention.rope.dims / 2 * 2;
}

// One table for all layers that can share it. Without `tables` it only measures.
void lay_out_tables(Carver& c, const ModelConfig& config, int32_t context, float** tables) {
  for (int32_t l = 0; l < config.n_layers(); ++l) {
    if (first_with_table(config, l) != l) continue;
    float* unused = nullptr;
    c.take(tables == nullptr ? &unused : &tables[l], context, width(config, l));
  }
}

// Tables are built in host memory: in place, or in room for the widest one.
void lay_out_room(Carver& c, const Device& device, const ModelConfig& config, int32_t context,
                  float** room) {
  int32_t widest = 0;
  for (int32_t l = 0; l < config.n_layers() && !device.uses_host_memory(); ++l) {
    if (first_with_table(config, l) == l) widest = std::max(widest, width(config, l));
  }
  c.take(room, context, widest);
}

}  // namespace

bool RopeTables::bytes(const ModelConfig& config, int32_t context, uint64_t* out) {
  return measure([&](Carver& c) { lay_out_tables(c, config, context, nullptr); }, out);
}

uint64_t RopeTables::temporary_bytes(const Device& device, const ModelConfig& config,
                                     int32_t context) {
  float* room = nullptr;
  return measured([&](Carver& c) { lay_out_room(c, device, config, context, &room); });
}

Status RopeTables::init(Device& device, const ModelConfig& config, int32_t context,
                        const Allocator& allocator) {
  MOE_TRY(memory_.init(device, "position tables",
                       [&](Carver& c) { lay_out_tables(c, config, context, tables_.data()); }));
  HostBuffer memory(allocator);
  float* room = nullptr;
  MOE_TRY(memory.init("position tables",
                      [&](Carver& c) { lay_out_room(c, device, config, context, &room); }));
  for (int32_t l = 0; l < config.n_layers(); ++l) {
    const int32_t first = first_with_table(config, l);
    if (first < 0) continue;
    float*& table = tables_[static_cast<size_t>(l)];
    if (first < l) {
      table = tables_[static_cast<size_t>(first)];
      continue;
    }
    const RopeConfig& rope = config.layers[static_cast<size_t>(l)].attention.rope;
    float* const built = device.uses_host_memory() ? table : room;
    MOE_TRY(build_rope_table(rope, context, built).with_context("layer %d", l));
    if (built == table) continue;
    const size_t n = static_cast<size_t>(context) * static_cast<size_t>(width(config, l));
    MOE_TRY(device.upload(table, built, n * sizeof(float)));
  }
  return {};
}

}  // namespace moe
