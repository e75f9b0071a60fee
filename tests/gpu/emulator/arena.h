// SPDX-License-Identifier: MIT
#pragma once
// The memory of the emulated device.

#include <cstddef>
#include <cstdint>
#include <map>

namespace emulator {

/// One region of address space for all device memory. The host can access it only in kernels and
/// copies. The cost of opening it grows with the number of pages, so it uses huge pages if the
/// machine has them.
class Arena {
 public:
  Arena();
  /// Null if there is not enough memory.
  void* take(size_t bytes);
  /// False if `memory` was not returned by take().
  bool give_back(void* memory);
  void open();
  void close();
  size_t in_use() const { return in_use_; }

 private:
  struct Used {
    size_t size, bytes;
  };
  void protect(int access) const;
  uint8_t* base_;
  int depth_ = 0;
  size_t in_use_ = 0;
  std::map<size_t, size_t> free_;  // offset: size
  std::map<size_t, Used> used_;
};

}  // namespace emulator
