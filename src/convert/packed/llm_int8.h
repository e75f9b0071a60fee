// SPDX-License-Identifier: MIT
#pragma once
// Matrices that bitsandbytes quantised to eight bits (LLM.int8): NAME.weight holds I8 codes, and
// NAME.SCB the largest magnitude of each row, whose code is 127 or -127. The columns that the paper
// keeps in half precision are columns of activations: every weight is stored as a code.

#include "formats/import/checkpoint.h"

namespace moe {

/// Makes each of them one tensor of ordinary weights, code * (SCB / 127). Throws MOE_ERR_NOT_FOUND,
/// MOE_ERR_SHAPE or MOE_ERR_FORMAT when a tensor is not what the others say, MOE_ERR_UNSUPPORTED
/// for codes in another order than rows.
void unpack_llm_int8(Checkpoint* checkpoint);

}  // namespace moe
