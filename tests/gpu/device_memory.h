// SPDX-License-Identifier: MIT
#pragma once
// Memory of the GPU (or of the emulator) for tests.

#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <utility>
#include <vector>

namespace moe {

template <class T>
class DeviceArray {
 public:
  DeviceArray() = default;
  explicit DeviceArray(size_t n) : size_(n) {
    if (n == 0) return;
    EXPECT_EQ(cudaMalloc(&data_, n * sizeof(T)), cudaSuccess);
  }
  explicit DeviceArray(const std::vector<T>& v) : DeviceArray(v.size()) {
    if (size_ == 0) return;
    EXPECT_EQ(cudaMemcpy(data_, v.data(), size_ * sizeof(T), cudaMemcpyHostToDevice), cudaSuccess);
  }
  DeviceArray(DeviceArray&& other) noexcept : data_(other.data_), size_(other.size_) {
    other.data_ = nullptr;
    other.size_ = 0;
  }
  DeviceArray& operator=(DeviceArray&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }
  ~DeviceArray() {
    if (data_ != nullptr) cudaFree(data_);
  }

  T* data() const { return data_; }
  size_t size() const { return size_; }
  /// Waits for the GPU.
  std::vector<T> values() const {
    std::vector<T> v(size_);
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    if (size_ != 0) {
      EXPECT_EQ(cudaMemcpy(v.data(), data_, size_ * sizeof(T), cudaMemcpyDeviceToHost),
                cudaSuccess);
    }
    return v;
  }

 private:
  T* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace moe
