// SPDX-License-Identifier: MIT
#pragma once
// The GPU's context, made current only while the device works: a program that uses CUDA itself
// finds the one that it left. Through the driver, because cudaSetDevice() cannot restore a thread
// without a context: it makes one on the GPU that it is given, which takes memory there.

#include <cuda.h>

#include "kernels/cuda/launch.h"

namespace moe::cuda {

/// Copies are the same context.
class GpuContext {
 public:
  /// The primary context of GPU `index`, which CUDA's runtime uses. It stays until the process
  /// ends.
  Status open(int32_t index);

  /// Makes it current in the calling thread until leave() in the same thread. Every success needs
  /// its leave(); they may be nested.
  Status enter() const;
  void leave() const;

 private:
  CUcontext context_ = nullptr;
  CUresult (*push_)(CUcontext) = nullptr;
  CUresult (*pop_)(CUcontext*) = nullptr;
};

/// In the context during its lifetime, unless status() is an error.
class InContext {
 public:
  explicit InContext(const GpuContext& context) : context_(context), status_(context.enter()) {}
  InContext(const InContext&) = delete;
  InContext& operator=(const InContext&) = delete;
  ~InContext() {
    if (status_.ok()) context_.leave();
  }
  const Status& status() const { return status_; }

 private:
  const GpuContext& context_;
  Status status_;
};

}  // namespace moe::cuda
