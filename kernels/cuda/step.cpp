// SPDX-License-Identifier: MIT
// The arena for a step's host data, and the graphs by key: when there are too many the least
// recently used one goes.
#include "kernels/cuda/step.h"

namespace moe::cuda {

Status open_arena(GpuMemory& memory, size_t bytes, StepArena* out) {
  void* device = nullptr;
  MOE_TRY(memory.alloc(bytes, &device));
  out->device = static_cast<uint8_t*>(device);
  out->memory = &memory;
  out->capacity = bytes;
  void* host = nullptr;
  const Status status = cuda_status(cudaMallocHost(&host, bytes), "pinned host memory");
  out->host = static_cast<uint8_t*>(host);
  if (!status.ok()) close_arena(out);
  return status;
}

void close_arena(StepArena* arena) {
  if (arena->device != nullptr) arena->memory->free(arena->device, arena->capacity);
  if (arena->host != nullptr) cudaFreeHost(arena->host);
  *arena = {};
}

void clear_graph(StepGraph* graph) {
  if (graph->exec != nullptr) cudaGraphExecDestroy(graph->exec);
  close_arena(&graph->arena);
  *graph = {};
}

StepGraphs::~StepGraphs() {
  for (StepGraph& g : graphs_) clear_graph(&g);
}

StepGraph& StepGraphs::find(const StepKey& key) {
  StepGraph* oldest = &graphs_[0];
  for (StepGraph& g : graphs_) {
    const size_t bytes = static_cast<size_t>(key.n) * sizeof(uint64_t);
    if (g.n_key == key.n && key.n > 0 && std::memcmp(g.key, key.words, bytes) == 0) {
      g.last_use = ++clock_;
      return g;
    }
    if (g.last_use < oldest->last_use) oldest = &g;
  }
  clear_graph(oldest);
  oldest->n_key = key.n;
  std::memcpy(oldest->key, key.words, static_cast<size_t>(key.n) * sizeof(uint64_t));
  oldest->last_use = ++clock_;
  return *oldest;
}

}  // namespace moe::cuda
