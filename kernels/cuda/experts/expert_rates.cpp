// SPDX-License-Identifier: MIT
// Keeps a running mean of the seconds per byte of both ways, and now and then tries the slower one
// again.
#include "kernels/cuda/experts/expert_rates.h"

#include "src/base/os/clock.h"

namespace moe::cuda {

double clock_seconds() { return system_clock().seconds(); }

void ExpertRates::add(Mean* mean, uint64_t bytes, double seconds) {
  if (bytes == 0) return;
  LockGuard guard(mutex_);
  const double found = seconds / static_cast<double>(bytes);
  if (!mean->known) mean->seconds_per_byte = found;
  mean->seconds_per_byte += (found - mean->seconds_per_byte) / 8;
  mean->known = true;
}

bool ExpertRates::choose(int32_t n_before) const {
  if (!upload_.known) return false;
  if (!cpu_.known || cpu_.n_skipped >= kMostSkipped) return true;
  if (upload_.n_skipped >= kMostSkipped) return false;
  return (n_before + 1) * cpu_.seconds_per_byte < upload_.seconds_per_byte;
}

bool ExpertRates::on_cpu(int32_t n_before) {
  LockGuard guard(mutex_);
  ++n_choices_;
  if (mode_ == MissingExperts::kInTurn) return n_choices_ % 2 == 0;
  if (mode_ != MissingExperts::kMeasured) return mode_ == MissingExperts::kOnCpu;
  const bool cpu = choose(n_before);
  cpu_.n_skipped = cpu ? 0 : cpu_.n_skipped + 1;
  upload_.n_skipped = cpu ? upload_.n_skipped + 1 : 0;
  return cpu;
}

}  // namespace moe::cuda
