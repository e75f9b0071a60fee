// SPDX-License-Identifier: MIT
#pragma once
// Decides how a matrix is stored, from the requested format and a first pass over its values.

#include "formats/moe/layout.h"
#include "quant/lossless.h"
#include "src/base/thread_pool.h"
#include "src/convert/plan.h"

namespace moe {

struct Storage {
  FormatId format = FormatId::kF32;
  ScaleKind scale = ScaleKind::kNone;
  int32_t group = 0;
  ActPrecision act = ActPrecision::kF32;
  TernaryFit fit;          // ternary formats; scale_kind kNone: the weights are not ternary yet
  double absmean = 0;      // the scale for such weights: their absmean, or a better one
  bool own_codes = false;  // keeps the checkpoint's codes and scales (source_scales.h)
  /// The format in which the default would keep codes that a request rounds again.
  std::optional<FormatId> kept = {};
};

/// Reads the matrix once if the requested format is auto or ternary. A matrix whose weights are
/// already ternary keeps its scales; if the format cannot store them (scales per group), it becomes
/// ternary2. Auto also keeps codes of two to eight bits, in the format with the same values,
/// and stores everything else in eight_bits(). Other weights become ternary by absmean or, given
/// the `importance` (cols) of the inputs (or null), with the scale of the smallest weighted error.
/// `tick` is called regularly, on this thread, and may throw. Throws MOE_ERR_NON_FINITE naming
/// tensor and element.
Storage choose_storage(const PlannedMatrix& matrix, const Checkpoint& checkpoint,
                       const float* importance, ThreadPool& pool,
                       const std::function<void()>& tick);

/// The float format that represents a tensor's type.
FormatId own_format(SourceType type);

/// How the default stores codes that it keeps in `format`.
Storage storage_of_codes(FormatId format);

/// True if input statistics can affect how it is stored.
bool can_calibrate(const PlannedMatrix& matrix, const Storage& storage);

/// The bits of the largest magnitude, 0 if there are no values. Those of floats are ordered like
/// their bits, and those of infinity and NaN are above all others.
uint32_t largest_magnitude(const float* values, int32_t n);
/// Throws MOE_ERR_NON_FINITE if the row contains NaN or infinity.
void check_finite(const PlannedMatrix& matrix, int32_t row, const float* values);

/// The matrix for the layout of its segment.
BlobMatrix blob_matrix(const Slot& slot, const Storage& storage);

}  // namespace moe
