#pragma once
// The block types of GGUF that can be read, as numbers. Layouts: ggml's own (ggml-common.h).

#include "formats/import/source_tensor.h"

namespace moe {

/// n blocks of a block type; to: n * block floats.
void read_blocks(SourceType type, const void* from, size_t n, float* to);

}  // namespace moe
