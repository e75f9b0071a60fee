// SPDX-License-Identifier: MIT
#pragma once
// Selects the instruction set.

#include "kernels/cpu/table.h"
#include "src/base/array.h"
#include "src/base/status.h"

namespace moe {

/// The named instruction set, or the best one for this CPU if `isa` is null or "auto".
/// MOE_ERR_UNSUPPORTED lists what is built and what runs here. Any thread; no state.
Result<const CpuKernels*> select_kernels(const char* isa);

/// Every instruction set of this build, best first, comma-separated.
const char* built_isas();

}  // namespace moe
