// SPDX-License-Identifier: MIT
#pragma once
// Status and Result: how the core reports errors. No exceptions, no allocation.

#include <cstdarg>
#include <new>
#include <utility>

#include "include/moe_c.h"
#include "src/base/format.h"

namespace moe {

/// A code and, unless MOE_OK, one line of text: the item, the expected and the found value.
class [[nodiscard]] Status {
 public:
  Status() : code_(MOE_OK) { text_[0] = '\0'; }
  Status(const Status& other) { copy(other); }
  Status& operator=(const Status& other) {
    if (this != &other) copy(other);
    return *this;
  }

  bool ok() const { return code_ == MOE_OK; }
  moe_status code() const { return code_; }
  const char* text() const { return text_; }

  /// printf-style constructor of an error. Truncated at a UTF-8 boundary; unprintable bytes become
  /// '?'.
  static Status error(moe_status code, const char* format, ...) MOE_FORMAT(2, 3);
  static Status verror(moe_status code, const char* format, va_list args) MOE_FORMAT(2, 0);

  /// The same error prefixed with "prefix: " to say where it happened; OK stays OK.
  Status with_context(const char* format, ...) const MOE_FORMAT(2, 3);

 private:
  void copy(const Status& other);

  moe_status code_;
  char text_[MOE_ERROR_TEXT_BYTES];
};

inline Status out_of_memory(const char* what, unsigned long long bytes) {
  return Status::error(MOE_ERR_MEMORY, "out of memory: %s needs %llu bytes", what, bytes);
}

/// Either a value or an error Status. T needs to be movable, not default constructible.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(const Status& error) : status_(error) {}  // NOLINT: conversion is the point
  Result(T&& value) : has_value_(true) { new (&storage_) T(std::move(value)); }  // NOLINT
  Result(const T& value) : has_value_(true) { new (&storage_) T(value); }        // NOLINT
  Result(Result&& other) noexcept : status_(other.status_), has_value_(other.has_value_) {
    if (has_value_) new (&storage_) T(std::move(other.value()));
  }
  Result& operator=(Result&&) = delete;
  ~Result() {
    if (has_value_) value().~T();
  }

  bool ok() const { return has_value_; }
  const Status& status() const { return status_; }
  T& value() { return *std::launder(reinterpret_cast<T*>(&storage_)); }
  const T& value() const { return *std::launder(reinterpret_cast<const T*>(&storage_)); }
  T* operator->() { return &value(); }
  T& operator*() { return value(); }

 private:
  Status status_;
  bool has_value_ = false;
  alignas(T) unsigned char storage_[sizeof(T)];
};

// Returns from the enclosing function when `expr` (a Status) is an error.
#define MOE_TRY(expr)                                \
  do {                                               \
    ::moe::Status moe_try_status = (expr);           \
    if (!moe_try_status.ok()) return moe_try_status; \
  } while (false)

#define MOE_CONCAT_INNER(a, b) a##b
#define MOE_CONCAT(a, b) MOE_CONCAT_INNER(a, b)
// `MOE_ASSIGN(auto x, f())`: x = the value of the Result, or return its error.
#define MOE_ASSIGN(lhs, expr) MOE_ASSIGN_NAMED(MOE_CONCAT(moe_result_, __COUNTER__), lhs, expr)
#define MOE_ASSIGN_NAMED(name, lhs, expr) \
  auto name = (expr);                     \
  if (!name.ok()) return name.status();   \
  lhs = std::move(name.value())

}  // namespace moe
