// SPDX-License-Identifier: MIT
#pragma once
// Matrices that a GGUF file stores for rotated inputs (PrismML's Ternary-Bonsai-2), as its keys
// prism.hadamard.* say.

#include "src/convert/plan.h"

namespace moe {

/// Marks the tensors that the keys name, before they are renamed. Throws MOE_ERR_UNSUPPORTED for
/// another transform, MOE_ERR_FORMAT for keys that contradict each other or the tensors.
void mark_rotated(Checkpoint* checkpoint);

/// Sets config.rotation, and leaves the columns of rotated matrices in the order of the file.
/// `checkpoint` must outlive `out`.
void read_rotation(const Checkpoint& checkpoint, Imported* out);

/// Throws MOE_ERR_UNSUPPORTED if a device could not rotate the inputs of a matrix of the segment,
/// or not without those of another matrix that shares them.
void check_rotated(const ModelConfig& config, const PlannedSegment& segment);

}  // namespace moe
