// SPDX-License-Identifier: MIT
// Computes the size of the codes, scales and sums of rows, and places them in given memory.
#include "kernels/cpu/linear_input.h"

#include "src/base/checked.h"

namespace moe {
namespace {

struct Sizes {
  size_t codes;
  size_t scales;
  size_t sums;
  size_t scaled_sums;
};

Sizes sizes(size_t n_rows, size_t padded_cols) {
  const size_t groups =
      round_up(n_rows * (padded_cols / size_t{kActGroup}) * sizeof(float), size_t{64});
  return {n_rows * padded_cols, groups,
          round_up(n_rows * (padded_cols / kSumInputs + 1) * sizeof(int32_t), size_t{64}), groups};
}

int32_t padded(int32_t n_cols) { return round_up(n_cols, kActBlock); }

}  // namespace

size_t linear_input_bytes(int32_t n_rows, int32_t n_cols) {
  const Sizes s = sizes(static_cast<size_t>(n_rows), static_cast<size_t>(padded(n_cols)));
  return s.codes + s.scales + s.sums + s.scaled_sums;
}

LinearInput make_linear_input(ActPrecision act, const float* x, int64_t ld_x, int32_t n_rows,
                              int32_t n_cols, const int32_t* row_ids, void* scratch) {
  LinearInput in;
  in.act = act;
  in.n_rows = n_rows;
  in.n_cols = n_cols;
  in.x = x;
  in.ld_x = ld_x;
  in.row_ids = row_ids;
  if (act == ActPrecision::kF32) return in;
  in.padded_cols = padded(n_cols);
  const Sizes s = sizes(static_cast<size_t>(n_rows), static_cast<size_t>(in.padded_cols));
  auto* bytes = static_cast<unsigned char*>(scratch);
  in.codes = reinterpret_cast<int8_t*>(bytes);
  in.scales = reinterpret_cast<float*>(bytes + s.codes);
  in.n_scales = in.padded_cols / inputs_per_scale(act, in.padded_cols);
  in.sums = reinterpret_cast<int32_t*>(bytes + s.codes + s.scales);
  in.scaled_sums = reinterpret_cast<float*>(bytes + s.codes + s.scales + s.sums);
  return in;
}

}  // namespace moe
