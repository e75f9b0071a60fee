// SPDX-License-Identifier: MIT
#pragma once
// Encoders that add a row for the text's type to each token's, where no table of positions could
// hold it.

#include "formats/import/checkpoint.h"

namespace moe {

/// Replaces the token embedding of NomicBert by its rows plus that of the text type 0; nothing
/// else. MOE_ERR_SHAPE if the two tensors do not fit each other.
void add_text_type(Checkpoint* checkpoint);

}  // namespace moe
