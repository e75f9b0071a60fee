// SPDX-License-Identifier: MIT
#pragma once
// Error reporting inside libmoe_convert: it throws a Failure, which its API functions convert to a
// Status.

#include <exception>

#include "src/base/status.h"

namespace moe {

/// An error inside libmoe_convert.
class Failure final : public std::exception {
 public:
  explicit Failure(const Status& status) : status_(status) {}
  const Status& status() const { return status_; }
  const char* what() const noexcept override { return status_.text(); }

 private:
  Status status_;
};

/// Throws a Failure with a printf-style text.
[[noreturn]] void fail(moe_status code, const char* format, ...) MOE_FORMAT(2, 3);

/// Throws if `status` is an error.
inline void check(const Status& status) {
  if (!status.ok()) throw Failure(status);
}

/// The value of a Result, or throws its error.
template <class T>
T take(Result<T> result) {
  check(result.status());
  return std::move(result.value());
}

/// Converts the current exception to a Status; only inside a catch block.
Status current_failure();

/// Runs f() and converts any exception to a Status.
template <class F>
Status guarded(F&& f) {
  try {
    f();
    return {};
  } catch (...) {
    return current_failure();
  }
}

}  // namespace moe
