// SPDX-License-Identifier: MIT
#pragma once
// Reads how a folder of `sentence-transformers` makes vectors of texts: modules.json, the pooling,
// prompts and the number of tokens.

#include "src/convert/importer.h"

namespace moe {

/// Fills text_vector if the folder has modules.json. Throws MOE_ERR_UNSUPPORTED for a module or a
/// pooling that would give other vectors, by its name.
void read_sentence_transformers(const Checkpoint& checkpoint, Imported* out);

}  // namespace moe
