// SPDX-License-Identifier: MIT
#pragma once
// The CPU device: implements kernels/device.h with one table of kernels and one thread pool.
//
// Results are bit-identical for every instruction set, number of threads and split of rows into
// calls. Nothing is allocated after open_stream().

#include "kernels/device.h"
#include "src/base/thread_pool.h"

namespace moe {

struct LinearInput;  // kernels/cpu/table.h

/// Observes the inputs of every matrix product of a layer or head: whole inputs, each once, on the
/// calling thread, before the computation. `x` of the input is set for every precision.
class InputWatcher {
 public:
  virtual void see(const Matrix& weight, const LinearInput& input) = 0;

 protected:
  ~InputWatcher() = default;
};

/// Multiply-adds (or equivalent work) that justify a parallel region.
inline constexpr int64_t kParallelWork = 32768;

/// `isa`: a name in kernels/cpu/isa/list.h, or null for the best supported one (otherwise
/// MOE_ERR_UNSUPPORTED). The pool (already started) and the allocator must outlive the device. Any
/// thread may use the device, one at a time a Stream. Regions below `parallel_work` run on the
/// caller only; 1 splits all regions, for tests. `watcher`: must outlive the device, or null; with
/// one, the device serves one stream at a time.
Result<Device*> open_cpu_device(const char* isa, ThreadPool& pool, const Allocator& allocator,
                                int64_t parallel_work = kParallelWork,
                                InputWatcher* watcher = nullptr);

/// All its streams must be closed. Null is allowed.
void close_cpu_device(Device* device);

}  // namespace moe
