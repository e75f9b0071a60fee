#pragma once
// Selects int8 with a scale per row or per 32 inputs (int8_group).

#include <functional>

#include "src/convert/plan.h"

namespace moe {

/// True if the tensor's blocks have codes of five to eight bits: int8_group may then be much more
/// precise.
bool has_int8_blocks(SourceType type);
/// The same for the matrix's tensor, which may also be eight-bit codes with separate scales.
bool has_int8_codes(const PlannedMatrix& matrix, const Checkpoint& checkpoint);

/// The format of the two with the smaller squared error; int8 if the errors are equal or a weight
/// is too large for int8_group's scales. A matrix with more than 256 rows is judged by 256 of them,
/// in evenly spaced tiles. `tick` is called regularly and may throw. Throws MOE_ERR_NON_FINITE
/// naming tensor and element.
FormatId closer_int8(const PlannedMatrix& matrix, const Checkpoint& checkpoint,
                     const std::function<void()>& tick);

}  // namespace moe
