// SPDX-License-Identifier: MIT
#pragma once
// Conversion between JavaScript and C++ values. Errors are Faults, which become Errors with a code.

#define NAPI_VERSION 8
#include <moe_c.h>
#include <node_api.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "names.h"

namespace moe_node {

struct Fault {
  std::string code, text;
};

/// A JavaScript exception is pending.
struct Thrown {};

[[noreturn]] inline void fail(moe_status status, const std::string& text) {
  throw Fault{moe_status_name(status), text};
}

inline void check(moe_status status, const moe_error& error) {
  if (status != MOE_OK) fail(status, error.text);
}

/// The name of a value; "unknown" for one that a newer library has added.
template <class Enum, size_t n>
const char* name_of(Enum value, const Name<Enum> (&names)[n]) {
  for (const Name<Enum>& name : names) {
    if (name.value == value) return name.text;
  }
  return "unknown";
}

class Js {
 public:
  explicit Js(napi_env e) : env(e) {}

  void ok(napi_status status) const {
    if (status == napi_ok) return;
    bool pending = false;
    napi_is_exception_pending(env, &pending);
    if (pending) throw Thrown{};
    fail(MOE_ERR_INTERNAL, "Node-API status " + std::to_string(status));
  }

  bool is(napi_value value, napi_valuetype type) const {
    napi_valuetype found = napi_undefined;
    ok(napi_typeof(env, value, &found));
    return found == type;
  }
  bool missing(napi_value value) const { return is(value, napi_undefined) || is(value, napi_null); }

  /// Call it before reading any property.
  void require_object(napi_value value, const char* what = "options") const {
    if (!is(value, napi_object)) fail(MOE_ERR_ARGUMENT, std::string(what) + ": expected an object");
  }
  napi_value get(napi_value object, const char* key) const {
    napi_value value = nullptr;
    ok(napi_get_named_property(env, object, key, &value));
    return value;
  }

  // ---- From JavaScript

  int64_t integer(napi_value value, const char* what, int64_t least, int64_t most) const {
    double number = 0.5;
    if (is(value, napi_number)) ok(napi_get_value_double(env, value, &number));
    if (number >= static_cast<double>(least) && number <= static_cast<double>(most)) {
      const int64_t whole = static_cast<int64_t>(number);
      if (static_cast<double>(whole) == number) return whole;
    }
    fail(is(value, napi_number) ? MOE_ERR_RANGE : MOE_ERR_ARGUMENT,
         std::string(what) + ": expected an integer in " + std::to_string(least) + ".." +
             std::to_string(most));
  }
  /// A property, or 0 if it is missing.
  int32_t int32(napi_value object, const char* key) const {
    napi_value value = get(object, key);
    return missing(value) ? 0 : static_cast<int32_t>(integer(value, key, INT32_MIN, INT32_MAX));
  }
  uint64_t size(napi_value object, const char* key) const {
    napi_value value = get(object, key);
    const int64_t most = (int64_t{1} << 53) - 1;
    return missing(value) ? 0 : static_cast<uint64_t>(integer(value, key, 0, most));
  }
  uint64_t bigint(napi_value value, const char* what) const {
    uint64_t number = 0;
    bool whole = false;
    ok(napi_get_value_bigint_uint64(env, value, &number, &whole));
    if (!whole)
      fail(MOE_ERR_RANGE, std::string(what) + ": expected an integer of 64 bits, 0 or more");
    return number;
  }
  float number(napi_value object, const char* key) const {
    return missing(get(object, key)) ? 0 : required_number(object, key);
  }
  float required_number(napi_value object, const char* key) const {
    napi_value value = get(object, key);
    double number = 0;
    if (!is(value, napi_number)) fail(MOE_ERR_ARGUMENT, std::string(key) + ": expected a number");
    ok(napi_get_value_double(env, value, &number));
    return static_cast<float>(number);
  }
  bool boolean(napi_value value, const char* what) const {
    bool result = false;
    if (!is(value, napi_boolean))
      fail(MOE_ERR_ARGUMENT, std::string(what) + ": expected a boolean");
    ok(napi_get_value_bool(env, value, &result));
    return result;
  }
  /// A property, or false if it is missing.
  bool flag(napi_value object, const char* key) const {
    napi_value value = get(object, key);
    return !missing(value) && boolean(value, key);
  }

  std::string text(napi_value value, const char* what) const {
    if (!is(value, napi_string)) fail(MOE_ERR_ARGUMENT, std::string(what) + ": expected a string");
    size_t n = 0;
    ok(napi_get_value_string_utf8(env, value, nullptr, 0, &n));
    std::string result(n, '\0');
    ok(napi_get_value_string_utf8(env, value, &result[0], n + 1, &n));
    return result;
  }
  /// A text for C: no zero byte inside.
  std::string c_text(napi_value value, const char* what) const {
    std::string result = text(value, what);
    if (result.find('\0') != std::string::npos) {
      fail(MOE_ERR_ARGUMENT, std::string(what) + ": contains a zero byte");
    }
    return result;
  }

  /// The value that a text names.
  template <class Enum, size_t n>
  Enum named(napi_value value, const char* what, const Name<Enum> (&names)[n]) const {
    const std::string found = text(value, what);
    std::string all;
    for (const Name<Enum>& name : names) {
      if (found == name.text) return name.value;
      all += (all.empty() ? "" : ", ") + std::string(name.text);
    }
    fail(MOE_ERR_ARGUMENT,
         std::string(what) + ": expected one of " + all + ", found '" + found + "'");
  }
  /// A property, or the default value if it is missing.
  template <class Enum, size_t n>
  Enum named(napi_value object, const char* key, const Name<Enum> (&names)[n],
             Enum standard) const {
    napi_value value = get(object, key);
    return missing(value) ? standard : named(value, key, names);
  }

  std::vector<napi_value> list(napi_value value, const char* what) const {
    bool array = false;
    ok(napi_is_array(env, value, &array));
    if (!array) fail(MOE_ERR_ARGUMENT, std::string(what) + ": expected an array");
    uint32_t n = 0;
    ok(napi_get_array_length(env, value, &n));
    std::vector<napi_value> result(n);
    for (uint32_t i = 0; i < n; ++i) ok(napi_get_element(env, value, i, &result[i]));
    return result;
  }

  /// Copies, since JavaScript may change or free the array while a thread reads it.
  std::vector<float> floats(napi_value value, const char* what) const {
    return numbers<float>(value, what, napi_float32_array, "a Float32Array");
  }
  std::vector<int32_t> tokens(napi_value value) const {
    return numbers<int32_t>(value, "tokens", napi_int32_array, "an Int32Array");
  }

  // ---- To JavaScript

  napi_value undefined() const {
    napi_value value = nullptr;
    ok(napi_get_undefined(env, &value));
    return value;
  }
  napi_value object() const {
    napi_value value = nullptr;
    ok(napi_create_object(env, &value));
    return value;
  }
  napi_value string(const char* text, size_t n = NAPI_AUTO_LENGTH) const {
    napi_value value = nullptr;
    ok(napi_create_string_utf8(env, text, n, &value));
    return value;
  }
  napi_value of(double number) const {
    napi_value value = nullptr;
    ok(napi_create_double(env, number, &value));
    return value;
  }
  napi_value of(bool flag) const {
    napi_value value = nullptr;
    ok(napi_get_boolean(env, flag, &value));
    return value;
  }
  napi_value of(const std::vector<float>& v) const { return typed(v, napi_float32_array); }
  napi_value of(const std::vector<int32_t>& v) const { return typed(v, napi_int32_array); }
  void set(napi_value object, const char* key, napi_value value) const {
    ok(napi_set_named_property(env, object, key, value));
  }
  napi_value error(const Fault& fault) const {
    napi_value error = nullptr;
    ok(napi_create_error(env, string(fault.code.c_str()), string(fault.text.c_str()), &error));
    return error;
  }

  const napi_env env;

 private:
  template <class T>
  std::vector<T> numbers(napi_value value, const char* what, napi_typedarray_type type,
                         const char* expected) const {
    bool typed = false;
    ok(napi_is_typedarray(env, value, &typed));
    napi_typedarray_type found = napi_int8_array;
    size_t n = 0;
    void* data = nullptr;
    if (typed) {
      ok(napi_get_typedarray_info(env, value, &found, &n, &data, nullptr, nullptr));
    }
    if (!typed || found != type) {
      fail(MOE_ERR_ARGUMENT, std::string(what) + ": expected " + expected);
    }
    std::vector<T> result(n);
    if (n > 0) memcpy(result.data(), data, n * sizeof(T));
    return result;
  }

  template <class T>
  napi_value typed(const std::vector<T>& values, napi_typedarray_type type) const {
    void* data = nullptr;
    napi_value buffer = nullptr;
    napi_value array = nullptr;
    const size_t bytes = values.size() * sizeof(T);
    ok(napi_create_arraybuffer(env, bytes, &data, &buffer));
    if (bytes > 0) memcpy(data, values.data(), bytes);
    ok(napi_create_typedarray(env, type, values.size(), buffer, 0, &array));
    return array;
  }
};

}  // namespace moe_node
