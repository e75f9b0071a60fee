// SPDX-License-Identifier: MIT
#include "runtime.h"

#include <stdio.h>
#include <string.h>

#include "fibers.h"

namespace emulator {

Runtime& runtime() {
  static Runtime* r = new Runtime;  // never destroyed, so that static destructors can use it
  return *r;
}

cudaError_t remember(cudaError_t error) {
  if (error != cudaSuccess) runtime().last = error;
  return error;
}

cudaError_t begin_call(const char* function) {
  Runtime& r = runtime();
  ++r.calls;
  if (r.machine.driver != cudaSuccess) return r.machine.driver;
  if (r.machine.devices == 0) return cudaErrorNoDevice;
  if (r.sticky != cudaSuccess) return r.sticky;
  const bool counts =
      (r.planned_function == nullptr || strcmp(r.planned_function, function) == 0) &&
      (!r.planned_in_capture || r.captures > 0);
  if (r.countdown >= 0 && counts && r.countdown-- == 0) {
    if (r.planned_sticky) r.sticky = r.planned;
    return r.planned;
  }
  return cudaSuccess;
}

cudaError_t drain(EmulatedStream* stream, uint64_t upto) {
  if (stream->queue.empty()) return cudaSuccess;
  const Opened opened;
  while (!stream->queue.empty() && stream->ran < upto) {
    const Task task = std::move(stream->queue.front());
    stream->queue.pop_front();
    ++stream->ran;
    if (const cudaError_t error = task(); error != cudaSuccess) {
      stream->queue.clear();
      return runtime().sticky = error;
    }
  }
  return cudaSuccess;
}

cudaError_t drain_all() {
  for (EmulatedStream* s : runtime().streams) {
    if (s->capture != nullptr) continue;
    if (const cudaError_t e = drain(s); e != cudaSuccess) return e;
  }
  return drain(&runtime().default_stream);
}

cudaError_t enqueue(EmulatedStream* stream, Task task) {
  if (stream == nullptr) stream = &runtime().default_stream;
  if (stream->capture != nullptr) {
    stream->capture->tasks.push_back(std::move(task));
  } else {
    stream->queue.push_back(std::move(task));
    ++stream->enqueued;
  }
  return cudaSuccess;
}

cudaError_t drain_until(EmulatedStream* stream, uint64_t upto) {
  if (stream == nullptr) return cudaSuccess;
  if (stream != &runtime().default_stream && runtime().streams.count(stream) == 0) {
    return cudaSuccess;  // a destroyed stream has run all its tasks
  }
  return drain(stream, upto);
}

namespace {

// Launches with at most kNoLimitRaised dynamic bytes are made without raising the kernel's limit of
// kUsual bytes (kernels/cuda/launch.h).
const char* check_shared(size_t of_kernel, size_t dynamic) {
  constexpr size_t kUsual = 48 * 1024;
  constexpr size_t kNoLimitRaised = 16 * 1024;
  static char text[128];
  const size_t most = dynamic <= kNoLimitRaised ? kUsual : runtime().machine.shared;
  if (of_kernel <= kUsual && of_kernel + dynamic <= most) return "";
  snprintf(text, sizeof text, "a block has %zu bytes of shared memory, %zu static and %zu dynamic",
           most, of_kernel, dynamic);
  return text;
}

cudaError_t run_grid(dim3 blocks, dim3 threads, size_t shared_bytes,
                     const std::function<void()>& thread) {
  ++runtime().launches;
  static std::vector<uint8_t> shared;
  shared.resize(shared_bytes + 128);
  auto* aligned = reinterpret_cast<uint8_t*>((reinterpret_cast<uintptr_t>(shared.data()) + 127) &
                                             ~uintptr_t{127});
  Position at;
  at.block_size = threads;
  at.grid = blocks;
  for (unsigned z = 0; z < blocks.z; ++z) {
    for (unsigned y = 0; y < blocks.y; ++y) {
      for (unsigned x = 0; x < blocks.x; ++x) {
        at.block = dim3(x, y, z);
        memset(aligned, 0xff, shared_bytes);
        const char* error = run_block(at, aligned, thread);
        if (error[0] == 0) error = check_shared(static_shared(), shared_bytes);
        if (error[0] == 0) continue;
        fprintf(stderr, "CUDA emulator: %s\n", error);
        return cudaErrorLaunchFailure;
      }
    }
  }
  return cudaSuccess;
}

}  // namespace

int launch_kernel(cudaStream_t stream, dim3 blocks, dim3 threads, size_t shared_bytes,
                  std::function<void()> thread) {
  BEGIN_CALL();
  const uint64_t n = uint64_t{threads.x} * threads.y * threads.z;
  if (n == 0 || n > 1024 || shared_bytes > runtime().machine.shared || blocks.y > kMostGridY ||
      blocks.z > kMostGridY || blocks.x > 0x7fffffffu) {
    return remember(cudaErrorInvalidConfiguration);
  }
  const int device = stream == nullptr ? use_context() : stream->device;
  if (use_context() != device) return remember(cudaErrorInvalidResourceHandle);
  if (runtime().machine.code != cudaSuccess) return remember(runtime().machine.code);
  return enqueue(stream, [=, body = std::move(thread)] {
    return run_grid(blocks, threads, shared_bytes, body);
  });
}

void set_machine(const Machine& machine) {
  const Lock lock(runtime().mutex);
  runtime().machine = machine;
  runtime().contexts = 0;
}
void fail_after(int calls, cudaError_t error, bool sticky) {
  const Lock lock(runtime().mutex);
  runtime().countdown = calls;
  runtime().planned = error;
  runtime().planned_sticky = sticky;
  runtime().planned_function = nullptr;
  runtime().planned_in_capture = false;
}
void fail_next(const char* function, cudaError_t error) {
  const Lock lock(runtime().mutex);
  fail_after(0, error, false);
  runtime().planned_function = function;
}
void fail_in_capture(int calls, cudaError_t error) {
  const Lock lock(runtime().mutex);
  fail_after(calls, error, false);
  runtime().planned_in_capture = true;
}
void clear_failure() {
  const Lock lock(runtime().mutex);
  runtime().countdown = -1;
  runtime().sticky = runtime().last = cudaSuccess;
}
bool failure_ahead() { return runtime().countdown >= 0; }
int calls_made() { return runtime().calls; }
size_t bytes_in_use() { return runtime().arena.in_use(); }
size_t pinned_bytes() {
  const Lock lock(runtime().mutex);
  size_t sum = 0;
  for (const auto& [at, bytes] : runtime().pinned) sum += bytes;
  return sum;
}
int64_t launches() { return runtime().launches; }
size_t bytes_sent() { return runtime().sent; }

}  // namespace emulator
