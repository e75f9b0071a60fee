// SPDX-License-Identifier: MIT
#pragma once
// Chooses the format of each matrix so that a file has a given size, or its matrices a given number
// of bits, with the least expected damage: docs/precision.md says what that is.

#include <functional>
#include <memory>
#include <vector>

#include "formats/moe/layout.h"
#include "src/convert/calibration/input_statistics.h"
#include "src/convert/plan.h"
#include "src/convert/report.h"

namespace moe {

/// A conversion may take so much; neither: as much as its formats need.
struct SizeGoal {
  uint64_t most_bytes = 0;  // of the file, uncompressed
  double most_bits = 0;     // of a weight, mean over all matrices

  bool given() const { return most_bytes != 0 || most_bits != 0; }
};

/// Throws MOE_ERR_ARGUMENT for both at once and for numbers without a meaning.
void check_goal(const SizeGoal& goal);

class FormatChoice {
 public:
  virtual ~FormatChoice() = default;

  /// Measures what each format does to a sample of the weights, weighted by the mean squares of
  /// their inputs if there are `inputs`, and writes the formats chosen into the plan.
  virtual SizeReport choose(const InputStatistics* inputs) = 0;
};

/// Exact bytes of the file whose segments, those of the plan in order, have these layouts.
using FileBytes = std::function<uint64_t(const std::vector<BlobLayout>& layouts)>;

/// Lists the formats that each matrix may have; those with a format in the plan keep it. Throws
/// MOE_ERR_ARGUMENT, naming the smallest possible size, if the goal is below it. `tick` is called
/// regularly, on this thread, and may throw. `plan`, `checkpoint` and `pool` must outlive the
/// result.
std::unique_ptr<FormatChoice> list_formats(const SizeGoal& goal, Plan& plan,
                                           const ModelConfig& config, const Checkpoint& checkpoint,
                                           ThreadPool& pool, FileBytes file_bytes,
                                           std::function<void()> tick);

}  // namespace moe
