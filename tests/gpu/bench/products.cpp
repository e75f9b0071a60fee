// SPDX-License-Identifier: MIT
// Dense products, and the networks of experts.

#include <numeric>
#include <random>

#include "tests/gpu/bench/bench.h"
#include "tests/gpu/bench/matrices.h"

namespace moe::cuda {
namespace {

void dense(Bench& bench, const char* name, const MatrixKind& kind, int32_t n, int32_t rows,
           int32_t cols) {
  const Product p(kind, n, rows, cols, bench.rotation());
  const Times t =
      bench.time(p.calls(64), [&](cudaStream_t s, int i) { return matmul(s, p.op(i)); });
  bench.report(name, t, static_cast<double>(p.matrices.bytes_of_one()), p.operations);
}

/// A layer of experts: how many there are, how many a token uses, and their widths.
struct Layer {
  const char* model;
  int32_t experts;
  int32_t k;
  int32_t d;
  int32_t f;
};

/// The pairs of a token and an expert, sorted by expert and then by token, as group_pairs() would
/// list them; each token uses k experts at random.
struct Pairs {
  Pairs(int32_t tokens, int32_t experts, int32_t k) {
    std::mt19937 rng(7);
    std::vector<std::vector<int32_t>> of(static_cast<size_t>(experts));
    std::vector<int32_t> order(of.size());
    std::iota(order.begin(), order.end(), 0);
    for (int32_t t = 0; t < tokens; ++t) {
      std::shuffle(order.begin(), order.end(), rng);
      for (int32_t j = 0; j < k; ++j) {
        of[static_cast<size_t>(order[static_cast<size_t>(j)])].push_back(t);
      }
    }
    for (size_t e = 0; e < of.size(); ++e) {
      if (of[e].empty()) continue;
      group.push_back(static_cast<int32_t>(e));
      begin.push_back(static_cast<int32_t>(token.size()));
      token.insert(token.end(), of[e].begin(), of[e].end());
    }
    begin.push_back(static_cast<int32_t>(token.size()));
  }
  std::vector<int32_t> group, begin, token;
};

/// The networks that some tokens use: gate and up, quantisation, down.
class Experts {
 public:
  Experts(const Bench& bench, const MatrixKind& kind, const Layer& l, int32_t tokens)
      : kind_(kind),
        layer_(l),
        pairs_(tokens, l.experts, l.k),
        least_(static_cast<size_t>(l.experts)),
        gate_(kind, l.f, l.d, bench.rotation() / 3, least_),
        up_(kind, l.f, l.d, bench.rotation() / 3, least_),
        down_(kind, l.d, l.f, bench.rotation() / 3, least_),
        in_(tokens, l.d),
        mid_(n_pairs(), l.f),
        hidden_(static_cast<size_t>(n_pairs()) * static_cast<size_t>(l.f) * 4),
        y_(static_cast<size_t>(n_pairs()) * static_cast<size_t>(l.d) * 4),
        group_(pairs_.group),
        begin_(pairs_.begin),
        token_(pairs_.token),
        n_groups_(std::vector<int32_t>{n_groups()}),
        gates_(table(gate_)),
        ups_(table(up_)),
        downs_(table(down_)) {}

  int32_t n_pairs() const { return static_cast<int32_t>(pairs_.token.size()); }
  int32_t n_groups() const { return static_cast<int32_t>(pairs_.group.size()); }
  size_t sets() const { return gate_.size() / least_; }
  double bytes() const {
    const size_t each = gate_.bytes_of_one() + up_.bytes_of_one() + down_.bytes_of_one();
    return static_cast<double>(n_groups()) * static_cast<double>(each);
  }
  double operations() const { return 6.0 * n_pairs() * static_cast<double>(layer_.d) * layer_.f; }

  cudaError_t run(cudaStream_t s, int i) const {
    const size_t first = static_cast<size_t>(i) % sets() * least_;
    GatedOp g;
    g.rows = rows();
    g.rows.input_row = token_.as<int32_t>();
    g.in = in_.in;
    g.gate.weight.matrix = gate_.at(0);
    g.gate.table = gates_.as<Weight>() + first;
    g.up.weight.matrix = up_.at(0);
    g.up.table = ups_.as<Weight>() + first;
    g.hidden = hidden_.as<float>();
    g.ld_hidden = layer_.f;
    cudaError_t error = gated_matmul(s, g);
    if (error != cudaSuccess) return error;
    PrepareOp p;
    p.rows.n = n_pairs();
    p.d = layer_.f;
    p.x = hidden_.as<float>();
    p.ld_x = layer_.f;
    codes_of(p, kind_.act) = mid_.in.a8;
    error = prepare_rows(s, p);
    if (error != cudaSuccess) return error;
    MatmulOp m;
    m.rows = rows();
    m.in = mid_.in;
    m.n_outs = 1;
    m.outs[0].weight.matrix = down_.at(0);
    m.outs[0].table = downs_.as<Weight>() + first;
    m.outs[0].y = y_.as<float>();
    m.outs[0].ld_y = layer_.d;
    return matmul(s, m);
  }

 private:
  // As in a step: launches cover the largest possible number of groups.
  RowGroups rows() const {
    RowGroups rows;
    rows.rows.n = n_pairs();
    rows.max_groups = std::min(layer_.experts, n_pairs());
    rows.n_groups = n_groups_.as<int32_t>();
    rows.group = group_.as<int32_t>();
    rows.begin = begin_.as<int32_t>();
    return rows;
  }
  Buffer table(const Matrices& m) const {
    std::vector<Weight> w;
    for (size_t i = 0; i < sets() * least_; ++i) w.push_back({m.at(i), nullptr});
    return Buffer(w);
  }

  MatrixKind kind_;
  Layer layer_;
  Pairs pairs_;
  size_t least_;
  Matrices gate_, up_, down_;
  Inputs in_, mid_;
  Buffer hidden_, y_, group_, begin_, token_, n_groups_, gates_, ups_, downs_;
};

void experts(Bench& bench, const char* name, const MatrixKind& kind, const Layer& l,
             int32_t tokens) {
  const Experts e(bench, kind, l, tokens);
  const int calls = static_cast<int>(std::min<size_t>(e.sets(), 64));
  const Times t = bench.time(calls, [&](cudaStream_t s, int i) { return e.run(s, i); });
  bench.report(name, t, e.bytes(), e.operations());
}

// One token uses k experts; the others need not be made.
Layer layer_of(const Layer& l, int32_t tokens) {
  Layer used = l;
  if (tokens == 1) used.experts = l.k;
  return used;
}

void measure_experts(Bench& bench, const MatrixKind& kind, const Layer& l) {
  for (const int32_t tokens : {1, 32}) {
    // So many experts take seconds to make in a format that they are not stored in.
    if (tokens > 1 && l.experts > 64 && kind.format != FormatId::kTernary2) continue;
    const std::string shape = std::to_string(l.d) + " x " + std::to_string(l.f);
    bench.attempt(
        std::string(kind.name) + " experts, " + l.model + ", " + std::to_string(l.k) + " of " +
            shape + ", " + std::to_string(tokens) + (tokens == 1 ? " token" : " tokens"),
        [&](const char* name) { experts(bench, name, kind, layer_of(l, tokens), tokens); });
  }
}

}  // namespace

void measure_products(Bench& bench) {
  MatrixKind maple = kind_of(FormatId::kTernary2);  // as Maple is stored
  maple.name = "ternary2, a8_block, a scale per row";
  maple.scale = ScaleKind::kRow;
  maple.act = ActPrecision::kA8Block;
  const Layer layers[] = {
      {"OLMoE", 64, 8, bench.width(2048), bench.width(1024)},
      {"Maple", 256, 8, bench.width(2048), bench.width(512)},
  };
  const int32_t wide = bench.width(4096);
  for (const MatrixKind& kind :
       {kind_of(FormatId::kTernary2), maple, kind_of(FormatId::kInt8),
        kind_of(FormatId::kInt8Group), kind_of(FormatId::kInt4), kind_of(FormatId::kInt4Min),
        kind_of(FormatId::kInt4K), kind_of(FormatId::kInt6K), kind_of(FormatId::kNl4)}) {
    for (const Layer& l : layers) measure_experts(bench, kind, l);
    for (const int32_t n : {1, 8, 32, 512, 4096}) {
      bench.attempt(std::string(kind.name) + " linear " + std::to_string(wide) + " x " +
                        std::to_string(wide) + ", " + std::to_string(bench.rows(n)) + " rows",
                    [&](const char* name) { dense(bench, name, kind, bench.rows(n), wide, wide); });
    }
  }
}

}  // namespace moe::cuda
