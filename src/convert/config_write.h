// SPDX-License-Identifier: MIT
#pragma once
// Writes a ModelConfig as a model file's metadata.

#include "formats/moe/writer.h"
#include "src/model/config.h"

namespace moe {

enum class Described : bool {
  kWhole,
  kComputed  // without what changes no result: the name and the advice on sampling
};
flatbuffers::Offset<fbs::ModelConfig> write_config(flatbuffers::FlatBufferBuilder& builder,
                                                   const ModelConfig& config,
                                                   Described described = Described::kWhole);

/// Validates the configuration, then finishes and commits the file. `tokenizer` may be null.
Status finish_model(ModelWriter& writer, const ModelConfig& config,
                    const ModelWriter::Builder<fbs::Tokenizer>& tokenizer,
                    const ModelWriter::Notes& notes);

}  // namespace moe
