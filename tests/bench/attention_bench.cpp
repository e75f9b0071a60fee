// attention_head(): one query and the keys and values of one head.
#include <cmath>
#include <vector>

#include "quant/half.h"
#include "tests/bench/bench.h"

namespace moe::bench {
namespace {

struct Case {
  KvType type;
  int32_t head_dim, positions;
  Level level;
};

size_t row_bytes(const Case& c) {
  return static_cast<size_t>(c.head_dim) * (c.type == KvType::kF16 ? 2 : 1);
}

float value(const AttentionHead& a, const void* data, const float* scale, size_t position,
            size_t i) {
  const size_t at = position * static_cast<size_t>(a.head_dim) + i;
  if (a.type == KvType::kF16) return f16_to_f32(static_cast<const uint16_t*>(data)[at]);
  return static_cast<float>(static_cast<const int8_t*>(data)[at]) * scale[position];
}

// The definition in double precision.
bool correct(const AttentionHead& a) {
  const auto d = static_cast<size_t>(a.head_dim);
  const auto n = static_cast<size_t>(a.last);
  std::vector<double> score(n);
  double top = -HUGE_VAL;
  for (size_t p = 0; p < n; ++p) {
    for (size_t i = 0; i < d; ++i) {
      score[p] += static_cast<double>(a.q[i]) * value(a, a.k, a.k_scale, p, i) * a.multiplier;
    }
    top = std::max(top, score[p]);
  }
  double total = 0;
  for (double& s : score) total += s = std::exp(s - top);
  for (size_t i = 0; i < d; i += 7) {
    double out = 0;
    double size = 0;
    for (size_t p = 0; p < n; ++p) {
      const double part = score[p] / total * value(a, a.v, a.v_scale, p, i);
      out += part;
      size += std::fabs(part);
    }
    if (!(std::fabs(a.out[i] - out) <= 1e-4 * size + 1e-30)) return false;
  }
  return true;
}

void run_attention(benchmark::State& state, const CpuKernels* kernels, Case c) {
  pin(state);
  const size_t one = row_bytes(c) * static_cast<size_t>(c.positions);
  Items items(c.type == KvType::kF16 ? Content::kFloats : Content::kTrits, c.level, 2 * one, state);
  const std::vector<float> scale(static_cast<size_t>(c.positions), 0.01f);
  std::vector<float> q(static_cast<size_t>(c.head_dim));
  for (size_t i = 0; i < q.size(); ++i) q[i] = static_cast<float>(i % 5) - 2;
  std::vector<float> out(q.size());
  AttentionHead a;
  a.q = q.data();
  a.out = out.data();
  a.head_dim = c.head_dim;
  a.type = c.type;
  a.k_scale = a.v_scale = scale.data();
  a.last = c.positions;
  a.multiplier = 1 / std::sqrt(static_cast<float>(c.head_dim));
  const auto attend = [&] {
    const uint8_t* item = items.next();
    a.k = item;
    a.v = item + one;
    kernels->attention_head(a);
    benchmark::ClobberMemory();
  };
  attend();
  if (!correct(a)) state.SkipWithError("wrong results");
  for (auto _ : state) attend();
  set_rate(state, "bytes/s", 2 * static_cast<double>(one));
  set_rate(state, "MAC/s", 2.0 * c.head_dim * c.positions);
}

}  // namespace

void add_attention(const CpuKernels* k) {
  for (const KvType type : {KvType::kF16, KvType::kInt8}) {
    for (const Case& c :
         {Case{type, 64, 512, Level::kCache}, Case{type, 128, 512, Level::kCache},
          Case{type, 64, 2048, Level::kMemory}, Case{type, 128, 2048, Level::kMemory}}) {
      const std::string name = std::string("attention/") + k->name + "/" +
                               (type == KvType::kF16 ? "f16" : "int8") + "/" +
                               std::to_string(c.head_dim) + "x" + std::to_string(c.positions) +
                               "/" + level_name(c.level);
      add(name, [k, c](benchmark::State& s) { run_attention(s, k, c); });
    }
  }
}

}  // namespace moe::bench
