// SPDX-License-Identifier: MIT
#pragma once
// Random matrices and activations for the benchmarks of matrix products.

#include "kernels/cuda/ops.h"
#include "quant/formats.h"
#include "quant/random.h"
#include "tests/gpu/bench/measure.h"

namespace moe::cuda {

/// The kind of a matrix: a format, and what its scales and its activations are.
struct MatrixKind {
  const char* name;
  FormatId format;
  ScaleKind scale;
  ActPrecision act;
};

/// The kind of a format that nothing else is said of, as `moe convert` makes it.
inline MatrixKind kind_of(FormatId format) {
  const WeightFormat& info = format_info(format);
  const ScaleKind scale = !info.integer               ? ScaleKind::kNone
                          : info.group != 0           ? ScaleKind::kGroup
                          : format == FormatId::kInt8 ? ScaleKind::kRow
                                                      : ScaleKind::kTensor;
  return {info.name, format, scale, info.act};
}

/// Random matrices of one kind and shape, enough to fill `bytes`, and at least `least`.
class Matrices {
 public:
  Matrices(const MatrixKind& kind, int32_t rows, int32_t cols, size_t bytes, size_t least)
      : bytes_of_one_(matrix_bytes(kind.format, rows, cols).value()),
        n_(std::max(least, bytes / bytes_of_one_ + 1)),
        tiles_(make_tiles(kind.format)),
        scales_(std::vector<float>(static_cast<size_t>(rows), 0.01f)) {
    like_.format = kind.format;
    like_.group = format_info(kind.format).group;
    like_.scale_kind = kind.scale;
    like_.act = kind.act;
    like_.rows = rows;
    like_.cols = cols;
    like_.tile_stride = static_cast<int64_t>(bytes_of_one_ / static_cast<size_t>((rows + 15) / 16));
  }
  size_t size() const { return n_; }
  size_t bytes_of_one() const { return bytes_of_one_; }
  Matrix at(size_t i) const {
    Matrix m = like_;
    m.tiles = tiles_.as<uint8_t>() + i % n_ * bytes_of_one_;
    m.scales = scales_.as<float>();
    return m;
  }

 private:
  Buffer make_tiles(FormatId format) const {
    std::vector<uint8_t> bytes(n_ * bytes_of_one_);
    Random random(5);
    format_info(format).random_tile(random, bytes.size(), 0.01f, bytes.data());
    return Buffer(bytes);
  }

  size_t bytes_of_one_;
  size_t n_;
  Buffer tiles_;
  Buffer scales_;
  Matrix like_;
};

/// n rows of d inputs: floats, and codes in every precision.
struct Inputs {
  Inputs(int32_t n, int32_t d)
      : floats(random_normals(static_cast<size_t>(n) * static_cast<size_t>(d))),
        codes(static_cast<size_t>(n * codes_ld(d)), true),
        scales(std::vector<float>(static_cast<size_t>(n * (d / kActGroup + 1)), 0.01f)),
        sums(static_cast<size_t>(n * (d / kActGroup + 1)) * 4) {
    in.x = floats.as<float>();
    in.ld_x = d;
    in.a8 = {codes.as<int8_t>(), codes_ld(d), scales.as<float>(), sums.as<int32_t>()};
    in.a8_block = in.a8;
    in.a8_group = in.a8;
  }
  Buffer floats, codes, scales, sums;
  MatmulInput in;
};

/// Where prepare_rows() writes the codes that a precision asks for.
inline Codes& codes_of(PrepareOp& op, ActPrecision act) {
  if (act == ActPrecision::kA8) return op.a8;
  return act == ActPrecision::kA8Group ? op.a8_group : op.a8_block;
}

/// The product of n rows of inputs with one of many matrices.
struct Product {
  Product(const MatrixKind& kind, int32_t n_, int32_t rows, int32_t cols, size_t bytes)
      : n(n_),
        matrices(kind, rows, cols, bytes, 2),
        inputs(n, cols),
        y(static_cast<size_t>(n) * static_cast<size_t>(rows) * 4),
        operations(2.0 * n * static_cast<double>(rows) * cols) {}
  MatmulOp op(int i) const {
    const Matrix m = matrices.at(static_cast<size_t>(i));
    MatmulOp op;
    op.rows.rows.n = n;
    op.in = inputs.in;
    op.n_outs = 1;
    op.outs[0].weight = {m, nullptr};
    op.outs[0].y = y.as<float>();
    op.outs[0].ld_y = m.rows;
    return op;
  }
  int calls(size_t most) const { return static_cast<int>(std::min(matrices.size(), most)); }

  int32_t n;
  Matrices matrices;
  Inputs inputs;
  Buffer y;
  double operations;
};

}  // namespace moe::cuda
