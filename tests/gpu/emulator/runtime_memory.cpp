// SPDX-License-Identifier: MIT
// Device and pinned memory, and copies.

#include <stdlib.h>
#include <string.h>

#include <algorithm>

#include "runtime.h"

using namespace emulator;

namespace {

bool is_pinned(const void* p) {
  const auto* at = static_cast<const uint8_t*>(p);
  auto it = runtime().pinned.upper_bound(at);
  if (it == runtime().pinned.begin()) return false;
  --it;
  return at < it->first + it->second;
}

}  // namespace

cudaError_t cudaMalloc(void** out, size_t bytes) {
  BEGIN_CALL();
  use_context();
  Runtime& r = runtime();
  *out = nullptr;
  if (bytes == 0) return cudaSuccess;
  if (bytes > r.machine.memory || r.arena.in_use() + bytes > r.machine.memory) {
    return remember(cudaErrorMemoryAllocation);
  }
  *out = r.arena.take(bytes);
  return *out != nullptr ? cudaSuccess : remember(cudaErrorMemoryAllocation);
}
cudaError_t cudaFree(void* memory) {
  const Lock lock(runtime().mutex);
  if (memory == nullptr) return cudaSuccess;
  use_context();
  if (runtime().sticky == cudaSuccess) remember(drain_all());
  return runtime().arena.give_back(memory) ? runtime().sticky : remember(cudaErrorInvalidValue);
}
cudaError_t cudaMallocHost(void** out, size_t bytes) {
  BEGIN_CALL();
  use_context();
  if (emulator::pinned_bytes() + bytes > runtime().machine.pinned) {
    return remember(cudaErrorMemoryAllocation);
  }
  *out = malloc(std::max<size_t>(bytes, 1));
  if (*out == nullptr) return remember(cudaErrorMemoryAllocation);
  runtime().pinned[static_cast<const uint8_t*>(*out)] = std::max<size_t>(bytes, 1);
  return cudaSuccess;
}
cudaError_t cudaFreeHost(void* memory) {
  const Lock lock(runtime().mutex);
  if (memory == nullptr) return cudaSuccess;
  use_context();
  if (runtime().sticky == cudaSuccess) remember(drain_all());
  if (runtime().pinned.erase(static_cast<const uint8_t*>(memory)) == 0) {
    return remember(cudaErrorInvalidValue);
  }
  free(memory);
  return cudaSuccess;
}
cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind) {
  BEGIN_CALL();
  use_context();
  if (const cudaError_t e = drain(&runtime().default_stream); e != cudaSuccess) return remember(e);
  const Opened opened;
  memcpy(to, from, bytes);
  return cudaSuccess;
}
cudaError_t cudaMemset(void* to, int value, size_t bytes) {
  BEGIN_CALL();
  use_context();
  const Opened opened;
  memset(to, value, bytes);
  return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  BEGIN_CALL();
  use_context();
  if (kind == cudaMemcpyHostToDevice) runtime().sent += bytes;
  if (kind == cudaMemcpyHostToDevice && !is_pinned(from)) {  // pageable memory is copied at once
    std::vector<uint8_t> staged(static_cast<const uint8_t*>(from),
                                static_cast<const uint8_t*>(from) + bytes);
    return enqueue(stream, [=, data = std::move(staged)] {
      memcpy(to, data.data(), bytes);
      return cudaSuccess;
    });
  }
  return enqueue(stream, [=] {
    memcpy(to, from, bytes);
    return cudaSuccess;
  });
}
cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream) {
  BEGIN_CALL();
  use_context();
  return enqueue(stream, [=] {
    memset(to, value, bytes);
    return cudaSuccess;
  });
}
