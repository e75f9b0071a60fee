#pragma once
// The Cholesky factor of a symmetric positive definite matrix.

#include <cstdint>

#include "src/base/thread_pool.h"

namespace moe {

/// `a`: the lower triangle, row by row (n (n + 1) / 2); it becomes L with a = L L^T. The same bits
/// for any number of threads. False, with `a` lost, when the matrix is not positive definite or
/// holds what is no number. n^3 / 3 floating-point operations.
bool cholesky(int32_t n, double* a, ThreadPool& pool);

}  // namespace moe
