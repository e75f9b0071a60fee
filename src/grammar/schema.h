// SPDX-License-Identifier: MIT
#pragma once
// JSON Schema as a grammar.

#include "src/grammar/network.h"

namespace moe::grammar {

/// *root: the rule of the texts that satisfy the schema (docs/structured.md says which of its
/// keywords are there, and how the text is spelled). Errors name the place as a JSON pointer.
Status compile_schema(std::string_view text, Network& network, uint32_t* root);

}  // namespace moe::grammar
