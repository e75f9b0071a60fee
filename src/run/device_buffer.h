// SPDX-License-Identifier: MIT
#pragma once
// One allocation of device memory, split into 64-byte aligned parts.

#include <utility>

#include "kernels/device.h"
#include "src/base/carver.h"

namespace moe {

/// Owns device memory.
class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  DeviceBuffer(const DeviceBuffer&) = delete;
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept {
    std::swap(device_, other.device_);
    std::swap(memory_, other.memory_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~DeviceBuffer() {
    if (memory_ != nullptr) device_->free(memory_, bytes_);
  }

  /// Allocates what lay_out(Carver&) takes, calling it twice: to measure and to assign. `what`
  /// names the buffer in messages.
  template <class LayOut>
  Status init(Device& device, const char* what, LayOut&& lay_out) {
    uint64_t bytes = 0;
    if (!measure(lay_out, &bytes)) return out_of_memory(what, ~0ULL);
    MOE_ASSIGN(Carver carver, alloc(device, static_cast<size_t>(bytes)));
    lay_out(carver);
    return {};
  }
  /// Returns a carver over the new memory.
  Result<Carver> alloc(Device& device, size_t bytes) {
    if (bytes > 0) MOE_TRY(device.alloc(bytes, &memory_));
    device_ = &device;
    bytes_ = bytes;
    return Carver(static_cast<uint8_t*>(memory_));
  }

 private:
  Device* device_ = nullptr;
  void* memory_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace moe
