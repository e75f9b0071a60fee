#pragma once
// A file's tensors against what its configuration needs: presence, shape, format. Metadata alone.

#include "formats/moe/reader.h"
#include "src/model/config.h"

namespace moe {

/// MOE_ERR_NOT_FOUND for a missing tensor or expert, MOE_ERR_SHAPE for a wrong shape,
/// MOE_ERR_FORMAT for what does not belong to the model, MOE_ERR_UNSUPPORTED for a format that
/// cannot serve there, MOE_ERR_RANGE for a cosine router that is too wide. Texts name the tensor:
/// "tensor layers.3.experts.7.up: expected (1408, 2048), file has (1400, 2048)".
Status check_tensors(const MoeFile& file, const ModelConfig& config);

}  // namespace moe
