// SPDX-License-Identifier: MIT
#pragma once
// Parts of a single MoE layer. Private to src/run.

#include <atomic>

#include "src/model/row_lengths.h"
#include "src/run/device_buffer.h"
#include "src/run/layer.h"

namespace moe {

/// Experts that are already packed.
class PackedExperts final : public ExpertSource {
 public:
  explicit PackedExperts(const Allocator& allocator) : ffns(allocator) {}
  Status acquire(int32_t expert, const ExpertWait&, Expert* out) override {
    *out = {&ffns[static_cast<size_t>(expert)], 0};
    return {};
  }

  Array<Ffn> ffns;
};

struct LayerParts {
  LayerParts(Device& d, const Allocator& a)
      : device(d), experts(a), embedding_lengths(a), rows(a) {}
  ~LayerParts() {
    if (stream != nullptr) device.close_stream(stream);
  }
  LayerParts(const LayerParts&) = delete;
  LayerParts& operator=(const LayerParts&) = delete;

  Device& device;
  DeviceBuffer weights;
  DeviceBuffer work;
  PackedExperts experts;
  Ffn shared;
  FfnOp op;                      // everything except the rows
  RowLengths embedding_lengths;  // of a cosine router
  Stream* stream = nullptr;
  Array<BatchRow> rows;  // (max_rows)
  float* x = nullptr;    // (max_rows, d_model) device memory
  float* y = nullptr;
  int32_t max_rows = 0;
  int32_t vocab_size = 0;  // hash router
  std::atomic<bool> in_use{false};
};

/// Checks every size, pointer and number that does not require reading the weights.
Status check_layer_spec(const LayerSpec& spec);

/// Packs the weights of a checked spec into device memory and fills the parts that describe them.
Status pack_layer(const LayerSpec& spec, const Allocator& allocator, LayerParts* parts);

}  // namespace moe
