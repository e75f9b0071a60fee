// SPDX-License-Identifier: MIT
// Quantises and packs a single layer's weights into one device buffer.
#include <algorithm>

#include "kernels/router/table.h"
#include "quant/formats.h"
#include "quant/quantise.h"
#include "src/base/format.h"
#include "src/base/inline.h"
#include "src/run/layer_parts.h"

namespace moe {
namespace {

/// Places weights in one device buffer. Runs twice: first to add up sizes, then, with the buffer,
/// to pack and upload.
class Packer {
 public:
  Packer(Device& device, DeviceBuffer& buffer, const Allocator& allocator)
      : device_(device),
        buffer_(buffer),
        tiles_(allocator),
        codes_(allocator),
        scales_(allocator) {}

  Status start_packing() {
    if (!carver_.ok()) return out_of_memory("layer", ~0ULL);
    packing_ = true;
    MOE_ASSIGN(carver_, buffer_.alloc(device_, carver_.total()));
    return {};
  }

  /// w: (rows, cols) row-major; null leaves `out` empty.
  Status matrix(const char* name, const float* w, int32_t rows, int32_t cols, FormatId format,
                ActPrecision act, Matrix* out);
  /// A vector of n values; null gives null.
  template <class T>
  Status vector(const T* values, int32_t n, const T** out);
  /// A vector of finite floats.
  Status floats(const char* name, const float* values, int32_t n, const float** out);

 private:
  Status pack(const float* w, Matrix* m);
  Status scale_tensor(const float* w, const Matrix& m);
  Status codes_of(const float* w, const Matrix& m, int32_t row);

  Device& device_;
  DeviceBuffer& buffer_;
  Carver carver_;
  bool packing_ = false;
  Array<uint8_t> tiles_;
  Array<int8_t> codes_;  // (16, cols)
  Array<float> scales_;
  double absmean_ = 0;
};

Status Packer::scale_tensor(const float* w, const Matrix& m) {
  AbsMean mean;
  MOE_TRY(mean.add(w, int64_t{m.rows} * m.cols));
  MOE_ASSIGN(absmean_, mean.scale());
  scales_[0] = static_cast<float>(absmean_);
  return {};
}

// Quantises the 16 rows from `row` on, with row scales if the format has them.
Status Packer::codes_of(const float* w, const Matrix& m, int32_t row) {
  const int32_t n = std::min(kTileRows, m.rows - row);
  for (int32_t r = 0; r < n; ++r) {
    const float* values = w + int64_t{row + r} * m.cols;
    int8_t* codes = codes_.data() + int64_t{r} * m.cols;
    if (m.scale_kind == ScaleKind::kTensor) {
      ternary_codes(values, m.cols, absmean_, codes);
    } else {
      MOE_TRY(format_info(m.format).quantise_row(values, m.cols, codes,
                                                 &scales_[static_cast<size_t>(row + r)]));
    }
  }
  return {};
}

Status Packer::pack(const float* w, Matrix* m) {
  const WeightFormat& format = format_info(m->format);
  if (m->scale_kind == ScaleKind::kTensor) MOE_TRY(scale_tensor(w, *m));
  const bool codes = format.pack_codes != nullptr && format.quantise_tile == nullptr;
  if (codes) MOE_TRY(codes_.resize(size_t{kTileRows} * static_cast<size_t>(m->cols)));
  for (int32_t row = 0; row < m->rows; row += kTileRows) {
    const int n = std::min(kTileRows, m->rows - row);
    uint8_t* tile = tiles_.data() + row / kTileRows * m->tile_stride;
    if (format.quantise_tile != nullptr) {
      MOE_TRY(quantise_tile(format, w + int64_t{row} * m->cols, row, n, m->cols, nullptr, tile));
    } else if (codes) {
      MOE_TRY(codes_of(w, *m, row));
      format.pack_codes(codes_.data(), m->cols, n, m->cols, tile);
    } else {
      format.pack_values(w + int64_t{row} * m->cols, m->cols, n, m->cols, tile);
    }
  }
  m->tiles = tiles_.data();
  m->scales = scales_.empty() ? nullptr : scales_.data();
  MOE_TRY(check_matrix(*m));
  return validate_codes(*m);  // also finds values that the format cannot represent
}

Status Packer::matrix(const char* name, const float* w, int32_t rows, int32_t cols, FormatId format,
                      ActPrecision act, Matrix* out) {
  if (w == nullptr) return {};
  const WeightFormat& info = format_info(format);
  Matrix m;
  m.format = format;
  m.scale_kind = info.own_scales();
  m.group = info.group;
  m.act = act;
  m.rows = rows;
  m.cols = cols;
  m.tile_stride = static_cast<int64_t>(info.tile_bytes(cols));
  MOE_ASSIGN(const size_t bytes, matrix_bytes(format, rows, cols));
  const size_t n_scales = scale_count(format, m.scale_kind, m.group, rows, cols);
  uint8_t* tiles = nullptr;
  float* scales = nullptr;
  carver_.take(&tiles, static_cast<int64_t>(bytes));
  carver_.take(&scales, static_cast<int64_t>(n_scales));
  if (!packing_) return {};
  tiles_.clear();
  scales_.clear();
  MOE_TRY(tiles_.resize(bytes));
  MOE_TRY(scales_.resize(n_scales));
  for (float& s : scales_) s = 1;
  MOE_TRY(pack(w, &m).with_context("layer: %s", name));
  MOE_TRY(device_.upload(tiles, tiles_.data(), bytes));
  if (n_scales > 0) MOE_TRY(device_.upload(scales, scales_.data(), n_scales * sizeof(float)));
  m.tiles = tiles;
  m.scales = n_scales > 0 ? scales : nullptr;
  *out = m;
  return {};
}

template <class T>
Status Packer::vector(const T* values, int32_t n, const T** out) {
  if (values == nullptr) return {};
  T* copy = nullptr;
  carver_.take(&copy, n);
  if (!packing_) return {};
  MOE_TRY(device_.upload(copy, values, static_cast<size_t>(n) * sizeof(T)));
  *out = copy;
  return {};
}

Status Packer::floats(const char* name, const float* values, int32_t n, const float** out) {
  for (int32_t i = 0; values != nullptr && i < n; ++i) {
    if (!is_finite(values[i])) {
      return Status::error(MOE_ERR_NON_FINITE, "layer: %s[%d] is not a finite number", name, i);
    }
  }
  return vector(values, n, out);
}

Status pack_ffn(Packer& p, const LayerSpec& spec, const char* name, const ExpertWeights& e,
                int32_t d_in, int32_t d_ff, Ffn* out) {
  char text[48];
  const auto part = [&](const char* what) {
    format(text, sizeof text, "%s.%s", name, what);
    return static_cast<const char*>(text);
  };
  const FormatId f = spec.format;
  const ActPrecision a = spec.precision;
  MOE_TRY(p.matrix(part("gate"), e.gate, d_ff, d_in, f, a, &out->gate));
  MOE_TRY(p.matrix(part("up"), e.up, d_ff, d_in, f, a, &out->up));
  MOE_TRY(p.matrix(part("down"), e.down, d_in, d_ff, f, a, &out->down));
  MOE_TRY(p.floats(part("gate_bias"), e.gate_bias, d_ff, &out->gate_bias));
  MOE_TRY(p.floats(part("up_bias"), e.up_bias, d_ff, &out->up_bias));
  MOE_TRY(p.floats(part("down_bias"), e.down_bias, d_in, &out->down_bias));
  MOE_TRY(p.floats(part("sub_norm"), e.sub_norm, d_ff, &out->sub_norm.weight));
  if (e.sub_norm != nullptr) {
    out->sub_norm.kind = NormKind::kRms;
    out->sub_norm.eps = spec.norm_eps;
  }
  return {};
}

Status pack_router(Packer& p, const LayerSpec& spec, int32_t d_in, RouterWeightsView* out) {
  const FormatId f32 = FormatId::kF32;
  const ActPrecision act = ActPrecision::kF32;
  const RouterInfo& info = router_info(spec.router);
  const bool cosine = info.scores == RouterScores::kCosine;
  MOE_TRY(p.matrix("router_weight", spec.router_weight, spec.n_experts, cosine ? spec.d_e : d_in,
                   f32, act, cosine ? &out->embedding : &out->scores));
  MOE_TRY(p.matrix("router_proj", spec.router_proj, spec.d_e, d_in, f32, act, &out->proj));
  MOE_TRY(p.floats("router_proj_bias", spec.router_proj_bias, spec.d_e, &out->proj_bias));
  MOE_TRY(p.floats("router_bias", spec.router_bias, spec.n_experts,
                   spec.router.kind == RouterKind::kSigmoid ? &out->selection_bias : &out->bias));
  return p.vector(spec.router_table, spec.vocab_size, &out->table);
}

// Called once to measure and once to pack.
Status pack_all(Packer& p, const LayerSpec& spec, LayerParts* parts) {
  const int32_t d = spec.d_model;
  const int32_t d_in = d / spec.n_subheads;
  for (size_t e = 0; e < spec.experts.size(); ++e) {
    char name[32];
    format(name, sizeof name, "experts[%zu]", e);
    MOE_TRY(pack_ffn(p, spec, name, spec.experts[e], d_in, spec.d_ff, &parts->experts.ffns[e]));
  }
  if (spec.shared_d_ff > 0) {
    MOE_TRY(pack_ffn(p, spec, "shared", spec.shared, d, spec.shared_d_ff, &parts->shared));
  }
  FfnOp& op = parts->op;
  MOE_TRY(p.matrix("shared_gate", spec.shared_gate, 1, d, FormatId::kF32, ActPrecision::kF32,
                   &op.shared_gate));
  MOE_TRY(p.matrix("head", spec.head, d, d, spec.format, spec.precision, &op.head));
  MOE_TRY(p.matrix("merge", spec.merge, d, d, spec.format, spec.precision, &op.merge));
  MOE_TRY(p.floats("head_bias", spec.head_bias, d, &op.head_bias));
  MOE_TRY(p.floats("merge_bias", spec.merge_bias, d, &op.merge_bias));
  return pack_router(p, spec, d_in, &op.router_weights);
}

// A cosine router divides by the lengths of its embeddings, which never change.
Status measure_embeddings(LayerParts* parts) {
  RouterWeightsView& w = parts->op.router_weights;
  if (w.embedding.empty()) return {};
  MOE_TRY(parts->embedding_lengths.reserve(parts->device, static_cast<size_t>(w.embedding.rows)));
  return parts->embedding_lengths.measure(w.embedding, &w.embedding_length);
}

}  // namespace

Status pack_layer(const LayerSpec& spec, const Allocator& allocator, LayerParts* parts) {
  MOE_TRY(parts->experts.ffns.resize(spec.experts.size()));
  Packer packer(parts->device, parts->weights, allocator);
  MOE_TRY(pack_all(packer, spec, parts));
  MOE_TRY(packer.start_packing());
  MOE_TRY(pack_all(packer, spec, parts));
  FfnOp& op = parts->op;
  MOE_TRY(measure_embeddings(parts));
  op.d_model = spec.d_model;
  op.n_experts = spec.n_experts;
  op.n_subheads = spec.n_subheads;
  op.act = spec.act;
  op.router = spec.router;
  op.experts = &parts->experts;
  op.shared = spec.shared_d_ff > 0 ? &parts->shared : nullptr;
  return {};
}

}  // namespace moe
