// SPDX-License-Identifier: MIT
#pragma once
// Shared by the files of the emulated CUDA runtime.

#include <chrono>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <vector>

#include "arena.h"
#include "cuda_runtime.h"

using Task = std::function<cudaError_t()>;

struct EmulatedGraph {
  std::vector<Task> tasks;
};
struct EmulatedStream {
  int device = 0;
  std::deque<Task> queue;
  uint64_t enqueued = 0;  // tasks since the start, and how many of them ran
  uint64_t ran = 0;
  EmulatedGraph* capture = nullptr;
  bool invalid = false;  // the capture is invalidated
};
struct EmulatedEvent {
  std::chrono::steady_clock::time_point time;
  EmulatedStream* stream = nullptr;  // where it was recorded; null: not yet
  uint64_t upto = 0;                 // number of that stream's tasks before it
};

namespace emulator {

struct Runtime {
  std::recursive_mutex mutex;
  Arena arena;
  Machine machine = default_machine();
  uint32_t contexts = 0;  // bit d: that of GPU d exists
  std::set<EmulatedStream*> streams;
  std::map<const uint8_t*, size_t> pinned;
  EmulatedStream default_stream;
  cudaError_t sticky = cudaSuccess;
  cudaError_t last = cudaSuccess;
  int countdown = -1;
  cudaError_t planned = cudaSuccess;
  bool planned_sticky = false;
  const char* planned_function = nullptr;  // null: any
  bool planned_in_capture = false;
  int captures = 0;  // streams that are captured
  int calls = 0;
  int64_t launches = 0;
  size_t sent = 0;
};

Runtime& runtime();

struct Opened {
  Opened() { runtime().arena.open(); }
  ~Opened() { runtime().arena.close(); }
};

using Lock = std::lock_guard<std::recursive_mutex>;

/// The GPU that calls of this thread use: makes a context, and makes it current, if none is.
int use_context();

/// Stores an error for cudaGetLastError() and returns it.
cudaError_t remember(cudaError_t error);
/// The first step of every call that can fail: returns the failure of fail_after() if it is due.
cudaError_t begin_call(const char* function);

#define BEGIN_CALL()                                                                      \
  const emulator::Lock lock(emulator::runtime().mutex);                                   \
  if (const cudaError_t begin_error = emulator::remember(emulator::begin_call(__func__)); \
      begin_error != cudaSuccess)                                                         \
  return begin_error

cudaError_t enqueue(EmulatedStream* stream, Task task);
/// Runs the stream's tasks, up to the first `upto` since the start.
cudaError_t drain(EmulatedStream* stream, uint64_t upto = UINT64_MAX);
cudaError_t drain_all();
/// Runs only the tasks before an event, which exposes code that does not wait for another stream.
cudaError_t drain_until(EmulatedStream* stream, uint64_t upto);

}  // namespace emulator
