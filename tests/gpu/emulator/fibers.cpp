// SPDX-License-Identifier: MIT
#include "fibers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <algorithm>
#include <random>
#include <utility>
#include <vector>

#if defined(MOE_SANITIZE_ADDRESS)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

// On x86-64, saves and restores the callee-saved registers. Other machines use ucontext, which is
// ten times slower because it sets the signal mask with a system call.
#if defined(__x86_64__)
extern "C" void moe_emulator_switch(void** save, void* load);
asm(R"(
  .text
  .globl moe_emulator_switch
  .hidden moe_emulator_switch
  .type moe_emulator_switch, @function
moe_emulator_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
  .size moe_emulator_switch, . - moe_emulator_switch
)");
#else
#include <ucontext.h>
#endif

namespace emulator {
namespace {

#if defined(__x86_64__)
using Context = void*;  // the fiber's stack pointer
void switch_context(Context* from, Context* to) { moe_emulator_switch(from, *to); }
void make_context(Context* context, void (*entry)(), uint8_t* stack, size_t bytes) {
  auto* top = reinterpret_cast<void**>(stack + bytes);
  *--top = nullptr;  // aligns the entry's frame, and ends backtraces
  *--top = reinterpret_cast<void*>(entry);
  for (int i = 0; i < 6; ++i) *--top = nullptr;
  *context = top;
}
#else
using Context = ucontext_t;
void switch_context(Context* from, Context* to) { swapcontext(from, to); }
void make_context(Context* context, void (*entry)(), uint8_t* stack, size_t bytes) {
  getcontext(context);
  context->uc_stack.ss_sp = stack;
  context->uc_stack.ss_size = bytes;
  context->uc_link = nullptr;
  makecontext(context, entry, 0);
}
#endif

constexpr size_t kStackBytes = 128 * 1024;
constexpr unsigned kMaxThreads = 1024;

enum class State : uint8_t { kReady, kAtWarp, kAtBlock, kDone };

struct Copy {
  void* to;
  const void* from;
  bool valid;
};

struct Fiber {
  Context context;
  uint8_t* stack = nullptr;
  Position at;
  uint32_t waits_for = 0;      // the lanes of its collective
  const char* what = nullptr;  // the name of its collective
  Exchange::Value given;       // its value in the collective
  Exchange own;                // the result of a collective of one lane
  const Exchange* result = nullptr;
  std::vector<std::vector<Copy>> copies;  // groups of cp.async; the last one is uncommitted
#if defined(MOE_SANITIZE_ADDRESS)
  void* fake_stack = nullptr;
#endif
};

struct Warp {
  // Lanes take turns, so a lane reads its result before this many later collectives.
  static constexpr unsigned kExchanges = 64;
  Exchange exchange[kExchanges];
  unsigned next = 0;
  int waiting = 0;  // lanes at collectives
};

struct Block {
  std::vector<Fiber> fibers;
  std::vector<State> states;  // one per fiber; contiguous, since they are scanned often
  std::vector<Warp> warps;
  std::vector<unsigned> order;
  unsigned n = 0;
  unsigned at_barrier = 0;
  unsigned current = 0;
  const std::function<void()>* body = nullptr;
  uint8_t* shared = nullptr;
  Context scheduler;
#if defined(MOE_SANITIZE_ADDRESS)
  void* scheduler_fake = nullptr;
  const void* scheduler_stack = nullptr;
  size_t scheduler_stack_bytes = 0;
#endif
  char error[256] = "";
};

// The order that the environment asks for, or 0.
uint32_t default_order() {
  const char* order = getenv("MOE_EMULATED_ORDER");
  return order != nullptr ? static_cast<uint32_t>(strtoul(order, nullptr, 10)) : 0;
}

Block g_block;
uint32_t g_order = default_order();
uint64_t g_block_number = 0;
size_t g_static_shared = 0;  // bytes that the current block has used

Fiber& self() { return g_block.fibers[g_block.current]; }
State& my_state() { return g_block.states[g_block.current]; }

void to_scheduler([[maybe_unused]] bool last) {
  Fiber& f = self();
#if defined(MOE_SANITIZE_ADDRESS)
  __sanitizer_start_switch_fiber(last ? nullptr : &f.fake_stack, g_block.scheduler_stack,
                                 g_block.scheduler_stack_bytes);
#endif
  switch_context(&f.context, &g_block.scheduler);
#if defined(MOE_SANITIZE_ADDRESS)
  __sanitizer_finish_switch_fiber(f.fake_stack, nullptr, nullptr);
#endif
}

void fiber_main() {
#if defined(MOE_SANITIZE_ADDRESS)
  __sanitizer_finish_switch_fiber(nullptr, &g_block.scheduler_stack,
                                  &g_block.scheduler_stack_bytes);
#endif
  (*g_block.body)();
  my_state() = State::kDone;
  to_scheduler(true);
}

void run_fiber(unsigned index) {
  g_block.current = index;
  Fiber& f = g_block.fibers[index];
#if defined(MOE_SANITIZE_ADDRESS)
  __sanitizer_start_switch_fiber(&g_block.scheduler_fake, f.stack, kStackBytes);
#endif
  switch_context(&g_block.scheduler, &f.context);
#if defined(MOE_SANITIZE_ADDRESS)
  __sanitizer_finish_switch_fiber(g_block.scheduler_fake, nullptr, nullptr);
#endif
}

void start_fiber(unsigned index, const Position& at) {
  Fiber& f = g_block.fibers[index];
  if (f.stack == nullptr) {
    f.stack = static_cast<uint8_t*>(mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE,
                                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    if (f.stack == MAP_FAILED) abort();
  }
#if defined(MOE_SANITIZE_ADDRESS)
  // An abandoned fiber has left poisoned frames.
  if (g_block.states[index] != State::kDone) ASAN_UNPOISON_MEMORY_REGION(f.stack, kStackBytes);
#endif
  g_block.states[index] = State::kReady;
  f.at = at;
  f.at.thread = dim3(index % at.block_size.x, index / at.block_size.x % at.block_size.y,
                     index / at.block_size.x / at.block_size.y);
  if (f.copies.size() != 1 || !f.copies[0].empty()) f.copies.assign(1, {});
  make_context(&f.context, fiber_main, f.stack, kStackBytes);
}

void fail(const char* text, unsigned thread) {
  if (g_block.error[0] != 0) return;
  const Position& at = g_block.fibers[thread].at;
  snprintf(g_block.error, sizeof g_block.error, "%s: block (%u, %u, %u), thread %u", text,
           at.block.x, at.block.y, at.block.z, thread);
}

// Whether all lanes of the fiber's collective have reached it.
bool warp_complete(unsigned index) {
  const unsigned first = index & ~31u;
  const Fiber& f = g_block.fibers[index];
  for (unsigned l = 0; l < 32; ++l) {
    if ((f.waits_for >> l & 1) == 0) continue;
    if (first + l >= g_block.n) return false;
    const Fiber& other = g_block.fibers[first + l];
    // Other lanes may first take part in a collective of their own.
    if (g_block.states[first + l] != State::kAtWarp || other.waits_for != f.waits_for) return false;
    if (other.what != f.what) {
      fail("lanes of a warp are at different collectives", index);
      return false;
    }
  }
  return true;
}

// Reports why the collective of this fiber cannot complete.
void explain_warp(unsigned index) {
  const Fiber& f = g_block.fibers[index];
  for (unsigned l = 0; l < 32; ++l) {
    const unsigned other = (index & ~31u) + l;
    if ((f.waits_for >> l & 1) == 0) continue;
    if (other >= g_block.n) return fail("a collective names a lane that does not exist", index);
    if (g_block.states[other] == State::kDone) {
      return fail("a collective waits for a lane that has returned", index);
    }
  }
  fail("a collective is not reached by every lane", index);
}

void arrive_at_block() {
  if (++g_block.at_barrier < g_block.n) return;
  g_block.at_barrier = 0;
  std::fill_n(g_block.states.begin(), g_block.n, State::kReady);
}

void set_order(unsigned n) {
  if (g_block.order.size() == n && g_order < 2) {
    if (n > 0 && (g_block.order[0] == 0) == (g_order == 0)) return;
  }
  g_block.order.resize(n);
  for (unsigned i = 0; i < n; ++i) g_block.order[i] = g_order == 1 ? n - 1 - i : i;
  static std::mt19937 random(1);
  if (g_order > 1) {
    random.seed(g_order++);
    std::shuffle(g_block.order.begin(), g_block.order.end(), random);
  }
}

}  // namespace

const Position& here() { return self().at; }
uint8_t* dynamic_shared() { return g_block.shared; }
int lane() { return static_cast<int>(g_block.current & 31); }
uint32_t set_thread_order(uint32_t order) { return std::exchange(g_order, order); }

uint64_t block_number() { return g_block_number; }
size_t static_shared() { return g_static_shared; }
void first_use(SharedVariable* variable) {
  variable->block = g_block_number;
  g_static_shared += variable->bytes;
  memset(variable->memory, 0xff, variable->bytes);
}
void check_aligned(const char* what, const void* p, size_t bytes) {
  if (reinterpret_cast<uintptr_t>(p) % bytes == 0) return;
  fail(what, g_block.current);
  to_scheduler(false);  // for good: the block has failed
}

const Exchange& exchange(const char* what, uint32_t mask, const void* value, size_t n) {
  const unsigned index = g_block.current;
  const unsigned first = index & ~31u;
  Fiber& f = self();
  if ((mask >> (index & 31) & 1) == 0) fail("a lane outside of the mask is at a collective", index);
  switch (n) {  // under ASan, a copy of unknown size is a slow call
    case 4:
      memcpy(f.given.bytes, value, 4);
      break;
    case 8:
      memcpy(f.given.bytes, value, 8);
      break;
    default:
      memcpy(f.given.bytes, value, n);
  }
  if (mask == 1u << (index & 31)) {
    f.own.of[index & 31] = f.given;
    return f.own;
  }
  my_state() = State::kAtWarp;
  f.waits_for = mask;
  f.what = what;
  Warp& warp = g_block.warps[index / 32];
  if (++warp.waiting < __builtin_popcount(mask) || !warp_complete(index)) {
    to_scheduler(false);
    return *self().result;
  }
  warp.waiting -= __builtin_popcount(mask);
  Exchange& e = warp.exchange[warp.next++ % Warp::kExchanges];
  for (unsigned l = 0; l < 32; ++l) {
    if ((mask >> l & 1) == 0) continue;
    Fiber& other = g_block.fibers[first + l];
    e.of[l] = other.given;
    other.result = &e;
    g_block.states[first + l] = State::kReady;
  }
  return e;
}

void block_barrier() {
  my_state() = State::kAtBlock;
  arrive_at_block();
  if (my_state() != State::kReady) to_scheduler(false);
}

void cp_async_16(void* shared, const void* global, bool valid) {
  check_aligned("a copy to shared memory that is not aligned", shared, 16);
  check_aligned("a copy from global memory that is not aligned", global, 16);
  self().copies.back().push_back({shared, global, valid});
}
void cp_async_commit() { self().copies.emplace_back(); }
void cp_async_wait_for(int pending) {
  auto& groups = self().copies;
  // the last group is uncommitted
  const size_t done = groups.size() - 1 > static_cast<size_t>(pending)
                          ? groups.size() - 1 - static_cast<size_t>(pending)
                          : 0;
  for (size_t g = 0; g < done; ++g) {
    for (const Copy& c : groups[g]) {
      if (c.valid) {
        memcpy(c.to, c.from, 16);
      } else {
        memset(c.to, 0, 16);
      }
    }
  }
  groups.erase(groups.begin(), groups.begin() + static_cast<std::ptrdiff_t>(done));
}

const char* run_block(const Position& at, uint8_t* shared, const std::function<void()>& thread) {
  const unsigned n = at.block_size.x * at.block_size.y * at.block_size.z;
  if (g_block.fibers.empty()) {
    g_block.fibers.resize(kMaxThreads);
    g_block.states.resize(kMaxThreads, State::kDone);
    g_block.warps.resize(kMaxThreads / 32);
  }
  g_block.n = n;
  g_block.body = &thread;
  g_block.shared = shared;
  g_block.error[0] = 0;
  ++g_block_number;
  g_static_shared = 0;
  set_order(n);
  for (unsigned i = 0; i < n; ++i) start_fiber(i, at);
  g_block.at_barrier = 0;
  for (unsigned w = 0; w * 32 < n; ++w) g_block.warps[w].waiting = 0;
  for (unsigned left = n; left > 0;) {
    bool progress = false;
    for (const unsigned i : g_block.order) {
      if (g_block.states[i] != State::kReady) continue;
      progress = true;
      run_fiber(i);
      if (g_block.states[i] == State::kDone) --left;
      if (g_block.error[0] != 0) return g_block.error;  // the other fibers are abandoned
    }
    if (progress || left == 0) continue;
    for (unsigned i = 0; i < n; ++i) {
      const State s = g_block.states[i];
      if (s == State::kAtBlock) fail("a barrier is not reached by every thread", i);
      if (s == State::kAtWarp) explain_warp(i);
    }
    return g_block.error;
  }
  return "";
}

}  // namespace emulator
