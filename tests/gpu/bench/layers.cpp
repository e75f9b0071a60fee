// SPDX-License-Identifier: MIT
// Times the operations around the products of a layer: norms and codes, routers, sums, attention.
// Shapes are those of OLMoE-1B-7B and Maple-20B-A1B.

#include <random>

#include "kernels/kinds.h"
#include "kernels/rope.h"
#include "tests/gpu/bench/bench.h"
#include "tests/gpu/bench/matrices.h"

namespace moe::cuda {
namespace {

constexpr int kCalls = 32;  // in a graph

struct LayerShape {
  const char* model;
  int32_t d;
  int32_t experts, k;
  RouterWeights weights;
  int32_t heads, kv_heads, head_dim, window;
  ActPrecision act;
};

// The bytes of n floats or int32s.
size_t floats(int64_t n) { return static_cast<size_t>(n) * sizeof(float); }

/// Norm and quantisation of n rows.
void prepare(Bench& bench, const char* name, const LayerShape& l, int32_t n) {
  const Inputs in(n, l.d);
  const Buffer weight = random_normals(static_cast<size_t>(l.d));
  PrepareOp op;
  op.rows.n = n;
  op.d = l.d;
  op.x = in.in.x;
  op.ld_x = l.d;
  op.norm.one = {NormKind::kRms, 1e-5f, weight.as<float>(), nullptr};
  codes_of(op, l.act) = in.in.a8;
  const Times t = bench.time(kCalls, [&](cudaStream_t s, int) { return prepare_rows(s, op); });
  bench.report_cached(name, t);
}

/// Device arrays of a routing of n tokens, and of its pairs.
struct RoutingBuffers {
  RoutingBuffers(const LayerShape& l, int32_t n)
      : slots(static_cast<size_t>(n) * static_cast<size_t>(l.k)),
        expert(slots * 4),
        weight(slots * 4),
        kept(slots),
        count(static_cast<size_t>(n) * 4),
        prob(slots * 4),
        scratch_floats(floats(int64_t{2} * n * l.experts)),
        scratch_ints(floats(int64_t{n} * l.experts)),
        fault(4),
        lists(floats(4 + 2 * int64_t{l.experts}) + 3 * slots * 4),
        group_scratch(floats(group_pairs_scratch(n, l.k, l.experts))) {
    routing = {n,
               l.k,
               expert.as<int32_t>(),
               weight.as<float>(),
               kept.as<uint8_t>(),
               count.as<int32_t>(),
               nullptr};
    auto* at = lists.as<int32_t>();
    const auto take = [&](size_t n_ints) {
      int32_t* taken = at;
      at += n_ints;
      return taken;
    };
    const auto experts = static_cast<size_t>(l.experts);
    pairs.n_pairs = take(1);
    pairs.n_groups = take(1);
    pairs.group = take(experts);
    pairs.begin = take(experts + 1);
    pairs.token = take(slots);
    pairs.expert = take(slots);
    pairs.place = take(slots);
  }
  size_t slots;
  Buffer expert, weight, kept, count, prob, scratch_floats, scratch_ints, fault, lists,
      group_scratch;
  Routing routing;
  PairLists pairs;
};

DeviceRouteOp route_of(const LayerShape& l, const RoutingBuffers& to, const Buffer& scores) {
  DeviceRouteOp op;
  op.config.kind = RouterKind::kSoftmax;
  op.config.weights = l.weights;
  op.config.k = l.k;
  op.scores = scores.as<float>();
  op.n_experts = l.experts;
  op.out = to.routing;
  op.prob = to.prob.as<float>();
  op.floats = to.scratch_floats.as<float>();
  op.ints = to.scratch_ints.as<int32_t>();
  op.fault = to.fault.as<int32_t>();
  return op;
}

/// The scores of a router: a product of floats.
void scores(Bench& bench, const char* name, const LayerShape& l, int32_t n) {
  const Product p(kind_of(FormatId::kBf16), n, l.experts, l.d, bench.rotation());
  const Times t =
      bench.time(p.calls(64), [&](cudaStream_t s, int i) { return matmul(s, p.op(i)); });
  bench.report(name, t, static_cast<double>(p.matrices.bytes_of_one()), p.operations);
}

/// The choice of experts, and the list of pairs sorted by expert.
void route(Bench& bench, const char* name, const LayerShape& l, int32_t n) {
  const RoutingBuffers to(l, n);
  const Buffer z = random_normals(static_cast<size_t>(n) * static_cast<size_t>(l.experts));
  const DeviceRouteOp op = route_of(l, to, z);
  const Times t = bench.time(kCalls, [&](cudaStream_t s, int) {
    return route_and_group(s, op, to.pairs, to.group_scratch.as<int32_t>());
  });
  bench.report_cached(name, t);
}

/// The sum over the experts of each token.
void sum(Bench& bench, const char* name, const LayerShape& l, int32_t n) {
  const RoutingBuffers to(l, n);
  const Buffer z = random_normals(static_cast<size_t>(n) * static_cast<size_t>(l.experts));
  check(route_and_group(nullptr, route_of(l, to, z), to.pairs, to.group_scratch.as<int32_t>()),
        "routing");
  check(cudaDeviceSynchronize(), "routing");
  const Buffer outputs = random_normals(to.slots * static_cast<size_t>(l.d));
  const Buffer y(floats(int64_t{n} * l.d));
  CombineOp op;
  op.routing = to.routing;
  op.place = to.pairs.place;
  op.outputs = outputs.as<float>();
  op.d = l.d;
  op.y = y.as<float>();
  op.accumulate = true;
  const Times t = bench.time(kCalls, [&](cudaStream_t s, int) { return combine(s, op); });
  bench.report_cached(name, t);
}

/// Random halves between 0.5 and 1, of either sign.
Buffer random_halves(size_t n) {
  std::mt19937 rng(11);
  std::vector<uint16_t> values(n);
  for (uint16_t& v : values) v = static_cast<uint16_t>((rng() & 0x83ff) | 0x3800);
  return Buffer(values);
}

/// Attention of `rows` rows for each of `sessions`, behind `before` cached positions.
class Attention {
 public:
  Attention(const Bench& bench, const LayerShape& l, int32_t sessions, int32_t rows, int32_t before)
      : shape_(l),
        n_(sessions * rows),
        rows_(rows),
        before_(before),
        capacity_((before + rows + kKeyBlock - 1) / kKeyBlock * kKeyBlock),
        cache_elements_(static_cast<size_t>(l.kv_heads) * static_cast<size_t>(l.head_dim) *
                        static_cast<size_t>(capacity_)),
        n_caches_(static_cast<size_t>(sessions) *
                  (1 + bench.rotation() / (4 * cache_elements_ * static_cast<size_t>(sessions)))),
        keys_(random_halves(n_caches_ * cache_elements_)),
        values_(random_halves(n_caches_ * cache_elements_)),
        q_(random_normals(count(l.heads))),
        k_(random_normals(count(l.kv_heads))),
        v_(random_normals(count(l.kv_heads))),
        out_(count(l.heads) * 4),
        partial_(floats(attention_partial_floats(n_, l.heads, l.head_dim))),
        arrived_(floats(attention_arrived_ints(n_, l.heads))),
        rope_(rope(l, capacity_)),
        batch_(batch(sessions)),
        views_(views()) {}

  int calls() const {
    return static_cast<int>(std::min<size_t>(32, n_caches_ / (n_caches_of_a_call())));
  }
  cudaError_t run(cudaStream_t s, int i) const {
    DeviceAttentionOp on_device;
    AttentionOp& op = on_device.op;
    op.n_rows = n_;
    op.rows = batch_.as<BatchRow>();
    op.q = q_.as<float>();
    op.k = k_.as<float>();
    op.v = v_.as<float>();
    op.out = out_.as<float>();
    op.caches = views_.as<KvCacheView>() + static_cast<size_t>(i) * n_caches_of_a_call();
    op.n_heads = shape_.heads;
    op.n_kv_heads = shape_.kv_heads;
    op.head_dim = shape_.head_dim;
    op.window = shape_.window;
    op.multiplier = 0.088f;
    op.rope = RopeKind::kHalf;
    op.rope_dims = shape_.head_dim;
    op.rope_table = rope_.as<float>();
    on_device.partial = partial_.as<float>();
    on_device.arrived = arrived_.as<int32_t>();
    on_device.max_rows_of_a_session = rows_;
    on_device.max_position = before_ + rows_ - 1;
    return attend(s, on_device);
  }
  /// The keys and values that all sessions see, once.
  double bytes() const {
    const int32_t first = shape_.window > 0 ? std::max(0, before_ - shape_.window + 1) : 0;
    return 4.0 * (before_ + rows_ - first) * shape_.kv_heads * shape_.head_dim * (n_ / rows_);
  }
  double operations() const {
    double pairs = 0;
    for (int32_t r = 0; r < rows_; ++r) {
      const int32_t seen = before_ + r + 1;
      pairs += shape_.window > 0 ? std::min(seen, shape_.window) : seen;
    }
    return 4.0 * pairs * shape_.heads * shape_.head_dim * (n_ / rows_);
  }

 private:
  size_t count(int32_t heads) const {
    return static_cast<size_t>(n_) * static_cast<size_t>(heads) *
           static_cast<size_t>(shape_.head_dim);
  }
  size_t n_caches_of_a_call() const { return static_cast<size_t>(n_ / rows_); }
  static Buffer rope(const LayerShape& l, int32_t capacity) {
    std::vector<float> table(static_cast<size_t>(capacity) * static_cast<size_t>(l.head_dim));
    RopeConfig config;
    config.kind = RopeKind::kHalf;
    config.dims = l.head_dim;
    const Status status = build_rope_table(config, capacity, table.data());
    if (!status.ok()) throw std::runtime_error(status.text());
    return Buffer(table);
  }
  Buffer batch(int32_t sessions) const {
    std::vector<BatchRow> rows;
    for (int32_t i = 0; i < sessions; ++i) {
      for (int32_t r = 0; r < rows_; ++r) rows.push_back({i, before_ + r, 0});
    }
    return Buffer(rows);
  }
  Buffer views() const {
    std::vector<KvCacheView> views;
    for (size_t i = 0; i < n_caches_; ++i) {
      views.push_back({KvType::kF16,
                       capacity_,
                       {keys_.as<uint16_t>() + i * cache_elements_,
                        values_.as<uint16_t>() + i * cache_elements_, nullptr, nullptr}});
    }
    return Buffer(views);
  }

  LayerShape shape_;
  int32_t n_, rows_, before_, capacity_;
  size_t cache_elements_, n_caches_;
  Buffer keys_, values_, q_, k_, v_, out_, partial_, arrived_, rope_, batch_, views_;
};

void attention(Bench& bench, const LayerShape& l, int32_t sessions, int32_t rows, int32_t before) {
  std::string name = std::string("attention, ") + l.model;
  if (l.window > 0) name += ", window " + std::to_string(l.window);
  name += ", " + std::to_string(sessions) + (sessions == 1 ? " session, " : " sessions, ") +
          std::to_string(rows) + (rows == 1 ? " row behind " : " rows behind ") +
          std::to_string(before);
  bench.attempt(name, [&](const char* text) {
    const Attention a(bench, l, sessions, rows, before);
    const Times t = bench.time(a.calls(), [&](cudaStream_t s, int i) { return a.run(s, i); });
    bench.report(text, t, a.bytes(), a.operations());
  });
}

void measure_attention(Bench& bench, LayerShape l) {
  for (const int32_t before : {512, 4096}) attention(bench, l, 1, 1, bench.rows(before));
  attention(bench, l, 32, 1, bench.rows(512));
  attention(bench, l, 1, bench.rows(512), 0);
  attention(bench, l, 1, bench.rows(512), bench.rows(3584));
}

}  // namespace

void measure_layers(Bench& bench) {
  const LayerShape olmoe = {"OLMoE", bench.width(2048), 64, 8, RouterWeights::kRaw, 16, 16, 128,
                            0,       ActPrecision::kA8};
  LayerShape maple = {
      "Maple", bench.width(2048),     256, 8, RouterWeights::kRenormalised, 16, 4, 128,
      0,       ActPrecision::kA8Block};
  const struct {
    const char* name;
    void (*measure)(Bench&, const char*, const LayerShape&, int32_t);
  } parts[] = {{"prepare", prepare}, {"router scores", scores}, {"route", route}, {"combine", sum}};
  for (const LayerShape& l : {olmoe, maple}) {
    for (const auto& part : parts) {
      for (const int32_t n : {1, 32, 512}) {
        const std::string rows = std::to_string(bench.rows(n)) + (n == 1 ? " row" : " rows");
        bench.attempt(std::string(part.name) + ", " + l.model + ", " + rows,
                      [&](const char* name) { part.measure(bench, name, l, bench.rows(n)); });
      }
    }
    measure_attention(bench, l);
  }
  maple.window = 513;
  measure_attention(bench, maple);
}

}  // namespace moe::cuda
