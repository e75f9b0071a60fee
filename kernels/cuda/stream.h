// SPDX-License-Identifier: MIT
#pragma once
// A session's state on the GPU: a CUDA stream, scratch memory for a StreamShape, and recorded
// steps.

#include "kernels/cuda/experts/cpu_experts.h"
#include "kernels/cuda/experts/held_experts.h"
#include "kernels/cuda/gpu_context.h"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/step.h"

namespace moe::cuda {

/// Device memory between operations. "pairs" are (token, expert) pairs computed at once.
struct Scratch {
  BatchRow* rows = nullptr;    // (max_rows) of the step
  float* normed = nullptr;     // (max_rows, widest input)
  MatmulInput in;              // codes of rows or (sub-)tokens
  MatmulInput mid;             // codes of pairs
  float* head = nullptr;       // (max_rows, d_model): MH-MoE's head output, later the merge output
  float* routed = nullptr;     // (max_rows, d_model): sum of the experts
  float* shared = nullptr;     // (max_rows, d_model): shared expert's output
  float* gate = nullptr;       // (max_rows): shared expert's gate
  float* hidden = nullptr;     // (pairs, max_d_ff)
  float* outputs = nullptr;    // (pairs, d_model); X-MoE: the residual stream
  float* stack_in = nullptr;   // (pairs, d_model): X-MoE's normed input
  float* partial = nullptr;    // attention
  int32_t* arrived = nullptr;  // attention: zeros
  int32_t* mixer_bad = nullptr;  // (1) DeviceMixOp::bad

  float* scores = nullptr;  // (tokens, max_experts)
  float* cosine = nullptr;  // (tokens, max_d_e)
  Routing routing;          // (tokens, max_routed)
  float* prob = nullptr;    // (tokens, max_routed)
  float* route_floats = nullptr;
  int32_t* route_ints = nullptr;
  PairLists pairs;
  int32_t* group_scratch = nullptr;

  uint64_t* counters = nullptr;  // (2 max_experts + 4): one layer's RoutingStats
  DeviceSampleOp sample;         // scratch and, in pinned memory, results of kMaxSampleRows rows
};

/// The part of a layer's PairLists that the host reads and, if the CPU may compute experts, their
/// inputs and outputs. Pinned.
struct HostRouting {
  int32_t* n_groups = nullptr;  // (1)
  int32_t* group = nullptr;     // (max_experts)
  int32_t* begin = nullptr;     // (max_experts + 1)
  int32_t* token = nullptr;     // (kCpuPairs)
  float* x = nullptr;           // (kCpuPairs, d_model) of (sub-)tokens
  float* outputs = nullptr;     // (kCpuPairs, d_model)
};

struct CudaStream final : Stream {
  explicit CudaStream(const Allocator& a) : graphs(a), held(a), cpu_experts(a) {}

  /// True while operations should continue.
  bool live() const {
    if (capturing != nullptr && capturing->refused) return false;
    return latched.ok() && !cancelled.load(std::memory_order_relaxed);
  }
  void latch(const Status& status) {
    if (latched.ok()) latched = status;
  }
  /// Latches a CUDA error; true if there is none. While a step is captured nothing runs: an error
  /// ends the capture, and is latched if it recurs without one.
  bool check(cudaError_t error, const char* what) {
    if (error == cudaSuccess) return true;
    const Status status = cuda_status(error, what);
    if (capturing == nullptr) {
      latch(status);
    } else {
      if (capture_error.ok()) capture_error = status;
      capturing->refused = true;
    }
    return false;
  }
  /// Makes the GPU's context current, from a call's first operation to its sync().
  void enter() {
    if (entered) return;
    const Status status = context->enter();
    entered = status.ok();
    latch(status);
  }
  void leave() {
    if (entered) context->leave();
    entered = false;
  }

  StreamShape shape;
  cudaStream_t stream = nullptr;
  void* memory = nullptr;  // of `scratch`
  size_t bytes = 0;
  int32_t pair_capacity = 0;
  Scratch scratch;
  void* host = nullptr;        // pinned, of `words` and `routing`
  HostWords* words = nullptr;  // written by kernels, read by the host without a copy
  HostRouting routing;
  void* reports = nullptr;  // pinned: reports on rows of logits
  StepArena arena;          // for steps that are not captured
  StepGraphs graphs;
  HeldExperts held;  // if experts are offloaded
  CpuExperts cpu_experts;
  const BatchRow* step_rows = nullptr;  // host rows of the current step, null outside
  int32_t n_step_rows = 0;
  StepGraph* capturing = nullptr;
  Status capture_error;     // of the current capture
  bool graphs_off = false;  // after an error of a graph
  const GpuContext* context = nullptr;
  bool entered = false;
  ProductLibrary* library = nullptr;  // the GPU's
  /// None in a captured step: its scratch is shared and may be freed.
  ProductLibrary* library_now() const { return capturing == nullptr ? library : nullptr; }
};

/// Device bytes of a stream's scratch; 0 when the shape is negative or the sum overflows.
size_t scratch_bytes(const StreamShape& shape);
/// Assigns the parts of the scratch in s.memory.
void lay_out_scratch(CudaStream& s);

/// Pinned bytes for the host's reads, and their layout in s.host.
size_t host_bytes(const StreamShape& shape);
void lay_out_host(CudaStream& s);

/// Pinned bytes for reports on rows of logits, and their layout in s.reports.
size_t report_bytes(const StreamShape& shape);
void lay_out_reports(CudaStream& s);

/// Size of the arena of a stream's steps: twice the maximum of one operation.
size_t arena_bytes(const StreamShape& shape);
/// Call before an operation places data: makes room. False if it must do nothing.
bool begin_op(CudaStream& s);
/// Copies host data for kernels enqueued later; null if there is no room: then an error is latched,
/// or a captured step is refused.
const void* place(CudaStream& s, const void* host, size_t bytes);
template <class T>
const T* place_array(CudaStream& s, const T* host, size_t n) {
  return static_cast<const T*>(place(s, host, n * sizeof(T)));
}
/// The step's rows on the device, or a copy of rows outside a step.
const BatchRow* device_rows(CudaStream& s, const BatchRow* rows, int32_t n);

/// Waits for enqueued work, and latches its errors. Releases the experts held for it.
void wait(CudaStream& s);

}  // namespace moe::cuda
