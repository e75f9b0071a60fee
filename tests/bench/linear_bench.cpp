// Speed of linear() on one thread: every format, instruction set and number of tokens; weights from
// memory (another matrix of a large pool each time) or from cache (one matrix). `read` reads the
// same bytes and does nothing with them: quote the others as a share of it, from the same run.
//   linear_bench --benchmark_filter=avx512 --benchmark_repetitions=15
//                --benchmark_enable_random_interleaving=true
//                --benchmark_report_aggregates_only=true
#include <benchmark/benchmark.h>
#include <sys/mman.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "kernels/cpu/linear_input.h"
#include "kernels/cpu/select.h"
#include "quant/list.h"

namespace moe {
namespace {

constexpr int32_t kRows = 1024;
constexpr int32_t kCols = 2048;
constexpr size_t kPoolBytes = size_t{1280} << 20;

struct Case {
  FormatId format;
  ActPrecision act;
  int32_t n;
  bool memory;
};

// One pool for all: 0x15 is a fine code in every format.
const uint8_t* pool() {
  static uint8_t* const p = [] {
    void* m = mmap(nullptr, kPoolBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (m == MAP_FAILED) {
      std::fprintf(stderr, "linear_bench: cannot map %zu bytes\n", kPoolBytes);
      std::exit(1);
    }
    madvise(m, kPoolBytes, MADV_HUGEPAGE);
    auto* bytes = static_cast<uint8_t*>(m);
    for (size_t i = 0; i < kPoolBytes; ++i) bytes[i] = 0x15;
    return bytes;
  }();
  return p;
}

struct Weights {
  explicit Weights(const Case& c) : scales(kRows, 1.0f) {
    bytes = *matrix_bytes(c.format, kRows, kCols);
    m.format = c.format;
    m.scale_kind = format_info(c.format).integer ? ScaleKind::kRow : ScaleKind::kNone;
    m.act = c.act;
    m.rows = kRows;
    m.cols = kCols;
    m.tile_stride = static_cast<int64_t>(format_info(c.format).tile_bytes(kCols));
    m.scales = scales.data();
    n_matrices = c.memory ? kPoolBytes / bytes : 1;
  }
  void next() {
    m.tiles = pool() + at * bytes;
    at = (at + 1) % n_matrices;
  }
  Matrix m;
  std::vector<float> scales;
  size_t bytes, n_matrices, at = 0;
};

void run_linear(benchmark::State& state, const CpuKernels* kernels, Case c) {
  Weights w(c);
  std::vector<float> x(static_cast<size_t>(c.n) * kCols);
  for (size_t i = 0; i < x.size(); ++i)
    x[i] = static_cast<float>(static_cast<int>(i * 37 % 255) - 127);
  std::vector<float> y(static_cast<size_t>(c.n) * kRows);
  void* scratch = std::aligned_alloc(64, linear_input_bytes(c.n, kCols));
  const LinearInput input = make_linear_input(c.act, x.data(), kCols, c.n, kCols, nullptr, scratch);
  if (c.act != ActPrecision::kF32) kernels->quantise_rows(input, 0, c.n);
  LinearArgs a;
  a.weight = &w.m;
  a.input = &input;
  a.y = y.data();
  a.ld_y = kRows;
  a.tile_end = kRows / kTileRows;
  for (auto _ : state) {
    w.next();
    kernels->linear(a);
    benchmark::ClobberMemory();
  }
  const double calls = static_cast<double>(state.iterations());
  using benchmark::Counter;
  state.counters["bytes/s"] = Counter(calls * static_cast<double>(w.bytes), Counter::kIsRate);
  state.counters["weights/s"] = Counter(calls * kRows * kCols, Counter::kIsRate);
  state.counters["MAC/s"] = Counter(calls * kRows * kCols * c.n, Counter::kIsRate);
  std::free(scratch);
}

void run_read(benchmark::State& state, const CpuKernels* kernels, bool memory) {
  const size_t bytes = kRows * kCols / 4;
  const size_t n = memory ? kPoolBytes / bytes : 1;
  size_t at = 0;
  for (auto _ : state) {
    benchmark::DoNotOptimize(kernels->read_bytes(pool() + at * bytes, bytes));
    at = (at + 1) % n;
  }
  state.counters["bytes/s"] =
      benchmark::Counter(static_cast<double>(state.iterations()) * static_cast<double>(bytes),
                         benchmark::Counter::kIsRate);
}

void run_quantise(benchmark::State& state, const CpuKernels* kernels, ActPrecision act) {
  const int32_t n = 8;
  const std::vector<float> x(static_cast<size_t>(n) * kCols, 1.5f);
  void* scratch = std::aligned_alloc(64, linear_input_bytes(n, kCols));
  const LinearInput input = make_linear_input(act, x.data(), kCols, n, kCols, nullptr, scratch);
  for (auto _ : state) {
    kernels->quantise_rows(input, 0, n);
    benchmark::ClobberMemory();
  }
  state.counters["values/s"] = benchmark::Counter(
      static_cast<double>(state.iterations()) * n * kCols, benchmark::Counter::kIsRate);
  std::free(scratch);
}

void add_linear(const CpuKernels* k, FormatId format, ActPrecision act) {
  const char* act_name = act == ActPrecision::kF32  ? "f32"
                         : act == ActPrecision::kA8 ? "a8"
                                                    : "a8_block";
  for (const bool memory : {true, false}) {
    for (const int32_t n : {1, 2, 4, 8, 32, 128}) {
      if (memory && n > 2) continue;  // no longer bound by memory
      const std::string name = std::string(k->name) + "/" + format_info(format).name + "/" +
                               act_name + "/n:" + std::to_string(n) +
                               (memory ? "/memory" : "/cache");
      const Case c{format, act, n, memory};
      benchmark::RegisterBenchmark(name.c_str(),
                                   [k, c](benchmark::State& s) { run_linear(s, k, c); });
    }
  }
}

void add_all(const CpuKernels* k) {
  for (const bool memory : {true, false}) {
    const std::string name = std::string(k->name) + "/read" + (memory ? "/memory" : "/cache");
    benchmark::RegisterBenchmark(name.c_str(),
                                 [k, memory](benchmark::State& s) { run_read(s, k, memory); });
  }
  for (const FormatId f : {FormatId::kTernary2, FormatId::kTernary3, FormatId::kInt8}) {
    add_linear(k, f, ActPrecision::kA8);
    add_linear(k, f, ActPrecision::kA8Block);
  }
  for (const FormatId f : {FormatId::kF32, FormatId::kBf16, FormatId::kF16}) {
    add_linear(k, f, ActPrecision::kF32);
  }
  for (const ActPrecision act : {ActPrecision::kA8, ActPrecision::kA8Block}) {
    const std::string name =
        std::string(k->name) + "/quantise/" + (act == ActPrecision::kA8 ? "a8" : "a8_block");
    benchmark::RegisterBenchmark(name.c_str(),
                                 [k, act](benchmark::State& s) { run_quantise(s, k, act); });
  }
}

}  // namespace
}  // namespace moe

int main(int argc, char** argv) {
  const moe::CpuKernels* storage[8];
  for (const moe::CpuKernels* k : moe::runnable_kernels(storage)) moe::add_all(k);
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
