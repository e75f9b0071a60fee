// SPDX-License-Identifier: MIT
// Token mixers on the device: the code of kernels/mixers, a block of threads for a unit of a text,
// which goes through its tokens in order; then what completes each row, and the fault.

#include "kernels/cuda/group_isa.h"
#include "kernels/cuda/ops.h"
#include "kernels/mixers/all.h"

namespace moe::cuda {
namespace {

using Isa = GroupIsa;

/// How many units a kernel has, and how many of them a block takes.
struct Units {
  int64_t n;
  int32_t of_block;
};

__device__ inline MixerArgs args_of(const MixerOp& op) {
  MixerArgs args;
  args.config = op.config;
  args.d_model = op.d_model;
  args.n_rows = op.n_rows;
  args.in = op.in;
  args.ld_in = op.ld_in;
  args.out = op.out;
  args.ld_out = op.ld_out;
  args.vectors = op.vectors;
  return args;
}

template <class Mixer>
__global__ void __launch_bounds__(Isa::kThreads) mix_kernel(DeviceMixOp op, Units units) {
  wait_for_previous();
  for (int32_t t = static_cast<int32_t>(blockIdx.y); t < op.n_texts;
       t += static_cast<int32_t>(gridDim.y)) {
    const MixedText text = op.texts[t];
    MixerArgs args = args_of(op.op);
    args.n_rows = text.n_rows;
    args.in += text.first * args.ld_in;
    args.out += text.first * args.ld_out;
    args.from = text.state.from;
    args.to = text.state.to;
    args.begin = int64_t{blockIdx.x} * units.of_block;
    args.end = args.begin + units.of_block < units.n ? args.begin + units.of_block : units.n;
    const int32_t bad = Mixer::template run<Isa>(args);
    // The first bad row of all has the most rows from it on.
    if (bad != kMixerFinite) atomicMax(op.bad, op.op.n_rows - text.first - bad);
    Isa::wait();  // the next text uses the same shared memory
  }
}

/// Tells the host of the step's first fault, and forgets it.
__device__ inline void report(const DeviceMixOp& op) {
  const int32_t from_bad = *op.bad;
  if (from_bad == 0) return;
  *op.bad = 0;
  if (*op.router_fault != 0 || op.fault->found != 0) return;
  op.fault->layer = op.op.layer;
  op.fault->kind = static_cast<int32_t>(op.op.config.kind);
  op.fault->position = op.op.rows[op.op.n_rows - from_bad].position;
  op.fault->found = 1;
}

template <class Mixer>
__global__ void __launch_bounds__(Isa::kThreads) finish_kernel(DeviceMixOp op) {
  wait_for_previous();
  if (blockIdx.x == 0 && threadIdx.x == 0) report(op);
  if constexpr (Mixer::info.finishes) {
    Mixer::template finish<Isa>(args_of(op.op), static_cast<int32_t>(blockIdx.x));
  }
}

template <class Mixer>
cudaError_t mix_with(cudaStream_t stream, const DeviceMixOp& op) {
  Units units;
  units.n = Mixer::info.units(op.op.config, op.op.d_model);
  units.of_block = Mixer::info.narrow ? Isa::kGroups : 1;
  Grid grid;
  grid.threads = Isa::kThreads;
  grid.blocks = dim3(static_cast<unsigned>((units.n + units.of_block - 1) / units.of_block),
                     static_cast<unsigned>(op.n_texts < kMostGridY ? op.n_texts : kMostGridY));
  return launch(mix_kernel<Mixer>, grid, stream, op, units);
}

template <class Mixer>
cudaError_t finish_with(cudaStream_t stream, const DeviceMixOp& op) {
  Grid grid;
  grid.threads = Isa::kThreads;
  grid.blocks = dim3(Mixer::info.finishes ? static_cast<unsigned>(op.op.n_rows) : 1u);
  return launch(finish_kernel<Mixer>, grid, stream, op);
}

}  // namespace

cudaError_t mix_texts([[maybe_unused]] cudaStream_t stream,
                      [[maybe_unused]] const DeviceMixOp& op) {
#define MOE_MIXER(Name, header) \
  if (op.op.config.kind == MixerKind::k##Name) return mix_with<Name##Mixer>(stream, op);
#include "kernels/mixers/built.h"
#undef MOE_MIXER
  return cudaSuccess;
}

cudaError_t finish_mixed([[maybe_unused]] cudaStream_t stream,
                         [[maybe_unused]] const DeviceMixOp& op) {
#define MOE_MIXER(Name, header) \
  if (op.op.config.kind == MixerKind::k##Name) return finish_with<Name##Mixer>(stream, op);
#include "kernels/mixers/built.h"
#undef MOE_MIXER
  return cudaSuccess;
}

}  // namespace moe::cuda
