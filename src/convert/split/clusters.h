#pragma once
// Inner neurons of an FFN in groups of one size.

#include <cstdint>
#include <functional>
#include <vector>

#include "src/base/thread_pool.h"

namespace moe {

/// MOE_ERR_MEMORY where balanced_clusters() would take more than `room` bytes.
void check_clusters(int32_t n, int32_t d, int32_t n_groups, uint64_t room);

/// The group of each of n rows of d numbers, n / n_groups in each: rows of like direction together,
/// by balanced k-means as in MoEfication (Zhang et al. 2022, section 3.2). `rows` become of length
/// 1. The same for any number of threads. `look` is called now and then, and may throw.
std::vector<int32_t> balanced_clusters(std::vector<float> rows, int32_t d, int32_t n_groups,
                                       ThreadPool& pool, const std::function<void()>& look);

/// Neighbours together.
std::vector<int32_t> groups_in_order(int32_t n, int32_t n_groups);

}  // namespace moe
