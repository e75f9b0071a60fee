// SPDX-License-Identifier: MIT
#pragma once
// How often the experts of each layer were used by the sessions of a service.

#include <chrono>
#include <cstdint>
#include <mutex>
#include <vector>

#include "include/moe_c.h"

namespace moe_serve {

class ExpertCounts {
 public:
  struct Layer {
    int32_t layer = 0;
    std::vector<uint64_t> uses;  // tokens of each expert
  };

  /// Has the sessions count, except on a GPU, which counting would slow down. They must outlive it.
  ExpertCounts(const moe_model* model, const std::vector<moe_session*>& sessions);
  /// Reads the counts, but not more often than people look at them, unless they stay so for a
  /// while. By the thread that evaluates the sessions.
  void refresh(bool idle);
  /// The layers with experts, in order; none on a GPU. Any thread.
  std::vector<Layer> read();

 private:
  struct Source {
    size_t layer;  // of layers_
    const uint64_t* uses;
  };
  std::vector<Source> sources_;
  std::chrono::steady_clock::time_point last_{};
  std::mutex mutex_;  // guards what follows
  std::vector<Layer> layers_;
};

}  // namespace moe_serve
