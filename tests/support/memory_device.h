// SPDX-License-Identifier: MIT
#pragma once
// A device with memory but no operations, for tests of loading.

#include <cstdlib>
#include <cstring>

#include "kernels/device.h"

namespace moe {

class MemoryDevice final : public Device {
 public:
  /// `host`: its memory counts as the host's.
  explicit MemoryDevice(const Allocator& allocator, bool host = true)
      : allocator_(allocator), host_(host) {}
  MemoryDevice(const MemoryDevice&) = delete;
  MemoryDevice& operator=(const MemoryDevice&) = delete;
  ~MemoryDevice() {
    if (held_ != 0) std::abort();  // memory leaked
  }

  const char* name() const override { return "memory"; }
  bool can_mix(MixerKind) const override { return mixes; }
  bool mixes = true;
  bool has_layer_extras() const override { return extras; }
  bool extras = true;
  Status alloc(size_t bytes, void** out) override {
    void* p = allocate(allocator_, bytes, 64);
    if (p == nullptr) return out_of_memory("device", bytes);
    __atomic_add_fetch(&held_, bytes, __ATOMIC_RELAXED);
    *out = p;
    return {};
  }
  void free(void* memory, size_t bytes) override {
    __atomic_sub_fetch(&held_, bytes, __ATOMIC_RELAXED);
    deallocate(allocator_, memory, bytes);
  }
  Status upload(void* device, const void* host, size_t bytes) override {
    std::memcpy(device, host, bytes);
    return {};
  }
  Status download(void* host, const void* device, size_t bytes) override {
    std::memcpy(host, device, bytes);
    return {};
  }
  bool uses_host_memory() const override { return host_; }
  size_t held() const { return held_; }

  size_t stream_bytes(const StreamShape&) const override { return 0; }
  Result<Stream*> open_stream(const StreamShape&) override {
    return Status::error(MOE_ERR_UNSUPPORTED, "a device without operations");
  }
  void close_stream(Stream*) override {}
  Status sync(Stream&) override { return {}; }
  void embed(Stream&, const Matrix&, const Matrix&, const BatchRow*, int32_t, float,
             float*) override {}
  void norm(Stream&, const NormOp&) override {}
  void cap(Stream&, const CapOp&) override {}
  void gate(Stream&, const GateOp&) override {}
  void linear(Stream&, const LinearOp&) override {}
  void attention(Stream&, const AttentionOp&) override {}
  void ffn(Stream&, const FfnOp&) override {}

 private:
  const Allocator& allocator_;
  bool host_;
  size_t held_ = 0;
};

}  // namespace moe
