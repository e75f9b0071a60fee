// SPDX-License-Identifier: MIT
// POSIX threads.
#include "src/base/os/threads.h"

#include <pthread.h>
#include <sched.h>
#include <time.h>

namespace moe {
namespace {

static_assert(sizeof(pthread_mutex_t) <= sizeof(SystemObject));
static_assert(sizeof(pthread_cond_t) <= sizeof(SystemObject));
static_assert(sizeof(pthread_t) <= sizeof(SystemObject));
static_assert(alignof(pthread_mutex_t) <= alignof(SystemObject));
static_assert(alignof(pthread_cond_t) <= alignof(SystemObject));

template <class T>
T* as(SystemObject& object) {
  return reinterpret_cast<T*>(object.bytes);
}

pthread_mutex_t* mutex_of(Mutex& mutex) { return static_cast<pthread_mutex_t*>(mutex.native()); }

void* run_thread(void* thread) {
  static_cast<const Thread*>(thread)->run();
  return nullptr;
}

}  // namespace

Mutex::Mutex() { pthread_mutex_init(as<pthread_mutex_t>(mutex_), nullptr); }
Mutex::~Mutex() { pthread_mutex_destroy(as<pthread_mutex_t>(mutex_)); }
void Mutex::lock() { pthread_mutex_lock(as<pthread_mutex_t>(mutex_)); }
bool Mutex::try_lock() { return pthread_mutex_trylock(as<pthread_mutex_t>(mutex_)) == 0; }
void Mutex::unlock() { pthread_mutex_unlock(as<pthread_mutex_t>(mutex_)); }

void SystemCondition::wait(Mutex& held) {
  pthread_cond_wait(as<pthread_cond_t>(condition_), mutex_of(held));
}

void SystemCondition::notify_all() { pthread_cond_broadcast(as<pthread_cond_t>(condition_)); }

#if defined(__APPLE__)  // which has no monotonic clock for them, but relative times

SystemCondition::SystemCondition() { pthread_cond_init(as<pthread_cond_t>(condition_), nullptr); }

void SystemCondition::wait_for(Mutex& held, uint32_t nanoseconds) {
  const timespec time{0, static_cast<long>(nanoseconds)};
  (void)pthread_cond_timedwait_relative_np(as<pthread_cond_t>(condition_), mutex_of(held), &time);
}

#else

SystemCondition::SystemCondition() {
  pthread_condattr_t attributes;
  pthread_condattr_init(&attributes);
  pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
  pthread_cond_init(as<pthread_cond_t>(condition_), &attributes);
  pthread_condattr_destroy(&attributes);
}

void SystemCondition::wait_for(Mutex& held, uint32_t nanoseconds) {
  constexpr long kSecond = 1'000'000'000;
  timespec until{};
  clock_gettime(CLOCK_MONOTONIC, &until);
  until.tv_nsec += static_cast<long>(nanoseconds);
  if (until.tv_nsec >= kSecond) {
    until.tv_nsec -= kSecond;
    ++until.tv_sec;
  }
  (void)pthread_cond_timedwait(as<pthread_cond_t>(condition_), mutex_of(held), &until);
}

#endif

// Where the system refuses the size of the stack, a thread has the usual one.
bool Thread::start(void (*main)(void*), void* argument) {
  main_ = main;
  argument_ = argument;
  pthread_attr_t attributes;
  if (pthread_attr_init(&attributes) != 0) return false;
  (void)pthread_attr_setstacksize(&attributes, kThreadStackBytes);
  const int failed = pthread_create(as<pthread_t>(thread_), &attributes, run_thread, this);
  pthread_attr_destroy(&attributes);
  return failed == 0;
}

void Thread::join() { pthread_join(*as<pthread_t>(thread_), nullptr); }

bool system_has_threads() { return true; }

void yield_thread() { sched_yield(); }
uintptr_t this_thread() { return (uintptr_t)pthread_self(); }  // an integer or a pointer

}  // namespace moe
