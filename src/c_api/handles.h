// SPDX-License-Identifier: MIT
#pragma once
// The objects behind the handles of moe_c.h.

#include <cstring>

#include "include/moe_c.h"
#include "kernels/device.h"
#include "src/base/log.h"
#include "src/base/mutex.h"
#include "src/base/os/clock.h"
#include "src/base/os/machine.h"
#include "src/base/thread_pool.h"
#include "src/c_api/open_device.h"
#include "src/c_api/params.h"
#include "src/c_api/reference.h"
#include "src/grammar/grammar.h"
#include "src/model/model.h"
#include "src/run/session.h"
#include "src/run/translate.h"
#include "src/text/tokenizer.h"

struct moe_env {
  explicit moe_env(const moe::Allocator& a) : allocator(a), pool(allocator) {}

  /// True in a forked child of the process that created the environment: no threads, no GPU.
  bool forked() const { return moe::process_id() != process; }
  /// forked(), and memory on a GPU cannot even be freed.
  bool out_of_reach() const { return forked() && !device.get()->uses_host_memory(); }

  moe::References references;
  const int process = moe::process_id();
  moe::Allocator allocator;  // all objects of the environment refer to this copy
  moe::Logger logger;
  moe::ThreadPool pool;
  moe::Clock clock = moe::system_clock();
  moe::OpenDevice device;
  const char* isa = "";      // the instruction set of the CPU device
  moe_log_fn log = nullptr;  // receives the messages of `logger`
  void* log_user = nullptr;
};

struct moe_tokenizer {
  moe::Box<moe::Tokenizer> tokenizer;  // empty: the model has none
  const moe::Allocator* allocator = nullptr;
};

struct moe_model {
  explicit moe_model(moe_env& e) : env(&e), memory(e.allocator) {}

  moe::References references;
  const moe::Ref<moe_env> env;
  moe::CountingAllocator memory;  // for all members below and the sessions
  moe::Box<moe::Model> model;
  moe_tokenizer text;
  moe::Box<moe::grammar::TokenTrie> vocabulary;  // made for the first grammar
  moe::Mutex making_vocabulary;                  // guards it
};

struct moe_grammar {
  explicit moe_grammar(moe_model& m) : model(&m) {}

  moe::References references;
  const moe::Ref<moe_model> model;
  moe::Box<moe::grammar::Grammar> grammar;
};

namespace moe {

/// The texts of a model's tokens, made when it first needs them.
Status vocabulary_of(moe_model& model, const grammar::TokenTrie** out);
/// A grammar without a text yet.
Status make_grammar(moe_model& model, Box<moe_grammar>* out);

/// Receives the choices of a session's routing hook.
struct RoutingWatch {
  Session* session = nullptr;
  moe_routing_fn callback = nullptr;
  void* user = nullptr;
};

}  // namespace moe

struct moe_session {
  explicit moe_session(moe_model& m) : model(&m), translations(m.memory.get()) {}

  moe::References references;
  const moe::Ref<moe_model> model;
  moe::Box<moe::Session> session;
  moe::RoutingWatch watches[2];    // the active one is never written: a call may be reading it
  int watch = 0;                   // index of the active one
  moe::Mutex watching;             // guards it
  moe::Translations translations;  // the latest
};
static_assert(sizeof(moe_session) <= moe::kHandleBytes);

namespace moe {

/// Checks that the object is not null and can compute in this process.
Status check_env(const moe_env* env);
Status check_model(const moe_model* model);
Status check_session(const moe_session* session);

/// Converts the C parameters to the core's; the core checks ranges.
Status session_options(const moe_session_params* given, SessionOptions* out);
Status sampling_config(const moe_sampling* given, SamplingConfig* out);
/// MOE_ERR_BUDGET if a first session with these parameters would not fit under the model's cap.
Status check_given_session(const Model& model, const moe_session_params* given);

/// (buffer, capacity, *length) of text: measures, rejects, or copies with a terminating zero.
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
