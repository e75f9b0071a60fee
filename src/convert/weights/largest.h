// SPDX-License-Identifier: MIT
#pragma once
// The largest magnitude of a matrix's weights.

#include <functional>

#include "src/base/thread_pool.h"
#include "src/convert/plan.h"

namespace moe {

/// Reads all weights. `tick` is called regularly, on this thread, and may throw. Throws
/// MOE_ERR_NON_FINITE naming tensor and element.
float largest_weight(const PlannedMatrix& matrix, const Checkpoint& checkpoint, ThreadPool& pool,
                     const std::function<void()>& tick);

}  // namespace moe
