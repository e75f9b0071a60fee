// SPDX-License-Identifier: MIT
#pragma once
// Checks a file's tensors against its configuration: presence, shape, format. Metadata only.

#include "formats/moe/reader.h"
#include "src/model/config.h"

namespace moe {

/// MOE_ERR_NOT_FOUND for a missing tensor or expert, MOE_ERR_SHAPE for a wrong shape,
/// MOE_ERR_FORMAT for a tensor that does not belong to the model, MOE_ERR_UNSUPPORTED for a format
/// not usable there, MOE_ERR_RANGE for too wide a cosine router. Messages name the tensor: "tensor
/// layers.3.experts.7.up: expected (1408, 2048), file has (1400, 2048)".
Status check_tensors(const MoeFile& file, const ModelConfig& config);

}  // namespace moe
