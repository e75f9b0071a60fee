// SPDX-License-Identifier: MIT
#pragma once
// Makes parts of a matrix on all threads and uses them in order.

#include <cstddef>
#include <cstdint>
#include <functional>

#include "src/base/thread_pool.h"

namespace moe {

/// The work on `n` parts, numbered from 0: each is made, used and told.
struct InOrder {
  int64_t n = 0;
  /// Only one worker makes parts.
  bool alone = false;
  /// On any thread, parts at once: makes a part in `slot`. Of calls with one `worker` only one runs
  /// at a time.
  std::function<void(int worker, int64_t part, size_t slot)> make;
  /// On any thread, one part at a time and in order, while later ones are made. False: the rest is
  /// not wanted.
  std::function<bool(int64_t part, size_t slot)> use;
  /// On the caller's thread, for each part that was to be used, in order.
  std::function<void(int64_t part)> tell;
};

/// Parts that each thread makes before all wait for each other: more even out those that take
/// longer.
inline constexpr int kPartsPerThread = 4;

/// Slots that run_in_order() uses at most: those being made and those being used. Where one worker
/// makes all parts it uses the first two.
size_t slots_of(const ThreadPool& pool);

/// Each may throw; then what the first part in order threw is thrown, after all parts before it
/// were used and told, unless these want no more. Only make() may have been called for later parts.
void run_in_order(ThreadPool& pool, const InOrder& work);

}  // namespace moe
