// SPDX-License-Identifier: MIT
// Token mixers: where each text's rows and states are, for the kernels.

#include "kernels/cuda/device_cuda_impl.h"
#include "kernels/mixers/table.h"

namespace moe::cuda {
namespace {

int32_t rows_of_session(const MixerOp& op, int32_t first) {
  int32_t end = first + 1;
  while (end < op.n_rows && op.rows[end].session == op.rows[first].session) ++end;
  return end - first;
}

}  // namespace

void CudaDevice::mix(Stream& stream, const MixerOp& op) {
  auto& s = static_cast<CudaStream&>(stream);
  if (!kHasMixers || !begin_op(s) || op.n_rows == 0) return;
  DeviceMixOp on_device;
  on_device.op = op;
  on_device.op.rows = device_rows(s, op.rows, op.n_rows);
  const auto n_vectors = static_cast<size_t>(mixer_info(op.config).n_weights());
  on_device.op.vectors = place_array(s, op.vectors, n_vectors);
  on_device.op.states = nullptr;
  on_device.bad = s.scratch.mixer_bad;
  on_device.fault = &s.words->mixer;
  on_device.router_fault = &s.words->fault;
  constexpr int32_t kTexts = 32;  // of one launch
  MixedText texts[kTexts];
  for (int32_t first = 0; first < op.n_rows && s.live();) {
    int32_t n = 0;
    while (n < kTexts && first < op.n_rows) {
      const int32_t rows = rows_of_session(op, first);
      texts[n++] = {first, rows, op.states[op.rows[first].session]};
      first += rows;
    }
    on_device.texts = place_array(s, texts, static_cast<size_t>(n));
    on_device.n_texts = n;
    if (s.live()) s.check(mix_texts(s.stream, on_device), "a token mixer");
  }
  if (s.live()) s.check(finish_mixed(s.stream, on_device), "the rows of a token mixer");
}

}  // namespace moe::cuda
