// SPDX-License-Identifier: MIT
// The class CpuDevice: memory, streams and errors; each operation is in a device_cpu_*.cpp.
#include "kernels/cpu/device_cpu.h"

#include <cstring>

#include "kernels/cpu/device_cpu_impl.h"
#include "kernels/cpu/select.h"
#include "src/base/format.h"

namespace moe {
namespace {

constexpr size_t kAlign = 64;

class CpuDevice final : public Device {
 public:
  CpuDevice(const CpuKernels& kernels, ThreadPool& pool, const Allocator& allocator,
            int64_t parallel_work, InputWatcher* watcher)
      : runtime_{kernels, pool, parallel_work, watcher}, allocator_(allocator) {
    format(name_, sizeof name_, "cpu (%s)", kernels.name);
  }

  const char* name() const override { return name_; }
  const Allocator& allocator() const { return allocator_; }
  int64_t key_place(KvType, int32_t head_dim, int32_t position, int32_t dim) const override {
    return int64_t{position / kKeyLanes * kKeyLanes} * head_dim + int64_t{dim} * kKeyLanes +
           position % kKeyLanes;
  }

  Status alloc(size_t bytes, void** out) override {
    void* p = allocate(allocator_, bytes == 0 ? 1 : bytes, kAlign);
    if (p == nullptr) return out_of_memory("device memory", bytes);
    *out = p;
    return {};
  }
  void free(void* memory, size_t bytes) override {
    deallocate(allocator_, memory, bytes == 0 ? 1 : bytes);
  }
  Status upload(void* device, const void* host, size_t bytes) override {
    if (bytes != 0) std::memcpy(device, host, bytes);
    return {};
  }
  Status download(void* host, const void* device, size_t bytes) override {
    if (bytes != 0) std::memcpy(host, device, bytes);
    return {};
  }

  size_t stream_bytes(const StreamShape& shape) const override {
    return cpu_stream_bytes(shape, runtime_.pool.n_threads());
  }
  Result<Stream*> open_stream(const StreamShape& shape) override {
    const size_t bytes = stream_bytes(shape);
    if (bytes == 0) return Status::error(MOE_ERR_RANGE, "stream: sizes are negative or overflow");
    void* memory = allocate(allocator_, bytes, kAlign);
    if (memory == nullptr) return out_of_memory("scratch memory", bytes);
    Stream* stream = make_cpu_stream(memory, shape, runtime_.pool.n_threads());
    return stream;
  }
  void close_stream(Stream* stream) override {
    if (stream == nullptr) return;
    CpuStream* s = static_cast<CpuStream*>(stream);
    const size_t bytes = s->bytes;
    s->~CpuStream();
    deallocate(allocator_, s, bytes);
  }
  Status sync(Stream& stream) override {
    const Status status = stream.latched;
    stream.latched = Status();
    if (!status.ok()) return status;
    if (!stream.cancelled.load(std::memory_order_relaxed)) return {};
    return Status::error(MOE_ERR_CANCELLED, "cancelled");
  }

  void share(int64_t n, int64_t work, void (*part)(void*, int64_t, int64_t), void* user) override {
    runtime_.for_range(n, work, [&](int64_t begin, int64_t end, int) { part(user, begin, end); });
  }

  void embed(Stream& stream, const Matrix& table, const Matrix& positions, const BatchRow* rows,
             int32_t n_rows, float multiplier, float* x) override {
    if (!ready(stream, n_rows)) return;
    cpu_embed(runtime_, own(stream), table, positions, rows, n_rows, multiplier, x);
  }
  void embed_from(Stream& stream, RowSource& table, int32_t d, const BatchRow* rows, int32_t n_rows,
                  float multiplier, float* x) override {
    if (!ready(stream, n_rows)) return;
    cpu_embed_from(own(stream), table, d, rows, n_rows, multiplier, x);
  }
  void norm(Stream& stream, const NormOp& op) override {
    if (ready(stream, op.n_rows)) cpu_norm(runtime_, own(stream), op);
  }
  void cap(Stream& stream, const CapOp& op) override {
    if (ready(stream, op.n_rows)) cpu_cap(runtime_, op);
  }
  void gate(Stream& stream, const GateOp& op) override {
    if (ready(stream, op.n_rows)) cpu_gate(runtime_, op);
  }
  bool has_layer_extras() const override { return true; }
  void scale(Stream& stream, const ScaleOp& op) override {
    if (ready(stream, op.n_rows)) cpu_scale(runtime_, op);
  }
  void activate(Stream& stream, const ActivateOp& op) override {
    if (ready(stream, op.n_rows)) cpu_activate(runtime_, op);
  }
  void linear(Stream& stream, const LinearOp& op) override {
    if (ready(stream, op.n_rows)) cpu_linear(runtime_, own(stream), op);
  }
  void attention(Stream& stream, const AttentionOp& op) override {
    if (ready(stream, op.n_rows)) cpu_attention(runtime_, op);
  }
  void ffn(Stream& stream, const FfnOp& op) override {
    if (ready(stream, op.n_rows)) cpu_ffn(runtime_, own(stream), op);
  }

  bool can_mix(MixerKind) const override { return true; }
  void mix(Stream& stream, const MixerOp& op) override {
    if (ready(stream, op.n_rows)) cpu_mix(runtime_, own(stream), op);
  }

 private:
  static CpuStream& own(Stream& stream) { return static_cast<CpuStream&>(stream); }
  static bool ready(Stream& stream, int32_t n_rows) { return n_rows > 0 && own(stream).live(); }

  CpuRuntime runtime_;
  const Allocator& allocator_;
  char name_[48];
};

}  // namespace

Result<Device*> open_cpu_device(const char* isa, ThreadPool& pool, const Allocator& allocator,
                                int64_t parallel_work, InputWatcher* watcher) {
  MOE_ASSIGN(const CpuKernels* kernels, select_kernels(isa));
  MOE_ASSIGN(Box<CpuDevice> device,
             make_box<CpuDevice>(allocator, *kernels, pool, allocator, parallel_work, watcher));
  Device* opened = device.release();
  return opened;
}

void close_cpu_device(Device* device) {
  if (device == nullptr) return;
  CpuDevice* cpu = static_cast<CpuDevice*>(device);
  const Allocator& allocator = cpu->allocator();
  Box<CpuDevice> owner(cpu, allocator);
}

}  // namespace moe
