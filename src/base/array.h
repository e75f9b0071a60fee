// SPDX-License-Identifier: MIT
#pragma once
// Array<T>: a growable array whose growth can fail. Box<T>: one owned object.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>
#include <utility>

#include "src/base/allocator.h"
#include "src/base/checked.h"
#include "src/base/status.h"

namespace moe {

/// Growable array; move-only. Elements beyond a plain T are value-initialised by resize().
template <class T>
class Array {
 public:
  explicit Array(const Allocator& allocator = system_allocator()) : allocator_(&allocator) {}
  Array(Array&& other) noexcept { take(other); }
  Array& operator=(Array&& other) noexcept {
    if (this != &other) {
      release();
      take(other);
    }
    return *this;
  }
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;
  ~Array() { release(); }

  size_t size() const { return size_; }
  size_t capacity() const { return capacity_; }
  bool empty() const { return size_ == 0; }
  T* data() { return data_; }
  const T* data() const { return data_; }
  T& operator[](size_t i) { return data_[i]; }
  const T& operator[](size_t i) const { return data_[i]; }
  T* begin() { return data_; }
  T* end() { return data_ + size_; }
  const T* begin() const { return data_; }
  const T* end() const { return data_ + size_; }
  T& back() { return data_[size_ - 1]; }
  const T& back() const { return data_[size_ - 1]; }
  std::span<T> span() { return {data_, size_}; }
  std::span<const T> span() const { return {data_, size_}; }
  const Allocator& allocator() const { return *allocator_; }

  /// Reserves room for n elements; on failure nothing changes.
  Status reserve(size_t n) {
    if (n <= capacity_) return {};
    size_t bytes = 0;
    if (!checked_mul(n, sizeof(T), &bytes)) return out_of_memory("array", ~0ULL);
    T* fresh = static_cast<T*>(allocate(*allocator_, bytes, kAlign));
    if (fresh == nullptr) return out_of_memory("array", bytes);
    move_to(fresh);
    deallocate(*allocator_, data_, capacity_ * sizeof(T));
    data_ = fresh;
    capacity_ = n;
    return {};
  }

  Status resize(size_t n) {
    if (n > capacity_) MOE_TRY(reserve(n));
    for (size_t i = size_; i < n; ++i) new (data_ + i) T();
    for (size_t i = n; i < size_; ++i) data_[i].~T();
    size_ = n;
    return {};
  }

  Status push(T value) {
    MOE_TRY(grow_for(1));
    new (data_ + size_) T(std::move(value));
    ++size_;
    return {};
  }

  Status append(const T* values, size_t n) requires std::is_trivially_copyable_v<T> {
    MOE_TRY(grow_for(n));
    if (n != 0) std::memcpy(static_cast<void*>(data_ + size_), values, n * sizeof(T));
    size_ += n;
    return {};
  }

  void pop() {
    --size_;
    data_[size_].~T();
  }
  void clear() {
    for (size_t i = 0; i < size_; ++i) data_[i].~T();
    size_ = 0;
  }

 private:
  // Kernels read arrays of numbers by whole cache lines; others are cheaper at malloc's alignment.
  static constexpr size_t kAlign =
      std::max(std::is_arithmetic_v<T> ? size_t{64} : alignof(std::max_align_t), alignof(T));

  Status grow_for(size_t n) {
    size_t need = 0;
    if (!checked_add(size_, n, &need)) return out_of_memory("array", ~0ULL);
    if (need <= capacity_) return {};
    return reserve(std::max(need, std::max<size_t>(8, capacity_ + capacity_ / 2)));
  }
  void move_to(T* fresh) {
    if constexpr (std::is_trivially_copyable_v<T>) {
      if (size_ != 0) std::memcpy(static_cast<void*>(fresh), data_, size_ * sizeof(T));
    } else {
      for (size_t i = 0; i < size_; ++i) {
        new (fresh + i) T(std::move(data_[i]));
        data_[i].~T();
      }
    }
  }
  void release() {
    clear();
    deallocate(*allocator_, data_, capacity_ * sizeof(T));
    data_ = nullptr;
    capacity_ = 0;
  }
  void take(Array& other) {
    allocator_ = other.allocator_;
    data_ = std::exchange(other.data_, nullptr);
    size_ = std::exchange(other.size_, 0);
    capacity_ = std::exchange(other.capacity_, 0);
  }

  const Allocator* allocator_;
  T* data_ = nullptr;
  size_t size_ = 0;
  size_t capacity_ = 0;
};

/// Sole owner of one object made by make_box. Move-only; may be empty.
template <class T>
class Box {
 public:
  Box() = default;
  Box(T* object, const Allocator& allocator) : object_(object), allocator_(&allocator) {}
  Box(Box&& other) noexcept
      : object_(std::exchange(other.object_, nullptr)), allocator_(other.allocator_) {}
  Box& operator=(Box&& other) noexcept {
    if (this != &other) {
      reset();
      object_ = std::exchange(other.object_, nullptr);
      allocator_ = other.allocator_;
    }
    return *this;
  }
  ~Box() { reset(); }

  T* get() const { return object_; }
  T* operator->() const { return object_; }
  T& operator*() const { return *object_; }
  explicit operator bool() const { return object_ != nullptr; }
  T* release() { return std::exchange(object_, nullptr); }
  void reset() {
    if (object_ == nullptr) return;
    object_->~T();
    deallocate(*allocator_, object_, sizeof(T));
    object_ = nullptr;
  }

 private:
  T* object_ = nullptr;
  const Allocator* allocator_ = nullptr;
};

/// Allocates and constructs a T (final classes only: a Box frees sizeof(T)).
template <class T, class... Args>
Result<Box<T>> make_box(const Allocator& allocator, Args&&... args) {
  void* p = allocate(allocator, sizeof(T), alignof(T) > 64 ? alignof(T) : 64);
  if (p == nullptr) return out_of_memory("object", sizeof(T));
  return Box<T>(new (p) T(std::forward<Args>(args)...), allocator);
}

}  // namespace moe
