// SPDX-License-Identifier: MIT
#pragma once
// Recognises files whose end was never downloaded: the space was reserved, so the size is right,
// and all bytes behind some place are zero.

#include <functional>

#include "formats/import/checkpoint.h"

namespace moe {

/// Throws MOE_ERR_CORRUPT if a file of the checkpoint ends in tensors of zeros, among them a matrix
/// (biases, norms and zero points may be zero), or if its zeros begin inside a matrix and are not
/// rows or columns of padding. The tensors must be as in the files, not renamed or packed. Reads a
/// few KB of a file that does not end in zeros. `step` is called regularly and may throw.
void check_zero_tails(const Checkpoint& checkpoint, const std::function<void()>& step);

}  // namespace moe
