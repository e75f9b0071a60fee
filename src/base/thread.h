// SPDX-License-Identifier: MIT
#pragma once
// One thread (std::thread can throw).

#include <pthread.h>

namespace moe {

class Thread {
 public:
  Thread() = default;
  Thread(const Thread&) = delete;
  Thread& operator=(const Thread&) = delete;

  /// Runs main(argument), once for each join(). False: the system has no more threads.
  bool start(void (*main)(void*), void* argument) {
    main_ = main;
    argument_ = argument;
    return pthread_create(&thread_, nullptr, run, this) == 0;
  }
  void join() { pthread_join(thread_, nullptr); }

 private:
  static void* run(void* thread) {
    const auto* self = static_cast<const Thread*>(thread);
    self->main_(self->argument_);
    return nullptr;
  }

  pthread_t thread_{};
  void (*main_)(void*) = nullptr;
  void* argument_ = nullptr;
};

}  // namespace moe
