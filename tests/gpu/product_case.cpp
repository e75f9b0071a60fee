// SPDX-License-Identifier: MIT
#include "tests/gpu/product_case.h"

#include <cmath>
#include <cstring>
#include <map>
#include <tuple>

#include "quant/activation.h"
#include "tests/support/weight_blocks.h"
#include "tests/support/weight_codes.h"

namespace moe {

std::vector<WeightKind> all_weight_kinds() {
  std::vector<WeightKind> kinds;
  for (const ActPrecision act :
       {ActPrecision::kF32, ActPrecision::kA8, ActPrecision::kA8Block, ActPrecision::kA8Group}) {
    for (const WeightFormat& f : kWeightFormats) {
      if (f.table || activations_instead(f, act) != nullptr) continue;
      for (const ScaleKind scale : {ScaleKind::kNone, ScaleKind::kTensor, ScaleKind::kRow}) {
        if (f.can_have(scale)) kinds.push_back({f.id, scale, 0, act});
      }
      for (const int32_t group : scale_groups(f)) {
        kinds.push_back({f.id, ScaleKind::kGroup, group, act});
      }
    }
  }
  return kinds;
}

std::vector<WeightKind> kinds_by_kernel() {
#if defined(MOE_CUDA_EMULATOR)
  std::map<std::tuple<FormatId, bool, bool>, std::vector<WeightKind>> alike;
  for (const WeightKind& kind : all_weight_kinds()) {
    const bool codes = kind.act != ActPrecision::kF32;
    // Sums of codes are scaled in parts: with scales in the tile always, otherwise by other
    // kernels.
    const bool parts = kind.scale == ScaleKind::kGroup || (codes && kind.act != ActPrecision::kA8);
    alike[{kind.format, codes, format_info(kind.format).group == 0 && parts}].push_back(kind);
  }
  std::vector<WeightKind> kinds;
  for (const auto& [_, same] : alike) kinds.push_back(same[kinds.size() % same.size()]);
  return kinds;
#else
  return all_weight_kinds();
#endif
}

std::string describe(const WeightKind& k) {
  return std::string(format_info(k.format).name) + " scales " +
         std::to_string(static_cast<int>(k.scale)) + " group " + std::to_string(k.group) +
         " activations " + std::to_string(static_cast<int>(k.act));
}

TestMatrix::TestMatrix(const WeightKind& kind, int32_t rows, int32_t cols, std::mt19937& rng,
                       bool bias, int step) {
  matrix_ = {kind.format, kind.scale, kind.act, kind.group, rows, cols, 0, nullptr, nullptr};
  std::normal_distribution<float> normal(0.0f, 1.0f);
  const WeightFormat& f = format_info(kind.format);
  std::vector<float> elements(at(rows) * at(cols));
  for (float& e : elements) {
    const bool code = f.integer && !f.only_blocks();
    e = code ? static_cast<float>(random_weight_code(f, rng)) : normal(rng);
  }
  scales_.resize(scale_count(kind.format, kind.scale, kind.group, rows, cols));
  for (float& s : scales_) s = std::exp2(normal(rng)) / 64;
  if (bias) bias_.resize(at(rows));
  for (float& b : bias_) b = normal(rng);
  pack(elements, step, &rng);
}

TestMatrix::TestMatrix(const WeightKind& kind, int32_t rows, int32_t cols, int code) {
  matrix_ = {kind.format, kind.scale, kind.act, kind.group, rows, cols, 0, nullptr, nullptr};
  scales_.assign(scale_count(kind.format, kind.scale, kind.group, rows, cols), 1.0f);
  const std::vector<float> elements(at(rows) * at(cols), static_cast<float>(code));
  pack(elements, 1, nullptr);
  // A packer that rounds codes to valid ones could have changed it.
  EXPECT_EQ(elements_, elements) << describe(kind);
}

void TestMatrix::pack(const std::vector<float>& elements, int step, std::mt19937* rng) {
  const WeightFormat& f = format_info(matrix_.format);
  const size_t cols = at(matrix_.cols);
  const size_t tile = f.tile_bytes(matrix_.cols);
  const size_t n_tiles = at((matrix_.rows + 15) / 16);
  // The gaps between the tiles belong to other matrices.
  tiles_.assign((at(step) * (n_tiles - 1) + 1) * tile, 0xA5);
  elements_.resize(elements.size());
  for (size_t t = 0; t < n_tiles; ++t) {
    const size_t first = 16 * t * cols;
    const int n = std::min(16, matrix_.rows - static_cast<int>(16 * t));
    uint8_t* out = tiles_.data() + at(step) * t * tile;
    if (f.only_blocks()) {
      pack_random_blocks(f, n, matrix_.cols, 0.01f, *rng, out);
    } else if (f.integer) {
      const float* begin = elements.data() + first;
      const std::vector<int8_t> codes(begin, begin + at(n) * cols);
      f.pack_codes(codes.data(), matrix_.cols, n, matrix_.cols, out);
      if (rng != nullptr) put_random_scales(f, n, matrix_.cols, *rng, out);
    } else {
      f.pack_values(&elements[first], matrix_.cols, n, matrix_.cols, out);
    }
    for (int r = 0; r < n; ++r) {
      read_row(f, out, matrix_.cols, r, &elements_[first + at(r) * cols]);
    }
  }
  matrix_.tile_stride = static_cast<int64_t>(at(step) * tile);
  matrix_.tiles = tiles_.data();
  matrix_.scales = scales_.empty() ? nullptr : scales_.data();
  EXPECT_TRUE(check_matrix(matrix_).ok()) << check_matrix(matrix_).text();
  device_tiles_ = DeviceArray<uint8_t>(tiles_);
  device_scales_ = DeviceArray<float>(scales_);
  device_bias_ = DeviceArray<float>(bias_);
}

cuda::Weight TestMatrix::on_device() const {
  cuda::Weight w{matrix_, device_bias_.data()};
  w.matrix.tiles = device_tiles_.data();
  w.matrix.scales = device_scales_.data();
  return w;
}

float TestMatrix::scale_at(int32_t row, int32_t col) const {
  if (matrix_.scale_kind == ScaleKind::kNone) return 1;
  const WeightFormat& f = format_info(matrix_.format);
  if (f.group != 0) {
    return f.scale(matrix_.tiles + row / 16 * matrix_.tile_stride, row % 16, col / f.group);
  }
  return scales_[at(scale_index(matrix_.scale_kind, matrix_.group, matrix_.cols, row, col))];
}

float TestMatrix::minimum_at(int32_t row, int32_t col) const {
  const WeightFormat& f = format_info(matrix_.format);
  if (f.group == 0) return 0;
  return f.minimum(matrix_.tiles + row / 16 * matrix_.tile_stride, row % 16, col / f.group);
}

TestMatrix::InputCodes TestMatrix::quantise(const float* x) const {
  const int32_t cols = matrix_.cols;
  const bool a8 = matrix_.act == ActPrecision::kA8;
  const int32_t block = inputs_per_scale(matrix_.act, cols);
  InputCodes in;
  in.codes.resize(at(cols));
  for (int32_t k = 0; k < cols; k += block) {
    const int32_t n = std::min(block, cols - k);
    in.scales.push_back(quantise_activations(x + k, n, a8 ? -128 : -127, &in.codes[at(k)]).scale);
  }
  return in;
}

float TestMatrix::integer_product(const InputCodes& x, int32_t row) const {
  const int32_t cols = matrix_.cols;
  const float* w = &elements_[at(row) * at(cols)];
  const int8_t* codes = x.codes.data();
  const bool a8 = matrix_.act == ActPrecision::kA8;
  const bool grouped = matrix_.scale_kind == ScaleKind::kGroup;
  const int32_t block = inputs_per_scale(matrix_.act, cols);
  const int32_t step = grouped ? matrix_.group : block;
  float total = 0;
  for (int32_t k = 0; k < cols; k += step) {
    int64_t sum = 0;
    int32_t inputs = 0;
    for (int32_t i = k; i < std::min(k + step, cols); ++i) {
      sum += static_cast<int64_t>(w[i]) * codes[i];
      inputs += codes[i];
    }
    const float s = x.scales[at(k / block)];
    if (a8 && !grouped) return static_cast<float>(sum) * (s * scale_at(row, 0));
    total = std::fma(static_cast<float>(sum), grouped ? s * scale_at(row, k) : s, total);
    if (format_info(matrix_.format).minimums) {
      total = std::fma(static_cast<float>(inputs) * s, minimum_at(row, k), total);
    }
  }
  return grouped ? total : total * scale_at(row, 0);
}

// Chains of `segment` fused multiply-adds, summed within a group or over all inputs.
float TestMatrix::float_product(const float* x, int32_t row, int32_t segment) const {
  const int32_t cols = matrix_.cols;
  const float* w = &elements_[at(row) * at(cols)];
  const bool grouped = matrix_.scale_kind == ScaleKind::kGroup;
  float chain = 0, sum = 0, total = 0, inputs = 0;
  for (int32_t k = 0; k < cols; ++k) {
    chain = std::fma(w[k], x[k], chain);
    inputs = inputs + x[k];
    const bool last = k + 1 == cols;
    const bool group_ends = grouped && ((k + 1) % matrix_.group == 0 || last);
    if ((k + 1) % segment == 0 || last || group_ends) {
      sum = sum + chain;
      chain = 0;
    }
    if (group_ends) {
      total = std::fma(sum, scale_at(row, k), total);
      if (format_info(matrix_.format).minimums) {
        total = std::fma(inputs, minimum_at(row, k), total);
      }
      sum = inputs = 0;
    }
  }
  return grouped ? total : sum * scale_at(row, 0);
}

std::vector<float> TestMatrix::times(const float* x) const {
  const bool floats = matrix_.act == ActPrecision::kF32;
  const InputCodes codes = floats ? InputCodes() : quantise(x);
  std::vector<float> y;
  for (int32_t r = 0; r < matrix_.rows; ++r) {
    const float v = floats ? float_product(x, r, 32) : integer_product(codes, r);
    y.push_back(bias_.empty() ? v : v + bias_[at(r)]);
  }
  return y;
}

std::vector<float> TestMatrix::times_as_cpu(const float* x, std::vector<float>* bound) const {
  std::vector<float> y;
  for (int32_t r = 0; r < matrix_.rows; ++r) {
    const float v = float_product(x, r, 1 << 30);
    y.push_back(bias_.empty() ? v : v + bias_[at(r)]);
    // The error of either order is at most n roundings of the sum of magnitudes.
    double magnitude = std::fabs(double{y.back()});
    for (int32_t k = 0; k < matrix_.cols; ++k) {
      magnitude += std::fabs(double{elements_[at(r) * at(matrix_.cols) + at(k)]} * double{x[k]}) *
                   std::fabs(double{scale_at(r, k)});
      magnitude += std::fabs(double{minimum_at(r, k)} * double{x[k]});
    }
    bound->push_back(static_cast<float>(2 * (matrix_.cols + 4) * 0x1p-24 * magnitude));
  }
  return y;
}

TestInput::TestInput(int32_t n, int32_t cols, std::mt19937& rng) : n_(n), cols_(cols) {
  std::normal_distribution<float> normal(0.0f, 1.0f);
  x_.resize(at(n) * at(cols));
  for (float& v : x_) v = normal(rng) * std::exp2(normal(rng));
  *this = TestInput(x_, n, cols);
}

TestInput::TestInput(std::vector<float> x, int32_t n, int32_t cols)
    : n_(n), cols_(cols), x_(std::move(x)), device_x_(x_) {
  a8_ = quantise(ActPrecision::kA8);
  a8_block_ = quantise(ActPrecision::kA8Block);
  a8_group_ = quantise(ActPrecision::kA8Group);
}

TestInput::DeviceCodes TestInput::quantise(ActPrecision act) const {
  const int64_t ld = cuda::codes_ld(cols_);
  const int32_t block = inputs_per_scale(act, cols_);
  std::vector<int8_t> codes(at(n_ * ld), 0);
  std::vector<float> scales;
  std::vector<int32_t> sums;
  for (int32_t i = 0; i < n_; ++i) {
    for (int32_t k = 0; k < cols_; k += block) {
      const int32_t n = std::min(block, cols_ - k);
      int8_t* out = &codes[at(i * ld + k)];
      scales.push_back(
          quantise_activations(row(i) + k, n, act == ActPrecision::kA8 ? -128 : -127, out).scale);
      int32_t sum = 0;
      for (int32_t j = 0; j < n; ++j) sum += out[j];
      sums.push_back(sum);
    }
  }
  return {DeviceArray<int8_t>(codes), DeviceArray<float>(scales), DeviceArray<int32_t>(sums)};
}

cuda::Codes TestInput::view(const DeviceCodes& c) const {
  return {c.codes.data(), cuda::codes_ld(cols_), c.scales.data(), c.sums.data()};
}

cuda::MatmulInput TestInput::on_device() const {
  return {device_x_.data(), cols_, view(a8_), view(a8_block_), view(a8_group_)};
}

::testing::AssertionResult same_bits(const std::vector<float>& got,
                                     const std::vector<float>& want) {
  if (got.size() != want.size()) return ::testing::AssertionFailure() << "sizes differ";
  for (size_t i = 0; i < want.size(); ++i) {
    if (std::memcmp(&got[i], &want[i], 4) == 0) continue;
    return ::testing::AssertionFailure()
           << "output " << i << ": " << got[i] << ", by definition " << want[i];
  }
  return ::testing::AssertionSuccess();
}

void expect_dense(const std::vector<const TestMatrix*>& matrices, const TestInput& input, int32_t n,
                  const std::vector<cuda::ProductKernels>& families, const After& after,
                  const DenseRun& run) {
  std::vector<std::vector<float>> want(matrices.size());
  for (size_t o = 0; o < matrices.size(); ++o) {
    for (int32_t i = 0; i < n; ++i) {
      for (const float v : matrices[o]->times(input.row(i))) {
        want[o].push_back(after.accumulate ? std::fma(after.scale, v, kUntouched)
                                           : after.scale * v);
      }
      want[o].insert(want[o].end(), 3, kUntouched);
    }
  }
  for (const cuda::ProductKernels family : families) {
    cuda::MatmulOp op;
    op.rows.rows.n = n;
    op.in = input.on_device();
    op.library = run.library;
    std::vector<DeviceArray<float>> ys;
    for (const TestMatrix* m : matrices) {
      const int64_t ld = m->matrix().rows + 3;
      ys.emplace_back(std::vector<float>(at(n * ld), kUntouched));
      cuda::MatmulOut& out = op.outs[op.n_outs++];
      out.weight = m->on_device();
      out.y = ys.back().data();
      out.ld_y = ld;
      out.accumulate = after.accumulate;
      out.scale = after.scale;
    }
    ASSERT_EQ(cuda::matmul_with(run.stream, op, family), cudaSuccess);
    for (size_t o = 0; o < matrices.size(); ++o) {
      const Matrix& m = matrices[o]->matrix();
      ASSERT_TRUE(same_bits(ys[o].values(), want[o]))
          << describe({m.format, m.scale_kind, m.group, m.act}) << " (" << m.rows << ", " << m.cols
          << ") n " << n << " family " << static_cast<int>(family);
    }
  }
}

TestGroups::TestGroups(const std::vector<int32_t>& sizes, const std::vector<int32_t>& matrices,
                       int32_t max_groups, int32_t n_inputs, std::mt19937& rng)
    : max_groups_(max_groups) {
  std::vector<int32_t> begin(1, 0);
  for (size_t g = 0; g < sizes.size(); ++g) {
    for (int32_t i = 0; i < sizes[g]; ++i) {
      input_.push_back(static_cast<int32_t>(rng() % static_cast<uint32_t>(n_inputs)));
      matrix_.push_back(matrices[g]);
    }
    begin.push_back(static_cast<int32_t>(input_.size()));
  }
  // Entries after the last group are undefined.
  std::vector<int32_t> group = matrices;
  group.resize(at(max_groups), -1000);
  begin.resize(at(max_groups) + 1, -7);
  n_groups_ = DeviceArray<int32_t>(std::vector<int32_t>{static_cast<int32_t>(sizes.size())});
  group_ = DeviceArray<int32_t>(group);
  begin_ = DeviceArray<int32_t>(begin);
  input_row_ = DeviceArray<int32_t>(input_);
}

cuda::RowGroups TestGroups::on_device() const {
  cuda::RowGroups rows;
  rows.rows.n = n_rows();
  rows.max_groups = max_groups_;
  rows.n_groups = n_groups_.data();
  rows.group = group_.data();
  rows.begin = begin_.data();
  rows.input_row = input_row_.data();
  return rows;
}

}  // namespace moe
