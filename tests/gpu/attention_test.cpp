// SPDX-License-Identifier: MIT
// attend(): cached keys and values have the CPU's bits; outputs are within a derived bound of
// double precision.

#include "kernels/cuda/attention/attention.h"

#include <cmath>

#include "kernels/cuda/attention/kv_layout.h"
#include "kernels/cuda/ops.h"
#include "kernels/rope.h"
#include "quant/half.h"
#include "tests/gpu/on_device.h"
#include "tests/gpu/recorded.h"
#include "tests/kernels/random_floats.h"
#include "tests/support/cpu_devices.h"

namespace moe::cuda {
namespace {

struct Shape {
  const char* name;
  int32_t n_heads = 4;
  int32_t n_kv_heads = 4;
  int32_t head_dim = 32;
  int32_t window = 0;
  RopeKind rope = RopeKind::kHalf;
  int32_t rope_dims = 16;
  QkNorm qk_norm = QkNorm::kNone;
  bool sinks = false;
  KvType type = KvType::kF16;
  float cap = 0;
  float clip = INFINITY;
};

const Shape kShapes[] = {
    {"one head", 1, 1, 64},
    {"gqa by 2, norm per head", 4, 2, 64, 0, RopeKind::kHalf, 64, QkNorm::kHead},
    {"gqa by 4, window", 4, 1, 16, 37, RopeKind::kInterleaved, 8},
    {"gqa by 3, sinks", 6, 2, 32, 0, RopeKind::kHalf, 32, QkNorm::kNone, true},
    {"gqa by 12, norm whole", 12, 1, 16, 100, RopeKind::kNone, 0, QkNorm::kWhole},
    {"ragged heads", 3, 3, 21, 0, RopeKind::kInterleaved, 6, QkNorm::kHead, true},
    {"narrow heads", 2, 1, 5, 3, RopeKind::kNone, 0},
    {"wide heads", 2, 2, 128, 0, RopeKind::kHalf, 128, QkNorm::kWhole},
    {"gqa by 5, window, 96", 5, 1, 96, 20, RopeKind::kHalf, 96, QkNorm::kNone, true},
    {"wider heads", 2, 1, 256, 70, RopeKind::kHalf, 64, QkNorm::kHead},
    {"int8", 4, 2, 64, 0, RopeKind::kHalf, 64, QkNorm::kNone, true, KvType::kInt8},
    {"int8, ragged", 2, 1, 24, 50, RopeKind::kHalf, 24, QkNorm::kHead, true, KvType::kInt8},
    {"int8, gqa by 5", 5, 1, 48, 0, RopeKind::kHalf, 48, QkNorm::kHead, false, KvType::kInt8},
    {"capped", 4, 2, 64, 37, RopeKind::kHalf, 64, QkNorm::kNone, false, KvType::kF16, 1.5f},
    {"capped, wider heads, sinks", 2, 1, 256, 0, RopeKind::kHalf, 64, QkNorm::kNone, true,
     KvType::kF16, 50},
    {"capped, int8", 4, 2, 32, 0, RopeKind::kHalf, 32, QkNorm::kHead, true, KvType::kInt8, 0.5f},
    {"capped, ragged heads", 3, 3, 21, 0, RopeKind::kInterleaved, 6, QkNorm::kNone, false,
     KvType::kF16, 2},
    {"clipped", 4, 2, 64, 0, RopeKind::kHalf, 32, QkNorm::kNone, false, KvType::kF16, 0, 0.7f},
    {"clipped behind a norm, int8", 4, 4, 32, 0, RopeKind::kHalf, 32, QkNorm::kWhole, false,
     KvType::kInt8, 0, 0.4f},
};

/// Rows of one session in one call: positions [first, first + n).
struct Part {
  int32_t session;
  int32_t first;
  int32_t n;
};
using Call = std::vector<Part>;

constexpr int32_t kSessions = 2;
constexpr int32_t kCapacity = 320;

size_t as_size(int64_t n) { return static_cast<size_t>(n); }

void append(std::vector<float>& to, const std::vector<float>& from) {
  to.insert(to.end(), from.begin(), from.end());
}

struct Inputs {
  std::vector<BatchRow> rows;
  std::vector<float> q, k, v;
  int32_t longest = 0;
  int32_t last = 0;

  Inputs(const Shape& s, const Call& call) {
    for (const Part& part : call) {
      for (int32_t i = 0; i < part.n; ++i) rows.push_back({part.session, part.first + i, 0});
      longest = std::max(longest, part.n);
      last = std::max(last, part.first + part.n - 1);
    }
    for (const BatchRow& row : rows) {  // a row's inputs depend on its session and position alone
      const auto seed = static_cast<unsigned>(3 * (1000 * row.session + row.position));
      append(q, random_floats(as_size(s.n_heads * s.head_dim), seed, 1.5f));
      append(k, random_floats(as_size(s.n_kv_heads * s.head_dim), seed + 1));
      append(v, random_floats(as_size(s.n_kv_heads * s.head_dim), seed + 2, 2));
    }
  }
};

struct Weights {
  std::vector<float> table, q_norm, k_norm, sinks;
  explicit Weights(const Shape& s)
      : table(as_size(int64_t{kCapacity} * std::max(2, s.rope_dims))),
        q_norm(random_floats(as_size(int64_t{s.n_heads} * s.head_dim), 71)),
        k_norm(random_floats(as_size(int64_t{s.n_kv_heads} * s.head_dim), 72)),
        sinks(random_floats(as_size(s.n_heads), 73)) {
    RopeConfig rope;
    rope.kind = s.rope;
    rope.dims = s.rope_dims;
    EXPECT_TRUE(build_rope_table(rope, kCapacity, table.data()).ok());
  }
};

AttentionOp op_of(const Shape& s) {
  AttentionOp op;
  op.n_heads = s.n_heads;
  op.n_kv_heads = s.n_kv_heads;
  op.head_dim = s.head_dim;
  op.window = s.window;
  op.multiplier = 0.2f;
  op.cap = s.cap;
  op.clip = s.clip;
  op.rope = s.rope;
  op.rope_dims = s.rope_dims;
  op.qk_norm = s.qk_norm;
  op.q_norm = {NormKind::kRms, 1e-5f, nullptr, nullptr};
  op.k_norm = {NormKind::kRms, 1e-5f, nullptr, nullptr};
  return op;
}

size_t element_bytes(KvType type) { return type == KvType::kF16 ? 2 : 1; }

/// The caches of the CPU device, and the values of their elements.
struct HostCaches {
  Shape shape;
  std::vector<uint8_t> k[kSessions], v[kSessions];
  std::vector<float> k_scale[kSessions], v_scale[kSessions];
  std::vector<KvCacheView> views;

  explicit HostCaches(const Shape& s) : shape(s) {
    const auto scales = as_size(int64_t{s.n_kv_heads} * kCapacity);
    for (int i = 0; i < kSessions; ++i) {
      k[i].resize(scales * as_size(s.head_dim) * element_bytes(s.type));
      v[i].resize(k[i].size());
      k_scale[i].resize(scales);
      v_scale[i].resize(scales);
      views.push_back(
          {s.type, kCapacity, {k[i].data(), v[i].data(), k_scale[i].data(), v_scale[i].data()}});
    }
  }
  /// The bits of an element.
  uint32_t bits(const std::vector<uint8_t>& from, int64_t at) const {
    if (shape.type == KvType::kInt8) return from[as_size(at)];
    uint16_t half;
    std::memcpy(&half, from.data() + 2 * at, 2);
    return half;
  }
  double number(uint32_t element, float scale) const {
    if (shape.type == KvType::kF16) return f16_to_f32(static_cast<uint16_t>(element));
    return static_cast<double>(static_cast<int8_t>(element)) * static_cast<double>(scale);
  }
  int64_t key_at(int32_t head, int32_t position, int32_t i) const {
    const int64_t row = int64_t{head} * kCapacity + position;
    return row / 16 * 16 * shape.head_dim + 16 * i + row % 16;
  }
  int64_t value_at(int32_t head, int32_t position, int32_t i) const {
    return (int64_t{head} * kCapacity + position) * shape.head_dim + i;
  }
  double key(int session, int32_t head, int32_t position, int32_t i) const {
    return number(bits(k[session], key_at(head, position, i)),
                  k_scale[session][as_size(int64_t{head} * kCapacity + position)]);
  }
  double value(int session, int32_t head, int32_t position, int32_t i) const {
    return number(bits(v[session], value_at(head, position, i)),
                  v_scale[session][as_size(int64_t{head} * kCapacity + position)]);
  }
};

struct DeviceCaches {
  Shape shape;
  OnDevice<uint8_t> k[kSessions], v[kSessions];
  OnDevice<float> k_scale[kSessions], v_scale[kSessions];
  OnDevice<KvCacheView> views;

  explicit DeviceCaches(const Shape& s) : shape(s) {
    const auto scales = as_size(int64_t{s.n_kv_heads} * kCapacity);
    const size_t bytes = scales * as_size(s.head_dim) * element_bytes(s.type);
    std::vector<KvCacheView> host;
    for (int i = 0; i < kSessions; ++i) {
      // Elements that are never written are NaN.
      k[i] = OnDevice<uint8_t>(std::vector<uint8_t>(bytes, 0x7f));
      v[i] = OnDevice<uint8_t>(std::vector<uint8_t>(bytes, 0x7f));
      k_scale[i] = OnDevice<float>(std::vector<float>(scales, NAN));
      v_scale[i] = OnDevice<float>(std::vector<float>(scales, NAN));
      const bool scaled = s.type == KvType::kInt8;
      host.push_back({s.type,
                      kCapacity,
                      {k[i].get(), v[i].get(), scaled ? k_scale[i].get() : nullptr,
                       scaled ? v_scale[i].get() : nullptr}});
    }
    views = OnDevice<KvCacheView>(host);
  }
};

void expect_same_cache(const HostCaches& host, const DeviceCaches& device, const Call& call) {
  const Shape& s = host.shape;
  for (int i = 0; i < kSessions; ++i) {
    const std::vector<uint8_t> k = device.k[i].values();
    const std::vector<uint8_t> v = device.v[i].values();
    const std::vector<float> k_scale = device.k_scale[i].values();
    const std::vector<float> v_scale = device.v_scale[i].values();
    for (const Part& part : call) {
      if (part.session != i) continue;
      for (int32_t p = part.first; p < part.first + part.n; ++p) {
        for (int32_t h = 0; h < s.n_kv_heads; ++h) {
          const int64_t at = int64_t{h} * kCapacity * s.head_dim;
          for (int32_t d = 0; d < s.head_dim; ++d) {
            ASSERT_EQ(host.bits(k, at + key_place(s.type, s.head_dim, p, d)),
                      host.bits(host.k[i], host.key_at(h, p, d)))
                << "key " << p << ", head " << h << ", dimension " << d;
            ASSERT_EQ(host.bits(v, at + value_place(s.head_dim, p, d)),
                      host.bits(host.v[i], host.value_at(h, p, d)));
          }
          if (s.type == KvType::kF16) continue;
          const auto scale = as_size(int64_t{h} * kCapacity + p);
          ASSERT_EQ(bits_of(k_scale[scale]), bits_of(host.k_scale[i][scale]));
          ASSERT_EQ(bits_of(v_scale[scale]), bits_of(host.v_scale[i][scale]));
        }
      }
    }
  }
}

/// The relative rounding errors of a query element and of an attention weight.
struct Rounding {
  double query;
  double weight;
};

// Compares one query with double precision, within a bound. With u = 2^-24, the error of a score of
// d products is at most (d + 3) u + query times the sum of their magnitudes (times the multiplier);
// a cap adds 12 u times the cap. The relative error of a weight is twice that (its own and the
// total's), plus a few u for exp, the sums over n keys and the division.
void expect_attended(const Shape& s, const HostCaches& caches, const Weights& weights,
                     const BatchRow& row, const float* q, int32_t head, const float* found,
                     const Rounding& rounding) {
  const int32_t kv_head = head / (s.n_heads / s.n_kv_heads);
  const KeyRange visible = visible_keys(row.position, s.window);
  const double u = 0x1p-24;
  std::vector<double> scores;
  double top = s.sinks ? static_cast<double>(weights.sinks[as_size(head)]) : -INFINITY;
  double score_error = 0;
  for (int32_t p = visible.first; p <= visible.last; ++p) {
    double score = 0;
    double magnitude = 0;
    for (int32_t i = 0; i < s.head_dim; ++i) {
      const double product = static_cast<double>(q[i]) * caches.key(row.session, kv_head, p, i);
      score += product;
      magnitude += std::fabs(product);
    }
    score *= 0.2f;
    const double cap = static_cast<double>(s.cap);
    scores.push_back(s.cap > 0 ? cap * std::tanh(score / cap) : score);
    top = std::max(top, scores.back());
    score_error = std::max(score_error, magnitude * 0.2f * ((s.head_dim + 3) * u + rounding.query));
  }
  score_error += 12 * u * static_cast<double>(s.cap);
  double total = s.sinks ? std::exp(static_cast<double>(weights.sinks[as_size(head)]) - top) : 0;
  for (double& w : scores) {
    w = std::exp(w - top);
    total += w;
  }
  const double n = static_cast<double>(scores.size());
  const double relative = 2 * score_error + 2 * rounding.weight + (2 * n + 40) * u;
  double largest = 0;  // difference, relative to its bound
  for (int32_t i = 0; i < s.head_dim; ++i) {
    double value = 0;
    double magnitude = 0;
    for (int32_t p = visible.first; p <= visible.last; ++p) {
      const double product =
          scores[as_size(p - visible.first)] * caches.value(row.session, kv_head, p, i) / total;
      value += product;
      magnitude += std::fabs(product);
    }
    const double difference = std::fabs(static_cast<double>(found[i]) - value);
    const double bound = relative * magnitude + 1e-30;
    largest = std::max(largest, difference / bound);
    ASSERT_LE(difference, bound) << "session " << row.session << ", position " << row.position
                                 << ", head " << head << ", dimension " << i << ": found "
                                 << found[i] << ", expected " << value;
  }
  record_largest("share_of_bound", largest);
}

struct Problem {
  Shape shape;
  Weights weights;
  HostCaches host;
  DeviceCaches device;
  OnDevice<float> table, q_norm, k_norm, sinks;
  OpenedDevice cpu{"scalar", 1};

  bool merge_apart = false;
  float q_scale = 1;  // factors of the inputs
  float v_scale = 1;

  explicit Problem(const Shape& s)
      : shape(s),
        weights(s),
        host(s),
        device(s),
        table(weights.table),
        q_norm(weights.q_norm),
        k_norm(weights.k_norm),
        sinks(weights.sinks) {}

  /// Runs one call on both devices and compares; returns the GPU's output. With `max_splits` >= 0,
  /// attend_split() with at most that many parts replaces attend(); with 0, keys and values are
  /// only cached.
  std::vector<float> run(const Call& call, const Rounding& rounding, int32_t max_position,
                         int32_t max_splits = -1) {
    Inputs in(shape, call);
    for (float& x : in.q) x *= q_scale;
    for (float& x : in.v) x *= v_scale;
    AttentionOp op = op_of(shape);
    op.n_rows = static_cast<int32_t>(in.rows.size());
    const OnDevice<BatchRow> rows(in.rows);
    const OnDevice<float> q(in.q), k(in.k), v(in.v), out(in.q.size());
    const OnDevice<float> partial(
        as_size(attention_partial_floats(op.n_rows, shape.n_heads, shape.head_dim)));
    DeviceAttentionOp on_device;
    on_device.op = op;
    on_device.op.rows = rows;
    on_device.op.q = q;
    on_device.op.k = k;
    on_device.op.v = v;
    on_device.op.out = out;
    on_device.op.caches = device.views;
    on_device.op.rope_table = table;
    on_device.op.q_norm.weight = q_norm;
    on_device.op.k_norm.weight = k_norm;
    on_device.op.sinks = shape.sinks ? sinks.get() : nullptr;
    on_device.partial = partial;
    const auto n_arrived = as_size(attention_arrived_ints(op.n_rows, shape.n_heads));
    const OnDevice<int32_t> arrived(std::vector<int32_t>(n_arrived, 0));
    on_device.arrived = merge_apart ? nullptr : arrived.get();
    on_device.max_rows_of_a_session = in.longest;
    on_device.max_position = std::max(max_position, in.last);
    if (max_splits < 0) {
      EXPECT_EQ(attend(nullptr, on_device), cudaSuccess);
    } else {
      EXPECT_EQ(prepare_attention(nullptr, on_device.op), cudaSuccess);
    }
    if (max_splits > 0) {
      EXPECT_EQ(attend_split(nullptr, on_device, max_splits, false), cudaSuccess);
    }
    run_host(op, in);
    if (in.longest > 1) expect_prepared(q.values(), in.q);  // decode leaves q as it is
    expect_same_cache(host, device, call);
    if (max_splits == 0) return {};
    EXPECT_EQ(arrived.values(), std::vector<int32_t>(n_arrived, 0));
    const std::vector<float> found = out.values();
    for (size_t r = 0; r < in.rows.size(); ++r) {
      for (int32_t h = 0; h < shape.n_heads; ++h) {
        const auto at = (r * as_size(shape.n_heads) + as_size(h)) * as_size(shape.head_dim);
        expect_attended(shape, host, weights, in.rows[r], in.q.data() + at, h, found.data() + at,
                        rounding);
        if (testing::Test::HasFatalFailure()) return found;
      }
    }
    return found;
  }

 private:
  static void expect_prepared(const std::vector<float>& found, const std::vector<float>& expected) {
    EXPECT_EQ(first_other(found, expected), -1) << "q after norm and rotation";
  }

  void run_host(AttentionOp op, Inputs& in) {
    std::vector<float> out(in.q.size());
    op.rows = in.rows.data();
    op.q = in.q.data();
    op.k = in.k.data();
    op.v = in.v.data();
    op.out = out.data();
    op.caches = host.views.data();
    op.rope_table = weights.table.data();
    op.q_norm.weight = weights.q_norm.data();
    op.k_norm.weight = weights.k_norm.data();
    op.sinks = shape.sinks ? weights.sinks.data() : nullptr;
    StreamShape stream_shape;
    stream_shape.max_rows = op.n_rows;
    stream_shape.d_model = stream_shape.max_d_in = op.n_heads * op.head_dim;
    Result<Stream*> stream = cpu.device->open_stream(stream_shape);
    ASSERT_TRUE(stream.ok()) << stream.status().text();
    cpu.device->attention(*stream.value(), op);
    EXPECT_TRUE(cpu.device->sync(*stream.value()).ok());
    cpu.device->close_stream(stream.value());
  }
};

constexpr Rounding kExact{0, 0};
constexpr Rounding kHalves{0x1p-21, 0x1p-11};

// A prompt, then single rows of both sessions, then a chunk after the cached positions.
TEST(CudaAttention, PromptsAndDecodedRows) {
  for (const Shape& s : kShapes) {
    SCOPED_TRACE(s.name);
    Problem problem(s);
    problem.run({{0, 0, 34}, {1, 0, 3}}, kHalves, 0);
    problem.run({{0, 34, 1}, {1, 3, 1}}, kExact, 0);
    problem.run({{1, 4, 1}}, kExact, 0);
    problem.run({{1, 5, 1}, {0, 35, 9}}, kHalves, 0);
    if (HasFailure()) return;
  }
}

// Several blocks of queries, several steps of keys, and two sessions in one block.
TEST(CudaAttention, LongPrompts) {
  const Shape shapes[] = {
      {"f16", 2, 1, 32, 0, RopeKind::kHalf, 32},
      {"window", 2, 2, 64, 90, RopeKind::kHalf, 32},
      {"int8", 3, 1, 32, 130, RopeKind::kHalf, 32, QkNorm::kNone, true, KvType::kInt8},
  };
  for (const Shape& s : shapes) {
    SCOPED_TRACE(s.name);
    Problem problem(s);
    problem.run({{0, 0, 200}, {1, 0, 40}}, kHalves, 0);
    problem.run({{1, 40, 2}, {0, 200, 20}}, kHalves, 0);
    if (HasFailure()) return;
  }
}

// Keys split into few and into many parts.
TEST(CudaAttention, PartsOfSeveralBlocks) {
  for (const Shape& s : {kShapes[2], kShapes[3], kShapes[10]}) {
    Problem problem(s);
    problem.run({{0, 0, 290}}, kExact, 0, 0);
    for (int32_t i = 0; i < 6; ++i) {
      const int32_t parts = i < 5 ? i + 1 : kMaxSplits;
      SCOPED_TRACE(testing::Message() << s.name << ", " << parts << " parts");
      problem.run({{0, 290 + i, 1}}, kExact, 0, parts);
    }
    if (HasFailure()) return;
  }
}

// The launches with the most shared memory: norms over rows that a block just holds.
TEST(CudaAttention, WholeRowsInSharedMemory) {
  const auto whole = [](int32_t n_heads, int32_t n_kv_heads) {
    Shape s{"whole rows", n_heads, n_kv_heads, 128, 0, RopeKind::kHalf, 16};
    s.qk_norm = QkNorm::kWhole;
    return s;
  };
  Problem decoded(whole(96, 12));
  decoded.run({{0, 0, 1}}, kExact, 0);
  Problem prompt(whole(160, 32));
  prompt.run({{0, 0, 2}}, kHalves, 0);
}

// Very small and very large queries and values.
TEST(CudaAttention, Extremes) {
  for (const KvType type : {KvType::kF16, KvType::kInt8}) {
    Shape s{"extreme", 2, 1, 32, 0, RopeKind::kNone, 0};
    s.type = type;
    for (const float scale : {1e-6f, 1.0f, 3e3f}) {
      SCOPED_TRACE(testing::Message() << "scale " << scale);
      Problem problem(s);
      problem.q_scale = scale;
      problem.v_scale = scale;
      problem.run({{0, 0, 70}}, kHalves, 0);
      problem.run({{0, 70, 1}}, kExact, 0);
    }
  }
}

// The bits of a decoded row do not depend on the other rows of the call.
TEST(CudaAttention, DecodeDoesNotDependOnTheOtherRows) {
  for (const Shape& s : {kShapes[2], kShapes[10]}) {
    SCOPED_TRACE(s.name);
    Problem alone(s);
    Problem together(s);
    for (Problem* p : {&alone, &together}) p->run({{0, 0, 70}}, kHalves, 0);
    alone.merge_apart = true;
    const std::vector<float> a = alone.run({{0, 70, 1}}, kExact, 0);
    std::vector<float> b = together.run({{1, 0, 1}, {0, 70, 1}}, kExact, 319);
    b.erase(b.begin(), b.begin() + static_cast<int64_t>(a.size()));
    EXPECT_SAME_BITS(b, a);
  }
}

}  // namespace
}  // namespace moe::cuda
