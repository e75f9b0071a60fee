// SPDX-License-Identifier: MIT
#pragma once
// Scratch memory of one pass on the CPU: one allocation, laid out from a StreamShape.

#include "kernels/cpu/table.h"
#include "kernels/device.h"

namespace moe {

/// (Token, expert) pairs computed at once; limits the memory of hidden activations.
inline constexpr int32_t kPairChunk = 256;
/// Experts per wave: they are acquired (see ExpertSource) while it is computed.
inline constexpr int32_t kWaveExperts = 16;

struct CpuStream final : Stream {
  StreamShape shape;
  size_t bytes = 0;  // of this object and its memory
  int32_t n_threads = 1;
  int32_t pair_chunk = 0;

  uint8_t* act = nullptr;  // quantised inputs: act_row_bytes per row
  int64_t act_row_bytes = 0;
  float* normed = nullptr;  // (max_rows, widest input)
  float* head = nullptr;    // (max_rows, d_model): MH-MoE's head output, later the merge output
  float* routed = nullptr;  // (max_rows, d_model): weighted sum of the experts
  float* gate = nullptr;    // (pair_chunk, max_d_ff)
  float* up = nullptr;      // (pair_chunk, max_d_ff)
  float* out = nullptr;     // (pair_chunk, d_model): one wave's expert outputs
  float* stack = nullptr;   // (pair_chunk, d_model): an input that is normed or rotated
  float* shared_gate = nullptr;  // (max_rows)
  float* scores = nullptr;       // (tokens, max_experts)
  float* cosine = nullptr;       // (tokens, max_d_e)

  // Routing: tokens = max_rows * max_subheads, slots = tokens * max_routed.
  int32_t* expert = nullptr;       // (slots)
  float* weight = nullptr;         // (slots)
  float* prob = nullptr;           // (slots)
  uint8_t* kept = nullptr;         // (slots): 0 if refused
  int32_t* count = nullptr;        // (tokens)
  int32_t* table_entry = nullptr;  // (tokens)
  int32_t* order = nullptr;        // (tokens)
  int32_t* pair_token = nullptr;   // (slots), grouped by expert
  float* pair_weight = nullptr;    // (slots)
  int32_t* pair_begin = nullptr;   // (max_experts + 1)
  int32_t* chosen = nullptr;       // (max_experts)

  // One per thread.
  float* route_p = nullptr;       // (n_threads, max_experts)
  float* route_key = nullptr;     // (n_threads, max_experts)
  int32_t* route_heap = nullptr;  // (n_threads, max_experts)
  uint32_t* positive = nullptr;   // (pair_chunk) of each row of `gate`, its units above 0

  /// True while operations should continue.
  bool live() const { return latched.ok() && !cancelled.load(std::memory_order_relaxed); }
  void latch(const Status& status) {
    if (latched.ok()) latched = status;
  }
};

/// Bytes of a CpuStream with its memory; 0 if the shape is negative or the sum overflows.
size_t cpu_stream_bytes(const StreamShape& shape, int32_t n_threads);

/// Constructs a CpuStream at `memory`, which has cpu_stream_bytes().
CpuStream* make_cpu_stream(void* memory, const StreamShape& shape, int32_t n_threads);

}  // namespace moe
