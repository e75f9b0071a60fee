// SPDX-License-Identifier: MIT
#pragma once
// Groups the inner neurons of an FFN into groups of equal size.

#include <cstdint>
#include <functional>
#include <vector>

#include "src/base/thread_pool.h"

namespace moe {

/// MOE_ERR_MEMORY if balanced_clusters() would need more than `room` bytes.
void check_clusters(int32_t n, int32_t d, int32_t n_groups, uint64_t room);

/// The group of each of n rows of d numbers, n / n_groups per group: rows of similar direction, by
/// balanced k-means as in MoEfication (Zhang et al. 2022, section 3.2). Normalises `rows`.
/// Identical for any number of threads. `look` is called from time to time and may throw.
std::vector<int32_t> balanced_clusters(std::vector<float> rows, int32_t d, int32_t n_groups,
                                       ThreadPool& pool, const std::function<void()>& look);

/// Groups neighbours.
std::vector<int32_t> groups_in_order(int32_t n, int32_t n_groups);

}  // namespace moe
