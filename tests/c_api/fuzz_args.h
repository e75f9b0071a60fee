// SPDX-License-Identifier: MIT
#pragma once
// Arguments of C functions from a fuzzer's input: valid ones, and invalid ones of every kind that a
// library can detect. Arrays have exactly the size that the call states.

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "tests/support/fuzz_env.h"

namespace moe {

class FuzzArgs {
 public:
  explicit FuzzArgs(FuzzBytes& in) : in_(in) {}
  FuzzArgs(const FuzzArgs&) = delete;
  FuzzArgs& operator=(const FuzzArgs&) = delete;

  FuzzBytes& in() { return in_; }

  void* room(size_t n) {
    kept_.push_back(std::make_unique<char[]>(n));  // zeros
    return kept_.back().get();
  }
  template <class T>
  T* array(size_t n) {
    return static_cast<T*>(room(n * sizeof(T)));
  }
  /// Sometimes NULL.
  template <class T>
  T* maybe(T* pointer) {
    return in_.byte() == 13 ? nullptr : pointer;
  }

  /// A parameter struct: complete, shorter, longer, with struct_size 0, or NULL.
  template <class T>
  T* params(T value) {
    const uint8_t how = in_.byte();
    if (how == 13) return nullptr;
    uint32_t size = sizeof(T);
    if (how < 13) {
      static constexpr uint32_t kSizes[] = {0, 1, 3, 4, 5, 8, 4095, 4096, 4097, 0xFFFFFFFF};
      size = how < std::size(kSizes) ? kSizes[how] : sizeof(T) + 4 * (how - 10U);
    }
    const size_t n = size >= 4 && size <= 4096 ? size : 4;
    auto* bytes = static_cast<char*>(room(n));
    std::memcpy(bytes, &value, std::min(n, sizeof(T)));
    if (n > sizeof(T) && in_.flag()) bytes[in_.below(n - sizeof(T)) + sizeof(T)] = 1;
    std::memcpy(bytes, &size, sizeof size);
    return reinterpret_cast<T*>(bytes);
  }
  /// The same for a struct that the library fills.
  template <class T>
  T* out() {
    return params(T{});
  }

  /// Sets an enum to any number.
  template <class E>
  void set(E* value) {
    const int32_t number = in_.number();
    static_assert(sizeof(E) == sizeof number);
    std::memcpy(value, &number, sizeof number);
  }

  /// One of `known`, NULL, or bytes of the input.
  template <size_t n>
  const char* text(const char* const (&known)[n]) {
    const uint8_t which = in_.byte();
    if (which == 13) return nullptr;
    if (which < 200) return known[which % n];
    return text(which % 32);
  }
  const char* text(size_t n) {
    const std::string_view bytes = in_.take(n);
    char* copy = array<char>(bytes.size() + 1);
    if (!bytes.empty()) std::memcpy(copy, bytes.data(), bytes.size());
    return copy;
  }

  std::vector<int32_t> ids(size_t most) {
    std::vector<int32_t> out(in_.below(most + 1));
    for (int32_t& id : out) id = in_.byte();
    if (in_.byte() == 13 && !out.empty()) out.back() = in_.number();
    return out;
  }
  /// rows * cols floats; NULL if that is not positive or more than 5000, and sometimes otherwise.
  float* floats(int64_t rows, int64_t cols) {
    if (rows < 1 || cols < 1 || rows > 5000 || cols > 5000 || rows * cols > 5000) return nullptr;
    auto* values = array<float>(static_cast<size_t>(rows * cols));
    for (int64_t i = 0; i < rows * cols; ++i) {
      values[i] = static_cast<float>(i * 7 % 31 - 15) / 16;
    }
    if (in_.byte() == 13) values[0] = in_.real();
    return maybe(values);
  }

  /// For the next call; sometimes NULL.
  moe_error* error() {
    error_ = maybe(array<moe_error>(1));
    return error_;
  }
  /// Whether `status`, of the last call that got error(), is MOE_OK; also checks the error's text.
  bool fine(moe_status status) const {
    if (error_ != nullptr) return moe::fine(status, *error_);
    require(status != MOE_ERR_INTERNAL);
    return status == MOE_OK;
  }

 private:
  FuzzBytes& in_;
  std::vector<std::unique_ptr<char[]>> kept_;
  moe_error* error_ = nullptr;
};

/// A buffer for a function that takes (buffer, capacity, *length), and the checks on what it wrote.
template <class T>
struct FuzzBuffer {
  T* data;
  size_t capacity;
  size_t* length;

  explicit FuzzBuffer(FuzzArgs& args) {
    capacity = args.in().byte();
    if (capacity > 128) capacity *= 32;
    data = args.maybe(args.array<T>(capacity));
    if (args.in().byte() == 13) capacity = 0;
    length = args.maybe(args.array<size_t>(1));
  }
  /// zero: 1 for text, whose terminating zero must fit too.
  void check(moe_status status, size_t zero) const {
    if (status == MOE_OK && data != nullptr) require(*length + zero <= capacity || capacity == 0);
    if (status == MOE_ERR_TOO_LONG && length != nullptr && *length != 0) {
      require(data == nullptr || *length + zero > capacity);
    }
  }
};

}  // namespace moe
