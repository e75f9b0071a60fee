// SPDX-License-Identifier: MIT
#pragma once
// A matrix product to test: weights of any format with known codes, inputs, and the result by
// definition.

#include <random>
#include <vector>

#include "kernels/cpu/linear_input.h"
#include "quant/formats.h"

namespace moe {

struct LinearShape {
  FormatId format;
  ScaleKind scale;
  int32_t group;
  ActPrecision act;
  int32_t rows;
  int32_t cols;
  int32_t n;
  bool bias = false;
  bool accumulate = false;
  float scale_y = 1;
  bool largest_inputs = false;  // codes are 127, in the second row -127, in the others either
};

/// 64-byte aligned memory of an exact size, so that a sanitizer detects reads past its end.
class AlignedBytes {
 public:
  explicit AlignedBytes(size_t n);
  AlignedBytes(const AlignedBytes&) = delete;
  AlignedBytes& operator=(const AlignedBytes&) = delete;
  ~AlignedBytes();
  uint8_t* data() const { return data_; }

 private:
  uint8_t* data_;
};

class LinearProblem {
 public:
  /// Random codes, scales and inputs. The tile stride is two tiles, as with interleaved gate and
  /// up.
  LinearProblem(const LinearShape& shape, std::mt19937& rng);
  /// Every code is `code` or, with WeightFormat::round_rows, stored as near it as they can be;
  /// every scale and input is 1.
  LinearProblem(const LinearShape& shape, int code);

  const Matrix& matrix() const { return matrix_; }
  /// Row i of the result, bit for bit, by the definitions in quant/ and in the order of summation
  /// that kernels/README.md specifies.
  std::vector<float> expected(int32_t i) const;
  /// The kernel's result for input rows ids[0..n) (all rows in order if empty), with the tiles in
  /// two calls.
  std::vector<float> run(const CpuKernels& kernels, std::vector<int32_t> ids = {}) const;
  LinearArgs args(const LinearInput& input, float* y) const;
  const float* x() const { return x_.data(); }
  /// The stored codes or values of a row.
  const float* elements(int32_t row) const {
    return &elements_[static_cast<size_t>(row) * static_cast<size_t>(shape_.cols)];
  }

 private:
  struct InputCodes {
    std::vector<int8_t> codes;
    std::vector<float> scales;  // one per block
  };
  /// Formats of only_blocks() get random blocks instead of the elements.
  void pack(const std::vector<float>& elements, std::mt19937* rng);
  InputCodes quantise(const float* x) const;
  float scale_at(int32_t row, int32_t col) const;
  float minimum_at(int32_t row, int32_t col) const;
  float float_product(const float* x, int32_t row) const;
  float integer_product(const InputCodes& x, int32_t row) const;

  LinearShape shape_;
  std::vector<float> elements_;  // codes or values, (rows, cols)
  std::vector<float> scales_;
  std::vector<float> x_;
  std::vector<float> bias_;
  std::vector<float> y_;  // initial values, for accumulate
  AlignedBytes tiles_;
  Matrix matrix_;
};

}  // namespace moe
