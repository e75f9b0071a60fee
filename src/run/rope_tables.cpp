#include "src/run/rope_tables.h"

#include "kernels/rope.h"

namespace moe {
namespace {

bool same_factors(const float* a, const float* b, int32_t dims) {
  if (a == b) return true;
  if (a == nullptr || b == nullptr) return false;
  return std::memcmp(a, b, static_cast<size_t>(dims / 2) * sizeof(float)) == 0;
}

// Everything that the table depends on; the kind (which pairs are rotated) is not part of it.
bool same_table(const RopeConfig& a, const RopeConfig& b) {
  return a.dims == b.dims && a.theta == b.theta && a.scaling == b.scaling && a.factor == b.factor &&
         a.low_freq_factor == b.low_freq_factor && a.high_freq_factor == b.high_freq_factor &&
         a.beta_fast == b.beta_fast && a.beta_slow == b.beta_slow && a.truncate == b.truncate &&
         a.attention_factor == b.attention_factor && a.original_context == b.original_context &&
         same_factors(a.short_factor, b.short_factor, a.dims) &&
         same_factors(a.long_factor, b.long_factor, a.dims);
}

// The first layer with the same table as `layer`; -1 where nothing is rotated.
int32_t first_with_table(const ModelConfig& config, int32_t layer) {
  const RopeConfig& rope = config.layers[static_cast<size_t>(layer)].attention.rope;
  if (config.positions != PositionKind::kRope || rope.kind == RopeKind::kNone) return -1;
  for (int32_t l = 0; l < layer; ++l) {
    const RopeConfig& other = config.layers[static_cast<size_t>(l)].attention.rope;
    if (other.kind != RopeKind::kNone && same_table(other, rope)) return l;
  }
  return layer;
}

uint64_t table_floats(const RopeConfig& rope, int32_t context) {
  return static_cast<uint64_t>(context) * static_cast<uint64_t>(rope.dims / 2) * 2;
}

}  // namespace

bool RopeTables::bytes(const ModelConfig& config, int32_t context, uint64_t* out) {
  BufferSize size;
  for (int32_t l = 0; l < config.n_layers(); ++l) {
    if (first_with_table(config, l) != l) continue;
    size.add(table_floats(config.layers[static_cast<size_t>(l)].attention.rope, context),
             sizeof(float));
  }
  *out = size.total();
  return size.ok();
}

Status RopeTables::init(Device& device, const ModelConfig& config, int32_t context,
                        const Allocator& allocator) {
  uint64_t total = 0;
  if (!bytes(config, context, &total)) return out_of_memory("position tables", ~0ULL);
  MOE_TRY(tables_.resize(config.layers.size()));
  MOE_TRY(memory_.init(device, total));
  Array<float> host(allocator);
  for (int32_t l = 0; l < config.n_layers(); ++l) {
    const int32_t first = first_with_table(config, l);
    if (first < 0) continue;
    const size_t index = static_cast<size_t>(l);
    if (first < l) {
      tables_[index] = tables_[static_cast<size_t>(first)];
      continue;
    }
    const RopeConfig& rope = config.layers[index].attention.rope;
    const uint64_t n = table_floats(rope, context);
    MOE_TRY(host.resize(static_cast<size_t>(n)));
    MOE_TRY(build_rope_table(rope, context, host.data()).with_context("layer %d", l));
    float* table = memory_.take<float>(n);
    MOE_TRY(device.upload(table, host.data(), static_cast<size_t>(n) * sizeof(float)));
    tables_[index] = table;
  }
  return {};
}

}  // namespace moe
