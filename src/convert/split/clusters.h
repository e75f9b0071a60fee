#pragma once
// Inner neurons of an FFN in groups of one size.

#include <cstdint>
#include <vector>

#include "src/base/thread_pool.h"

namespace moe {

/// The group of each of n rows of d numbers, n / n_groups in each: rows of like direction together,
/// by balanced k-means as in MoEfication (Zhang et al. 2022, section 3.2). `rows` become of length
/// 1. The same for any number of threads.
std::vector<int32_t> balanced_clusters(std::vector<float> rows, int32_t d, int32_t n_groups,
                                       ThreadPool& pool);

/// Neighbours together.
std::vector<int32_t> groups_in_order(int32_t n, int32_t n_groups);

}  // namespace moe
