// SPDX-License-Identifier: MIT
#pragma once
// A list whose memory a Carver places: it has room for a number of elements and never grows.

#include <algorithm>

#include "src/base/carver.h"

namespace moe {

template <class T>
class BoundedList {
 public:
  void lay_out(Carver& c, int64_t most) {
    c.take(&room_, most);
    size_ = 0;
  }
  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  T* data() { return room_.data(); }
  const T* data() const { return room_.data(); }
  T& operator[](size_t i) { return room_[i]; }
  const T& operator[](size_t i) const { return room_[i]; }
  T* begin() { return data(); }
  T* end() { return data() + size_; }
  const T* begin() const { return data(); }
  const T* end() const { return data() + size_; }
  T& back() { return room_[size_ - 1]; }
  const T& back() const { return room_[size_ - 1]; }
  std::span<const T> span() const { return {data(), size_}; }
  /// All elements that there is room for.
  std::span<T> room() const { return room_; }

  // The caller knows that there is room.
  void push(const T& value) { room_[size_++] = value; }
  void append(std::span<const T> values) {
    std::copy(values.begin(), values.end(), end());
    size_ += values.size();
  }
  /// Forgets the last elements, or adds those that the room holds behind them, as they are.
  void resize(size_t n) { size_ = n; }
  void pop() { --size_; }
  void clear() { size_ = 0; }

 private:
  std::span<T> room_;
  size_t size_ = 0;
};

}  // namespace moe
