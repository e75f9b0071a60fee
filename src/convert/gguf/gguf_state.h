// SPDX-License-Identifier: MIT
#pragma once
// Families in GGUF files whose layers have a state: gated delta rules (Qwen3-Next, Qwen3.5), Mamba2
// (Granite 4 H, Nemotron-H, Falcon-H1) and Kimi's rule; and Gemma 4, whose layers differ from each
// other in more than their kind. Their tensors get the names, and the small
// ones the shapes and values, that `transformers` gives them.

#include "src/convert/gguf/gguf_keys.h"

namespace moe {

/// Whether layers of this general.architecture have a state, other than a short convolution, or are
/// Gemma 4's.
bool is_gguf_state(std::string_view architecture);

/// Adds to `config` what the keys and tensors of such a file say beyond those of all decoders, and
/// rewrites what they mean otherwise there. `config` has the latter already.
void read_gguf_state(GgufKeys* keys, Json* config);

/// Renames the tensors of these layers, which still have their GGUF names, and undoes what
/// llama.cpp's converter did to those that are no matrices. Throws naming the tensor.
void rename_gguf_state(Checkpoint* checkpoint);

/// The name in a file of this architecture of a tensor that rename_gguf_state() renames; empty for
/// any other name.
std::string stored_state_name(std::string_view architecture, const std::string& name);

}  // namespace moe
