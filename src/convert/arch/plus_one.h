// SPDX-License-Identifier: MIT
#pragma once
// Norms whose stored weights are 1 less than their factors.

#include "src/convert/importer.h"

namespace moe {

/// Adds 1 to the weights of all norms of layers, heads and the end, except those whose names end in
/// `plain` (empty: none). `out` locates its slots already; `checkpoint` must outlive it.
void add_one_to_norms(const Checkpoint& checkpoint, const char* plain, Imported* out);

}  // namespace moe
