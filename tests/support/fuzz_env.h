// SPDX-License-Identifier: MIT
#pragma once
// The environment of fuzz targets: one thread on the CPU, and bounded memory.

#include <cstdlib>
#include <cstring>

#include "include/moe_c.h"
#include "tests/support/fuzz_bytes.h"

namespace moe {

/// A source of at most `most` bytes at a time. One thread.
class BoundedMemory {
 public:
  explicit BoundedMemory(size_t most) : most_(most) {}
  BoundedMemory(const BoundedMemory&) = delete;
  BoundedMemory& operator=(const BoundedMemory&) = delete;

  size_t held() const { return held_; }

  static void* take(void* user, size_t bytes, size_t align) {
    auto* m = static_cast<BoundedMemory*>(user);
    if (bytes > m->most_ || m->held_ > m->most_ - bytes) return nullptr;
    void* p = nullptr;
    const size_t room = bytes == 0 ? 1 : bytes;
    if (posix_memalign(&p, align < sizeof p ? sizeof p : align, room) != 0) return nullptr;
    m->held_ += bytes;
    return p;
  }
  static void give(void* user, void* p, size_t bytes) {
    auto* m = static_cast<BoundedMemory*>(user);
    if (p == nullptr) return;
    require(bytes <= m->held_);
    m->held_ -= bytes;
    std::free(p);
  }

 private:
  size_t most_;
  size_t held_ = 0;
};

inline BoundedMemory& fuzz_memory() {
  static BoundedMemory memory(size_t{256} << 20);
  return memory;
}

inline moe_allocator fuzz_allocator() {
  return {.struct_size = sizeof(moe_allocator),
          .allocate = BoundedMemory::take,
          .deallocate = BoundedMemory::give,
          .user = &fuzz_memory()};
}

inline moe_env* fuzz_env() {
  static moe_env* made = [] {
    const moe_allocator allocator = fuzz_allocator();
    moe_env_params p{};
    p.struct_size = sizeof p;
    p.threads = 1;
    p.device = "cpu";
    p.allocator = &allocator;
    moe_env* out = nullptr;
    require(moe_env_create(&p, &out, nullptr) == MOE_OK);
    return out;
  }();
  return made;
}

/// True for MOE_OK. `error` was zero before the call and must agree.
inline bool fine(moe_status status, const moe_error& error) {
  require(status != MOE_ERR_INTERNAL);
  require(error.code == status);
  require(std::memchr(error.text, '\0', sizeof error.text) != nullptr);
  require((status == MOE_OK) == (error.text[0] == '\0'));
  return status == MOE_OK;
}

}  // namespace moe
