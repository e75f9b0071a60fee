// SPDX-License-Identifier: MIT
// Streams, graphs and events.

#include "runtime.h"

using namespace emulator;

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* out, unsigned) {
  BEGIN_CALL();
  *out = new EmulatedStream;
  (*out)->device = use_context();
  runtime().streams.insert(*out);
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  const Lock lock(runtime().mutex);
  use_context();
  if (runtime().sticky == cudaSuccess) remember(drain(stream));
  runtime().streams.erase(stream);
  delete stream;
  return runtime().sticky;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  BEGIN_CALL();
  use_context();
  if (stream == nullptr) stream = &runtime().default_stream;
  if (stream->capture != nullptr) {
    stream->invalid = true;
    return remember(cudaErrorStreamCaptureUnsupported);
  }
  return remember(drain(stream));
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  BEGIN_CALL();
  use_context();
  return enqueue(stream,
                 [from = event->stream, upto = event->upto] { return drain_until(from, upto); });
}
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  BEGIN_CALL();
  use_context();
  if (stream->capture != nullptr) return remember(cudaErrorStreamCaptureUnsupported);
  stream->capture = new EmulatedGraph;
  ++runtime().captures;
  stream->invalid = false;
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* out) {
  const Lock lock(runtime().mutex);
  *out = stream->capture;
  stream->capture = nullptr;
  const cudaError_t error = begin_call(__func__);
  --runtime().captures;
  if (error == cudaSuccess && !stream->invalid) return cudaSuccess;
  delete *out;
  *out = nullptr;
  return remember(error != cudaSuccess ? error : cudaErrorStreamCaptureInvalidated);
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* out, cudaGraph_t graph, unsigned long long) {
  BEGIN_CALL();
  use_context();
  *out = new EmulatedGraph(*graph);
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream) {
  BEGIN_CALL();
  use_context();
  for (const Task& task : graph->tasks) enqueue(stream, task);
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph) {
  const Lock lock(runtime().mutex);
  use_context();
  if (runtime().sticky == cudaSuccess) remember(drain_all());
  delete graph;
  return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t* out) {
  BEGIN_CALL();
  use_context();
  *out = new EmulatedEvent;
  return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* out, unsigned) { return cudaEventCreate(out); }
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  const Lock lock(runtime().mutex);
  use_context();
  if (runtime().sticky == cudaSuccess) remember(drain_all());
  delete event;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  BEGIN_CALL();
  use_context();
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
  use_context();
  return remember(drain_until(event->stream, event->upto));
}
cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t begin, cudaEvent_t end) {
  BEGIN_CALL();
  *ms = std::chrono::duration<float, std::milli>(end->time - begin->time).count();
  return cudaSuccess;
}
