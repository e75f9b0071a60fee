// SPDX-License-Identifier: MIT
#pragma once
// Encoders in GGUF files, as llama.cpp's converter writes them: BERT and NomicBert.

#include "formats/import/checkpoint.h"

namespace moe {

/// Whether the file's general.architecture is one of these.
bool is_gguf_encoder(const Checkpoint& checkpoint);

/// config.json of the file's metadata and tensors (which still have their GGUF names).
Json gguf_encoder_config(const Checkpoint& checkpoint);

/// Adds the documents of sentence-transformers where the file says how a text becomes a vector, of
/// length 1 as in llama.cpp, and renames the tensors.
void read_gguf_encoder(Checkpoint* checkpoint);

/// The GGUF name of an encoder's tensor; empty for any other name.
std::string stored_encoder_name(const std::string& name);

/// The architectures, with commas between.
std::string gguf_encoder_names();

}  // namespace moe
