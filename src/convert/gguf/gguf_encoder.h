// SPDX-License-Identifier: MIT
#pragma once
// Encoders in GGUF files, as llama.cpp's converter writes them: BERT and NomicBert.

#include "formats/import/checkpoint.h"

namespace moe {

/// Whether the file's general.architecture is one of these.
bool is_gguf_encoder(const Checkpoint& checkpoint);

/// config.json of the file's metadata and tensors (which still have their GGUF names).
Json gguf_encoder_config(const Checkpoint& checkpoint);

void rename_encoder_tensors(Checkpoint* checkpoint);

/// Adds the documents of sentence-transformers where the file, also that of a decoder, says in
/// "ARCH.pooling_type" how a text becomes a vector; that has length 1, as in llama.cpp.
void read_gguf_pooling(Checkpoint* checkpoint);

/// The GGUF name of an encoder's tensor; empty for any other name.
std::string stored_encoder_name(const std::string& name);

/// The architectures, with commas between.
std::string gguf_encoder_names();

}  // namespace moe
