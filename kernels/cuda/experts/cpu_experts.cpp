// SPDX-License-Identifier: MIT
// Gives rows to the CPU device; only experts whose products are sums of integer codes get the same
// bits there.
#include "kernels/cuda/experts/cpu_experts.h"

#include <algorithm>
#include <cstring>

#include "quant/formats.h"

namespace moe::cuda {
namespace {

bool of_codes(const Matrix& m) {
  return format_info(m.format).integer && m.act != ActPrecision::kF32;
}

}  // namespace

CpuExperts::~CpuExperts() {
  if (stream_ != nullptr) cpu_->close_stream(stream_);
}

StreamShape CpuExperts::shape_of(const StreamShape& shape) {
  StreamShape s;
  s.max_rows = kCpuPairs;
  s.d_model = shape.d_model;
  s.max_d_in = std::max(shape.d_model, shape.max_d_ff);
  s.max_d_ff = shape.max_d_ff;
  return s;
}

size_t CpuExperts::bytes(const Device& cpu, const StreamShape& shape) {
  const auto rows = static_cast<size_t>(kCpuPairs) * static_cast<size_t>(shape.d_model);
  return cpu.stream_bytes(shape_of(shape)) + rows * sizeof(float);
}

bool CpuExperts::open(Device* cpu, const StreamShape& shape) {
  if (stream_ != nullptr) return true;
  if (cpu == nullptr) return false;
  const auto rows = static_cast<size_t>(kCpuPairs) * static_cast<size_t>(shape.d_model);
  if (!rows_.resize(rows).ok()) return false;
  auto stream = cpu->open_stream(shape_of(shape));
  if (!stream.ok()) return false;
  cpu_ = cpu;
  stream_ = stream.value();
  return true;
}

bool CpuExperts::same_bits(const Ffn& ffn) {
  return of_codes(ffn.up) && of_codes(ffn.down) && (ffn.gate.rows == 0 || of_codes(ffn.gate));
}

Status CpuExperts::compute(const Ffn& ffn, const ActivationConfig& act, const float* x, int32_t d,
                           const int32_t* tokens, int32_t n, float* y, uint64_t* positive) {
  const auto row_bytes = static_cast<size_t>(d) * sizeof(float);
  for (int32_t i = 0; i < n; ++i) {
    std::memcpy(rows_.data() + int64_t{i} * d, x + int64_t{tokens[i]} * d, row_bytes);
  }
  RoutingStats stats;
  FfnOp op;
  op.x = rows_.data();
  op.y = y;
  op.n_rows = n;
  op.d_model = d;
  op.act = act;
  op.shared = &ffn;
  op.stats = &stats;
  cpu_->ffn(*stream_, op);
  *positive += stats.n_positive;
  return cpu_->sync(*stream_);
}

}  // namespace moe::cuda
