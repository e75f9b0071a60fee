// SPDX-License-Identifier: MIT
// attention(): queries against the keys and values of one KV head.
#include <cmath>
#include <vector>

#include "quant/half.h"
#include "tests/bench/bench.h"

namespace moe::bench {
namespace {

struct Case {
  KvType type;
  int32_t head_dim, positions, queries;
  Level level;
};

size_t row_bytes(const Case& c) {
  return static_cast<size_t>(c.head_dim) * (c.type == KvType::kF16 ? 2 : 1);
}

float element(const AttentionTile& a, const void* data, size_t at) {
  if (a.type == KvType::kF16) return f16_to_f32(static_cast<const uint16_t*>(data)[at]);
  return static_cast<const int8_t*>(data)[at];
}

float key(const AttentionTile& a, size_t position, size_t i) {
  const auto d = static_cast<size_t>(a.head_dim);
  const float k =
      element(a, a.k, (position / kKeyLanes * d + i) * kKeyLanes + position % kKeyLanes);
  return a.type == KvType::kF16 ? k : k * a.k_scale[position];
}

float value(const AttentionTile& a, size_t position, size_t i) {
  const float v = element(a, a.v, position * static_cast<size_t>(a.head_dim) + i);
  return a.type == KvType::kF16 ? v : v * a.v_scale[position];
}

// The definition in double precision.
bool correct(const AttentionTile& a, const AttentionQuery& query) {
  const auto d = static_cast<size_t>(a.head_dim);
  const auto n = static_cast<size_t>(query.last);
  std::vector<double> score(n);
  double top = -HUGE_VAL;
  for (size_t p = 0; p < n; ++p) {
    for (size_t i = 0; i < d; ++i) {
      score[p] += static_cast<double>(query.q[i]) * key(a, p, i) * a.multiplier;
    }
    top = std::max(top, score[p]);
  }
  double total = 0;
  for (double& s : score) total += s = std::exp(s - top);
  for (size_t i = 0; i < d; i += 7) {
    double out = 0;
    double size = 0;
    for (size_t p = 0; p < n; ++p) {
      const double part = score[p] / total * value(a, p, i);
      out += part;
      size += std::fabs(part);
    }
    if (!(std::fabs(query.out[i] - out) <= 1e-4 * size + 1e-30)) return false;
  }
  return true;
}

void run_attention(benchmark::State& state, const CpuKernels* kernels, Case c) {
  pin(state);
  const size_t one = row_bytes(c) * static_cast<size_t>(c.positions);
  Items items(c.type == KvType::kF16 ? Content::kFloats : Content::kTrits, c.level, 2 * one, state);
  const std::vector<float> scale(static_cast<size_t>(c.positions), 0.01f);
  std::vector<float> q(static_cast<size_t>(c.head_dim) * static_cast<size_t>(c.queries));
  for (size_t i = 0; i < q.size(); ++i) q[i] = static_cast<float>(i % 5) - 2;
  std::vector<float> out(q.size());
  AttentionTile a;
  a.n_queries = c.queries;
  for (int32_t i = 0; i < c.queries; ++i) {
    a.queries[i].q = q.data() + i * c.head_dim;
    a.queries[i].out = out.data() + i * c.head_dim;
    a.queries[i].last = c.positions;
  }
  a.head_dim = c.head_dim;
  a.type = c.type;
  if (c.type == KvType::kInt8) a.k_scale = a.v_scale = scale.data();
  a.multiplier = 1 / std::sqrt(static_cast<float>(c.head_dim));
  const auto attend = [&] {
    const uint8_t* item = items.next();
    a.k = item;
    a.v = item + one;
    kernels->attention(a);
    benchmark::ClobberMemory();
  };
  attend();
  for (int32_t i = 0; i < c.queries; ++i) {
    if (!correct(a, a.queries[i])) state.SkipWithError("wrong results");
  }
  for (auto _ : state) attend();
  set_rate(state, "bytes/s", 2 * static_cast<double>(one));
  set_rate(state, "MAC/s", 2.0 * c.head_dim * c.positions * c.queries);
}

}  // namespace

void add_attention(const CpuKernels* k) {
  for (const KvType type : {KvType::kF16, KvType::kInt8}) {
    for (const Case& c :
         {Case{type, 64, 512, 1, Level::kCache}, Case{type, 128, 512, 1, Level::kCache},
          Case{type, 64, 512, kMaxQueries, Level::kCache},
          Case{type, 128, 512, kMaxQueries, Level::kCache}, Case{type, 64, 2048, 1, Level::kMemory},
          Case{type, 128, 2048, 1, Level::kMemory}}) {
      const std::string name = std::string("attention/") + k->name + "/" +
                               (type == KvType::kF16 ? "f16" : "int8") + "/" +
                               std::to_string(c.head_dim) + "x" + std::to_string(c.positions) +
                               "/n:" + std::to_string(c.queries) + "/" + level_name(c.level);
      add(name, [k, c](benchmark::State& s) { run_attention(s, k, c); });
    }
  }
}

}  // namespace moe::bench
