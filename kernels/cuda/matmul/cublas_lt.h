// SPDX-License-Identifier: MIT
#pragma once
// Dense matrix products of many rows with cuBLASLt: unpacks weights to scratch, int8 x int8 ->
// int32 in the library, then applies scales.

#include "kernels/cuda/matmul/cublas_lt_api.h"
#include "kernels/cuda/matmul/product_library.h"
#include "kernels/cuda/memory.h"

namespace moe::cuda {

/// One per GPU. Opens the library and allocates scratch on first use; if either fails, or anything
/// else does, own kernels compute all matrix products from then on. The scratch counts as GPU
/// memory and is freed when anything else needs memory.
class CublasLt final : public ProductLibrary, public SpareMemory {
 public:
  CublasLt(GpuMemory& memory, const ProductLibraryOptions& options)
      : memory_(memory), options_(options) {
    memory_.set_spare(this);
  }
  CublasLt(const CublasLt&) = delete;
  CublasLt& operator=(const CublasLt&) = delete;
  ~CublasLt();

  cudaError_t multiply(cudaStream_t stream, int32_t n_rows, const MatmulInput& in,
                       const MatmulOut& out, bool always, bool* done) override;
  bool give_back() override;
  uint64_t bytes() override;

 private:
  static constexpr size_t kPlans = 16;
  struct CachedPlan {
    lt::Plan plan;
    uint64_t last_use = 0;  // 0: empty
  };
  struct Cut;

  bool ready();
  void release();
  const lt::Plan& find(const lt::Shape& shape);
  Cut cut(int32_t n_rows, const Codes& codes, const Matrix& m) const;
  bool plan_all(const Cut& cut);
  cudaError_t take_turn(cudaStream_t stream);
  cudaError_t enqueue(cudaStream_t stream, const Cut& cut, const Codes& codes, const MatmulOut& out,
                      bool* done);

  GpuMemory& memory_;
  const ProductLibraryOptions options_;
  Mutex mutex_;  // locked before memory_'s
  lt::Library library_;
  bool off_ = false;  // permanently
  uint8_t* scratch_ = nullptr;
  size_t scratch_bytes_ = 0;
  cudaEvent_t used_ = nullptr;  // marks the end of the latest use of the scratch
  bool in_use_ = false;
  cudaStream_t user_ = nullptr;  // last one
  CachedPlan plans_[kPlans];
  uint64_t clock_ = 0;
};

}  // namespace moe::cuda
