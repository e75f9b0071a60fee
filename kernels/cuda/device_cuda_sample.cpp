// SPDX-License-Identifier: MIT
// Rows of logits that remain on the GPU, and reports on them to the host.

#include "kernels/cuda/device_cuda_impl.h"

namespace moe::cuda {
namespace {

CudaStream& own(Stream& s) { return static_cast<CudaStream&>(s); }

}  // namespace

void CudaDevice::sample(Stream& stream, const SampleOp& op) {
  CudaStream& s = own(stream);
  if (op.n_rows == 0) return;
  if (!begin_op(s)) return;
  const auto n = static_cast<size_t>(op.n_rows);
  DeviceSampleOp on_device = s.scratch.sample;
  on_device.op = op;
  on_device.sums = on_device.candidates = false;
  for (size_t i = 0; i < n; ++i) {
    on_device.sums = on_device.sums || wants_anything(op.specs[i]);
    on_device.candidates = on_device.candidates || wants_candidates(op.specs[i]);
  }
  on_device.op.specs = place_array(s, op.specs, n);
  on_device.op.copies = place_array(s, op.copies, n);
  if (!s.live()) return;
  s.check(sample_rows(s.stream, on_device), "looking at logits");
}

SampleReport CudaDevice::sampled(Stream& stream, int32_t row) {
  const CudaStream& s = own(stream);
  const DeviceSampleOp& m = s.scratch.sample;
  const SampleHead& head = m.heads[row];
  const int64_t spans = sample_spans(s.shape.vocab_size);
  SampleReport found;
  found.bad = head.bad;
  found.best = head.best;
  found.best_logit = head.best_logit;
  found.n_candidates = head.n_candidates;
  found.candidates = m.candidates_of + int64_t{row} * kMaxCandidates;
  found.sums = m.span_sums + row * spans;
  found.weights = m.span_weights + row * spans;
  return found;
}

}  // namespace moe::cuda
