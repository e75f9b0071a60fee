// SPDX-License-Identifier: MIT
// Adds up bytes and parameters over a file's segments: all of them, and those that one token uses.
#include "src/model/account.h"

#include "kernels/router/table.h"

namespace moe {
namespace {

struct Use {
  uint64_t bytes = 0;
  uint64_t parameters = 0;

  void operator+=(const Use& other) {
    bytes += other.bytes;
    parameters += other.parameters;
  }
};

uint64_t elements(const BlobMatrix& m) {
  if (m.format == FormatId::kI32) return 0;  // a table has no parameters
  return static_cast<uint64_t>(m.rows) * static_cast<uint64_t>(m.cols);
}

Use whole(const MoeFile& file, const FileSegment& s) {
  Use use{s.raw, 0};
  for (const BlobMatrix& m : file.layout(s).matrices) use.parameters += elements(m);
  return use;
}

// The table's row; the projection's matrix and norm whole.
Use layer_inputs(const MoeFile& file, const FileSegment& s) {
  Use use;
  for (const BlobMatrix& m : file.layout(s).matrices) {
    const uint64_t n = m.role == Role::kWeight ? static_cast<uint64_t>(m.rows) : 1;
    use.bytes += stored_bytes(m) / n;
    use.parameters += elements(m) / n;
  }
  return use;
}

// Look-ups read one row of every matrix.
Use one_row(const MoeFile& file, const FileSegment& s) {
  Use use;
  for (const BlobMatrix& m : file.layout(s).matrices) {
    use.bytes += stored_bytes(m) / static_cast<uint64_t>(m.rows);
    use.parameters += elements(m) / static_cast<uint64_t>(m.rows);
  }
  return use;
}

// A hash router reads one entry of its table.
Use per_token(const MoeFile& file, const FileSegment& s) {
  Use use = whole(file, s);
  for (const BlobMatrix& m : file.layout(s).matrices) {
    if (m.format == FormatId::kI32)
      use.bytes -= std::min(use.bytes, stored_bytes(m) - sizeof(int32_t));
  }
  return use;
}

// The largest expert of a layer, times the maximum experts per token.
Use experts_per_token(const MoeFile& file, const MoeConfig& moe, int32_t layer) {
  Use largest;
  for (int32_t e = 0; e < moe.n_experts; ++e) {
    const Use use = whole(file, *file.find(Part::kExperts, layer, e));
    if (use.bytes > largest.bytes) largest = use;
  }
  const auto k = static_cast<uint64_t>(router_max_k(moe.router, moe.n_experts));
  const uint64_t n =
      std::min(static_cast<uint64_t>(moe.n_experts), k * static_cast<uint64_t>(moe.n_subheads));
  return {largest.bytes * n, largest.parameters * n};
}

bool of_encoder(const ModelConfig& config, const FileSegment& s) {
  if (s.layer >= 0) return s.layer < config.n_encoder_layers;
  return s.part == Part::kSourcePositions || s.part == Part::kSourceEmbeddingNorm ||
         s.part == Part::kEncoderNorm;
}

Use active(const MoeFile& file, const ModelConfig& config) {
  Use sum;
  for (const FileSegment& s : file.segments()) {
    if (s.part == Part::kExperts) continue;
    // Counts a token of the text; the encoder's weights are read once per source.
    if (of_encoder(config, s)) continue;
    if (s.part == Part::kSecondPositions) continue;   // in place of the first text's
    if (s.layer >= config.n_main_layers()) continue;  // only with drafts
    if (s.part == Part::kLayerInputs) {
      sum += layer_inputs(file, s);
      continue;
    }
    const bool looked_up = s.part == Part::kPositionEmbedding ||
                           (s.part == Part::kEmbedding && !config.tie_embeddings);
    sum += looked_up ? one_row(file, s) : per_token(file, s);
  }
  for (int32_t l = config.n_encoder_layers; l < config.n_main_layers(); ++l) {
    const FfnConfig& ffn = config.layers[static_cast<size_t>(l)].ffn;
    if (ffn.kind == FfnKind::kMoe) sum += experts_per_token(file, ffn.moe, l);
  }
  return sum;
}

}  // namespace

ModelAccount account_model(const MoeFile& file, const ModelConfig& config) {
  using enum ModelAccount::Line;
  ModelAccount account;
  account.n_lines = ModelAccount::kMaxLines;
  account.lines[kEmbeddings].what = "embedding, final norm and head weights";
  account.lines[kAttentions].what = "attention weights";
  account.lines[kMixerLine].what = "mixer weights";
  account.lines[kNetworks].what = "dense and shared FFN weights";
  account.lines[kRouterLine].what = "router, head and merge weights";
  account.lines[kExpertLine].what = "expert weights";
  account.lines[kMetadata] = {"metadata", file.metadata_bytes()};
  for (const FileSegment& s : file.segments()) {
    if (s.layer >= config.n_layers()) continue;  // not used on this device
    const bool attention = s.part == Part::kAttention || s.part == Part::kCrossAttention;
    const ModelAccount::Line line = attention                     ? kAttentions
                                    : s.part == Part::kMixer      ? kMixerLine
                                    : s.part == Part::kFfn        ? kNetworks
                                    : s.part == Part::kLayerInput ? kNetworks
                                    : s.part == Part::kPrediction ? kNetworks
                                    : s.part == Part::kRouter     ? kRouterLine
                                    : s.part == Part::kExperts    ? kExpertLine
                                                                  : kEmbeddings;
    const Use use = whole(file, s);
    account.lines[line].bytes += use.bytes;
    const bool expert = s.part == Part::kExperts;
    uint64_t* scratch = expert ? &account.expert_scratch : &account.weight_scratch;
    *scratch = std::max(*scratch, file.scratch_bytes(s));
    if (expert) {
      account.largest_expert = std::max(account.largest_expert, s.raw);
      ++account.n_experts;
    }
    account.weight_bytes += use.bytes;
    account.n_parameters += use.parameters;
  }
  account.read_buffer = file.direct() ? MoeFile::kBufferBytes : 0;
  const Use use = active(file, config);
  account.bytes_per_token = use.bytes;
  account.n_active_parameters = use.parameters;
  return account;
}

}  // namespace moe
