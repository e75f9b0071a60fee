// SPDX-License-Identifier: MIT
// Threads of Windows, with its slim locks.
#include "src/base/os/threads.h"

#include <process.h>
#include <windows.h>

namespace moe {
namespace {

static_assert(sizeof(SRWLOCK) <= sizeof(SystemObject));
static_assert(sizeof(CONDITION_VARIABLE) <= sizeof(SystemObject));

template <class T>
T* as(SystemObject& object) {
  return reinterpret_cast<T*>(object.bytes);
}

SRWLOCK* lock_of(Mutex& mutex) { return static_cast<SRWLOCK*>(mutex.native()); }

unsigned __stdcall run_thread(void* thread) {
  static_cast<const Thread*>(thread)->run();
  return 0;
}

}  // namespace

Mutex::Mutex() { InitializeSRWLock(as<SRWLOCK>(mutex_)); }
Mutex::~Mutex() = default;
void Mutex::lock() { AcquireSRWLockExclusive(as<SRWLOCK>(mutex_)); }
bool Mutex::try_lock() { return TryAcquireSRWLockExclusive(as<SRWLOCK>(mutex_)) != 0; }
void Mutex::unlock() { ReleaseSRWLockExclusive(as<SRWLOCK>(mutex_)); }

SystemCondition::SystemCondition() {
  InitializeConditionVariable(as<CONDITION_VARIABLE>(condition_));
}

void SystemCondition::wait(Mutex& held) {
  (void)SleepConditionVariableSRW(as<CONDITION_VARIABLE>(condition_), lock_of(held), INFINITE, 0);
}

void SystemCondition::wait_for(Mutex& held, uint32_t nanoseconds) {
  const DWORD milliseconds = (nanoseconds + 999'999) / 1'000'000;
  (void)SleepConditionVariableSRW(as<CONDITION_VARIABLE>(condition_), lock_of(held), milliseconds,
                                  0);
}

void SystemCondition::notify_all() { WakeAllConditionVariable(as<CONDITION_VARIABLE>(condition_)); }

// _beginthreadex() rather than CreateThread(): the caller's functions may use the C library.
bool Thread::start(void (*main)(void*), void* argument) {
  main_ = main;
  argument_ = argument;
  const uintptr_t handle =
      _beginthreadex(nullptr, static_cast<unsigned>(kThreadStackBytes), run_thread, this,
                     STACK_SIZE_PARAM_IS_A_RESERVATION, nullptr);
  *as<uintptr_t>(thread_) = handle;
  return handle != 0;
}

void Thread::join() {
  const auto handle = reinterpret_cast<HANDLE>(*as<uintptr_t>(thread_));
  WaitForSingleObject(handle, INFINITE);
  CloseHandle(handle);
}

bool system_has_threads() { return true; }

void yield_thread() { SwitchToThread(); }
uintptr_t this_thread() { return GetCurrentThreadId(); }

}  // namespace moe
