// SPDX-License-Identifier: MIT
// One decode step of a model file, for a profiler: ncu --profile-from-start off gpu_decode_step
// MODEL [DEPTH]
//
// The step follows a prompt of DEPTH tokens (default 512), which is not profiled. Nor is the same
// in an earlier session, which loads kernels and experts. The first decode step of a session is no
// graph: its kernels are launched one by one.

#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>
#include <vector>

#include "formats/moe/reader.h"
#include "kernels/cuda/device_cuda.h"
#include "src/model/model.h"
#include "src/run/session.h"

#if !defined(MOE_CUDA_EMULATOR)
extern "C" {  // of the CUDA runtime; its header for them is a package of its own
cudaError_t cudaProfilerStart(void);
cudaError_t cudaProfilerStop(void);
}
#endif

namespace moe {
namespace {

// A prompt in an empty session, then one token.
Status step(Model& model, int32_t depth, bool profiled) {
  SessionOptions options;
  options.context = depth + 1;
  MOE_ASSIGN(Box<Session> session, Session::create(model, options, system_allocator()));
  const auto vocab = model.config().vocab_size;
  std::vector<int32_t> tokens;
  for (int32_t i = 0; i <= depth; ++i) tokens.push_back((i * 7919 + 13) % vocab);
  std::vector<float> logits(static_cast<size_t>(vocab));
  const auto n = static_cast<size_t>(depth);
  MOE_TRY(session->eval({tokens.data(), n}, LogitRows::kNone, nullptr));
  if (profiled && cudaProfilerStart() != cudaSuccess) {
    return Status::error(MOE_ERR_DEVICE, "the profiler cannot be started");
  }
  MOE_TRY(session->eval({tokens.data() + n, 1}, LogitRows::kLast, logits.data()));
  if (profiled) (void)cudaProfilerStop();
  return {};
}

Status run(Device& device, const char* path, int32_t depth) {
  MOE_ASSIGN(FileSource source, FileSource::open_path(path));
  MOE_ASSIGN(Box<MoeFile> file, MoeFile::open(std::move(source), system_allocator()));
  MOE_ASSIGN(Box<Model> model,
             Model::open(std::move(file), {}, device, Logger(), system_allocator()));
  MOE_TRY(step(*model, depth, false));
  return step(*model, depth, true);
}

}  // namespace
}  // namespace moe

int main(int argc, char** argv) {
  const int depth = argc > 2 ? std::atoi(argv[2]) : 512;
  if (argc < 2 || argc > 3 || depth < 1) {
    std::fprintf(stderr, "usage: gpu_decode_step MODEL [DEPTH]\n");
    return 2;
  }
  moe::Result<moe::Device*> device = moe::cuda::open_cuda_device({}, moe::system_allocator());
  moe::Status status = device.status();
  if (status.ok()) {
    status = moe::run(*device.value(), argv[1], depth);
    moe::cuda::close_cuda_device(device.value());
  }
  if (!status.ok()) std::fprintf(stderr, "gpu_decode_step: %s\n", status.text());
  return status.ok() ? 0 : 1;
}
