#pragma once
// Selects int8 with a scale per row or per 32 inputs (int8_group).

#include <functional>

#include "src/convert/plan.h"

namespace moe {

/// True if the tensor's blocks have codes of five to eight bits: int8_group may then be much more
/// precise.
bool has_int8_blocks(SourceType type);
/// The same of the matrix's tensor, which may also be codes of eight bits beside their scales.
bool has_int8_codes(const PlannedMatrix& matrix, const Checkpoint& checkpoint);

/// The one of the two that stands for the matrix with the smaller squared error; int8 where both
/// do as well, or where a weight is too large for int8_group's scales. Of a matrix with many rows
/// errors are those of 256, in tiles that lie evenly in it. `tick` is called now and then and may
/// throw. Throws MOE_ERR_NON_FINITE naming tensor and element.
FormatId closer_int8(const PlannedMatrix& matrix, const Checkpoint& checkpoint,
                     const std::function<void()>& tick);

}  // namespace moe
