// SPDX-License-Identifier: MIT
#pragma once
// The Cholesky factor of a symmetric positive definite matrix.

#include <cstdint>

#include "src/base/thread_pool.h"

namespace moe {

/// `a`: the lower triangle by rows (n (n + 1) / 2); replaced by L with a = L L^T. Bit-identical for
/// any number of threads. False, with `a` destroyed, if the matrix is not positive definite or not
/// finite. n^3 / 3 floating-point operations.
bool cholesky(int32_t n, double* a, ThreadPool& pool);

}  // namespace moe
