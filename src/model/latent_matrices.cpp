// SPDX-License-Identifier: MIT
// Takes the key and value projections apart by head, transposes the keys', and packs both as f16.
#include "src/model/latent_matrices.h"

#include <algorithm>
#include <cmath>

#include "quant/formats.h"
#include "src/base/checked.h"

namespace moe {
namespace {

constexpr FormatId kFormat = FormatId::kF16;
constexpr float kLargest = 65504;  // the largest f16

Matrix matrix_of(int32_t rows, int32_t cols) {
  Matrix m;
  m.format = kFormat;
  m.rows = rows;
  m.cols = cols;
  m.tile_stride = static_cast<int64_t>(format_info(kFormat).tile_bytes(cols));
  return m;
}

int64_t n_tiles(const Matrix& m) { return (m.rows + kTileRows - 1) / kTileRows; }
int64_t bytes_of(const Matrix& m) { return round_up(n_tiles(m) * m.tile_stride, int64_t{64}); }

Matrix key_matrix(const AttentionConfig& a) {
  return matrix_of(a.latent, a.head_dim - a.rope.dims);
}
// Including rows of zeros that may pad a head's values.
Matrix value_matrix(const AttentionConfig& a) { return matrix_of(a.head_dim, a.latent); }

/// Floats of one head's matrix and of one transposed tile.
uint64_t scratch_floats(const AttentionConfig& a) {
  return static_cast<uint64_t>(a.latent + kTileRows) * static_cast<uint64_t>(a.head_dim);
}

/// Sizes for init().
struct Sizes {
  explicit Sizes(const ModelConfig& config);
  size_t matrices = 0;
  uint64_t scratch = 0;  // floats
  uint64_t bytes = 0;    // of the matrices' tiles
};

Sizes::Sizes(const ModelConfig& config) {
  for (const LayerConfig& layer : config.layers) {
    const AttentionConfig& a = layer.attention;
    if (a.latent == 0) continue;
    const auto n = static_cast<size_t>(a.n_kv_heads);
    matrices += 2 * n;
    scratch = std::max(scratch, scratch_floats(a));
    bytes += n * static_cast<uint64_t>(bytes_of(key_matrix(a)) + bytes_of(value_matrix(a)));
  }
}

bool all_are_zero(const float* x, int32_t n) {
  return std::all_of(x, x + n, [](float v) { return v == 0; });
}

/// Splits one layer's matrices into those of its heads.
class LayerHeads {
 public:
  LayerHeads(const AttentionConfig& config, const AttentionWeights& weights, float* scratch)
      : c_(config), w_(weights), rows_(scratch), tile_(scratch + row(c_.head_dim)) {}

  // True if the rotated key rows are the rotary part alone and do not read the latent.
  bool keys_are_apart() {
    if (w_.k_bias != nullptr || w_.v_bias != nullptr) return false;
    for (int32_t i = 0; i < c_.n_kv_heads * c_.head_dim; ++i) {
      if (!key_is_apart(i)) return false;
    }
    return true;
  }

  // Rows of a head's values without zero padding, equal for all heads.
  int32_t n_values() {
    int32_t n = c_.head_dim;
    while (n > 1 && value_is_zero(n - 1)) --n;
    return n;
  }

  // m (latent, not rotated): the transposed rows of the file.
  bool pack_keys(int32_t head, const Matrix& m, uint8_t* tiles) {
    if (!read_head(w_.k, head, c_.rope.dims, m.cols)) return false;
    for (int32_t first = 0; first < m.rows; first += kTileRows) {
      const int32_t n = std::min(kTileRows, m.rows - first);
      for (int32_t r = 0; r < n; ++r) {
        for (int32_t i = 0; i < m.cols; ++i) tile_[r * m.cols + i] = rows_[row(i) + first + r];
      }
      pack(tile_, n, m, first, tiles);
    }
    return true;
  }

  bool pack_values(int32_t head, const Matrix& m, uint8_t* tiles) {
    if (!read_head(w_.v, head, 0, m.rows)) return false;
    for (int32_t first = 0; first < m.rows; first += kTileRows) {
      pack(rows_ + row(first), std::min(kTileRows, m.rows - first), m, first, tiles);
    }
    return true;
  }

 private:
  int64_t row(int32_t i) const { return int64_t{i} * c_.latent; }

  bool key_is_apart(int32_t i) {
    const int32_t dim = i % c_.head_dim;
    const bool rotated = dim < c_.rope.dims;
    read_row(w_.k_rope, i, rows_);
    if (rotated) rows_[dim] -= 1;
    if (!all_are_zero(rows_, c_.rope.dims)) return false;
    if (!rotated) return true;
    read_row(w_.k, i, rows_);
    return all_are_zero(rows_, c_.latent);
  }

  bool value_is_zero(int32_t dim) {
    for (int32_t h = 0; h < c_.n_kv_heads; ++h) {
      read_row(w_.v, h * c_.head_dim + dim, rows_);
      if (!all_are_zero(rows_, c_.latent)) return false;
    }
    return true;
  }

  // False if a weight exceeds f16.
  bool read_head(const Matrix& from, int32_t head, int32_t first, int32_t n) {
    for (int32_t i = 0; i < n; ++i) read_row(from, head * c_.head_dim + first + i, rows_ + row(i));
    return std::all_of(rows_, rows_ + row(n), [](float v) { return std::fabs(v) <= kLargest; });
  }

  static void pack(const float* rows, int32_t n, const Matrix& m, int32_t first, uint8_t* tiles) {
    format_info(kFormat).pack_values(rows, m.cols, n, m.cols,
                                     tiles + first / kTileRows * m.tile_stride);
  }

  const AttentionConfig& c_;
  const AttentionWeights& w_;
  float* rows_;
  float* tile_;
};

}  // namespace

uint64_t LatentMatrices::bytes(const ModelConfig& config) {
  const Sizes sizes(config);
  return sizes.bytes + sizes.scratch * sizeof(float) + sizes.matrices * sizeof(Matrix) +
         (config.layers.size() + 1) * sizeof(size_t) + sizeof(LatentMatrices);
}

// Capacity was reserved.
Status LatentMatrices::add_layer(const AttentionConfig& config, const AttentionWeights& weights,
                                 float* scratch, uint8_t** at) {
  LayerHeads heads(config, weights, scratch);
  if (!heads.keys_are_apart()) {
    return Status::error(MOE_ERR_UNSUPPORTED,
                         "keys are not the rotary part followed by projections of the latent");
  }
  const auto add = [&](Matrix m) {
    uint8_t* const tiles = *at;
    m.tiles = tiles;
    *at += bytes_of(m);
    (void)matrices_.push(m);
    return tiles;
  };
  const Matrix keys = key_matrix(config);
  Matrix values = value_matrix(config);
  values.rows = heads.n_values();
  bool held = true;
  for (int32_t h = 0; h < config.n_kv_heads; ++h) held &= heads.pack_keys(h, keys, add(keys));
  for (int32_t h = 0; h < config.n_kv_heads; ++h) held &= heads.pack_values(h, values, add(values));
  if (held) return {};
  return Status::error(MOE_ERR_UNSUPPORTED, "weights of keys or values above 65504");
}

Status LatentMatrices::init(Device& device, const ModelConfig& config,
                            const Array<LayerWeights>& layers, const Allocator& allocator) {
  const Sizes sizes(config);
  if (sizes.bytes > SIZE_MAX || sizes.scratch > SIZE_MAX / sizeof(float)) {
    return Status::error(MOE_ERR_MEMORY, "session: kv latent: %llu bytes for its matrices",
                         static_cast<unsigned long long>(sizes.bytes));
  }
  Array<float> scratch(allocator);
  MOE_TRY(scratch.resize(static_cast<size_t>(sizes.scratch)));
  MOE_TRY(matrices_.reserve(sizes.matrices));
  MOE_TRY(first_.reserve(config.layers.size() + 1));
  device_ = &device;
  bytes_ = static_cast<size_t>(sizes.bytes);
  MOE_TRY(device.alloc(bytes_, &memory_));
  auto* at = static_cast<uint8_t*>(memory_);
  for (size_t l = 0; l < config.layers.size(); ++l) {
    MOE_TRY(first_.push(matrices_.size()));
    const AttentionConfig& a = config.layers[l].attention;
    if (a.latent == 0) continue;
    MOE_TRY(add_layer(a, layers[l].attention, scratch.data(), &at)
                .with_context("session: kv latent: layer %zu", l));
  }
  return first_.push(matrices_.size());
}

}  // namespace moe
