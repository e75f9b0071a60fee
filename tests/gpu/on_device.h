// SPDX-License-Identifier: MIT
#pragma once
// Arrays on the device for tests of kernels/cuda, and comparison of bits.

#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <vector>

#include "quant/formats.h"

namespace moe::cuda {

/// Bytes of shared memory that a block of GPU 0 can have.
inline size_t shared_of_a_block() {
  int bytes = 0;
  EXPECT_EQ(cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, 0),
            cudaSuccess);
  return static_cast<size_t>(bytes);
}

/// n elements on the device, filled with 0xa5 bytes unless values are given, so that elements which
/// a kernel fails to write are detected.
template <class T>
class OnDevice {
 public:
  OnDevice() = default;
  explicit OnDevice(size_t n) : size_(n) {
    void* memory = nullptr;
    EXPECT_EQ(cudaMalloc(&memory, n * sizeof(T) + 16), cudaSuccess);
    memory_ = {static_cast<T*>(memory), [](T* p) { cudaFree(p); }};
    EXPECT_EQ(cudaMemset(memory, 0xa5, n * sizeof(T) + 16), cudaSuccess);
  }
  OnDevice(const std::vector<T>& v) : OnDevice(v.size()) {  // NOLINT: the point of the class
    if (!v.empty()) {
      EXPECT_EQ(cudaMemcpy(get(), v.data(), v.size() * sizeof(T), cudaMemcpyHostToDevice),
                cudaSuccess);
    }
  }
  T* get() const { return memory_.get(); }
  operator T*() const { return get(); }  // NOLINT: the point of the class
  std::vector<T> values() const {
    std::vector<T> v(size_);
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    if (size_ != 0) {
      EXPECT_EQ(cudaMemcpy(v.data(), get(), size_ * sizeof(T), cudaMemcpyDeviceToHost),
                cudaSuccess);
    }
    return v;
  }

 private:
  size_t size_ = 0;
  std::shared_ptr<T> memory_;
};

/// A matrix in device memory, which it owns.
class DeviceMatrix {
 public:
  DeviceMatrix() = default;
  explicit DeviceMatrix(const Matrix& m) : matrix_(m) {
    const auto tiles = static_cast<size_t>((m.rows + kTileRows - 1) / kTileRows);
    const size_t bytes = tiles * static_cast<size_t>(m.tile_stride);
    tiles_ = OnDevice<uint8_t>(std::vector<uint8_t>(m.tiles, m.tiles + bytes));
    matrix_.tiles = tiles_;
    const size_t n = scale_count(m.format, m.scale_kind, m.group, m.rows, m.cols);
    if (n == 0) return;
    scales_ = OnDevice<float>(std::vector<float>(m.scales, m.scales + n));
    matrix_.scales = scales_;
  }
  operator const Matrix&() const { return matrix_; }  // NOLINT: the point of the class

 private:
  Matrix matrix_;
  OnDevice<uint8_t> tiles_;
  OnDevice<float> scales_;
};

inline uint32_t bits_of(float v) {
  uint32_t bits;
  std::memcpy(&bits, &v, sizeof bits);
  return bits;
}

/// Index of the first element whose bits differ, or -1; any two NaNs are equal.
inline int64_t first_other(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() != b.size()) return 0;
  for (size_t i = 0; i < a.size(); ++i) {
    if (bits_of(a[i]) != bits_of(b[i]) && !(a[i] != a[i] && b[i] != b[i])) {
      return static_cast<int64_t>(i);
    }
  }
  return -1;
}

#define EXPECT_SAME_BITS(found, expected)                                                     \
  do {                                                                                        \
    const std::vector<float> found_ = (found);                                                \
    const std::vector<float> expected_ = (expected);                                          \
    const int64_t at_ = ::moe::cuda::first_other(found_, expected_);                          \
    ASSERT_EQ(found_.size(), expected_.size());                                               \
    EXPECT_EQ(at_, -1) << "found " << found_[static_cast<size_t>(at_ < 0 ? 0 : at_)]          \
                       << ", expected " << expected_[static_cast<size_t>(at_ < 0 ? 0 : at_)]; \
  } while (false)

}  // namespace moe::cuda
