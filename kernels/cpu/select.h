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

/// One of the instruction sets of this build, best first; null behind the last.
const char* built_isa(size_t index);

}  // namespace moe
