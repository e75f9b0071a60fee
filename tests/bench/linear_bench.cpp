// SPDX-License-Identifier: MIT
// linear(): every format, several shapes, one token and many.
#include <cmath>
#include <cstdlib>
#include <memory>
#include <vector>

#include "kernels/cpu/linear_input.h"
#include "quant/formats.h"
#include "tests/bench/bench.h"

namespace moe::bench {
namespace {

struct Case {
  FormatId format;
  ActPrecision act;
  int32_t rows, cols, n;
  Level level;
};

struct Free {
  void operator()(void* p) const { std::free(p); }
};

struct Problem {
  explicit Problem(const Case& c)
      : scales(static_cast<size_t>(c.rows), 0.5f),
        x(static_cast<size_t>(c.n) * static_cast<size_t>(c.cols)),
        y(static_cast<size_t>(c.n) * static_cast<size_t>(c.rows)),
        scratch(std::aligned_alloc(64, linear_input_bytes(c.n, c.cols))) {
    m.format = c.format;
    const bool integer = format_info(c.format).integer;
    m.group = format_info(c.format).group;
    m.scale_kind = m.group != 0                  ? ScaleKind::kGroup
                   : !integer                    ? ScaleKind::kNone
                   : c.format == FormatId::kInt8 ? ScaleKind::kRow
                   : c.act == ActPrecision::kA8  ? ScaleKind::kTensor
                                                 : ScaleKind::kRow;
    m.act = c.act;
    m.rows = c.rows;
    m.cols = c.cols;
    m.tile_stride = static_cast<int64_t>(format_info(c.format).tile_bytes(c.cols));
    m.scales = integer && m.group == 0 ? scales.data() : nullptr;
    // Whole numbers up to 127, which every group of inputs contains: quantising changes nothing.
    for (size_t i = 0; i < x.size(); ++i) {
      x[i] = i % kActGroup == 0 ? 127.0f : static_cast<float>(static_cast<int>(i * 37 % 255) - 127);
    }
    input = make_linear_input(c.act, x.data(), c.cols, c.n, c.cols, nullptr, scratch.get());
    args.weight = &m;
    args.input = &input;
    args.y = y.data();
    args.ld_y = c.rows;
    args.tile_end = c.rows / kTileRows;
  }
  Problem(const Problem&) = delete;
  Problem& operator=(const Problem&) = delete;

  Matrix m;
  std::vector<float> scales, x, y;
  std::unique_ptr<void, Free> scratch;
  LinearInput input;
  LinearArgs args;
};

// Compares a few rows with the definition, for the first token and the last.
bool correct(const Problem& p, const Case& c) {
  std::vector<float> w(static_cast<size_t>(c.cols));
  for (const int32_t row : {0, 1, c.rows / 2 + 3, c.rows - 1}) {
    read_row(p.m, row, w.data());
    for (const int32_t token : {0, c.n / 2, c.n - 1}) {
      const float* x = p.x.data() + static_cast<size_t>(token) * w.size();
      double sum = 0;
      double size = 0;
      for (size_t k = 0; k < w.size(); ++k) {
        sum += static_cast<double>(w[k]) * x[k];
        size += std::fabs(static_cast<double>(w[k]) * x[k]);
      }
      const float y =
          p.y[static_cast<size_t>(token) * static_cast<size_t>(c.rows) + static_cast<size_t>(row)];
      if (!(std::fabs(y - sum) <= 1e-5 * size)) return false;
    }
  }
  return true;
}

void run_linear(benchmark::State& state, const CpuKernels* kernels, Case c) {
  pin(state);
  const size_t bytes = *matrix_bytes(c.format, c.rows, c.cols);
  const bool integer = format_info(c.format).integer;
  // The tiles of four-bit formats contain float scales, which must be small numbers.
  const bool trits = integer && format_info(c.format).group == 0;
  Items items(trits ? Content::kTrits : Content::kFloats, c.level, bytes, state);
  Problem p(c);
  if (integer) kernels->quantise_rows(p.input, 0, c.n);
  p.m.tiles = items.next();
  kernels->linear(p.args);
  if (!correct(p, c)) state.SkipWithError("wrong results");
  for (auto _ : state) {
    p.m.tiles = items.next();
    kernels->linear(p.args);
    benchmark::ClobberMemory();
  }
  const double weights = static_cast<double>(c.rows) * c.cols;
  set_rate(state, "bytes/s", static_cast<double>(bytes));
  set_rate(state, "weights/s", weights);
  set_rate(state, "MAC/s", weights * c.n);
}

const char* act_name(ActPrecision act) {
  static const char* const names[] = {"f32", "a8", "a8_block", "a8_group"};
  return names[static_cast<int>(act)];
}

void add_case(const CpuKernels* k, const Case& c) {
  const std::string name = std::string("linear/") + k->name + "/" + format_info(c.format).name +
                           "/" + act_name(c.act) + "/" + std::to_string(c.rows) + "x" +
                           std::to_string(c.cols) + "/n:" + std::to_string(c.n) + "/" +
                           level_name(c.level);
  add(name, [k, c](benchmark::State& s) { run_linear(s, k, c); });
}

// The shapes are those of olmoe-1b-7b (gate), bitnet-2b-4t (down) and edge-moe-768x12 (gate). The
// cache case has half the rows, to fit a second-level cache of 2 MiB in every integer format.
void add_integer(const CpuKernels* k, FormatId format, ActPrecision act) {
  add_case(k, {format, act, 1024, 2048, 1, Level::kMemory});
  add_case(k, {format, act, 2560, 6912, 1, Level::kMemory});
  add_case(k, {format, act, 2048, 768, 1, Level::kMemory});
  // An expert's rows when several texts are decoded together.
  for (const int32_t n : {2, 3, 4, 5, 8}) {
    add_case(k, {format, act, 1024, 2048, n, Level::kMemory});
  }
  add_case(k, {format, act, 1024, 2048, 1, Level::kL3});
  add_case(k, {format, act, 2048, 768, 1, Level::kL3});
  for (const int32_t n : {1, 2, 4, 8, 16, 32, 128, 512}) {
    add_case(k, {format, act, 512, 2048, n, Level::kCache});
    add_case(k, {format, act, 1024, 768, n, Level::kCache});
  }
}

}  // namespace

void add_linear(const CpuKernels* k) {
  for (const ActPrecision act : {ActPrecision::kA8, ActPrecision::kA8Block}) {
    for (const FormatId f : {FormatId::kTernary2, FormatId::kTernary3, FormatId::kInt8}) {
      add_integer(k, f, act);
    }
  }
  for (const FormatId f :
       {FormatId::kInt4, FormatId::kInt4Min, FormatId::kInt4K, FormatId::kFp4, FormatId::kNl4,
        FormatId::kInt2K, FormatId::kInt3K, FormatId::kInt6K, FormatId::kInt8Group,
        FormatId::kIq2Xxs, FormatId::kIq2Xs, FormatId::kIq2S, FormatId::kIq3Xxs, FormatId::kIq3S,
        FormatId::kIq1S, FormatId::kIq1M, FormatId::kTcq2, FormatId::kTcq3}) {
    add_integer(k, f, ActPrecision::kA8Block);
    add_integer(k, f, ActPrecision::kA8Group);
  }
  for (const FormatId f : {FormatId::kF32, FormatId::kBf16, FormatId::kF16}) {
    add_case(k, {f, ActPrecision::kF32, 1024, 2048, 1, Level::kMemory});
    for (const int32_t n : {1, 8, 128}) {
      add_case(k, {f, ActPrecision::kF32, 64, 2048, n, Level::kCache});  // a router
    }
  }
}

}  // namespace moe::bench
