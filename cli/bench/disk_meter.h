// SPDX-License-Identifier: MIT
#pragma once
// Measures how fast whole experts can be read from a model file, which moe bench compares its speed
// with.

#include <cstdint>
#include <string>
#include <vector>

#include "include/moe_c.h"

namespace moe_cli {

/// Read rate of a model file in bytes per second for whole experts, read like the library under a
/// memory cap, but without computation.
class DiskMeter {
 public:
  /// `direct`: bypass the page cache. Throws CallError.
  DiskMeter(const std::string& path, bool direct, const moe_model* model);
  DiskMeter(const DiskMeter&) = delete;
  DiskMeter& operator=(const DiskMeter&) = delete;
  ~DiskMeter();

  /// Reads random experts for a third of a second, with as many threads as the library. Throws
  /// CallError.
  double measure();

 private:
  struct Segment {
    uint64_t offset = 0;
    size_t bytes = 0;
  };
  uint64_t read_until(double end, uint32_t seed) const;

  std::string path_;
  int fd_ = -1;
  std::vector<Segment> experts_;
  uint32_t seed_ = 1;
};

}  // namespace moe_cli
