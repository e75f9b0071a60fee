#pragma once
// Keys and values of one session, all layers. Windowed layers hold the whole context too: a rewind
// may go back to any position.

#include "src/model/model.h"
#include "src/run/device_buffer.h"

namespace moe {

class KvCache {
 public:
  explicit KvCache(const Allocator& allocator) : layers_(allocator) {}

  /// `context` positions per layer; the capacity is rounded up to whole key blocks of 64. kF32: an
  /// encoder's, which last for one layer of one call.
  Status init(Device& device, const ModelConfig& config, int32_t context, KvType type);
  KvCacheView view(int32_t layer) const {
    return {type_, capacity_, layers_[static_cast<size_t>(layer)]};
  }

  /// False on overflow.
  static bool bytes(const ModelConfig& config, int32_t context, KvType type, uint64_t* out);

 private:
  KvType type_ = KvType::kF16;
  int32_t capacity_ = 0;
  Array<KvLayer> layers_;
  DeviceBuffer memory_;
};

}  // namespace moe
