#pragma once
// The manners of the C functions: statuses, parameter structs that grow.

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "include/moe_c.h"
#include "src/base/status.h"

namespace moe {

/// Leaves `status` in the caller's error and returns its code.
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

/// A copy of the caller's parameter struct as this library knows it: missing fields are zero, and a
/// longer struct must be zero beyond what is known.
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

/// An enum of the caller's as the integer that it is: any number may come from C, and to look at
/// one that is none of its values is undefined.
template <class E>
int enum_number(const E& value) {
  static_assert(std::is_enum_v<E> && sizeof(E) == sizeof(int));
  int number = 0;
  std::memcpy(&number, &value, sizeof number);
  return number;
}

/// A field that has no meaning yet must be zero, so that it can get one.
inline Status check_reserved(int32_t field) {
  if (field == 0) return {};
  return Status::error(MOE_ERR_ARGUMENT, "params.reserved: expected 0, found %d", field);
}

/// Checks an output struct before the work; write_struct fills it after.
template <class T>
Status check_out_struct(const T* out, const char* name) {
  if (out == nullptr) return null_argument(name);
  if (out->struct_size < sizeof(uint32_t) || out->struct_size > 4096) {
    return Status::error(MOE_ERR_ARGUMENT, "%s.struct_size: expected %zu, found %u", name,
                         sizeof(T), out->struct_size);
  }
  return {};
}

template <class T>
void write_struct(T value, T* out) {
  const uint32_t size = out->struct_size;
  value.struct_size = size;
  std::memset(static_cast<void*>(out), 0, size);
  std::memcpy(static_cast<void*>(out), &value, std::min(sizeof(T), static_cast<size_t>(size)));
}

}  // namespace moe
