#pragma once
// Decides how a matrix is stored, from the requested format and a first pass over its values.

#include "formats/moe/layout.h"
#include "quant/lossless.h"
#include "src/convert/plan.h"

namespace moe {

struct Storage {
  FormatId format = FormatId::kF32;
  ScaleKind scale = ScaleKind::kNone;
  int32_t group = 0;
  ActPrecision act = ActPrecision::kF32;
  TernaryFit fit;      // ternary formats: scale_kind kNone when the matrix is not ternary itself;
  double absmean = 0;  // then this is its scale, absmean or better
  bool own_codes = false;  // with the checkpoint's own codes and scales (source_scales.h)
};

/// Reads the matrix once where that is needed: formats auto and ternary. A matrix that is ternary
/// already keeps its own scales (in groups: as ternary2 where the format cannot have them); auto
/// keeps codes of four and eight bits too, as the format that has their values, and makes int8 of
/// the rest, by row or by group; ternary that was asked for is absmean, or with the `importance`
/// (cols) of inputs, which may be null, what loses least by it. `tick` is called now and then and
/// may throw. Throws MOE_ERR_NON_FINITE naming tensor and element.
Storage choose_storage(const PlannedMatrix& matrix, const Checkpoint& checkpoint,
                       const float* importance, const std::function<void()>& tick);

/// True if input statistics can affect how it is stored.
bool can_calibrate(const PlannedMatrix& matrix, const Storage& storage);

/// Throws MOE_ERR_NON_FINITE if the row contains NaN or infinity.
void check_finite(const PlannedMatrix& matrix, int32_t row, const float* values);

/// The matrix for the layout of its segment.
BlobMatrix blob_matrix(const Slot& slot, const Storage& storage);

}  // namespace moe
