// SPDX-License-Identifier: MIT
#pragma once
// Little-endian integers, independent of the machine's byte order.

#include <cstddef>
#include <cstdint>

namespace moe {

template <class T>
inline T load_le(const uint8_t* bytes) {
  T value = 0;
  for (size_t i = 0; i < sizeof(T); ++i)
    value = static_cast<T>(value | static_cast<T>(bytes[i]) << (8 * i));
  return value;
}

template <class T>
inline void store_le(T value, uint8_t* bytes) {
  for (size_t i = 0; i < sizeof(T); ++i) bytes[i] = static_cast<uint8_t>(value >> (8 * i));
}

}  // namespace moe
