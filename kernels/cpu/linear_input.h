// SPDX-License-Identifier: MIT
#pragma once
// Memory of a LinearInput: rows of one input, quantised once for all matrices that read it.

#include "kernels/cpu/table.h"

namespace moe {

/// Scratch bytes (a multiple of 64) for n_rows of n_cols at any activation precision.
size_t linear_input_bytes(int32_t n_rows, int32_t n_cols);

/// Places codes, scales and sums in `scratch` (64-byte aligned, linear_input_bytes()) and refers to
/// the rows. The caller then runs CpuKernels::quantise_rows over [0, n_rows), in any split, except
/// for kF32, which reads the rows directly and needs no scratch.
LinearInput make_linear_input(ActPrecision act, const float* x, int64_t ld_x, int32_t n_rows,
                              int32_t n_cols, const int32_t* row_ids, void* scratch);

}  // namespace moe
