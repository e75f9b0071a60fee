// SPDX-License-Identifier: MIT
#pragma once
// Sizes and parameter counts of a model, from metadata.

#include "formats/moe/reader.h"
#include "src/model/model.h"

namespace moe {

struct ModelAccount {
  enum Line : size_t {
    kEmbeddings,
    kAttentions,
    kMixerLine,
    kNetworks,
    kRouterLine,
    kExpertLine,
    kMetadata,
    kRowLine,
    kFile,
    kMaxLines
  };
  MemoryLine lines[kMaxLines] = {};
  size_t n_lines = 0;
  uint64_t weight_bytes = 0;     // all segments in memory
  uint64_t bytes_per_token = 0;  // see Model
  uint64_t weight_scratch = 0;   // largest MoeFile::scratch_bytes() except for experts
  uint64_t expert_scratch = 0;   // the same for experts
  uint64_t read_buffer = 0;      // of a direct read into unaligned memory
  uint64_t largest_expert = 0;   // bytes
  uint64_t n_experts = 0;        // of all layers
  uint64_t n_parameters = 0;
  uint64_t n_active_parameters = 0;
};

ModelAccount account_model(const MoeFile& file, const ModelConfig& config);

}  // namespace moe
