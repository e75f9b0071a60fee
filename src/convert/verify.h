// SPDX-License-Identifier: MIT
#pragma once
// Reads a written model file back and compares it with the checkpoint.

#include "src/convert/plan.h"

namespace moe {

/// Opens the model file at `path` and compares every matrix, vector and table with its tensor: the
/// largest difference must equal the one measured while writing. `largest_errors[s][i]`: of matrix
/// i of segment s. `advance` as for SegmentStream. Throws MOE_ERR_CORRUPT naming the tensor and
/// row.
void verify_file(const std::string& path, const Plan& plan,
                 const std::vector<std::vector<double>>& largest_errors,
                 const Checkpoint& checkpoint, const std::function<void(uint64_t)>& advance);

}  // namespace moe
