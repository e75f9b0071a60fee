// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <cmath>

#include "kernels/rope.h"
#include "quant/half.h"
#include "tests/kernels/random_floats.h"
#include "tests/support/cpu_devices.h"

namespace moe {
namespace {

constexpr int32_t kPositions = 150;
constexpr int32_t kCapacity = 192;  // whole blocks of 64

struct Shape {
  const char* name;
  int32_t n_heads = 4;
  int32_t n_kv_heads = 4;
  int32_t head_dim = 32;
  int32_t window = 0;
  RopeKind rope = RopeKind::kNone;
  int32_t rope_dims = 0;
  QkNorm qk_norm = QkNorm::kNone;
  bool sinks = false;
  KvType type = KvType::kF16;
  float cap = 0;
  float clip = INFINITY;
};

const Shape kShapes[] = {
    {"plain"},
    {"one head", 1, 1, 64},
    {"gqa, rope", 6, 2, 24, 0, RopeKind::kHalf, 24},
    {"window, partial rope", 4, 1, 20, 37, RopeKind::kHalf, 8},
    {"interleaved, window over blocks", 4, 2, 16, 129, RopeKind::kInterleaved, 16},
    {"qk norm per head, sinks", 4, 2, 40, 0, RopeKind::kHalf, 40, QkNorm::kHead, true},
    {"qk norm whole, window 1", 3, 3, 16, 1, RopeKind::kInterleaved, 6, QkNorm::kWhole},
    {"int8 cache", 4, 2, 24, 70, RopeKind::kHalf, 24, QkNorm::kHead, true, KvType::kInt8},
    {"a head for each thread", 12, 6, 16, 0, RopeKind::kHalf, 16, QkNorm::kHead, true,
     KvType::kInt8},
    {"capped, window over blocks", 4, 2, 24, 70, RopeKind::kHalf, 24, QkNorm::kNone, false,
     KvType::kF16, 0.7f},
    {"capped, sinks, int8", 2, 1, 20, 0, RopeKind::kHalf, 20, QkNorm::kHead, true, KvType::kInt8,
     3},
    {"clipped, half of it rotated", 4, 2, 24, 0, RopeKind::kHalf, 12, QkNorm::kNone, false,
     KvType::kF16, 0, 0.5f},
    {"clipped behind a norm, int8", 4, 4, 20, 0, RopeKind::kInterleaved, 20, QkNorm::kWhole, false,
     KvType::kInt8, 0, 0.3f},
};

// The cache of one session and its memory.
struct Cache {
  std::vector<uint16_t> k, v;  // bytes of either type
  std::vector<float> k_scale, v_scale;
  KvCacheView view;

  explicit Cache(const Shape& s) {
    const auto n = static_cast<size_t>(s.n_kv_heads * kCapacity * s.head_dim);
    k.assign(n, 0x7E00);
    v.assign(n, 0x7E00);
    k_scale.assign(n, NAN);
    v_scale.assign(n, NAN);
    view = {s.type, kCapacity, {k.data(), v.data(), k_scale.data(), v_scale.data()}};
  }
  double key(int32_t head, int32_t position, int32_t i, int32_t head_dim) const {
    const int32_t row = head * kCapacity + position;
    return read(k, k_scale, row, row / 16 * 16 * head_dim + 16 * i + row % 16);
  }
  double value(int32_t head, int32_t position, int32_t i, int32_t head_dim) const {
    const int32_t row = head * kCapacity + position;
    return read(v, v_scale, row, row * head_dim + i);
  }

 private:
  double read(const std::vector<uint16_t>& data, const std::vector<float>& scale, int32_t row,
              int32_t at) const {
    const auto place = static_cast<size_t>(at);
    if (view.type == KvType::kF16) return f16_to_f32(data[place]);
    return reinterpret_cast<const int8_t*>(data.data())[place] *
           static_cast<double>(scale[static_cast<size_t>(row)]);
  }
};

struct Inputs {
  std::vector<float> q, k, v, table, q_weight, k_weight, sinks;

  Inputs(const Shape& s, unsigned seed)
      : q(random_floats(static_cast<size_t>(kPositions * s.n_heads * s.head_dim), seed)),
        k(random_floats(static_cast<size_t>(kPositions * s.n_kv_heads * s.head_dim), seed + 1)),
        v(random_floats(k.size(), seed + 2)),
        table(static_cast<size_t>(kPositions * std::max(2, s.rope_dims))),
        q_weight(random_floats(static_cast<size_t>(s.n_heads * s.head_dim), 5)),
        k_weight(random_floats(static_cast<size_t>(s.n_kv_heads * s.head_dim), 6)),
        sinks(random_floats(static_cast<size_t>(s.n_heads), 7)) {
    RopeConfig rope;
    rope.kind = s.rope;
    rope.dims = s.rope_dims;
    rope.theta = 100;
    EXPECT_TRUE(build_rope_table(rope, kPositions, table.data()).ok());
  }
};

AttentionOp operation(const Shape& s, const Inputs& in) {
  AttentionOp op;
  op.n_heads = s.n_heads;
  op.n_kv_heads = s.n_kv_heads;
  op.head_dim = s.head_dim;
  op.window = s.window;
  op.multiplier = 0.4f;
  op.cap = s.cap;
  op.clip = s.clip;
  op.rope = s.rope;
  op.rope_dims = s.rope_dims;
  op.rope_table = in.table.data();
  op.qk_norm = s.qk_norm;
  op.q_norm = {NormKind::kRms, 1e-6f, in.q_weight.data(), nullptr};
  op.k_norm = {NormKind::kRms, 1e-6f, in.k_weight.data(), nullptr};
  op.sinks = s.sinks ? in.sinks.data() : nullptr;
  return op;
}

struct Step {
  int32_t session;
  int32_t position;
};

// Runs the steps in calls of `batch`; row r of the result is step r. *q_out receives the queries
// after norm and rotation.
std::vector<float> run(Device& device, const Shape& s, const std::vector<Inputs>& sessions,
                       std::vector<Cache>& caches, const std::vector<Step>& steps, size_t batch,
                       std::vector<float>* q_out = nullptr) {
  const auto q_width = static_cast<size_t>(s.n_heads * s.head_dim);
  const auto kv_width = static_cast<size_t>(s.n_kv_heads * s.head_dim);
  std::vector<float> out;
  std::vector<KvCacheView> views;
  for (const Cache& c : caches) views.push_back(c.view);
  StreamShape shape;
  shape.max_rows = static_cast<int32_t>(batch);
  shape.d_model = shape.max_d_in = static_cast<int32_t>(q_width);
  Stream* stream = device.open_stream(shape).value();
  for (size_t at = 0; at < steps.size(); at += batch) {
    const size_t n = std::min(batch, steps.size() - at);
    std::vector<float> q, k, v, y(n * q_width);
    std::vector<BatchRow> rows;
    for (size_t r = at; r < at + n; ++r) {
      const Inputs& in = sessions[static_cast<size_t>(steps[r].session)];
      const auto p = static_cast<size_t>(steps[r].position);
      q.insert(q.end(), &in.q[p * q_width], &in.q[p * q_width] + q_width);
      k.insert(k.end(), &in.k[p * kv_width], &in.k[p * kv_width] + kv_width);
      v.insert(v.end(), &in.v[p * kv_width], &in.v[p * kv_width] + kv_width);
      rows.push_back({steps[r].session, steps[r].position, 0});
    }
    AttentionOp op = operation(s, sessions[0]);
    op.n_rows = static_cast<int32_t>(n);
    op.rows = rows.data();
    op.q = q.data();
    op.k = k.data();
    op.v = v.data();
    op.out = y.data();
    op.caches = views.data();
    device.attention(*stream, op);
    EXPECT_TRUE(device.sync(*stream).ok());
    out.insert(out.end(), y.begin(), y.end());
    if (q_out != nullptr) q_out->insert(q_out->end(), q.begin(), q.end());
  }
  device.close_stream(stream);
  return out;
}

std::vector<Step> one_session() {
  std::vector<Step> steps;
  for (int32_t p = 0; p < kPositions; ++p) steps.push_back({0, p});
  return steps;
}

TEST(DeviceAttention, SameBitsOnEveryIsaThreadCountAndBatch) {
  const std::vector<OpenedDevice> devices = all_devices();
  for (const Shape& s : kShapes) {
    std::vector<Inputs> in;
    in.emplace_back(s, 1);
    std::vector<float> first;
    for (const OpenedDevice& d : devices) {
      for (size_t batch : {size_t{150}, size_t{1}, size_t{3}, size_t{17}}) {
        std::vector<Cache> cache;
        cache.emplace_back(s);
        const std::vector<float> y = run(*d.device, s, in, cache, one_session(), batch);
        if (first.empty()) first = y;
        ASSERT_EQ(first_difference(first, y), -1) << s.name << ", " << d.name << ", " << batch;
      }
    }
  }
}

TEST(DeviceAttention, SessionsDoNotTouchEachOther) {
  const Shape& s = kShapes[3];
  std::vector<Inputs> in;
  in.emplace_back(s, 1);
  in.emplace_back(s, 50);
  const OpenedDevice d(nullptr, 2);
  std::vector<Cache> alone;
  alone.emplace_back(s);
  const std::vector<float> expected = run(*d.device, s, in, alone, one_session(), 150);
  std::vector<Step> both;
  for (int32_t p = 0; p < kPositions; ++p) {
    both.push_back({0, p});
    both.push_back({1, p});
  }
  std::vector<Cache> caches;
  caches.emplace_back(s);
  caches.emplace_back(s);
  const std::vector<float> y = run(*d.device, s, in, caches, both, 2);
  const auto width = static_cast<size_t>(s.n_heads * s.head_dim);
  for (size_t p = 0; p < kPositions; ++p) {
    for (size_t i = 0; i < width; ++i) ASSERT_EQ(y[2 * p * width + i], expected[p * width + i]);
  }
}

// Norm, clipping and rotation of one head in double precision.
void prepare(const Shape& s, const Inputs& in, int32_t position, const float* x,
             const float* weight, int32_t head, int32_t n_heads, std::vector<double>* out) {
  const int32_t d = s.head_dim;
  const bool whole = s.qk_norm == QkNorm::kWhole;
  double scale = 1;
  if (s.qk_norm != QkNorm::kNone) {
    double square = 0;
    const int32_t n = whole ? n_heads * d : d;
    const float* from = whole ? x : x + head * d;
    for (int32_t i = 0; i < n; ++i) square += static_cast<double>(from[i]) * from[i] / n;
    scale = 1 / std::sqrt(square + 1e-6);
  }
  std::vector<double> v(static_cast<size_t>(d));
  for (int32_t i = 0; i < d; ++i) {
    const double w = s.qk_norm == QkNorm::kNone ? 1 : weight[whole ? head * d + i : i];
    const double normed = x[head * d + i] * scale * w;
    v[static_cast<size_t>(i)] = std::clamp<double>(normed, -s.clip, s.clip);
  }
  for (int32_t j = 0; j < s.rope_dims / 2; ++j) {
    const bool pairs = s.rope == RopeKind::kInterleaved;
    const auto a = static_cast<size_t>(pairs ? 2 * j : j);
    const auto b = static_cast<size_t>(pairs ? 2 * j + 1 : j + s.rope_dims / 2);
    const double angle = position * std::pow(100.0, -2.0 * j / s.rope_dims);
    const double first = v[a];
    v[a] = first * std::cos(angle) - v[b] * std::sin(angle);
    v[b] = v[b] * std::cos(angle) + first * std::sin(angle);
  }
  EXPECT_EQ(in.table.size() % 2, 0u);
  *out = v;
}

TEST(DeviceAttention, MatchesDoublePrecision) {
  const OpenedDevice d(nullptr, 2);
  for (const Shape& s : kShapes) {
    std::vector<Inputs> in;
    in.emplace_back(s, 1);
    std::vector<Cache> cache;
    cache.emplace_back(s);
    const std::vector<float> y = run(*d.device, s, in, cache, one_session(), 50);
    const Cache& c = cache[0];
    for (int32_t p = 0; p < kPositions; p += 13) {
      for (int32_t h = 0; h < s.n_heads; ++h) {
        std::vector<double> q, k;
        prepare(s, in[0], p, &in[0].q[static_cast<size_t>(p * s.n_heads * s.head_dim)],
                in[0].q_weight.data(), h, s.n_heads, &q);
        const int32_t kv = h / (s.n_heads / s.n_kv_heads);
        prepare(s, in[0], p, &in[0].k[static_cast<size_t>(p * s.n_kv_heads * s.head_dim)],
                in[0].k_weight.data(), kv, s.n_kv_heads, &k);
        double total = s.sinks ? std::exp(in[0].sinks[static_cast<size_t>(h)]) : 0;
        std::vector<double> expected(q.size());
        for (int32_t t = s.window > 0 ? std::max(0, p + 1 - s.window) : 0; t <= p; ++t) {
          double score = 0;
          for (int32_t i = 0; i < s.head_dim; ++i) {
            score += q[static_cast<size_t>(i)] * c.key(kv, t, i, s.head_dim);
          }
          score *= static_cast<double>(0.4f);
          if (s.cap > 0) score = s.cap * std::tanh(score / s.cap);
          const double e = std::exp(score);
          total += e;
          for (int32_t i = 0; i < s.head_dim; ++i) {
            expected[static_cast<size_t>(i)] += e * c.value(kv, t, i, s.head_dim);
          }
        }
        for (int32_t i = 0; i < s.head_dim; ++i) {
          const auto at = static_cast<size_t>((p * s.n_heads + h) * s.head_dim + i);
          ASSERT_NEAR(y[at], expected[static_cast<size_t>(i)] / total, 2e-5) << s.name;
          ASSERT_NEAR(c.key(kv, p, i, s.head_dim), k[static_cast<size_t>(i)],
                      s.type == KvType::kF16 ? 4e-3 : 0.04)
              << s.name;
          const float v = in[0].v[static_cast<size_t>((p * s.n_kv_heads + kv) * s.head_dim + i)];
          ASSERT_NEAR(c.value(kv, p, i, s.head_dim), std::clamp(v, -s.clip, s.clip),
                      s.type == KvType::kF16 ? 1e-3 : 0.02)
              << s.name;
        }
      }
    }
  }
}

}  // namespace
}  // namespace moe
