#pragma once
// The CPU device: every operation of kernels/device.h on one table of kernels and one thread pool.
//
// Results are bit-identical for every instruction set, number of threads and way of cutting rows
// into calls. Nothing is allocated after open_stream().

#include "kernels/device.h"
#include "src/base/thread_pool.h"

namespace moe {

/// Multiply-adds (or as much other work) from which a parallel region is worth its start.
inline constexpr int64_t kParallelWork = 32768;

/// `isa`: a name of kernels/cpu/isa/list.h, or null for the best that runs here
/// (MOE_ERR_UNSUPPORTED otherwise). The pool (already started) and the allocator must outlive it.
/// The device may be used from any thread, a Stream by one at a time. Regions of less than
/// `parallel_work` run on the caller alone; with 1 all that can be split are, as tests want it.
Result<Device*> open_cpu_device(const char* isa, ThreadPool& pool, const Allocator& allocator,
                                int64_t parallel_work = kParallelWork);

/// All its streams must be closed. Null is allowed.
void close_cpu_device(Device* device);

}  // namespace moe
