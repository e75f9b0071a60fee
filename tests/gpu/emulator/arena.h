#pragma once
// The emulated device's memory.

#include <cstddef>
#include <cstdint>
#include <map>

namespace emulator {

/// One region of address space for all device memory: closed to the host but in kernels and copies.
/// Opening it takes time for each page; huge ones, where the machine has them, are few.
class Arena {
 public:
  Arena();
  /// Null when there is no room.
  void* take(size_t bytes);
  /// False when it was not taken.
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
  std::map<size_t, size_t> free_;  // by begin
  std::map<size_t, Used> used_;
};

}  // namespace emulator
