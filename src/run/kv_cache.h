// SPDX-License-Identifier: MIT
#pragma once
// Keys and values of one session, all layers. Windowed layers store the whole context too, because
// a rewind may return to any position.

#include "src/model/model.h"
#include "src/run/device_buffer.h"

namespace moe {

/// Positions are rounded up to whole key blocks of 64. Keys and values of encoder layers are float
/// and valid for one layer of one call.
struct KvShape {
  int32_t context = 0;
  KvType type = KvType::kF16;
  int32_t source = 0;   // positions of an encoder-decoder's source
  int32_t n_texts = 1;  // hypotheses of a beam search
};

constexpr uint8_t element_bytes(KvType type) {
  if (type == KvType::kF32) return sizeof(float);
  return type == KvType::kInt8 ? 1 : 2;
}

/// Values cached per position of a layer.
struct KvWidths {
  int32_t n_heads;
  int32_t key;    // of one head
  int32_t value;  // 0: values are part of the keys
};
KvWidths kv_widths(const AttentionConfig& a, KvType type);

class KvCache {
 public:
  /// Host memory that describes the cache; before init().
  void lay_out(Carver& c, const ModelConfig& config, const KvShape& shape);
  Status init(Device& device, const ModelConfig& config, const KvShape& shape);
  KvCacheView view(int32_t layer, int32_t text = 0) const;
  /// Cross attention: `n_keys` positions of the source.
  KvCacheView source_view(int32_t layer, int32_t n_keys) const {
    return {shape_.type, shape_.source, sources_[static_cast<size_t>(layer)], n_keys};
  }
  /// Positions of the source that the cross attention sees; 0: none was read.
  int32_t n_source = 0;
  /// Copies the first n positions of one text to another. Host memory only.
  void copy_text(const ModelConfig& config, int32_t from, int32_t to, int32_t n);

  /// Device memory that init() allocates; false on overflow.
  static bool bytes(const ModelConfig& config, const KvShape& shape, uint64_t* out);

 private:
  void lay_out_rows(Carver& c, const ModelConfig& config);

  KvShape shape_;               // rounded up to whole blocks
  int32_t n_encoder_ = 0;       // layers
  std::span<KvLayer> layers_;   // (n_texts, n_layers)
  std::span<KvLayer> sources_;  // (n_layers)
  DeviceBuffer memory_;
};

}  // namespace moe
