// SPDX-License-Identifier: MIT
#pragma once
// Splits one block of memory into several arrays.

#include <cstddef>
#include <cstdint>
#include <new>
#include <span>
#include <type_traits>

#include "src/base/checked.h"

namespace moe {

/// Returns consecutive, 64-byte aligned parts of `base` from byte `used` on; without a base it only
/// measures.
class Carver {
 public:
  explicit Carver(uint8_t* base = nullptr, size_t used = 0) : base_(base), used_(used) {}

  template <class T>
  void take(T** part, int64_t a, int64_t b = 1) {
    int64_t n = 0;
    size_t bytes = 0;
    ok_ = ok_ && a >= 0 && b >= 0 && checked_mul(a, b, &n) &&
          static_cast<uint64_t>(n) < SIZE_MAX / 2 &&
          checked_mul(static_cast<size_t>(n), sizeof(T), &bytes) && bytes < SIZE_MAX / 2;
    if (!ok_) return;
    if (base_ != nullptr) *part = reinterpret_cast<T*>(base_ + used_);
    ok_ = checked_add(used_, round_up(bytes, size_t{64}), &used_);
  }
  /// The same in host memory, where the elements are constructed. Nobody destroys them.
  template <class T>
  void take(std::span<T>* part, int64_t n) {
    static_assert(std::is_trivially_destructible_v<T> && alignof(T) <= 64);
    T* first = nullptr;
    take(&first, n);
    if (first == nullptr || !ok_) return;
    *part = {first, static_cast<size_t>(n)};
    for (T& element : *part) new (&element) T();
  }
  bool ok() const { return ok_; }
  /// 0 when not ok().
  size_t total() const { return ok_ ? used_ : 0; }

 private:
  uint8_t* base_;
  size_t used_;
  bool ok_ = true;
};

/// Size of what lay_out(Carver&) takes; false on overflow.
template <class LayOut>
bool measure(LayOut&& lay_out, uint64_t* out) {
  Carver carver;
  lay_out(carver);
  *out = carver.total();
  return carver.ok();
}

}  // namespace moe
