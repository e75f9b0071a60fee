// SPDX-License-Identifier: MIT
#pragma once
// Selects int8 with a scale per row or per 32 inputs (int8_group).

#include <functional>

#include "src/base/thread_pool.h"
#include "src/convert/plan.h"

namespace moe {

/// True if the tensor's blocks have codes of five to eight bits: int8_group may then be much more
/// precise.
bool has_int8_blocks(SourceType type);

/// The default of a matrix that is not ternary and keeps no codes of the checkpoint: int8, or
/// int8_group if every token uses the matrix or the checkpoint has codes of five to eight bits,
/// unless `--weights int8` excludes it, it has no smaller squared error than int8 (a matrix with
/// more than 256 rows is judged by 256 of them, in evenly spaced tiles), or a weight is too large
/// for its scales (a pass over the matrix, unless it is in f16). `tick` is called regularly, on
/// this thread, and may throw. Throws MOE_ERR_NON_FINITE naming tensor and element.
FormatId eight_bits(const PlannedMatrix& matrix, const Checkpoint& checkpoint, ThreadPool& pool,
                    const std::function<void()>& tick);

}  // namespace moe
