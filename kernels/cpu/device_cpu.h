#pragma once
// The CPU device: every operation of kernels/device.h on one table of kernels and one thread pool.
//
// Results are bit-identical for every instruction set, number of threads and way of cutting rows
// into calls. Nothing is allocated after open_stream().

#include "kernels/device.h"
#include "src/base/thread_pool.h"

namespace moe {

struct LinearInput;  // kernels/cpu/table.h

/// Sees what every matrix of a layer or head is multiplied with, before that is done: whole inputs,
/// each once, by the thread that calls the device. `x` of the input is set at every precision.
class InputWatcher {
 public:
  virtual void see(const Matrix& weight, const LinearInput& input) = 0;

 protected:
  ~InputWatcher() = default;
};

/// Multiply-adds (or as much other work) from which a parallel region is worth its start.
inline constexpr int64_t kParallelWork = 32768;

/// `isa`: a name of kernels/cpu/isa/list.h, or null for the best that runs here
/// (MOE_ERR_UNSUPPORTED otherwise). The pool (already started) and the allocator must outlive it.
/// The device may be used from any thread, a Stream by one at a time. Regions of less than
/// `parallel_work` run on the caller alone; with 1 all that can be split are, as tests want it.
/// `watcher`: must outlive it, or null; its device then serves one stream at a time.
Result<Device*> open_cpu_device(const char* isa, ThreadPool& pool, const Allocator& allocator,
                                int64_t parallel_work = kParallelWork,
                                InputWatcher* watcher = nullptr);

/// All its streams must be closed. Null is allowed.
void close_cpu_device(Device* device);

}  // namespace moe
