#pragma once
// One allocation of device memory, cut into 64-byte aligned parts.

#include <utility>

#include "kernels/device.h"
#include "src/base/checked.h"

namespace moe {

/// Adds up the parts of a buffer before it exists; every part starts on 64 bytes.
class BufferSize {
 public:
  /// Sizes come from a validated model, so that only the product over many layers could overflow.
  void add(uint64_t count, uint64_t element_bytes) {
    uint64_t bytes = 0;
    ok_ = ok_ && checked_mul(count, element_bytes, &bytes) && bytes < kLimit &&
          checked_add(total_, round_up<uint64_t>(bytes, 64), &total_) && total_ < kLimit;
  }
  bool ok() const { return ok_; }
  uint64_t total() const { return total_; }

 private:
  static constexpr uint64_t kLimit = uint64_t{1} << 62;
  uint64_t total_ = 0;
  bool ok_ = true;
};

/// Owns device memory. take() hands out the parts in the order in which their sizes were added.
class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  DeviceBuffer(const DeviceBuffer&) = delete;
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept {
    std::swap(device_, other.device_);
    std::swap(memory_, other.memory_);
    std::swap(bytes_, other.bytes_);
    std::swap(used_, other.used_);
    return *this;
  }
  ~DeviceBuffer() {
    if (memory_ != nullptr) device_->free(memory_, bytes_);
  }

  Status init(Device& device, uint64_t bytes) {
    if (bytes == 0) return {};
    if (bytes > SIZE_MAX / 2) return out_of_memory("device buffer", bytes);
    MOE_TRY(device.alloc(static_cast<size_t>(bytes), &memory_));
    device_ = &device;
    bytes_ = static_cast<size_t>(bytes);
    return {};
  }
  template <class T>
  T* take(uint64_t count) {
    T* part = reinterpret_cast<T*>(static_cast<uint8_t*>(memory_) + used_);
    used_ += static_cast<size_t>(round_up<uint64_t>(count * sizeof(T), 64));
    return count == 0 ? nullptr : part;
  }

 private:
  Device* device_ = nullptr;
  void* memory_ = nullptr;
  size_t bytes_ = 0;
  size_t used_ = 0;
};

}  // namespace moe
