// SPDX-License-Identifier: MIT
// Speed of the CPU kernels and of the machine's rooflines. Run it through roofline.py, or by hand:
//   kernels_bench --benchmark_filter='avx512vnni.*/memory|^read' --benchmark_repetitions=15
//                 --benchmark_enable_random_interleaving=true
//                 --benchmark_report_aggregates_only=true
#include "tests/bench/bench.h"

#include <sched.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <vector>

#include "cli/bench/read_memory.h"
#include "tests/support/every_isa.h"

namespace moe::bench {
namespace {

constexpr size_t kPatternBytes =
    (size_t{1} << 20) + 64;  // not a power of two, so that no two matrices are equal

std::vector<uint8_t> random_pattern(Content content) {
  std::vector<uint8_t> pattern(kPatternBytes);
  std::mt19937 random(1);
  for (uint8_t& b : pattern) {
    const uint32_t r = random();
    if (content == Content::kFloats) {
      b = static_cast<uint8_t>(0x14 + r % 3);
    } else {
      b = static_cast<uint8_t>(r % 3 | r / 3 % 3 << 2 | r / 9 % 3 << 4 | r / 27 % 3 << 6);
      if (b == 0x80) b = 0x81;  // -128 is not a valid int8 weight
    }
  }
  return pattern;
}

uint8_t* make_pool(Content content) {
  const size_t size = level_bytes(Level::kMemory);
  uint8_t* bytes = moe_cli::map_pages(size, moe_cli::Pages::kLarge);
  if (bytes == nullptr) {
    std::fprintf(stderr, "kernels_bench: cannot map %zu bytes\n", size);
    std::exit(1);
  }
  const std::vector<uint8_t> pattern = random_pattern(content);
  for (size_t i = 0; i < size; i += pattern.size()) {
    std::memcpy(bytes + i, pattern.data(), std::min(pattern.size(), size - i));
  }
  return bytes;
}

const uint8_t* pool(Content content) {
  if (content == Content::kTrits) {
    static const uint8_t* const trits = make_pool(content);
    return trits;
  }
  static const uint8_t* const floats = make_pool(content);
  return floats;
}

// The CPUs that the process may use, read before any thread is pinned.
std::vector<int>& cpus() {
  static std::vector<int> found = [] {
    std::vector<int> list;
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0) {
      for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
        if (CPU_ISSET(cpu, &set)) list.push_back(cpu);
      }
    }
    return list;
  }();
  return found;
}

}  // namespace

const char* level_name(Level level) {
  return level == Level::kCache ? "cache" : level == Level::kL3 ? "l3" : "memory";
}

size_t level_bytes(Level level) { return size_t{level == Level::kMemory ? 1280u : 48u} << 20; }

Items::Items(Content content, Level level, size_t item_bytes, const benchmark::State& state)
    : item_bytes_(item_bytes) {
  const auto threads = static_cast<size_t>(state.threads());
  const size_t share = level_bytes(level) / threads / 4096 * 4096;
  begin_ = pool(content) + share * static_cast<size_t>(state.thread_index());
  count_ = level == Level::kCache ? 1 : share / item_bytes;
}

void pin(const benchmark::State& state) {
  const std::vector<int>& list = cpus();
  if (list.size() < static_cast<size_t>(state.threads())) return;
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(list[static_cast<size_t>(state.thread_index())], &set);
  sched_setaffinity(0, sizeof set, &set);
}

void set_rate(benchmark::State& state, const char* name, double per_call) {
  state.counters[name] = benchmark::Counter(static_cast<double>(state.iterations()) * per_call,
                                            benchmark::Counter::kIsRate);
}

}  // namespace moe::bench

int main(int argc, char** argv) {
  using namespace moe;
  bench::add_read_rooflines();
  bench::add_sampling();
  for (const CpuKernels* k : every_isa()) {
    bench::add_rooflines(k);
    bench::add_linear(k);
    bench::add_attention(k);
    bench::add_rows(k);
  }
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
