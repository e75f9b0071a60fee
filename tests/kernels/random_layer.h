// SPDX-License-Identifier: MIT
#pragma once
// MoE layers with random weights in every format, for tests that compare runs.

#include <memory>
#include <string>
#include <vector>

#include "tests/kernels/random_floats.h"
#include "tests/support/ffn_layer.h"
#include "tests/support/quantise_whole.h"

namespace moe {

struct LayerKind {
  std::string name;
  int32_t d_model = 48;
  int32_t d_ff = 40;
  int32_t n_experts = 6;
  int32_t n_subheads = 1;
  bool head = false;
  bool merge = false;
  int32_t n_sublayers = 0;
  bool gated = true;
  bool biases = false;
  bool sub_norm = false;
  bool shared = false;
  bool shared_gate = false;
  FormatId format = FormatId::kF32;  // of the experts
  ActPrecision act_precision = ActPrecision::kF32;
  FormatId router_format = FormatId::kF32;
  ActivationConfig act;
  RouterConfig router;
};

class RandomLayer {
 public:
  explicit RandomLayer(const LayerKind& kind) : kind_(kind) {
    FfnOp& op = layer.op;
    op.d_model = kind.d_model;
    op.n_experts = kind.n_experts;
    op.n_subheads = kind.n_subheads;
    op.act = kind.act;
    op.router = kind.router;
    op.norm = norm(NormKind::kRms, kind.d_model);
    layer.n_sublayers = kind.n_sublayers;
    const int32_t d_in = kind.d_model / kind.n_subheads;
    if (kind.head) {
      op.head = float_matrix(FormatId::kF32, kind.d_model, kind.d_model);
      op.head_bias = bias(kind.d_model);
    }
    if (kind.merge) {
      op.merge = float_matrix(FormatId::kBf16, kind.d_model, kind.d_model);
      op.merge_bias = bias(kind.d_model);
    }
    make_router(d_in);
    for (int32_t e = 0; e < kind.n_experts; ++e) {
      std::vector<Ffn>& stack = layer.experts.emplace_back();
      for (int32_t l = 0; l < std::max(1, kind.n_sublayers); ++l) stack.push_back(ffn(d_in));
    }
    if (kind.shared) {
      layer.shared = ffn(kind.d_model);
      op.shared = &layer.shared;
    }
    if (kind.shared_gate) op.shared_gate = float_matrix(FormatId::kF32, 1, kind.d_model);
  }

  TestLayer layer;
  static constexpr int32_t kVocab = 50;

 private:
  std::vector<float> values(int64_t n, float scale) {
    return random_floats(static_cast<size_t>(n), ++seed_, scale);
  }
  const float* bias(int32_t n) { return kind_.biases ? layer.keep(values(n, 0.3f)) : nullptr; }
  Norm norm(NormKind norm_kind, int32_t n) {
    return {norm_kind, 1e-5f, layer.keep(values(n, 1)),
            norm_kind == NormKind::kLayer ? layer.keep(values(n, 0.2f)) : nullptr};
  }
  Matrix float_matrix(FormatId format, int32_t rows, int32_t cols) {
    const float scale = 1.5f / static_cast<float>(cols);
    return layer.keep({format, values(int64_t{rows} * cols, 4 * scale), rows, cols});
  }

  Matrix matrix(int32_t rows, int32_t cols) {
    if (!format_info(kind_.format).integer) return float_matrix(kind_.format, rows, cols);
    const std::vector<float> w = values(int64_t{rows} * cols, 0.2f);
    if (format_info(kind_.format).group != 0) {
      Matrix m = layer.keep({kind_.format, w, rows, cols});
      m.act = kind_.act_precision;
      return m;
    }
    std::vector<int8_t> codes(w.size());
    std::vector<float> scales(static_cast<size_t>(rows));
    ScaleKind scale_kind = ScaleKind::kRow;
    if (kind_.format == FormatId::kInt8) {
      (void)int8_rows(w.data(), rows, cols, codes.data(), scales.data());
    } else {
      scale_kind = ScaleKind::kTensor;
      scales.resize(1);
      (void)absmean_ternary(w.data(), rows, cols, codes.data(), scales.data());
    }
    return layer.keep(
        {kind_.format, codes, rows, cols, kind_.act_precision, scale_kind, std::move(scales)});
  }

  Ffn ffn(int32_t d_in) {
    Ffn f;
    if (kind_.gated) f.gate = matrix(kind_.d_ff, d_in);
    f.up = matrix(kind_.d_ff, d_in);
    if (kind_.gated) pairs_.push_back(alternate(&f.gate, &f.up));
    f.down = matrix(d_in, kind_.d_ff);
    if (kind_.gated) f.gate_bias = bias(kind_.d_ff);
    f.up_bias = bias(kind_.d_ff);
    f.down_bias = bias(d_in);
    if (kind_.sub_norm) f.sub_norm = norm(NormKind::kRms, kind_.d_ff);
    if (kind_.n_sublayers > 0) f.in_norm = norm(NormKind::kLayer, d_in);
    return f;
  }

  void make_router(int32_t d_in) {
    RouterWeightsView& w = layer.op.router_weights;
    const int32_t n = kind_.n_experts;
    const RouterInfo& info = router_info(kind_.router);
    if (info.scores == RouterScores::kCosine) {
      w.proj = float_matrix(kind_.router_format, 7, d_in);
      w.proj_bias = bias(7);
      w.embedding = float_matrix(kind_.router_format, n, 7);
      return;
    }
    if (info.scores == RouterScores::kTable) {
      for (int32_t i = 0; i < kVocab; ++i) table_.push_back(i * 7 % n);
      w.table = table_.data();
      return;
    }
    w.scores = float_matrix(kind_.router_format, n, d_in);
    if (info.bias) w.bias = bias(n);
    if (info.selection_bias) w.selection_bias = layer.keep(values(n, 0.2f));
  }

  LayerKind kind_;
  std::vector<int32_t> table_;
  std::vector<std::shared_ptr<uint8_t>> pairs_;
  unsigned seed_ = 100;
};

}  // namespace moe
