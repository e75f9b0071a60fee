// SPDX-License-Identifier: MIT
#pragma once
// Chooses one option for every part of a model, so that all together fit into a number of bytes and
// do the least damage.

#include <cstddef>
#include <cstdint>
#include <vector>

namespace moe {

/// One way to store a part.
struct SizeOption {
  uint64_t bytes = 0;
  double damage = 0;  // finite; that of several parts is their sum
};
using SizeOptions = std::vector<SizeOption>;  // of a part, in any order; not empty

/// The options on the lower convex hull, from the fewest bytes to the least damage: each step buys
/// less per byte than the one before it. Indices.
std::vector<size_t> convex_hull(const SizeOptions& options);

/// A part's next option on its hull.
struct SizeStep {
  size_t part = 0;
  size_t option = 0;   // that it leads to
  uint64_t bytes = 0;  // more than the option before
  double gain = 0;     // less damage

  double per_byte() const { return gain / static_cast<double>(bytes); }
};

/// The steps of all parts along their hulls, in the order of what they buy per byte; those of one
/// part stay in order.
std::vector<SizeStep> steps_on_hulls(const std::vector<SizeOptions>& parts);

/// For each part the index of its option. Steps along the parts' hulls are taken in the order of
/// what they buy per byte, as far as they fit, which is the best for the bytes that they take; of
/// the parts that differ most in bytes, whose steps would leave room unused, every option is tried,
/// in at most `most_cases`. The damage exceeds the least possible one by less than the largest step
/// of the other parts gains (by nothing if there are none), and never grows with `most_bytes`.
/// Where not even the smallest options fit, it is these.
std::vector<size_t> least_damage(const std::vector<SizeOptions>& parts, uint64_t most_bytes,
                                 size_t most_cases = size_t{1} << 16);

}  // namespace moe
