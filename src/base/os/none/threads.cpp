// SPDX-License-Identifier: MIT
// No threads: everything runs on the caller's, whose locks nobody else holds.
#include "src/base/os/threads.h"

namespace moe {

Mutex::Mutex() = default;
Mutex::~Mutex() = default;
void Mutex::lock() {}
bool Mutex::try_lock() { return true; }
void Mutex::unlock() {}

SystemCondition::SystemCondition() { (void)condition_; }
void SystemCondition::wait(Mutex&) {}
void SystemCondition::wait_for(Mutex&, uint32_t) {}
void SystemCondition::notify_all() {}

bool Thread::start(void (*)(void*), void*) { return false; }
void Thread::join() { (void)thread_; }

bool system_has_threads() { return false; }
void yield_thread() {}
uintptr_t this_thread() { return 1; }

}  // namespace moe
