#pragma once
// Which instruction set to run.

#include "kernels/cpu/table.h"
#include "src/base/array.h"
#include "src/base/status.h"

namespace moe {

/// The named instruction set, or the best one that this CPU can run when `isa` is null or "auto".
/// MOE_ERR_UNSUPPORTED says what is built and what can run here. Any thread; no state.
Result<const CpuKernels*> select_kernels(const char* isa);

/// Every instruction set of this build, best first, comma-separated.
const char* built_isas();

/// Every instruction set of this build that runs here, the best first.
std::span<const CpuKernels* const> runnable_kernels(const CpuKernels* (&storage)[8]);

}  // namespace moe
