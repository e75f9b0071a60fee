#pragma once
// Steps: host data on its way to kernels, and CUDA graphs of decode steps that repeat.

#include "kernels/cuda/launch.h"
#include "kernels/cuda/memory.h"
#include "kernels/device.h"
#include "src/base/array.h"

namespace moe::cuda {

/// Small host data of one step: a pinned block and its mirror on the device.
struct StepArena {
  uint8_t* host = nullptr;  // pinned
  uint8_t* device = nullptr;
  size_t capacity = 0;
  size_t used = 0;
  GpuMemory* memory = nullptr;  // where `device` comes from
};
inline constexpr size_t kArenaBytes = size_t{1} << 20;
inline constexpr size_t kGraphArenaBytes = size_t{1} << 17;

Status open_arena(GpuMemory& memory, size_t bytes, StepArena* out);
void close_arena(StepArena* arena);

/// Words that kernels write and the host reads after a wait.
struct HostWords {
  int32_t fault;  // 1 + token whose router scores are not finite
};

/// One captured step.
struct StepGraph {
  uint64_t key[StepKey::kWords] = {};
  int32_t n_key = 0;
  uint64_t last_use = 0;
  bool seen = false;     // it ran once: what is loaded on first use is loaded
  bool refused = false;  // it cannot be captured
  uint64_t n_ready = 0;  // ExpertTables::n_ready() when it was last tried
  cudaGraphExec_t exec = nullptr;
  StepArena arena;
};

/// The latest few steps of a stream.
class StepGraphs {
 public:
  static constexpr size_t kGraphs = 4;
  explicit StepGraphs(const Allocator&) {}
  StepGraphs(const StepGraphs&) = delete;
  StepGraphs& operator=(const StepGraphs&) = delete;
  ~StepGraphs();

  /// The graph of this key; an empty one in place of the least recently used one.
  StepGraph& find(const StepKey& key);

 private:
  StepGraph graphs_[kGraphs];
  uint64_t clock_ = 0;
};

/// Gives back what a graph holds.
void clear_graph(StepGraph* graph);

}  // namespace moe::cuda
