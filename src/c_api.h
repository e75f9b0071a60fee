#pragma once
// What stands behind the handles of moe_c.h, and the manners of its functions.

#include <atomic>
#include <cstring>
#include <type_traits>

#include "include/moe_c.h"
#include "kernels/device.h"
#include "src/base/log.h"
#include "src/base/thread_pool.h"
#include "src/base/mutex.h"
#include "src/model/model.h"
#include "src/run/session.h"
#include "src/text/tokenizer.h"

struct moe_env {
  explicit moe_env(const moe::Allocator& a) : allocator(a), pool(allocator) {}

  moe::Allocator allocator;  // everything below the environment refers to this copy
  moe::Logger logger;
  moe::ThreadPool pool;
  moe::Device* device = nullptr;
  const char* isa = "";  // the instruction set of the CPU device
  moe_log_fn log = nullptr;  // what `logger` passes its messages to
  void* log_user = nullptr;
};

struct moe_tokenizer {
  moe::Box<moe::Tokenizer> tokenizer;  // empty: the model has none
  const moe::Allocator* allocator = nullptr;
};

struct moe_model {
  explicit moe_model(moe_env& e) : env(&e) {}

  moe_env* env;
  moe::Box<moe::Model> model;
  moe_tokenizer text;
  uint64_t memory_cap = 0;
  moe::Mutex mutex;            // guards session_bytes
  uint64_t session_bytes = 0;  // held by the sessions alive
};

struct moe_session {
  explicit moe_session(moe_model& m) : model(&m) {}

  moe_model* model;
  moe::Box<moe::Session> session;
};

namespace moe {

/// The C parameters as the core's; ranges are checked by the core.
Status session_options(const moe_session_params* given, SessionOptions* out);
Status sampling_config(const moe_sampling* given, SamplingConfig* out);

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
      return Status::error(MOE_ERR_ARGUMENT, "%s.struct_size: expected %zu, found %u", name, sizeof(T), size);
    }
    const auto* bytes = reinterpret_cast<const unsigned char*>(given);
    for (size_t i = sizeof(T); i < size; ++i) {
      if (bytes[i] != 0) {
        return Status::error(MOE_ERR_ARGUMENT,
                             "%s: a field at byte %zu is set that this library (%zu bytes) does not know",
                             name, i, sizeof(T));
      }
    }
    std::memcpy(&copy, given, std::min(sizeof(T), static_cast<size_t>(size)));
  }
  *out = copy;
  return {};
}

/// Checks an output struct before the work; write_struct fills it after.
template <class T>
Status check_out_struct(const T* out, const char* name) {
  if (out == nullptr) return null_argument(name);
  if (out->struct_size < sizeof(uint32_t) || out->struct_size > 4096) {
    return Status::error(MOE_ERR_ARGUMENT, "%s.struct_size: expected %zu, found %u", name, sizeof(T),
                         out->struct_size);
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

/// (buffer, capacity, *length) of text: measures, refuses, or copies with a terminating zero.
Status write_text(const char* text, size_t n, char* buffer, size_t capacity, size_t* length);
/// The same for arrays of plain values.
template <class T>
Status write_array(const T* values, size_t n, T* buffer, size_t capacity, size_t* length) {
  *length = n;
  if (buffer == nullptr && capacity == 0) return {};
  if (capacity < n || buffer == nullptr) {
    return Status::error(MOE_ERR_TOO_LONG, "buffer: expected room for %zu, found %zu", n,
                         buffer == nullptr ? size_t{0} : capacity);
  }
  if (n != 0) std::memcpy(buffer, values, n * sizeof(T));
  return {};
}

}  // namespace moe
