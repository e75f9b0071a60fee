// SPDX-License-Identifier: MIT
// Rotates pinned buffers: fills one from the file while another is copied, and measures how long
// copies take.
#include "kernels/cuda/experts/expert_copies.h"

#include <algorithm>

namespace moe::cuda {

ExpertCopies::~ExpertCopies() {
  if (stream_ != nullptr) (void)cudaStreamSynchronize(stream_);
  for (Buffer& b : buffers_) {
    if (b.begun != nullptr) (void)cudaEventDestroy(b.begun);
    if (b.copied != nullptr) (void)cudaEventDestroy(b.copied);
    if (b.memory != nullptr) (void)cudaFreeHost(b.memory);
  }
  if (stream_ != nullptr) (void)cudaStreamDestroy(stream_);
}

Status ExpertCopies::open() {
  MOE_TRY(cuda_status(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking),
                      "making a CUDA stream"));
  for (Buffer& b : buffers_) {
    MOE_TRY(cuda_status(cudaEventCreate(&b.begun), "making a CUDA event"));
    MOE_TRY(cuda_status(cudaEventCreate(&b.copied), "making a CUDA event"));
  }
  return {};
}

// The least recently used buffer; null if none is available.
Status ExpertCopies::take(size_t bytes, const std::atomic<bool>* cancelled, Buffer** out) {
  LockGuard guard(mutex_);
  ++clock_;
  for (;;) {
    *out = nullptr;
    bool any = false;
    for (Buffer& b : buffers_) {
      if (b.bytes < bytes && clock_ < b.ask_again) continue;
      any = true;
      if (!b.busy && (*out == nullptr || b.last_use < (*out)->last_use)) *out = &b;
    }
    if (!any) return {};
    if (*out != nullptr) break;
    if (cancelled != nullptr && cancelled->load()) {
      return Status::error(MOE_ERR_CANCELLED, "cancelled");
    }
    freed_.wait_unless(mutex_, cancelled);
  }
  (*out)->busy = true;
  (*out)->last_use = clock_;
  return {};
}

void ExpertCopies::put_back(Buffer* buffer) {
  LockGuard guard(mutex_);
  buffer->busy = false;
  freed_.notify_all();
}

// Waits for the buffer's latest copy.
cudaError_t ExpertCopies::finish(Buffer* buffer) {
  uint64_t copy = 0;
  bool done = false;
  {
    LockGuard guard(mutex_);
    copy = buffer->n_copies;
    done = buffer->n_done == copy;
  }
  if (!done) {
    const cudaError_t error = cudaEventSynchronize(buffer->copied);
    if (error != cudaSuccess) return error;
  }
  measure(buffer);
  LockGuard guard(mutex_);
  buffer->n_done = std::max(buffer->n_done, copy);
  return cudaSuccess;
}

// Records the duration of the latest copy, which is complete; once.
void ExpertCopies::measure(Buffer* buffer) {
  float ms = 0;
  const double seconds = buffer->fill_seconds;
  buffer->fill_seconds = -1;
  if (seconds < 0) return;
  if (cudaEventElapsedTime(&ms, buffer->begun, buffer->copied) != cudaSuccess) return;
  rates_.add_upload(buffer->n_bytes, seconds + 1e-3 * static_cast<double>(ms));
}

// Leaves the buffer unchanged without pinned memory.
cudaError_t ExpertCopies::make_room(Buffer* buffer, size_t bytes) {
  if (buffer->bytes >= bytes) return cudaSuccess;
  void* memory = nullptr;
  const cudaError_t error = cudaMallocHost(&memory, bytes);
  const bool refused = error == cudaErrorMemoryAllocation;
  if (error != cudaSuccess && !refused) return error;
  if (refused) (void)cudaGetLastError();
  if (!refused && buffer->memory != nullptr) (void)cudaFreeHost(buffer->memory);
  LockGuard guard(mutex_);
  if (refused) {
    buffer->ask_again = clock_ + kAskAgain;
  } else {
    buffer->memory = memory;
    buffer->bytes = bytes;
  }
  return cudaSuccess;
}

Status ExpertCopies::take_empty(size_t bytes, const std::atomic<bool>* cancelled, Buffer** out) {
  for (;;) {
    Buffer* buffer = nullptr;
    MOE_TRY(take(bytes, cancelled, &buffer));
    *out = buffer;
    if (buffer == nullptr) return {};
    Status status = cuda_status(finish(buffer), "copying an expert to the GPU");
    if (status.ok()) status = cuda_status(make_room(buffer, bytes), "pinned host memory");
    if (status.ok() && buffer->bytes >= bytes) return {};
    put_back(buffer);
    MOE_TRY(status);
  }
}

Status ExpertCopies::fill_and_copy(Buffer* buffer, void* device, const HostFill& fill) {
  const char* what = "copying an expert to the GPU";
  const double begin = clock_seconds();
  MOE_TRY(fill.write(fill.user, buffer->memory));
  buffer->fill_seconds = fill.known ? clock_seconds() - begin : -1;
  buffer->n_bytes = fill.bytes;
  MOE_TRY(cuda_status(cudaEventRecord(buffer->begun, stream_), what));
  MOE_TRY(cuda_status(
      cudaMemcpyAsync(device, buffer->memory, fill.bytes, cudaMemcpyHostToDevice, stream_), what));
  const cudaError_t error = cudaEventRecord(buffer->copied, stream_);
  if (error != cudaSuccess) (void)cudaStreamSynchronize(stream_);  // no event marks its end
  return cuda_status(error, what);
}

Status ExpertCopies::load(void* device, const HostFill& fill, Arrival* arrival, bool* done) {
  Buffer* buffer = nullptr;
  MOE_TRY(take_empty(fill.bytes, fill.cancelled, &buffer));
  *done = buffer != nullptr;
  if (buffer == nullptr) return {};
  const Status status = fill_and_copy(buffer, device, fill);
  if (!status.ok()) {
    buffer->fill_seconds = -1;
  } else {
    LockGuard guard(mutex_);
    const auto index = static_cast<uint64_t>(buffer - buffers_);
    *arrival = ++buffer->n_copies * kBuffers + index;
  }
  put_back(buffer);
  return status;
}

Status ExpertCopies::lend(size_t bytes, const std::atomic<bool>* cancelled, void** memory) {
  Buffer* buffer = nullptr;
  MOE_TRY(take_empty(bytes, cancelled, &buffer));
  *memory = nullptr;
  if (buffer == nullptr) return {};
  LockGuard guard(mutex_);
  buffer->lent = buffer->memory;
  *memory = buffer->memory;
  return {};
}

void ExpertCopies::take_back(void* memory) {
  if (memory == nullptr) return;
  LockGuard guard(mutex_);
  for (Buffer& b : buffers_) {
    if (b.lent != memory) continue;
    b.lent = nullptr;
    b.busy = false;
  }
  freed_.notify_all();
}

ExpertCopies::Buffer* ExpertCopies::buffer_of(Arrival arrival, uint64_t* copy) {
  *copy = arrival / kBuffers;
  Buffer* buffer = &buffers_[arrival % kBuffers];
  LockGuard guard(mutex_);
  return *copy <= buffer->n_done ? nullptr : buffer;
}

cudaError_t ExpertCopies::await(cudaStream_t stream, Arrival arrival) {
  uint64_t copy = 0;
  const Buffer* buffer = buffer_of(arrival, &copy);
  // A later copy of the same buffer began after this one completed.
  return buffer == nullptr ? cudaSuccess : cudaStreamWaitEvent(stream, buffer->copied, 0);
}

cudaError_t ExpertCopies::wait_for(Arrival arrival) {
  uint64_t copy = 0;
  Buffer* buffer = buffer_of(arrival, &copy);
  if (buffer == nullptr) return cudaSuccess;
  const cudaError_t error = cudaEventSynchronize(buffer->copied);
  if (error != cudaSuccess) return error;
  LockGuard guard(mutex_);
  buffer->n_done = std::max(buffer->n_done, copy);
  return cudaSuccess;
}

}  // namespace moe::cuda
