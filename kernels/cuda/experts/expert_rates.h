#pragma once
// Which is quicker for an expert that is not on the GPU: bringing it in, or the CPU.

#include "kernels/cuda/device_cuda.h"
#include "src/base/mutex.h"

namespace moe::cuda {

/// Running means of what both took, in seconds per byte of weights, and the choice. Any thread.
///
/// A missing expert is computed on the CPU as long as all its turns there, this one included, take
/// less than bringing it in would: what is used again comes to the GPU, and at most twice the time
/// is spent that was needed. Of what is not measured yet, bringing in comes first; a way that was
/// not taken for a while is taken once, to be measured again.
class ExpertRates {
 public:
  explicit ExpertRates(MissingExperts mode) : mode_(mode) {}
  ExpertRates(const ExpertRates&) = delete;
  ExpertRates& operator=(const ExpertRates&) = delete;

  void add_bring(uint64_t bytes, double seconds) { add(&bring_, bytes, seconds); }
  void add_cpu(uint64_t bytes, double seconds) { add(&cpu_, bytes, seconds); }
  /// The choice for an expert that the CPU has computed n_before times since it was on the GPU.
  bool on_cpu(int32_t n_before);
  /// False when the choice is never the CPU.
  bool ever_on_cpu() const { return mode_ != MissingExperts::kOnGpu; }

 private:
  struct Mean {
    double seconds_per_byte = 0;
    bool known = false;
    int32_t n_skipped = 0;  // choices since it was chosen
  };
  static constexpr int32_t kMostSkipped = 256;

  void add(Mean* mean, uint64_t bytes, double seconds);
  bool choose(int32_t n_before) const;

  const MissingExperts mode_;
  Mutex mutex_;
  Mean bring_;
  Mean cpu_;
  uint64_t n_choices_ = 0;
};

/// Seconds since some time in the past.
double clock_seconds();

}  // namespace moe::cuda
