// SPDX-License-Identifier: MIT
#pragma once
// Reference-counted pointers of the library. The JavaScript object, each child that asks its parent
// and each call in progress hold a reference, so that the pointer stays valid for them in whatever
// order objects are closed or collected. Used on JavaScript's thread only.

#include "js.h"

namespace moe_node {

class Work;

class Handle {
 public:
  using Free = void (*)(void*);

  /// Parent, or NULL: held until this one is freed.
  Handle(const char* what, void* pointer, Handle* parent, Free free)
      : what_(what), pointer_(pointer), parent_(parent), free_(free) {
    if (parent_ != nullptr) parent_->hold();
  }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;

  void hold() { ++holders_; }
  void release() {
    if (--holders_ > 0) return;
    free_(pointer_);
    if (parent_ != nullptr) parent_->release();
    delete this;
  }
  void close() {
    if (closed_) return;
    closed_ = true;
    release();
  }

  template <class T>
  T* pointer() const {
    return static_cast<T*>(pointer_);
  }
  Handle* parent() const { return parent_; }
  /// The session of a session or a chat.
  moe_session* session() const {
    return (one_with_parent() ? parent_ : this)->pointer<moe_session>();
  }

  /// Throws if the handle is closed or in use by a thread.
  void require_idle() const {
    if (closed_) fail(MOE_ERR_STATE, std::string("the ") + what_ + " is closed");
    if (busy()) fail(MOE_ERR_STATE, std::string("the ") + what_ + " is in use by another call");
  }
  /// A chat and its session are busy together; a model never is.
  bool busy() const { return work() != nullptr; }
  /// The call that uses it, or NULL.
  Work* work() const { return work_ != nullptr || !one_with_parent() ? work_ : parent_->work_; }
  void set_work(Work* work) {
    work_ = work;
    if (one_with_parent()) parent_->work_ = work;
  }
  /// Numbers in a row of a layer.
  size_t d_model() const { return d_model_; }
  void set_d_model(size_t d) { d_model_ = d; }
  /// True if it has a session to cancel.
  bool has_session() const { return one_with_parent() || strcmp(what_, "session") == 0; }

 private:
  bool one_with_parent() const { return strcmp(what_, "chat") == 0; }

  const char* what_;
  void* pointer_;
  Handle* parent_;
  Free free_;
  int holders_ = 1;
  bool closed_ = false;
  Work* work_ = nullptr;
  size_t d_model_ = 0;
};

/// The native value of a JavaScript object; its finalizer closes the handle.
struct Box {
  Handle* handle;
};

inline napi_value wrap(const Js& js, Handle* handle) {
  napi_value value = nullptr;
  const auto collected = [](napi_env, void* data, void*) {
    Box* box = static_cast<Box*>(data);
    box->handle->close();
    box->handle->release();
    delete box;
  };
  handle->hold();  // for the box: a closed handle can still be queried
  js.ok(napi_create_external(js.env, new Box{handle}, collected, nullptr, &value));
  return value;
}

/// Only index.js has these values; it passes each function the kind that it expects.
inline Handle* unwrap(const Js& js, napi_value value) {
  void* data = nullptr;
  if (!js.is(value, napi_external)) fail(MOE_ERR_ARGUMENT, "expected a handle of this package");
  js.ok(napi_get_value_external(js.env, value, &data));
  return static_cast<Box*>(data)->handle;
}

}  // namespace moe_node
