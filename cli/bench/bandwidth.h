// SPDX-License-Identifier: MIT
#pragma once
// Measures the memory bandwidth that moe bench compares its speed with.

#include <sys/types.h>

#include <vector>

#include "cli/bench/read_memory.h"

namespace moe_cli {

/// `values` is not empty.
double median(std::vector<double> values);

/// Bytes per second that `threads` threads together read from memory. Bandwidth varies with other
/// load, so it is measured repeatedly between the runs it is compared with. A child process
/// measures, so that its buffer does not count as memory of this one.
class BandwidthMeter {
 public:
  /// Call it while this process has one thread. The buffer takes at most `most` bytes, but no less
  /// than 16 MiB. Throws CallError.
  BandwidthMeter(int threads, Pages pages, uint64_t most);
  BandwidthMeter(const BandwidthMeter&) = delete;
  BandwidthMeter& operator=(const BandwidthMeter&) = delete;
  ~BandwidthMeter();

  /// The median of several passes over a buffer larger than the caches (a quarter of the free
  /// memory, from 64 to 512 MiB, and as said above; halved while a process limit refuses it), in
  /// the fastest of three ways: two streams per thread, or four or eight with hints ahead of them.
  /// Throws CallError.
  double measure();
  /// From now on measure() returns what it returned last, which must have been called, and the
  /// child process is gone: under a memory cap there is no room beside the model.
  void keep_last();

 private:
  void end();

  int socket_ = -1;
  pid_t child_ = -1;
  double last_ = 0;
};

}  // namespace moe_cli
