// SPDX-License-Identifier: MIT
#pragma once
// Shared by the benchmarks: the memory level that a kernel's data lies in, and the functions that
// register benchmarks.
//
// Names are kernel/instruction set/.../level, and google benchmark adds /real_time/threads:N. Every
// thread works on data of its own, pinned to a CPU of its own.

#include <benchmark/benchmark.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "kernels/cpu/table.h"

namespace moe::bench {

/// kCache: one item per thread, used repeatedly (keep it well below 1 MiB). kL3: 48 MiB in
/// rotation, shared by all threads. kMemory: 1.25 GiB in rotation.
enum class Level : uint8_t { kCache, kL3, kMemory };
const char* level_name(Level level);
size_t level_bytes(Level level);

/// kTrits: random bytes that are valid codes in every integer format. kFloats: bytes that are small
/// normal numbers in f16, bf16 and f32.
enum class Content : uint8_t { kTrits, kFloats };

/// Items of the same size, taken in turn from one thread's share of a level.
class Items {
 public:
  Items(Content content, Level level, size_t item_bytes, const benchmark::State& state);
  const uint8_t* next() {
    const uint8_t* item = begin_ + at_ * item_bytes_;
    at_ = at_ + 1 < count_ ? at_ + 1 : 0;
    return item;
  }

 private:
  const uint8_t* begin_;
  size_t item_bytes_, count_, at_ = 0;
};

/// Pins the calling thread of a benchmark to a CPU of its own, if there are enough.
void pin(const benchmark::State& state);

/// Reports `per_call` units per iteration as a rate over all threads.
void set_rate(benchmark::State& state, const char* name, double per_call);

/// Registers a benchmark with one thread and with two; rates use wall-clock time.
template <class Run>
void add(const std::string& name, Run run) {
  benchmark::RegisterBenchmark(name.c_str(), run)->UseRealTime()->Threads(1)->Threads(2);
}

void add_rooflines(const CpuKernels* kernels);
void add_read_rooflines();
void add_linear(const CpuKernels* kernels);
void add_attention(const CpuKernels* kernels);
void add_rows(const CpuKernels* kernels);
void add_sampling();

}  // namespace moe::bench
