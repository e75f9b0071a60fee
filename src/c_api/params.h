// SPDX-License-Identifier: MIT
#pragma once
// Conventions of the C functions: statuses, parameter structs that grow.

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "include/moe_c.h"
#include "src/base/status.h"

namespace moe {

/// Stores `status` in the caller's error and returns its code.
inline moe_status deliver(const Status& status, moe_error* error) {
  if (!status.ok() && error != nullptr) {
    error->code = status.code();
    std::memcpy(error->text, status.text(), std::strlen(status.text()) + 1);
  }
  return status.code();
}

inline Status null_argument(const char* name) {
  return Status::error(MOE_ERR_ARGUMENT, "%s: expected a pointer, found NULL", name);
}

/// Copies the caller's parameter struct: missing fields are zero; bytes beyond the known size must
/// be zero.
template <class T>
Status read_params(const T* given, const char* name, T* out) {
  static_assert(std::is_trivially_copyable_v<T>);
  T copy;
  std::memset(&copy, 0, sizeof copy);
  if (given != nullptr) {
    const uint32_t size = given->struct_size;
    if (size < sizeof(uint32_t) || size > 4096) {
      return Status::error(MOE_ERR_ARGUMENT, "%s.struct_size: expected %zu, found %u", name,
                           sizeof(T), size);
    }
    const auto* bytes = reinterpret_cast<const unsigned char*>(given);
    for (size_t i = sizeof(T); i < size; ++i) {
      if (bytes[i] != 0) {
        return Status::error(
            MOE_ERR_ARGUMENT,
            "%s: a field at byte %zu is set that this library (%zu bytes) does not know", name, i,
            sizeof(T));
      }
    }
    std::memcpy(&copy, given, std::min(sizeof(T), static_cast<size_t>(size)));
  }
  *out = copy;
  return {};
}

/// An enum from C as an integer: C may pass any number, and reading an invalid enum value is
/// undefined.
template <class E>
int enum_number(const E& value) {
  static_assert(std::is_enum_v<E> && sizeof(E) == sizeof(int));
  int number = 0;
  std::memcpy(&number, &value, sizeof number);
  return number;
}

/// A reserved field must be zero, so that it can get a meaning later.
inline Status check_reserved(int32_t field) {
  if (field == 0) return {};
  return Status::error(MOE_ERR_ARGUMENT, "params.reserved: expected 0, found %d", field);
}

// The parts of the two templates below that do not depend on the struct, which begins with its
// size.

inline Status check_out_size(const void* out, size_t known, const char* name) {
  if (out == nullptr) return null_argument(name);
  uint32_t size = 0;
  std::memcpy(&size, out, sizeof size);
  if (size >= sizeof size && size <= 4096) return {};
  return Status::error(MOE_ERR_ARGUMENT, "%s.struct_size: expected %zu, found %u", name, known,
                       size);
}

inline void write_known(const void* value, size_t known, void* out) {
  uint32_t size = 0;
  std::memcpy(&size, out, sizeof size);
  std::memset(out, 0, size);
  std::memcpy(out, value, std::min(known, static_cast<size_t>(size)));
  std::memcpy(out, &size, sizeof size);
}

/// Checks an output struct before the work; write_struct fills it after.
template <class T>
Status check_out_struct(const T* out, const char* name) {
  return check_out_size(out, sizeof(T), name);
}

template <class T>
void write_struct(const T& value, T* out) {
  static_assert(std::is_trivially_copyable_v<T>);
  write_known(&value, sizeof(T), out);
}

}  // namespace moe
