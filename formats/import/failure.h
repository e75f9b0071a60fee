#pragma once
// How libmoe_convert reports errors inside: it throws a Failure, and its edge turns that into a
// Status.

#include <exception>

#include "src/base/status.h"

namespace moe {

/// An error on its way to the edge of libmoe_convert.
class Failure final : public std::exception {
 public:
  explicit Failure(const Status& status) : status_(status) {}
  const Status& status() const { return status_; }
  const char* what() const noexcept override { return status_.text(); }

 private:
  Status status_;
};

/// Throws a Failure with a printf-style text.
[[noreturn]] void fail(moe_status code, const char* format, ...)
    __attribute__((format(printf, 2, 3)));

/// Throws when `status` is an error.
inline void check(const Status& status) {
  if (!status.ok()) throw Failure(status);
}

/// The value of a Result, or throws its error.
template <class T>
T take(Result<T> result) {
  check(result.status());
  return std::move(result.value());
}

/// The exception being handled as a Status; only inside a catch block.
Status current_failure();

/// Runs f() and turns whatever it throws into a Status.
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
