// SPDX-License-Identifier: MIT
#pragma once
// Counted references between the objects behind handles, so that handles may be freed in any order.

#include <atomic>
#include <cstdint>
#include <utility>

struct moe_env;
struct moe_model;
struct moe_session;
struct moe_grammar;

namespace moe {

/// Gives up one reference; the last one destroys the object. Any thread.
void drop(moe_env* env);
void drop(moe_model* model);
void drop(moe_session* session);
void drop(moe_grammar* grammar);

/// The number of references to an object. It begins with the caller's handle.
class References {
 public:
  void add() { count_.fetch_add(1, std::memory_order_relaxed); }
  /// True for the last one.
  bool remove() { return count_.fetch_sub(1, std::memory_order_acq_rel) == 1; }

 private:
  std::atomic<uint32_t> count_{1};
};

/// A reference to an object with a member `references`, or null.
template <class T>
class Ref {
 public:
  explicit Ref(T* object) : object_(object) {
    if (object_ != nullptr) object_->references.add();
  }
  Ref(const Ref& other) : Ref(other.object_) {}
  Ref(Ref&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  Ref& operator=(Ref other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  ~Ref() {
    if (object_ != nullptr) drop(object_);
  }

  T* get() const { return object_; }
  T* operator->() const { return object_; }
  T& operator*() const { return *object_; }

 private:
  T* object_;
};

}  // namespace moe
