// SPDX-License-Identifier: MIT
#pragma once
// Small random models in memory, written by the writer: any router, layer kind and weight format.

#include <gtest/gtest.h>

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <functional>
#include <memory>
#include <random>
#include <vector>

#include "formats/moe/reader.h"
#include "formats/moe/writer.h"
#include "quant/formats.h"
#include "src/convert/config_write.h"
#include "src/model/model.h"
#include "src/model/tensor_rows.h"
#include "src/model/tensors.h"
#include "tests/support/weight_blocks.h"

namespace moe {

/// How a tiny model is stored. The defaults are exact: f32 everywhere.
struct TinyOptions {
  uint64_t seed = 1;
  FormatId weights = FormatId::kF32;     // of matrices, embedding and head included
  ScaleKind scale = ScaleKind::kTensor;  // integer formats
  int32_t group = 64;                    // kGroup
  ActPrecision act = ActPrecision::kA8;  // integer formats
  FormatId routers = FormatId::kF32;     // f32, bf16, f16
  bool biases = false;                   // every optional bias
  bool compress = false;
  bool quick = false;       // cheap even numbers instead of normal ones
  int32_t huge_token = -1;  // the token whose row of the embedding is all FLT_MAX
  int32_t d_e = 8;          // cosine routers
  bool keys_apart = false;  // latent: keys and values are placed like DeepSeek's
  bool rotated = false;     // what can read rotated inputs does
  ModelWriter::Builder<fbs::Tokenizer> tokenizer;  // null: ids only
};

/// d_model 32, 2 layers, 4 heads over 2, RoPE, RMSNorm, tied embedding of 64 tokens, context 64.
/// The first layer is dense; the second has 8 gated experts of 24, top-2.
inline ModelConfig tiny_config() {
  ModelConfig config;
  config.vocab_size = 64;
  config.d_model = 32;
  config.context_length = 64;
  config.tie_embeddings = true;
  config.bos_token_id = 0;
  EXPECT_TRUE(config.eos_token_ids.push(1).ok());
  EXPECT_TRUE(config.name.assign("tiny").ok());
  LayerConfig layer;
  layer.attention.n_heads = 4;
  layer.attention.n_kv_heads = 2;
  layer.attention.head_dim = 8;
  layer.attention.rope.kind = RopeKind::kHalf;
  layer.attention.rope.dims = 8;
  layer.ffn.d_ff = 48;
  layer.ffn.gated = true;
  EXPECT_TRUE(config.layers.push(layer).ok());
  layer.ffn.kind = FfnKind::kMoe;
  layer.ffn.d_ff = 24;
  layer.ffn.moe.n_experts = 8;
  layer.ffn.moe.router.k = 2;
  EXPECT_TRUE(config.layers.push(layer).ok());
  return config;
}

/// A tiny_config() whose layers all have this MoE layer.
inline ModelConfig tiny_config(const MoeConfig& moe) {
  ModelConfig config = tiny_config();
  for (LayerConfig& layer : config.layers) {
    layer.ffn.kind = FfnKind::kMoe;
    layer.ffn.d_ff = 24;
    layer.ffn.moe = moe;
  }
  return config;
}

/// Fills blobs with random weights of a reasonable size.
class TinyWeights {
 public:
  TinyWeights(const ModelConfig& config, const TinyOptions& options)
      : config_(config), options_(options), random_(options.seed) {}

  /// The layout of one part; change it before filling to build a wrong file.
  BlobLayout layout(Part part, int32_t layer) {
    Array<TensorSpec> specs;
    EXPECT_TRUE(part_tensors(config_, part, layer, &specs).ok());
    part_ = part;
    layer_ = layer;
    BlobLayout layout;
    for (const TensorSpec& spec : specs) {
      if (!spec.required() && !options_.biases) continue;
      EXPECT_TRUE(layout.matrices.push(matrix(spec)).ok());
    }
    const Status status = place(&layout);
    EXPECT_TRUE(status.ok()) << status.text();
    return layout;
  }

  /// Random bytes of a blob; `n_experts` limits the tables of hash routers.
  std::vector<uint8_t> fill(const BlobLayout& layout, int32_t n_experts) {
    std::vector<uint8_t> blob(layout.bytes);
    for (const BlobMatrix& m : layout.matrices) fill(m, n_experts, blob.data());
    return blob;
  }

 private:
  BlobMatrix matrix(const TensorSpec& spec) const {
    BlobMatrix m;
    m.role = spec.role;
    m.sublayer = spec.sublayer;
    m.rows = spec.rows == 0 ? options_.d_e : spec.rows;
    m.cols = spec.cols == 0 ? options_.d_e : spec.cols;
    if (spec.kind == TensorKind::kIds) m.format = FormatId::kI32;
    if (spec.kind == TensorKind::kF32Input) m.format = options_.routers;
    if (spec.kind == TensorKind::kMatrix) m.format = options_.weights;
    const bool can_rotate = part_ == Part::kEmbedding || part_ == Part::kAttention ||
                            part_ == Part::kMixer || part_ == Part::kFfn || part_ == Part::kHead;
    m.rotated = options_.rotated && can_rotate && spec.kind == TensorKind::kMatrix &&
                config_.rotation.takes(m.cols);
    if (!format_info(m.format).integer) return m;
    m.scale = options_.scale;
    m.act = options_.act;
    if (m.scale == ScaleKind::kGroup) m.group = options_.group;
    if (format_info(m.format).group != 0) {
      m.scale = ScaleKind::kGroup;
      m.group = format_info(m.format).group;
    }
    return m;
  }

  void fill(const BlobMatrix& m, int32_t n_experts, uint8_t* blob) {
    const WeightFormat& format = format_info(m.format);
    const TensorRow* const row_of = find_row(part_, m.role);
    const bool norm = row_of != nullptr && is_norm(row_of->kind);
    const float size = m.cols == 1 ? 0.1f : 1 / std::sqrt(static_cast<float>(m.cols));
    std::normal_distribution<float> normal(norm ? 1.0f : 0.0f, size);
    const size_t n = static_cast<size_t>(kTileRows) * static_cast<size_t>(m.cols);
    std::vector<float> values(n);
    std::vector<int8_t> codes(n);
    std::vector<int32_t> ids(n);
    const int most = std::max(1, format.max_code);
    for (int32_t row = 0; row < m.rows; row += kTileRows) {
      uint8_t* tile = blob + m.offset + static_cast<uint64_t>(row / kTileRows) * m.tile_stride;
      const int n_rows = std::min(kTileRows, m.rows - row);
      for (size_t i = 0; i < n; ++i) {
        if (options_.quick) {
          const uint32_t even = next();
          values[i] = normal.mean() + size * (static_cast<float>(even >> 8) * 0x1p-23f - 1);
          codes[i] = static_cast<int8_t>(static_cast<int>((even >> 8) % (2U * most + 1)) - most);
          ids[i] =
              static_cast<int32_t>((even >> 8) % static_cast<uint32_t>(std::max(1, n_experts)));
          continue;
        }
        values[i] = normal(random_);
        codes[i] = static_cast<int8_t>(std::uniform_int_distribution<int>(-most, most)(random_));
        ids[i] = std::uniform_int_distribution<int32_t>(0, std::max(0, n_experts - 1))(random_);
      }
      if (options_.keys_apart) keep_apart(m, row, n_rows, &values, &codes);
      const int32_t huge = options_.huge_token - row;
      if (part_ == Part::kEmbedding && m.role == Role::kWeight && huge >= 0 && huge < n_rows) {
        std::fill_n(values.begin() + std::ptrdiff_t{huge} * m.cols, m.cols, FLT_MAX);
      }
      if (m.format == FormatId::kI32) {
        i32_pack(ids.data(), m.cols, n_rows, m.cols, tile);
      } else if (format.only_blocks()) {
        pack_random_blocks(format, n_rows, m.cols, 0.02f * size, random_, tile);
      } else if (format.quantise_tile != nullptr) {
        (void)format.quantise_tile(values.data(), m.cols, n_rows, m.cols, nullptr, tile);
      } else if (format.integer) {
        format.pack_codes(codes.data(), m.cols, n_rows, m.cols, tile);
      } else {
        format.pack_values(values.data(), m.cols, n_rows, m.cols, tile);
      }
    }
    auto* scales = reinterpret_cast<float*>(blob + m.scales_offset);
    const float unit = size / static_cast<float>(most);
    for (size_t i = 0; i < scale_floats(m); ++i) {
      scales[i] = unit * std::uniform_real_distribution<float>(1.0f, 2.0f)(random_);
    }
  }

  // Rotated key rows are the rotary part only, and a head's values end in three zeros.
  void keep_apart(const BlobMatrix& m, int32_t row, int n_rows, std::vector<float>* values,
                  std::vector<int8_t>* codes) {
    if (part_ != Part::kAttention) return;
    const AttentionConfig& a = config_.layers[static_cast<size_t>(layer_)].attention;
    for (int r = 0; r < n_rows && a.latent > 0; ++r) {
      const int32_t dim = (row + r) % a.head_dim;
      const bool none = m.role == Role::kKRope || (m.role == Role::kK && dim < a.rope.dims) ||
                        (m.role == Role::kV && dim >= a.head_dim - 3);
      for (int32_t i = 0; i < m.cols && none; ++i) {
        const auto at = static_cast<size_t>(r * m.cols + i);
        (*codes)[at] = 0;
        (*values)[at] = m.role == Role::kKRope && i == dim ? 1.0f : 0.0f;
      }
    }
  }

  uint32_t next() { return even_ = even_ * 1664525 + 1013904223; }

  const ModelConfig& config_;
  const TinyOptions& options_;
  std::mt19937_64 random_;
  uint32_t even_ = 1;
  Part part_{};  // of the latest layout
  int32_t layer_ = -1;
};

/// Changes to the parts of a tiny model; either may be empty.
struct TinyChanges {
  std::function<void(Part, BlobLayout*)> layout;
  std::function<void(Part, const BlobLayout&, uint8_t* blob)> weights;
};

/// Writes all segments of the model to `writer`, parts in file order.
inline void write_tiny_segments(const ModelConfig& config, const TinyOptions& options,
                                ModelWriter* writer, const TinyChanges& changes = {}) {
  TinyWeights weights(config, options);
  for (const Named<Part>& part : kParts) {
    const int32_t n_layers = part_has_layer(part.value) ? config.n_layers() : 1;
    for (int32_t i = 0; i < n_layers; ++i) {
      const int32_t layer = part_has_layer(part.value) ? i : -1;
      if (!has_part(config, part.value, layer)) continue;
      BlobLayout layout = weights.layout(part.value, layer);
      if (changes.layout) changes.layout(part.value, &layout);
      const int32_t n_experts =
          layer < 0 ? 0 : config.layers[static_cast<size_t>(layer)].ffn.moe.n_experts;
      const int32_t n = part.value == Part::kExperts ? n_experts : 1;
      for (int32_t e = 0; e < n; ++e) {
        const SegmentId id{part.value, layer, part.value == Part::kExperts ? e : -1};
        std::vector<uint8_t> blob = weights.fill(layout, n_experts);
        if (changes.weights) changes.weights(part.value, layout, blob.data());
        const Status status = writer->write_segment(id, layout, blob.data());
        EXPECT_TRUE(status.ok()) << status.text();
      }
    }
  }
}

/// The bytes of a model file (64-byte aligned, as data() of the sink).
inline std::unique_ptr<MemorySink> build_tiny_model(const ModelConfig& config,
                                                    const TinyOptions& options = {}) {
  auto sink = std::make_unique<MemorySink>();
  ModelWriter writer(*sink, options.compress);
  write_tiny_segments(config, options, &writer);
  const Status status = finish_model(writer, config, options.tokenizer, {{"tool", "tiny_model.h"}});
  EXPECT_TRUE(status.ok()) << status.text();
  return sink;
}

/// Opens bytes in place; they must outlive the model.
inline Result<Box<Model>> open_model(const MemorySink& bytes, Device& device,
                                     const Allocator& allocator = system_allocator(),
                                     const ModelOptions& options = {}) {
  MOE_ASSIGN(Box<MoeFile> file,
             MoeFile::open(FileSource::from_memory(bytes.data(), bytes.size()), allocator));
  return Model::open(std::move(file), options, device, Logger(), allocator);
}

}  // namespace moe
