// SPDX-License-Identifier: MIT
#pragma once
// Shared by the cases of gpu_bench: their sizes, their time and the JSON that they add to.

#include <nlohmann/json.hpp>

#include "tests/gpu/bench/measure.h"

namespace moe::cuda {

class Bench {
 public:
  /// Results go to `file`, which is rewritten after each case, or to stdout if it is null. `small`
  /// measures the same cases with small sizes, which an emulator can run.
  Bench(const cudaDeviceProp& gpu, int driver, const char* file, bool small);

  /// The rows of activations and the widths of matrices that are measured.
  int32_t rows(int32_t n) const { return small_ ? std::min(n, 40) : n; }
  int32_t width(int32_t n) const { return small_ ? std::max(n / 16, 32) : n; }
  /// The bytes of weights that calls use in rotation: more than twice the L2 cache.
  size_t rotation() const { return rotation_; }

  /// Runs measure_case(name), whose failure ends this case alone.
  void attempt(const std::string& name, const std::function<void(const char*)>& measure_case);
  Times time(int n, const std::function<cudaError_t(cudaStream_t, int)>& call) const {
    return small_ ? measure(1, {0, 1}, call) : measure(n, {3, 30}, call);
  }
  /// Adds a time, the bytes that a call must read and its operations.
  void report(const char* name, const Times& t, double bytes, double operations);
  /// Adds a time alone: all calls use the same few bytes, which stay in the cache.
  void report_cached(const char* name, const Times& t);
  /// Measures a copy, to which report() relates the bytes.
  void copy();
  void add(const char* list, nlohmann::json entry) { out_[list].push_back(std::move(entry)); }

  bool failed() const { return out_.contains("failures"); }
  void write() const;

 private:
  const char* file_;
  bool small_;
  size_t rotation_;
  double copy_bytes_per_s_ = 1;
  nlohmann::json out_ = nlohmann::json::object();
};

// The cases, by kind.
void measure_products(Bench& bench);
void measure_against_cublas_lt(Bench& bench);
void measure_layers(Bench& bench);  // what surrounds the products of a layer
void measure_sampling(Bench& bench);

}  // namespace moe::cuda
