// SPDX-License-Identifier: MIT
#pragma once
// Decides if a missing expert is faster to upload or to compute on the CPU.

#include "kernels/cuda/device_cuda.h"
#include "src/base/mutex.h"

namespace moe::cuda {

/// Running means of both times, in seconds per byte of weights, and the decision. Any thread.
///
/// A missing expert is computed on the CPU as long as all its CPU computations since its last
/// upload, including this one, take less time than an upload: frequently used experts are uploaded,
/// and the total time is at most twice the optimum. Before anything is measured, uploads come
/// first; a method that was not used for a while is used once to measure it again.
class ExpertRates {
 public:
  explicit ExpertRates(MissingExperts mode) : mode_(mode) {}
  ExpertRates(const ExpertRates&) = delete;
  ExpertRates& operator=(const ExpertRates&) = delete;

  void add_upload(uint64_t bytes, double seconds) { add(&upload_, bytes, seconds); }
  void add_cpu(uint64_t bytes, double seconds) { add(&cpu_, bytes, seconds); }
  /// The decision for an expert that the CPU has computed n_before times since it was on the GPU.
  bool on_cpu(int32_t n_before);
  /// False if the CPU is never used.
  bool ever_on_cpu() const { return mode_ != MissingExperts::kOnGpu; }

 private:
  struct Mean {
    double seconds_per_byte = 0;
    bool known = false;
    int32_t n_skipped = 0;  // decisions since it was last used
  };
  static constexpr int32_t kMostSkipped = 256;

  void add(Mean* mean, uint64_t bytes, double seconds);
  bool choose(int32_t n_before) const;

  const MissingExperts mode_;
  Mutex mutex_;
  Mean upload_;
  Mean cpu_;
  uint64_t n_choices_ = 0;
};

/// Seconds of a monotonic clock.
double clock_seconds();

}  // namespace moe::cuda
