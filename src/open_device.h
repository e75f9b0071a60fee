#pragma once
// From the name of a device to the device.

#include "kernels/device.h"
#include "src/base/log.h"
#include "src/base/thread_pool.h"

namespace moe {

struct DeviceChoice {
  const char* name = nullptr;  // null or "auto", "cpu", "cuda", "cuda:N"
  const char* isa = nullptr;   // of the CPU device; null: the best
  uint64_t gpu_memory = 0;     // limit; 0: 15/16 of what is free
};

/// A device and how to give it back.
class OpenDevice {
 public:
  OpenDevice() = default;
  OpenDevice(const OpenDevice&) = delete;
  OpenDevice& operator=(const OpenDevice&) = delete;
  ~OpenDevice();

  /// "auto" takes the first GPU if there is one that works, and otherwise the CPU and says why to
  /// the logger. MOE_ERR_ARGUMENT for a name of none, MOE_ERR_DEVICE when the GPU that was asked
  /// for cannot be used, MOE_ERR_UNSUPPORTED for an instruction set.
  Status open(const DeviceChoice& choice, ThreadPool& pool, const Logger& logger,
              const Allocator& allocator);
  Device* get() const { return device_; }

 private:
  Status open_cuda(int32_t index, uint64_t limit, const Allocator& allocator);

  Device* device_ = nullptr;  // cpu_ or the module's
  Device* cpu_ = nullptr;     // the module's has it compute what is not worth a copy
  void (*close_module_)(Device*) = nullptr;
};

}  // namespace moe
