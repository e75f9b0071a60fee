// SPDX-License-Identifier: MIT
#pragma once
// Steps: upload of host data for kernels, and CUDA graphs of repeated decode steps.

#include "kernels/cuda/launch.h"
#include "kernels/cuda/memory.h"
#include "kernels/cuda/ops.h"
#include "kernels/device.h"
#include "src/base/array.h"

namespace moe::cuda {

/// Small host data of one step: a pinned block and its mirror on the device.
struct StepArena {
  uint8_t* host = nullptr;  // pinned
  uint8_t* device = nullptr;
  size_t capacity = 0;
  size_t used = 0;
  GpuMemory* memory = nullptr;  // allocates `device`
};
inline constexpr size_t kArenaBytes = size_t{1} << 20;
inline constexpr size_t kGraphArenaBytes = size_t{1} << 17;

Status open_arena(GpuMemory& memory, size_t bytes, StepArena* out);
void close_arena(StepArena* arena);

/// Words written by kernels and read by the host after a wait.
struct HostWords {
  int32_t fault;  // 1 + token whose router scores are not finite
  MixerFault mixer;
};

/// One captured step.
struct StepGraph {
  uint64_t key[StepKey::kWords] = {};
  int32_t n_key = 0;
  uint64_t last_use = 0;
  bool ran_once = false;  // without a graph: everything loaded on first use is loaded
  bool refused = false;   // it cannot be captured
  uint64_t n_ready = 0;   // ExpertTables::n_ready() at the last attempt
  cudaGraphExec_t exec = nullptr;
  StepArena arena;
};

/// The most recent steps of a stream.
class StepGraphs {
 public:
  static constexpr size_t kGraphs = 4;
  explicit StepGraphs(const Allocator&) {}
  StepGraphs(const StepGraphs&) = delete;
  StepGraphs& operator=(const StepGraphs&) = delete;
  ~StepGraphs();

  /// The graph of this key, or an empty one that replaces the least recently used.
  StepGraph& find(const StepKey& key);

 private:
  StepGraph graphs_[kGraphs];
  uint64_t clock_ = 0;
};

/// Frees a graph.
void clear_graph(StepGraph* graph);

}  // namespace moe::cuda
