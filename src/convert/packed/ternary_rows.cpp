// SPDX-License-Identifier: MIT
// Unpacks two-bit codes of either package, and multiplies floats that are already ternary by their
// scale.
#include "src/convert/packed/ternary_rows.h"

#include <cmath>

#include "formats/import/failure.h"

namespace moe {
namespace {

[[noreturn]] void fail_code(const SourceTensor& tensor, int64_t row, int64_t column) {
  fail(MOE_ERR_CORRUPT,
       "tensor %.200s: row %lld, column %lld: packed value 3 stands for no ternary weight",
       tensor.name.c_str(), static_cast<long long>(row), static_cast<long long>(column));
}

// To -scale, 0 or scale; false for a code 3.
bool put(int code, float scale, float* to) {
  *to = static_cast<float>(code - 1) * scale;
  return code != 3;
}

}  // namespace

void CodesOfThree::read_scales(const Checkpoint&, int64_t, int64_t, float*, float*) const {
  fail(MOE_ERR_INTERNAL, "ternary codes have no scales per group");
}

void TernaryBytes::read(const Checkpoint& checkpoint, int64_t first, int64_t n, float* out) const {
  const int64_t cols = bytes.shape.back();
  const int64_t per_scale = n_rows / static_cast<int64_t>(scales.size());
  std::vector<uint8_t> codes(static_cast<size_t>(cols));
  for (int64_t row = first; row < first + n; ++row, out += cols) {
    const int64_t part = row / (unpacked * inner), item = row / inner % unpacked;
    const int64_t stored = (part * packed + item % packed) * inner + row % inner;
    const int64_t bits = 2 * (item / packed);
    const float scale = scales[static_cast<size_t>(row / per_scale)];
    checkpoint.read_bytes(bytes, static_cast<uint64_t>(stored * cols), codes.size(), codes.data());
    bool fine = true;
    for (int64_t c = 0; c < cols; ++c) {
      fine &= put(codes[static_cast<size_t>(c)] >> bits & 3, scale, out + c);
    }
    for (int64_t c = 0; !fine && c < cols; ++c) {
      if ((codes[static_cast<size_t>(c)] >> bits & 3) == 3) fail_code(bytes, row, c);
    }
  }
}

void I2sRows::read(const Checkpoint& checkpoint, int64_t first, int64_t n, float* out) const {
  const int64_t cols = tensor.shape.back(), n_bytes = block / 4;
  float scale = 0;
  checkpoint.read_bytes(tensor, tensor.n_elements / 4, sizeof scale,
                        reinterpret_cast<uint8_t*>(&scale));
  if (!std::isfinite(scale) || scale < 0) {
    fail(MOE_ERR_NON_FINITE, "tensor %.200s: expected a scale of at least 0, found %g",
         tensor.name.c_str(), static_cast<double>(scale));
  }
  std::vector<uint8_t> codes(static_cast<size_t>(n * cols / 4));
  checkpoint.read_bytes(tensor, static_cast<uint64_t>(first * cols / 4), codes.size(),
                        codes.data());
  for (int64_t at = 0; at < n * cols; ++at) {
    const int64_t in_block = at % block;
    const uint8_t byte = codes[static_cast<size_t>(at / block * n_bytes + in_block % n_bytes)];
    if (put(byte >> (6 - 2 * (in_block / n_bytes)) & 3, scale, out + at)) continue;
    fail_code(tensor, first + at / cols, at % cols);
  }
}

void ScaledRows::read(const Checkpoint& checkpoint, int64_t first, int64_t n, float* out) const {
  const int64_t cols = floats.shape.back();
  const auto n_values = static_cast<size_t>(n * cols);
  checkpoint.read(floats, static_cast<uint64_t>(first * cols), n_values, out);
  for (size_t i = 0; i < n_values; ++i) out[i] *= scale;
}

}  // namespace moe
