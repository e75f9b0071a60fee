// SPDX-License-Identifier: MIT
#pragma once
// Memory on the GPU and the time of a call there, for the benchmarks.

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

namespace moe::cuda {

/// Throws if a call failed.
inline void check(cudaError_t error, const char* what) {
  if (error != cudaSuccess) {
    throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(error));
  }
}

/// Device memory filled with random bytes or zeros.
class Buffer {
 public:
  explicit Buffer(size_t bytes, bool random = false);
  template <class T>
  explicit Buffer(const std::vector<T>& values)
      : Buffer(std::max<size_t>(1, values.size()) * sizeof(T)) {
    check(cudaMemcpy(data_, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice),
          "upload");
  }
  Buffer(Buffer&& other) noexcept : data_(other.data_), bytes_(other.bytes_) {
    other.data_ = nullptr;
  }
  Buffer(const Buffer&) = delete;
  ~Buffer() { cudaFree(data_); }
  template <class T>
  T* as() const {
    return static_cast<T*>(data_);
  }
  size_t bytes() const { return bytes_; }

 private:
  void* data_ = nullptr;
  size_t bytes_;
};

/// n normally distributed floats.
Buffer random_normals(size_t n, float deviation = 1);

struct Times {
  double median_us;
  double low_us;  // quartiles
  double high_us;
};

struct Repetitions {
  int uncounted;  // first, to warm up
  int counted;
};

/// The time of one call, from repetitions of a graph of `n` calls; call(stream, i) enqueues the
/// i-th.
Times measure(int n, const Repetitions& repetitions,
              const std::function<cudaError_t(cudaStream_t, int)>& call);

}  // namespace moe::cuda
