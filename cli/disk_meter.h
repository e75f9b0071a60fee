#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "include/moe_c.h"

namespace moe_cli {

/// Bytes per second that a model file gives to reads of whole experts, as the library reads them
/// under a memory cap, but with nothing computed beside them.
class DiskMeter {
 public:
  /// `direct`: past the page cache. Throws CallError.
  DiskMeter(const std::string& path, bool direct, const moe_model* model);
  DiskMeter(const DiskMeter&) = delete;
  DiskMeter& operator=(const DiskMeter&) = delete;
  ~DiskMeter();

  /// Experts at random, for a third of a second, by as many threads as the library has for it.
  /// Throws CallError.
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
