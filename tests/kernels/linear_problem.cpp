// SPDX-License-Identifier: MIT
#include "tests/kernels/linear_problem.h"

#include <cmath>
#include <cstring>
#include <new>

#include "kernels/cpu/table.h"
#include "quant/activation.h"
#include "tests/support/weight_blocks.h"
#include "tests/support/weight_codes.h"

namespace moe {

AlignedBytes::AlignedBytes(size_t n)
    : data_(static_cast<uint8_t*>(::operator new (n == 0 ? 1 : n, std::align_val_t{64}))) {}
AlignedBytes::~AlignedBytes() { ::operator delete (data_, std::align_val_t{64}); }

namespace {

size_t n_tiles(int32_t rows) { return static_cast<size_t>((rows + 15) / 16); }
size_t tiles_size(const LinearShape& s) {
  const size_t tile = format_info(s.format).tile_bytes(s.cols);
  return (2 * n_tiles(s.rows) - 1) * tile;
}

}  // namespace

LinearProblem::LinearProblem(const LinearShape& shape, std::mt19937& rng)
    : shape_(shape), tiles_(tiles_size(shape)) {
  std::normal_distribution<float> normal(0.0f, 1.0f);
  const size_t rows = static_cast<size_t>(shape.rows), cols = static_cast<size_t>(shape.cols);
  const WeightFormat& format = format_info(shape.format);
  for (size_t i = 0; i < rows * cols; ++i) {
    const bool code = format.integer && !format.only_blocks();
    elements_.push_back(code ? static_cast<float>(random_weight_code(format, rng)) : normal(rng));
  }
  scales_.resize(scale_count(shape.format, shape.scale, shape.group, shape.rows, shape.cols));
  for (float& s : scales_) s = std::exp2(normal(rng)) / 64;
  x_.resize(static_cast<size_t>(shape.n) * cols);
  for (float& v : x_) v = normal(rng) * std::exp2(normal(rng));
  for (size_t i = 0; shape.largest_inputs && i < x_.size(); ++i) {
    x_[i] = i < cols || (i >= 2 * cols && x_[i] > 0) ? 1.0f : -1.0f;
  }
  bias_.resize(rows);
  for (float& v : bias_) v = normal(rng);
  y_.resize(static_cast<size_t>(shape.n) * rows);
  for (float& v : y_) v = normal(rng);
  pack(elements_, &rng);
  for (int32_t r = 0; r < shape.rows; r += kTileRows) {
    put_random_scales(format, std::min(kTileRows, shape.rows - r), shape.cols, rng,
                      tiles_.data() + r / kTileRows * matrix_.tile_stride);
  }
}

LinearProblem::LinearProblem(const LinearShape& shape, int code)
    : shape_(shape), tiles_(tiles_size(shape)) {
  const size_t rows = static_cast<size_t>(shape.rows), cols = static_cast<size_t>(shape.cols);
  elements_.assign(rows * cols, static_cast<float>(code));
  scales_.assign(scale_count(shape.format, shape.scale, shape.group, shape.rows, shape.cols), 1.0f);
  x_.assign(static_cast<size_t>(shape.n) * cols, 1.0f);
  bias_.assign(rows, 0.0f);
  y_.assign(static_cast<size_t>(shape.n) * rows, 0.0f);
  pack(elements_, nullptr);
}

void LinearProblem::pack(const std::vector<float>& elements, std::mt19937* rng) {
  const WeightFormat& f = format_info(shape_.format);
  const size_t tile = f.tile_bytes(shape_.cols);
  for (size_t t = 0; t < n_tiles(shape_.rows); ++t) {
    const size_t first = 16 * t * static_cast<size_t>(shape_.cols);
    const int n = std::min(16, shape_.rows - static_cast<int>(16 * t));
    if (f.only_blocks()) {
      pack_random_blocks(f, n, shape_.cols, 0.01f, *rng, tiles_.data() + 2 * t * tile);
    } else if (f.integer) {
      const float* begin = elements.data() + first;
      const std::vector<int8_t> codes(begin, begin + n * shape_.cols);
      f.pack_codes(codes.data(), shape_.cols, n, shape_.cols, tiles_.data() + 2 * t * tile);
    } else {
      f.pack_values(&elements[first], shape_.cols, n, shape_.cols, tiles_.data() + 2 * t * tile);
    }
  }
  matrix_.format = shape_.format;
  matrix_.scale_kind = shape_.scale;
  matrix_.act = shape_.act;
  matrix_.group = shape_.group;
  matrix_.rows = shape_.rows;
  matrix_.cols = shape_.cols;
  matrix_.tile_stride = static_cast<int64_t>(2 * tile);
  matrix_.tiles = tiles_.data();
  matrix_.scales = scales_.empty() ? nullptr : scales_.data();
  for (int32_t r = 0; r < shape_.rows; ++r) {  // as stored: bf16 and f16 round
    const uint8_t* at = matrix_.tiles + r / 16 * matrix_.tile_stride;
    read_row(f, at, shape_.cols, r % 16,
             &elements_[static_cast<size_t>(r) * static_cast<size_t>(shape_.cols)]);
  }
}

LinearProblem::InputCodes LinearProblem::quantise(const float* x) const {
  const bool a8 = shape_.act == ActPrecision::kA8;
  const int32_t block = inputs_per_scale(shape_.act, shape_.cols);
  InputCodes in;
  in.codes.resize(static_cast<size_t>(shape_.cols));
  for (int32_t k = 0; k < shape_.cols; k += block) {
    const int32_t n = std::min(block, shape_.cols - k);
    in.scales.push_back(
        quantise_activations(x + k, n, a8 ? -128 : -127, &in.codes[static_cast<size_t>(k)]).scale);
  }
  return in;
}

float LinearProblem::minimum_at(int32_t row, int32_t col) const {
  const WeightFormat& f = format_info(shape_.format);
  if (f.group == 0) return 0;
  return f.minimum(matrix_.tiles + row / 16 * matrix_.tile_stride, row % 16, col / f.group);
}

float LinearProblem::scale_at(int32_t row, int32_t col) const {
  const WeightFormat& f = format_info(shape_.format);
  if (f.group != 0) {
    return f.scale(matrix_.tiles + row / 16 * matrix_.tile_stride, row % 16, col / f.group);
  }
  return scales_[static_cast<size_t>(
      scale_index(shape_.scale, shape_.group, shape_.cols, row, col))];
}

float LinearProblem::float_product(const float* x, int32_t row) const {
  const float* w = elements(row);
  const bool grouped = shape_.scale == ScaleKind::kGroup;
  float acc = 0, total = 0, inputs = 0;
  for (int32_t k = 0; k < shape_.cols; ++k) {
    acc = std::fma(w[k], x[k], acc);
    inputs = inputs + x[k];
    if (grouped && ((k + 1) % shape_.group == 0 || k + 1 == shape_.cols)) {
      total = std::fma(acc, scale_at(row, k), total);
      if (format_info(shape_.format).minimums) {
        total = std::fma(inputs, minimum_at(row, k), total);
      }
      acc = inputs = 0;
    }
  }
  if (shape_.scale == ScaleKind::kNone) return acc;
  return grouped ? total : acc * scale_at(row, 0);
}

float LinearProblem::integer_product(const InputCodes& x, int32_t row) const {
  const float* w = elements(row);
  const int8_t* codes = x.codes.data();
  const bool a8 = shape_.act == ActPrecision::kA8;
  const bool grouped = shape_.scale == ScaleKind::kGroup;
  const int32_t block = inputs_per_scale(shape_.act, shape_.cols);
  const int32_t step = grouped ? shape_.group : block;
  float total = 0;
  for (int32_t k = 0; k < shape_.cols; k += step) {
    int64_t sum = 0;
    int32_t inputs = 0;
    for (int32_t i = k; i < std::min(k + step, shape_.cols); ++i) {
      sum += static_cast<int64_t>(w[i]) * codes[i];
      inputs += codes[i];
    }
    const float s = x.scales[static_cast<size_t>(k / block)];
    if (a8 && !grouped) return static_cast<float>(sum) * (s * scale_at(row, 0));
    total = std::fma(static_cast<float>(sum), grouped ? s * scale_at(row, k) : s, total);
    if (format_info(shape_.format).minimums) {
      total = std::fma(static_cast<float>(inputs) * s, minimum_at(row, k), total);
    }
  }
  return grouped ? total : total * scale_at(row, 0);
}

std::vector<float> LinearProblem::expected(int32_t i) const {
  const float* x = &x_[static_cast<size_t>(i) * static_cast<size_t>(shape_.cols)];
  const bool floats = shape_.act == ActPrecision::kF32;
  const InputCodes codes = floats ? InputCodes() : quantise(x);
  std::vector<float> y;
  for (int32_t r = 0; r < shape_.rows; ++r) {
    float v = floats ? float_product(x, r) : integer_product(codes, r);
    if (shape_.bias) v = v + bias_[static_cast<size_t>(r)];
    const float before =
        y_[static_cast<size_t>(i) * static_cast<size_t>(shape_.rows) + static_cast<size_t>(r)];
    y.push_back(shape_.accumulate ? std::fma(shape_.scale_y, v, before) : shape_.scale_y * v);
  }
  return y;
}

LinearArgs LinearProblem::args(const LinearInput& input, float* y) const {
  LinearArgs a;
  a.weight = &matrix_;
  a.input = &input;
  a.bias = shape_.bias ? bias_.data() : nullptr;
  a.y = y;
  a.ld_y = shape_.rows;
  a.accumulate = shape_.accumulate;
  a.scale = shape_.scale_y;
  a.tile_end = static_cast<int64_t>(n_tiles(shape_.rows));
  return a;
}

std::vector<float> LinearProblem::run(const CpuKernels& kernels, std::vector<int32_t> ids) const {
  const bool all = ids.empty();
  const int32_t n = all ? shape_.n : static_cast<int32_t>(ids.size());
  const AlignedBytes scratch(linear_input_bytes(n, shape_.cols));
  const LinearInput input = make_linear_input(shape_.act, x_.data(), shape_.cols, n, shape_.cols,
                                              all ? nullptr : ids.data(), scratch.data());
  if (shape_.act != ActPrecision::kF32) {
    kernels.quantise_rows(input, n / 2, n);
    kernels.quantise_rows(input, 0, n / 2);
  }
  std::vector<float> y;
  for (int32_t i = 0; i < n; ++i) {
    const auto row =
        y_.begin() +
        static_cast<std::ptrdiff_t>(all ? i : ids[static_cast<size_t>(i)]) * shape_.rows;
    y.insert(y.end(), row, row + shape_.rows);
  }
  LinearArgs a = args(input, y.data());
  const int64_t end = a.tile_end;
  a.tile_end = end / 2;
  kernels.linear(a);
  a.tile_begin = a.tile_end;
  a.tile_end = end;
  kernels.linear(a);
  return y;
}

}  // namespace moe
