// SPDX-License-Identifier: MIT
#pragma once
// Matrices, activations and their products by definition, for the tests of the matrix products on a
// GPU.

#include <random>

#include "kernels/cuda/matmul/matmul.h"
#include "quant/formats.h"
#include "tests/gpu/device_memory.h"

namespace moe {

inline size_t at(int64_t i) { return static_cast<size_t>(i); }

struct WeightKind {
  FormatId format = FormatId::kF32;
  ScaleKind scale = ScaleKind::kNone;
  int32_t group = 0;
  ActPrecision act = ActPrecision::kF32;
};
/// Every kind of weights that a model can have.
std::vector<WeightKind> all_weight_kinds();
/// On a GPU the same. On the emulator, which is slow, one of those that a kernel multiplies, of
/// each precision and kind of scales in turn: a format has a kernel for floats, one for codes, and,
/// unless its tiles hold the scales, one for each where several scales of weights or of activations
/// belong to a row.
std::vector<WeightKind> kinds_by_kernel();
std::string describe(const WeightKind& kind);

/// One matrix in host memory and on the device. Its tile stride is `step` tiles.
class TestMatrix {
 public:
  TestMatrix(const WeightKind& kind, int32_t rows, int32_t cols, std::mt19937& rng, bool bias,
             int step = 2);
  /// A matrix in which every code is `code` and every scale 1.
  TestMatrix(const WeightKind& kind, int32_t rows, int32_t cols, int code);

  const Matrix& matrix() const { return matrix_; }
  cuda::Weight on_device() const;
  /// x W^T + bias for one row of inputs, in the GPU's order of summation (for float weights, see
  /// kernels/cuda/README.md).
  std::vector<float> times(const float* x) const;
  /// The same in the CPU's order, and a bound of the difference between the two.
  std::vector<float> times_as_cpu(const float* x, std::vector<float>* bound) const;

 private:
  struct InputCodes {
    std::vector<int8_t> codes;
    std::vector<float> scales;  // one per block
  };
  void pack(const std::vector<float>& elements, int step, std::mt19937* rng);
  float scale_at(int32_t row, int32_t col) const;
  float minimum_at(int32_t row, int32_t col) const;
  InputCodes quantise(const float* x) const;
  float integer_product(const InputCodes& x, int32_t row) const;
  float float_product(const float* x, int32_t row, int32_t segment) const;

  std::vector<float> elements_;  // as stored, without scales
  std::vector<float> scales_;
  std::vector<float> bias_;
  std::vector<uint8_t> tiles_;
  Matrix matrix_;
  DeviceArray<uint8_t> device_tiles_;
  DeviceArray<float> device_scales_;
  DeviceArray<float> device_bias_;
};

/// Rows of inputs in every precision.
class TestInput {
 public:
  TestInput(int32_t n, int32_t cols, std::mt19937& rng);
  TestInput(std::vector<float> x, int32_t n, int32_t cols);
  const float* row(int32_t i) const { return x_.data() + int64_t{i} * cols_; }
  cuda::MatmulInput on_device() const;

 private:
  struct DeviceCodes {
    DeviceArray<int8_t> codes;
    DeviceArray<float> scales;
    DeviceArray<int32_t> sums;
  };
  DeviceCodes quantise(ActPrecision act) const;
  cuda::Codes view(const DeviceCodes& c) const;

  int32_t n_;
  int32_t cols_;
  std::vector<float> x_;
  DeviceArray<float> device_x_;
  DeviceCodes a8_;
  DeviceCodes a8_block_;
  DeviceCodes a8_group_;
};

constexpr float kUntouched = -12345.5f;

/// How a product stores its result.
struct After {
  bool accumulate = false;
  float scale = 1;
};
/// The library and the stream of a product.
struct DenseRun {
  cuda::ProductLibrary* library = nullptr;
  cudaStream_t stream = nullptr;
};
/// Multiplies the first n rows of the input with every matrix, in each of the kernel families.
/// Fails the test unless the bits are those of the definition and nothing else is written.
void expect_dense(const std::vector<const TestMatrix*>& matrices, const TestInput& input, int32_t n,
                  const std::vector<cuda::ProductKernels>& families, const After& after = {},
                  const DenseRun& run = {});

::testing::AssertionResult same_bits(const std::vector<float>& got, const std::vector<float>& want);

/// Groups of rows as routing makes them: group i has sizes[i] rows and matrix matrices[i].
class TestGroups {
 public:
  TestGroups(const std::vector<int32_t>& sizes, const std::vector<int32_t>& matrices,
             int32_t max_groups, int32_t n_inputs, std::mt19937& rng);
  cuda::RowGroups on_device() const;
  int32_t n_rows() const { return static_cast<int32_t>(input_.size()); }
  int32_t input_of(int32_t row) const { return input_[static_cast<size_t>(row)]; }
  int32_t matrix_of(int32_t row) const { return matrix_[static_cast<size_t>(row)]; }

 private:
  int32_t max_groups_;
  std::vector<int32_t> input_;   // one per row
  std::vector<int32_t> matrix_;  // one per row
  DeviceArray<int32_t> n_groups_;
  DeviceArray<int32_t> group_;
  DeviceArray<int32_t> begin_;
  DeviceArray<int32_t> input_row_;
};

}  // namespace moe
