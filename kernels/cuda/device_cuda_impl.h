// SPDX-License-Identifier: MIT
#pragma once
// The parts of the CUDA device. Private to kernels/cuda.

#include "kernels/cuda/device_cuda.h"
#include "kernels/cuda/experts/expert_copies.h"
#include "kernels/cuda/experts/expert_table.h"
#include "kernels/cuda/gpu_context.h"
#include "kernels/cuda/matmul/cublas_lt.h"
#include "kernels/cuda/memory.h"
#include "kernels/cuda/stream.h"
#include "kernels/expert_memory.h"
#include "src/base/mutex.h"

namespace moe::cuda {

class CudaDevice final : public Device, public ExpertMemory {
 public:
  CudaDevice(const Allocator& allocator, const CudaOptions& options)
      : allocator_(allocator),
        index_(options.index),
        logger_(options.logger),
        library_(memory_, options.library),
        cpu_(options.cpu),
        rates_(options.missing),
        copies_(rates_),
        tables_(*this, allocator) {}
  CudaDevice(const CudaDevice&) = delete;
  CudaDevice& operator=(const CudaDevice&) = delete;
  Status open(uint64_t memory_limit);

  const char* name() const override { return name_; }
  const Allocator& allocator() const { return allocator_; }
  Status alloc(size_t bytes, void** out) override;
  void free(void* memory, size_t bytes) override;
  uint64_t taken_by(uint64_t bytes) const override { return GpuMemory::taken_by(bytes); }
  Status upload(void* device, const void* host, size_t bytes) override;
  Status download(void* host, const void* device, size_t bytes) override;
  Status load(void* device, const HostFill& fill, Arrival* arrival) override;
  void wait_for(Arrival arrival) override;
  uint64_t staging_bytes(uint64_t bytes) const override { return ExpertCopies::kBuffers * bytes; }
  void forget(const ExpertSource& source) override;
  int64_t key_place(KvType type, int32_t head_dim, int32_t position, int32_t dim) const override;
  bool uses_host_memory() const override { return false; }
  uint64_t memory_limit() const override { return memory_.limit(); }
  ExpertMemory* expert_memory() override { return this; }

  size_t stream_bytes(const StreamShape& shape) const override;
  size_t host_stream_bytes(const StreamShape& shape) const override;
  Result<Stream*> open_stream(const StreamShape& shape) override;
  void close_stream(Stream* stream) override;
  Status sync(Stream& stream) override;
  bool begin_step(Stream& s, const BatchRow* rows, int32_t n_rows, const StepKey& key) override;
  bool end_step(Stream& s) override;

  void embed(Stream& s, const Matrix& table, const Matrix& positions, const BatchRow* rows,
             int32_t n_rows, float multiplier, float* x) override;
  void norm(Stream& s, const NormOp& op) override;
  void cap(Stream& s, const CapOp& op) override;
  void gate(Stream& s, const GateOp& op) override;
  void linear(Stream& s, const LinearOp& op) override;
  void attention(Stream& s, const AttentionOp& op) override;
  void ffn(Stream& s, const FfnOp& op) override;
  bool can_mix(MixerKind) const override { return true; }
  void mix(Stream& s, const MixerOp& op) override;
  bool can_sample() const override { return true; }
  void sample(Stream& s, const SampleOp& op) override;
  SampleReport sampled(Stream& s, int32_t row) override;

  uint64_t free_bytes() { return memory_.free_bytes(); }
  ExpertTables& tables() { return tables_; }
  ExpertCopies& copies() { return copies_; }
  ExpertRates& rates() { return rates_; }
  /// Null: the CPU computes no experts.
  Device* cpu() { return rates_.ever_on_cpu() ? cpu_ : nullptr; }
  const GpuContext& context() const { return context_; }
  /// MOE_ERR_UNSUPPORTED if a token cannot have as many experts on this GPU.
  Status check_routed(int32_t max_k) const;

 private:
  Status open_here(uint64_t memory_limit);
  Status check_shape(const StreamShape& shape) const;
  Status open_parts(CudaStream& s);
  bool begin_capture(CudaStream& s, StepGraph& graph);
  /// Steps of the stream run without graphs from now on.
  void give_up_graphs(CudaStream& s, const Status& why);

  const Allocator& allocator_;
  int32_t index_;
  Logger logger_;
  GpuContext context_;
  char name_[96] = "cuda";
  size_t shared_ = 0;  // bytes that a block can have
  GpuMemory memory_;
  CublasLt library_;
  Device* cpu_;
  ExpertRates rates_;
  ExpertCopies copies_;
  ExpertTables tables_;
};

/// norm(x) and its requested codes, in s.scratch.in. Returns the input of matrix products.
struct WantedInputs {
  bool floats = false;
  bool a8 = false;
  bool a8_block = false;
  bool a8_group = false;
  void add(const Matrix& m) {
    if (m.empty()) return;
    floats = floats || m.act == ActPrecision::kF32;
    a8 = a8 || m.act == ActPrecision::kA8;
    a8_block = a8_block || m.act == ActPrecision::kA8Block;
    a8_group = a8_group || m.act == ActPrecision::kA8Group;
  }
};
struct InputRows {
  RowCount rows;
  int32_t d = 0;
  const float* x = nullptr;
  int64_t ld_x = 0;
  RowNorms norm;
  float* normed = nullptr;  // norm(x) if floats are requested; may be null without a norm
};
MatmulInput make_input(CudaStream& s, const InputRows& rows, const WantedInputs& wanted,
                       const MatmulInput& buffers);

/// y (+)= scale * (x W^T + bias) for all rows.
void plain_matmul(CudaStream& s, const MatmulInput& in, int32_t n_rows, const Matrix& weight,
                  const float* bias, float* y, int64_t ld_y, bool accumulate = false,
                  float scale = 1);

void cuda_ffn(CudaDevice& device, CudaStream& s, const FfnOp& op);

}  // namespace moe::cuda
