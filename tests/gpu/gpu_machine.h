// SPDX-License-Identifier: MIT
#pragma once
// Tiny models on a GPU, or on the emulator.

#include "cuda_runtime.h"
#include "kernels/cuda/device_cuda.h"
#include "tests/gpu/recorded.h"
#include "tests/run/tiny_run.h"

namespace moe {

/// Like Machine, on a GPU. `memory_limit` 0: all free memory.
class GpuMachine : public OneModel {
 public:
  explicit GpuMachine(const MemorySink& bytes, uint64_t memory_limit = 0,
                      const Allocator& allocator = system_allocator())
      : OneModel(allocator) {
    status_ = open(FileSource::from_memory(bytes.data(), bytes.size()), {0, memory_limit});
  }
  GpuMachine(const MemorySink& bytes, const cuda::CudaOptions& options)
      : OneModel(system_allocator()) {
    status_ = open(FileSource::from_memory(bytes.data(), bytes.size()), options);
  }
  GpuMachine(FileSource source, const cuda::CudaOptions& options) : OneModel(system_allocator()) {
    status_ = open(std::move(source), options);
  }
  ~GpuMachine() {
    model_.reset();
    cuda::close_cuda_device(device_);
  }

  Device& device() { return *device_; }

 private:
  Status open(FileSource source, const cuda::CudaOptions& options) {
    MOE_ASSIGN(device_, cuda::open_cuda_device(options, allocator_));
    MOE_ASSIGN(Box<MoeFile> file, MoeFile::open(std::move(source), allocator_));
    MOE_ASSIGN(model_, Model::open(std::move(file), {}, *device_, Logger(), allocator_));
    return {};
  }

  Device* device_ = nullptr;
};

/// The logits of the steps from `from` on, one token each.
inline Floats decode(Session& session, const Tokens& tokens, size_t from = 0) {
  const auto vocab = static_cast<size_t>(session.model().config().vocab_size);
  Floats logits((tokens.size() - from) * vocab);
  for (size_t i = from; i < tokens.size(); ++i) {
    const Status s =
        session.eval(span(tokens, i, 1), LogitRows::kLast, &logits[(i - from) * vocab]);
    EXPECT_TRUE(s.ok()) << s.text();
  }
  return logits;
}

inline TinyKind plain_kind() {
  return {"plain", [](ModelConfig&, TinyOptions& o) {
            o.weights = FormatId::kTernary2;
            o.act = ActPrecision::kA8;
          }};
}

/// The norm of the difference divided by the norm of `expected`.
inline double relative_error(const Floats& found, const Floats& expected) {
  double difference = 0;
  double norm = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    const double d = static_cast<double>(found[i]) - expected[i];
    difference += d * d;
    norm += static_cast<double>(expected[i]) * expected[i];
  }
  return found.size() == expected.size() ? std::sqrt(difference / norm) : 1e9;
}

/// Expects an error below `bound`, and records both.
inline void expect_close(const Floats& found, const Floats& expected, double bound) {
  const double error = relative_error(found, expected);
  record_largest("relative_error", error);
  record_largest("tolerance", bound);
  EXPECT_LT(error, bound);
}

}  // namespace moe
