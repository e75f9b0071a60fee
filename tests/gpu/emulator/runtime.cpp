#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <map>
#include <mutex>
#include <set>
#include <vector>

#include "cuda_runtime.h"
#include "fibers.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(p, n) ((void)(p), (void)(n))
#define ASAN_UNPOISON_MEMORY_REGION(p, n) ((void)(p), (void)(n))
#endif

using Task = std::function<cudaError_t()>;

struct EmulatedGraph {
  std::vector<Task> tasks;
};
struct EmulatedStream {
  std::deque<Task> queue;
  uint64_t enqueued = 0;  // tasks ever, and how many of them ran
  uint64_t ran = 0;
  EmulatedGraph* capture = nullptr;
  bool invalid = false;  // the capture
};
struct EmulatedEvent {
  std::chrono::steady_clock::time_point time;
  EmulatedStream* stream = nullptr;  // where it was recorded, null: nowhere yet
  uint64_t upto = 0;                 // tasks of that stream which it stands behind
};

namespace {

constexpr size_t kArenaBytes = size_t{1} << 32;
constexpr size_t kHugePage = size_t{2} << 20;
constexpr size_t kRedZone = 256;

// One region of address space for all device memory: closed to the host but in kernels and copies.
// Opening it takes time for each page; huge ones, where the machine has them, are few.
class Arena {
 public:
  Arena() {
    void* p = mmap(nullptr, kArenaBytes + kHugePage, PROT_NONE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) abort();
    base_ = static_cast<uint8_t*>(p) + (kHugePage - reinterpret_cast<uintptr_t>(p) % kHugePage);
    madvise(base_, kArenaBytes, MADV_HUGEPAGE);
    free_[0] = kArenaBytes;
  }
  void* take(size_t bytes) {
    const size_t size = (std::max<size_t>(bytes, 1) + kRedZone + 255) / 256 * 256;
    for (auto it = free_.begin(); it != free_.end(); ++it) {
      if (it->second < size) continue;
      const size_t at = it->first;
      const size_t rest = it->second - size;
      free_.erase(it);
      if (rest != 0) free_[at + size] = rest;
      used_[at] = {size, bytes};
      in_use_ += bytes;
      uint8_t* p = base_ + at;
      open();
      ASAN_UNPOISON_MEMORY_REGION(p, size);
      memset(p, 0xff, bytes);  // NaN, -1: nobody counts on zeros
      ASAN_POISON_MEMORY_REGION(p + bytes, size - bytes);
      close();
      return p;
    }
    return nullptr;
  }
  bool give_back(void* memory) {
    const auto at = static_cast<size_t>(static_cast<uint8_t*>(memory) - base_);
    const auto it = used_.find(at);
    if (it == used_.end()) return false;
    auto [size, bytes] = it->second;
    used_.erase(it);
    in_use_ -= bytes;
    ASAN_POISON_MEMORY_REGION(base_ + at, size);
    size_t begin = at;
    auto next = free_.lower_bound(at);
    if (next != free_.begin()) {
      const auto before = std::prev(next);
      if (before->first + before->second == at) {
        begin = before->first;
        size += before->second;
        free_.erase(before);
      }
    }
    if (next != free_.end() && next->first == begin + size) {
      size += next->second;
      free_.erase(next);
    }
    free_[begin] = size;
    return true;
  }
  void open() {
    if (depth_++ == 0) protect(PROT_READ | PROT_WRITE);
  }
  void close() {
    if (--depth_ == 0) protect(PROT_NONE);
  }
  size_t in_use() const { return in_use_; }

 private:
  struct Used {
    size_t size, bytes;
  };
  void protect(int access) const {
    if (mprotect(base_, kArenaBytes, access) != 0) abort();
  }
  uint8_t* base_;
  int depth_ = 0;
  size_t in_use_ = 0;
  std::map<size_t, size_t> free_;  // by begin
  std::map<size_t, Used> used_;
};

struct Runtime {
  std::recursive_mutex mutex;
  Arena arena;
  emulator::Machine machine;
  std::set<EmulatedStream*> streams;
  std::map<const uint8_t*, size_t> pinned;
  EmulatedStream default_stream;
  cudaError_t sticky = cudaSuccess;
  cudaError_t last = cudaSuccess;
  int countdown = -1;
  cudaError_t planned = cudaSuccess;
  bool planned_sticky = false;
  int calls = 0;
  int64_t launches = 0;
  size_t sent = 0;
};

Runtime& runtime() {
  static Runtime* r = new Runtime;  // outlives every static destructor
  return *r;
}

struct Opened {
  Opened() { runtime().arena.open(); }
  ~Opened() { runtime().arena.close(); }
};

using Lock = std::lock_guard<std::recursive_mutex>;

cudaError_t remember(cudaError_t error) {
  if (error != cudaSuccess) runtime().last = error;
  return error;
}

// What every call that can fail begins with.
cudaError_t begin_call() {
  Runtime& r = runtime();
  ++r.calls;
  if (r.machine.driver != cudaSuccess) return r.machine.driver;
  if (r.machine.devices == 0) return cudaErrorNoDevice;
  if (r.sticky != cudaSuccess) return r.sticky;
  if (r.countdown >= 0 && r.countdown-- == 0) {
    if (r.planned_sticky) r.sticky = r.planned;
    return r.planned;
  }
  return cudaSuccess;
}

#define BEGIN_CALL()                                                                      \
  const Lock lock(runtime().mutex);                                                       \
  if (const cudaError_t begin_error = remember(begin_call()); begin_error != cudaSuccess) \
  return begin_error

cudaError_t drain(EmulatedStream* stream, uint64_t upto = UINT64_MAX) {
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

// Runs what an event stood behind when it was recorded, and no more: what forgets to wait for
// another stream is found out.
cudaError_t drain_until(EmulatedStream* stream, uint64_t upto) {
  if (stream == nullptr) return cudaSuccess;
  if (stream != &runtime().default_stream && runtime().streams.count(stream) == 0) {
    return cudaSuccess;  // gone, and all of it had to run before
  }
  return drain(stream, upto);
}

bool is_pinned(const void* p) {
  const auto* at = static_cast<const uint8_t*>(p);
  auto it = runtime().pinned.upper_bound(at);
  if (it == runtime().pinned.begin()) return false;
  --it;
  return at < it->first + it->second;
}

cudaError_t run_grid(dim3 blocks, dim3 threads, size_t shared_bytes,
                     const std::function<void()>& thread) {
  ++runtime().launches;
  static std::vector<uint8_t> shared;
  shared.resize(shared_bytes + 128);
  auto* aligned = reinterpret_cast<uint8_t*>((reinterpret_cast<uintptr_t>(shared.data()) + 127) &
                                             ~uintptr_t{127});
  emulator::Position at;
  at.block_size = threads;
  at.grid = blocks;
  for (unsigned z = 0; z < blocks.z; ++z) {
    for (unsigned y = 0; y < blocks.y; ++y) {
      for (unsigned x = 0; x < blocks.x; ++x) {
        at.block = dim3(x, y, z);
        memset(aligned, 0xff, shared_bytes);
        const char* error = emulator::run_block(at, aligned, thread);
        if (error[0] == 0) continue;
        fprintf(stderr, "CUDA emulator: %s\n", error);
        return cudaErrorLaunchFailure;
      }
    }
  }
  return cudaSuccess;
}

}  // namespace

namespace emulator {

int launch_kernel(cudaStream_t stream, dim3 blocks, dim3 threads, size_t shared_bytes,
                  std::function<void()> thread) {
  BEGIN_CALL();
  const uint64_t n = uint64_t{threads.x} * threads.y * threads.z;
  if (n == 0 || n > 1024 || shared_bytes > 227 * 1024 || blocks.y > 65535 || blocks.z > 65535 ||
      blocks.x > 0x7fffffffu) {
    return remember(cudaErrorInvalidConfiguration);
  }
  return enqueue(stream, [=, body = std::move(thread)] {
    return run_grid(blocks, threads, shared_bytes, body);
  });
}

void set_machine(const Machine& machine) {
  const Lock lock(runtime().mutex);
  runtime().machine = machine;
}
void fail_after(int calls, cudaError_t error, bool sticky) {
  const Lock lock(runtime().mutex);
  runtime().countdown = calls;
  runtime().planned = error;
  runtime().planned_sticky = sticky;
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

const char* cudaGetErrorName(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return "cudaSuccess";
    case cudaErrorMemoryAllocation:
      return "cudaErrorMemoryAllocation";
    case cudaErrorInsufficientDriver:
      return "cudaErrorInsufficientDriver";
    case cudaErrorNoDevice:
      return "cudaErrorNoDevice";
    case cudaErrorInvalidDevice:
      return "cudaErrorInvalidDevice";
    case cudaErrorIllegalAddress:
      return "cudaErrorIllegalAddress";
    case cudaErrorLaunchFailure:
      return "cudaErrorLaunchFailure";
    default:
      return "cudaErrorInvalidValue";
  }
}
const char* cudaGetErrorString(cudaError_t error) { return cudaGetErrorName(error); }
cudaError_t cudaGetLastError() {
  const cudaError_t error = runtime().last;
  runtime().last = cudaSuccess;
  return error;
}
cudaError_t cudaPeekAtLastError() { return runtime().last; }
cudaError_t cudaDriverGetVersion(int* version) {
  *version = runtime().machine.driver == cudaErrorInsufficientDriver ? 11040 : 13000;
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = 13000;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceCount(int* n) {
  BEGIN_CALL();
  *n = runtime().machine.devices;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
  BEGIN_CALL();
  return device >= 0 && device < runtime().machine.devices ? cudaSuccess : cudaErrorInvalidDevice;
}
cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* out, int device) {
  BEGIN_CALL();
  if (device < 0 || device >= runtime().machine.devices) return cudaErrorInvalidDevice;
  *out = {};
  snprintf(out->name, sizeof out->name, "emulated");
  out->totalGlobalMem = runtime().machine.memory;
  out->major = 9;
  out->multiProcessorCount = 4;
  out->l2CacheSize = 1 << 20;
  out->sharedMemPerBlockOptin = 227 * 1024;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  cudaDeviceProp p;
  if (const cudaError_t e = cudaGetDeviceProperties(&p, device); e != cudaSuccess) return e;
  switch (attribute) {
    case cudaDevAttrMultiProcessorCount:
      *value = p.multiProcessorCount;
      break;
    case cudaDevAttrComputeCapabilityMajor:
      *value = p.major;
      break;
    case cudaDevAttrComputeCapabilityMinor:
      *value = p.minor;
      break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      *value = static_cast<int>(p.sharedMemPerBlockOptin);
      break;
  }
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  BEGIN_CALL();
  *total = runtime().machine.memory;
  *free = *total - std::min(*total, runtime().arena.in_use());
  return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize() {
  BEGIN_CALL();
  return remember(drain_all());
}

cudaError_t cudaMalloc(void** out, size_t bytes) {
  BEGIN_CALL();
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
  if (runtime().sticky == cudaSuccess) remember(drain_all());
  return runtime().arena.give_back(memory) ? runtime().sticky : remember(cudaErrorInvalidValue);
}
cudaError_t cudaMallocHost(void** out, size_t bytes) {
  BEGIN_CALL();
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
  if (runtime().sticky == cudaSuccess) remember(drain_all());
  if (runtime().pinned.erase(static_cast<const uint8_t*>(memory)) == 0) {
    return remember(cudaErrorInvalidValue);
  }
  free(memory);
  return cudaSuccess;
}
cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind) {
  BEGIN_CALL();
  if (const cudaError_t e = drain(&runtime().default_stream); e != cudaSuccess) return remember(e);
  const Opened opened;
  memcpy(to, from, bytes);
  return cudaSuccess;
}
cudaError_t cudaMemset(void* to, int value, size_t bytes) {
  BEGIN_CALL();
  const Opened opened;
  memset(to, value, bytes);
  return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  BEGIN_CALL();
  if (kind == cudaMemcpyHostToDevice) runtime().sent += bytes;
  if (kind == cudaMemcpyHostToDevice && !is_pinned(from)) {  // taken at once
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
  return enqueue(stream, [=] {
    memset(to, value, bytes);
    return cudaSuccess;
  });
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* out, unsigned) {
  BEGIN_CALL();
  *out = new EmulatedStream;
  runtime().streams.insert(*out);
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  const Lock lock(runtime().mutex);
  if (runtime().sticky == cudaSuccess) remember(drain(stream));
  runtime().streams.erase(stream);
  delete stream;
  return runtime().sticky;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  BEGIN_CALL();
  if (stream == nullptr) stream = &runtime().default_stream;
  if (stream->capture != nullptr) {
    stream->invalid = true;
    return remember(cudaErrorStreamCaptureUnsupported);
  }
  return remember(drain(stream));
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  BEGIN_CALL();
  return enqueue(stream,
                 [from = event->stream, upto = event->upto] { return drain_until(from, upto); });
}
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  BEGIN_CALL();
  if (stream->capture != nullptr) return remember(cudaErrorStreamCaptureUnsupported);
  stream->capture = new EmulatedGraph;
  stream->invalid = false;
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* out) {
  const Lock lock(runtime().mutex);
  *out = stream->capture;
  stream->capture = nullptr;
  const cudaError_t error = begin_call();
  if (error == cudaSuccess && !stream->invalid) return cudaSuccess;
  delete *out;
  *out = nullptr;
  return remember(error != cudaSuccess ? error : cudaErrorStreamCaptureInvalidated);
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* out, cudaGraph_t graph, unsigned long long) {
  BEGIN_CALL();
  *out = new EmulatedGraph(*graph);
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream) {
  BEGIN_CALL();
  for (const Task& task : graph->tasks) enqueue(stream, task);
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph) {
  const Lock lock(runtime().mutex);
  if (runtime().sticky == cudaSuccess) remember(drain_all());
  delete graph;
  return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t* out) {
  BEGIN_CALL();
  *out = new EmulatedEvent;
  return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* out, unsigned) { return cudaEventCreate(out); }
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  const Lock lock(runtime().mutex);
  if (runtime().sticky == cudaSuccess) remember(drain_all());
  delete event;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  BEGIN_CALL();
  if (stream == nullptr) stream = &runtime().default_stream;
  const cudaError_t error = enqueue(stream, [=] {
    event->time = std::chrono::steady_clock::now();
    return cudaSuccess;
  });
  event->stream = stream;
  event->upto = stream->enqueued;
  return error;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  BEGIN_CALL();
  return remember(drain_until(event->stream, event->upto));
}
cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t begin, cudaEvent_t end) {
  BEGIN_CALL();
  *ms = std::chrono::duration<float, std::milli>(end->time - begin->time).count();
  return cudaSuccess;
}
cudaError_t cudaFuncSetAttribute(const void*, cudaFuncAttribute, int) {
  BEGIN_CALL();
  return cudaSuccess;
}
