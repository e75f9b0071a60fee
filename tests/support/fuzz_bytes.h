// SPDX-License-Identifier: MIT
#pragma once
// Numbers and texts from the front of a fuzzer's input: zero and empty once it is used up.

#include <bit>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>
#include <string_view>

namespace moe {

/// Fails the fuzz target unless the condition holds.
inline void require(bool condition) {
  if (!condition) __builtin_trap();
}

class FuzzBytes {
 public:
  FuzzBytes(const uint8_t* data, size_t size) : data_(data), size_(size) {}

  bool empty() const { return size_ == 0; }
  size_t size() const { return size_; }

  uint8_t byte() {
    if (size_ == 0) return 0;
    --size_;
    return *data_++;
  }
  bool flag() { return (byte() & 1) != 0; }
  /// Less than n, which is at most 65536.
  size_t below(size_t n) {
    if (n < 2) return 0;
    return (n <= 256 ? byte() : byte() | static_cast<size_t>(byte()) << 8) % n;
  }
  uint32_t word() {
    uint32_t value = 0;
    for (int i = 0; i < 4; ++i) value |= static_cast<uint32_t>(byte()) << (8 * i);
    return value;
  }
  uint64_t wide() { return word() | static_cast<uint64_t>(word()) << 32; }
  /// Any bits, but often a special value.
  int32_t number() {
    static constexpr int32_t kNumbers[] = {0,  1,     2,     3,      -1,        4096,
                                           64, 65536, 65537, 100000, INT32_MAX, INT32_MIN};
    const uint8_t kind = byte();
    if (kind < std::size(kNumbers)) return kNumbers[kind];
    return kind < 128 ? kind - 12 : static_cast<int32_t>(word());
  }
  float real() {
    static constexpr float kReals[] = {0,
                                       1,
                                       -1,
                                       0.5f,
                                       0.9f,
                                       2,
                                       1e-30f,
                                       1e30f,
                                       3e38f,
                                       -3e38f,
                                       1e-45f,
                                       std::numeric_limits<float>::infinity(),
                                       -std::numeric_limits<float>::infinity()};
    const uint8_t kind = byte();
    if (kind < std::size(kReals)) return kReals[kind];
    return kind < 128 ? static_cast<float>(kind - 64) / 16 : std::bit_cast<float>(word());
  }
  /// At most n bytes.
  std::string_view take(size_t n) {
    const size_t taken = n < size_ ? n : size_;
    const std::string_view text(reinterpret_cast<const char*>(data_), taken);
    data_ += taken;
    size_ -= taken;
    return text;
  }
  /// A length, then that many bytes.
  std::string_view text() { return take(byte()); }

 private:
  const uint8_t* data_;
  size_t size_;
};

}  // namespace moe
