// SPDX-License-Identifier: MIT
#include "tests/gpu/bench/measure.h"

#include <random>

namespace moe::cuda {

Buffer::Buffer(size_t bytes, bool random) : bytes_(bytes) {
  check(cudaMalloc(&data_, bytes), "cudaMalloc");
  check(cudaMemset(data_, 0, bytes), "cudaMemset");
  // Otherwise kernels on non-blocking streams could run before it.
  check(cudaDeviceSynchronize(), "cudaMemset");
  if (!random) return;
  std::vector<uint32_t> host((bytes + 3) / 4);
  std::mt19937 rng(static_cast<uint32_t>(bytes));
  for (uint32_t& w : host) w = rng();
  check(cudaMemcpy(data_, host.data(), bytes, cudaMemcpyHostToDevice), "upload");
}

Buffer random_normals(size_t n, float deviation) {
  std::mt19937 rng(3);
  std::normal_distribution<float> normal(0, deviation);
  std::vector<float> values(n);
  for (float& v : values) v = normal(rng);
  return Buffer(values);
}

Times measure(int n, const Repetitions& repetitions,
              const std::function<cudaError_t(cudaStream_t, int)>& call) {
  cudaStream_t stream;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
  for (int i = 0; i < n; ++i) check(call(stream, i), "call");  // loads every kernel
  check(cudaStreamSynchronize(stream), "warm-up");
  check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed), "capture");
  for (int i = 0; i < n; ++i) check(call(stream, i), "call");
  cudaGraph_t graph;
  check(cudaStreamEndCapture(stream, &graph), "capture");
  cudaGraphExec_t exec;
  check(cudaGraphInstantiate(&exec, graph, 0), "instantiate");
  cudaEvent_t begin;
  cudaEvent_t end;
  check(cudaEventCreate(&begin), "event");
  check(cudaEventCreate(&end), "event");
  std::vector<double> us;
  for (int r = 0; r < repetitions.uncounted + repetitions.counted; ++r) {
    check(cudaEventRecord(begin, stream), "record");
    check(cudaGraphLaunch(exec, stream), "launch");
    check(cudaEventRecord(end, stream), "record");
    check(cudaEventSynchronize(end), "wait");
    float ms = 0;
    check(cudaEventElapsedTime(&ms, begin, end), "time");
    if (r >= repetitions.uncounted) us.push_back(1e3 * static_cast<double>(ms) / n);
  }
  std::sort(us.begin(), us.end());
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  cudaGraphExecDestroy(exec);
  cudaGraphDestroy(graph);
  cudaStreamDestroy(stream);
  return {us[us.size() / 2], us[us.size() / 4], us[us.size() * 3 / 4]};
}

}  // namespace moe::cuda
