// SPDX-License-Identifier: MIT
// The operations on a token's activations between the matrix products.
#include <cstdlib>
#include <memory>
#include <vector>

#include "kernels/cpu/linear_input.h"
#include "tests/bench/bench.h"

namespace moe::bench {
namespace {

constexpr int kCols = 2048;

std::vector<float> some_floats(int n) {
  std::vector<float> x(static_cast<size_t>(n));
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i * 37 % 255) / 64 - 2;
  return x;
}

// bytes: read and written per value.
template <class Run>
void time_values(benchmark::State& state, double values, double bytes, Run run) {
  for (auto _ : state) {
    run();
    benchmark::ClobberMemory();
  }
  set_rate(state, "values/s", values);
  set_rate(state, "bytes/s", values * bytes);
}

void run_quantise(benchmark::State& state, const CpuKernels* k, ActPrecision act) {
  pin(state);
  constexpr int kRows = 8;
  const std::vector<float> x = some_floats(kRows * kCols);
  const std::unique_ptr<void, decltype(&std::free)> scratch(
      std::aligned_alloc(64, linear_input_bytes(kRows, kCols)), &std::free);
  const LinearInput input =
      make_linear_input(act, x.data(), kCols, kRows, kCols, nullptr, scratch.get());
  time_values(state, kRows * kCols, 5, [&] { k->quantise_rows(input, 0, kRows); });
}

void run_norm(benchmark::State& state, const CpuKernels* k) {
  pin(state);
  const std::vector<float> x = some_floats(kCols);
  std::vector<float> y(x.size());
  Norm norm;
  norm.kind = NormKind::kRms;
  norm.eps = 1e-5f;
  norm.weight = x.data();
  time_values(state, kCols, 12, [&] { k->norm_row(norm, x.data(), kCols, y.data()); });
}

void run_activation(benchmark::State& state, const CpuKernels* k, Activation kind) {
  pin(state);
  const std::vector<float> x = some_floats(kCols);
  std::vector<float> y(x.size());
  ActivationConfig config;
  config.kind = kind;
  time_values(state, kCols, 12, [&] {
    benchmark::DoNotOptimize(k->activation(config, x.data(), x.data(), kCols, y.data()));
  });
}

void run_add(benchmark::State& state, const CpuKernels* k) {
  pin(state);
  const std::vector<float> x = some_floats(kCols);
  std::vector<float> y(x.size());
  time_values(state, kCols, 12, [&] { k->add_scaled(0.5f, x.data(), kCols, y.data()); });
}

void run_rotate(benchmark::State& state, const CpuKernels* k, bool neighbours) {
  pin(state);
  constexpr int kHead = 128;
  std::vector<float> row(
      kHead);  // cosine and sine of one angle, so that the rotation preserves magnitudes
  for (size_t i = 0; i < row.size(); ++i) row[i] = i % 2 == 0 ? 0.6f : 0.8f;
  std::vector<float> x = some_floats(kCols);
  time_values(state, kCols, 8,
              [&] { k->rotate(row.data(), kHead, neighbours, x.data(), kCols / kHead, kHead); });
}

void run_round(benchmark::State& state, const CpuKernels* k, KvType type) {
  pin(state);
  const std::vector<float> x = some_floats(kCols);
  std::vector<uint16_t> out(x.size());
  time_values(state, kCols, type == KvType::kF16 ? 6 : 5, [&] {
    if (type == KvType::kF16) {
      k->round_f16(x.data(), kCols, 1, out.data());
    } else {
      k->round_int8(x.data(), kCols, 1, reinterpret_cast<int8_t*>(out.data()));
    }
  });
}

}  // namespace

void add_rows(const CpuKernels* k) {
  using State = benchmark::State;
  const auto row = [k](const char* what, auto run) {
    add(std::string("rows/") + k->name + "/" + what + "/cache", run);
  };
  row("quantise_a8", [k](State& s) { run_quantise(s, k, ActPrecision::kA8); });
  row("quantise_a8_block", [k](State& s) { run_quantise(s, k, ActPrecision::kA8Block); });
  row("quantise_a8_group", [k](State& s) { run_quantise(s, k, ActPrecision::kA8Group); });
  row("rms_norm", [k](State& s) { run_norm(s, k); });
  row("silu", [k](State& s) { run_activation(s, k, Activation::kSilu); });
  row("relu2", [k](State& s) { run_activation(s, k, Activation::kRelu2); });
  row("add_scaled", [k](State& s) { run_add(s, k); });
  row("rope_halves", [k](State& s) { run_rotate(s, k, false); });
  row("rope_neighbours", [k](State& s) { run_rotate(s, k, true); });
  row("round_f16", [k](State& s) { run_round(s, k, KvType::kF16); });
  row("round_int8", [k](State& s) { run_round(s, k, KvType::kInt8); });
}

}  // namespace moe::bench
