// SPDX-License-Identifier: MIT
// Times the kernels of the CUDA device: graph replays between events, with weights in rotation over
// more than twice the size of the L2 cache, compared with a copy measured in the same run.
//   gpu_bench [--small] [FILE]
// Prints one JSON object, or rewrites FILE with it after each case. A case that fails is listed
// under "failures"; after an error from which CUDA does not recover, so are the others. --small
// runs the same cases with small sizes, to try them on an emulator; the times then mean nothing.

#include <cstdio>
#include <cstring>

#include "tests/gpu/bench/bench.h"

namespace moe::cuda {
namespace {

/// True if every case was measured.
bool run(const char* file, bool small) {
  cudaDeviceProp gpu;
  check(cudaGetDeviceProperties(&gpu, 0), "no GPU");
  int driver = 0;
  check(cudaDriverGetVersion(&driver), "driver");
  Bench bench(gpu, driver, file, small);
  bench.attempt("copy", [&](const char*) { bench.copy(); });
  measure_layers(bench);  // the quickest first: a deadline may end the run
  measure_products(bench);
  measure_against_cublas_lt(bench);
  measure_sampling(bench);
  if (file == nullptr) bench.write();
  return !bench.failed();
}

}  // namespace
}  // namespace moe::cuda

int main(int argc, char** argv) {
  const bool small = argc > 1 && std::strcmp(argv[1], "--small") == 0;
  const int n_files = argc - 1 - (small ? 1 : 0);
  if (n_files > 1 || (n_files == 1 && argv[argc - 1][0] == '-')) {
    std::fprintf(stderr, "usage: gpu_bench [--small] [FILE]\n");
    return 2;
  }
  try {
    return moe::cuda::run(n_files == 1 ? argv[argc - 1] : nullptr, small) ? 0 : 1;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "gpu_bench: %s\n", e.what());
    return 1;
  }
}
