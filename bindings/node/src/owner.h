// SPDX-License-Identifier: MIT
#pragma once
// Handles of what the library creates, and the parameters that several functions read.

#include <deque>
#include <memory>

#include "functions.h"
#include "work.h"

namespace moe_node {

/// The pointer of a handle; throws unless the handle is open and idle. Call it after all options
/// are read: reading one may run JavaScript that closes the handle or begins another call.
template <class T>
T* idle(const Js& js, napi_value value, Handle** handle = nullptr) {
  Handle* found = unwrap(js, value);
  found->require_idle();
  if (handle != nullptr) *handle = found;
  return found->pointer<T>();
}

/// Frees its pointer unless take() was called.
template <class T, void (*free)(T*)>
struct Owner {
  ~Owner() { free(pointer); }
  T* take() {
    T* taken = pointer;
    pointer = nullptr;
    return taken;
  }
  T* pointer = nullptr;
};
using Env = Owner<moe_env, moe_env_free>;
using Model = Owner<moe_model, moe_model_free>;
using Session = Owner<moe_session, moe_session_free>;
using Layer = Owner<moe_layer, moe_layer_free>;

template <class T, void (*free)(T*)>
Handle* make_handle(const char* what, Owner<T, free>& owner, Handle* parent) {
  return new Handle(what, owner.take(), parent, [](void* p) { free(static_cast<T*>(p)); });
}

/// The environment's parameters among the options of a model or a layer.
struct EnvOptions {
  EnvOptions(const Js& js, napi_value options) {
    js.require_object(options);
    params.struct_size = sizeof params;
    params.threads = js.int32(options, "threads");
    params.gpu_memory_bytes = js.size(options, "gpuMemoryBytes");
    params.isa = text(js, options, "isa");
    params.device = text(js, options, "device");
  }
  const char* text(const Js& js, napi_value options, const char* key) {
    napi_value value = js.get(options, key);
    if (js.missing(value)) return nullptr;
    texts.push_back(js.c_text(value, key));
    return texts.back().c_str();
  }
  std::deque<std::string> texts;
  moe_env_params params = {};
};

/// The context, chunk and kv of a model's or a session's options.
moe_session_params session_params(const Js& js, napi_value options);

/// Calls twice: for the length, then for the content. call(buffer, capacity, &length, &error)
template <class Buffer, class Call>
Buffer measured(Call call) {
  size_t n = 0;
  moe_error error;
  check(call(nullptr, 0, &n, &error), error);
  Buffer buffer(n + 1, 0);  // room for a text's terminating zero
  check(call(&buffer[0], n + 1, &n, &error), error);
  buffer.resize(n);
  return buffer;
}

}  // namespace moe_node
