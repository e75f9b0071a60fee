// SPDX-License-Identifier: MIT
// Configuration of gated delta rules, and the place of each of their matrices and convolutions in
// the tensors of a checkpoint.
#include "src/convert/arch/gated_delta.h"

#include "kernels/mixers/gated_delta.h"
#include "src/convert/mixer.h"

namespace moe {
namespace {

using Weights = GatedDeltaMixer;

// Layers with attention.
std::vector<bool> attention_layers(Decoder* d, const char* interval_key) {
  const size_t n_layers = d->layers().size();
  std::vector<bool> attend(n_layers);
  const auto interval = static_cast<size_t>(d->keys.integer(interval_key, 4, 1, kMaxLayers));
  for (size_t l = 0; l < n_layers; ++l) attend[l] = (l + 1) % interval == 0;
  const std::vector<JsonNode> types = d->keys.list("layer_types", n_layers);
  for (size_t l = 0; l < types.size(); ++l) {
    attend[l] = types[l].choice({"linear_attention", "full_attention"}) == 1;
  }
  return attend;
}

MixerConfig read_rule(Decoder* d, float eps, float beta_scale) {
  MixerConfig config = built_mixer("gated_delta");
  const auto size = [&](Weights::Param param, const char* key, int32_t most) {
    config.params[param] = static_cast<float>(d->keys.integer(key, 1, most));
  };
  size(Weights::kKeyHeads, "linear_num_key_heads", DeltaSizes::kMaxHeads);
  size(Weights::kValueHeads, "linear_num_value_heads", DeltaSizes::kMaxHeads);
  d->keys.check_divides("linear_num_key_heads", config.count(Weights::kKeyHeads),
                        "linear_num_value_heads", config.count(Weights::kValueHeads));
  size(Weights::kKeyDim, "linear_key_head_dim", DeltaSizes::kMaxDim);
  size(Weights::kValueDim, "linear_value_head_dim", DeltaSizes::kMaxDim);
  size(Weights::kLength, "linear_conv_kernel_dim", Convolution::kMaxTaps);
  config.params[Weights::kEps] = eps;
  config.params[Weights::kBetaScale] = beta_scale;
  const Status status = validate_mixer(config);
  if (!status.ok()) fail(status.code(), "config.json: %s", status.text());
  return config;
}

SourceGroups one_piece(int64_t n, int64_t at, int64_t stride) {
  SourceGroups out;
  out.pieces = {{static_cast<int32_t>(n), at}};
  out.stride = stride;
  return out;
}

/// Rows of q, k, v, z, b or a in one key head's part of a matrix.
struct Piece {
  int64_t first = 0;
  int64_t n = 0;
  int64_t all = 0;  // of all pieces
};

// Rows or columns of the value heads, one key head after the other, where the first of each key
// head stand before the second of each. `width`: of a head, in weights.
SourceGroups alternating(const DeltaSizes& s, int32_t n, int64_t width) {
  SourceGroups out;
  for (int32_t i = 0; i < s.value_heads / s.key_heads; ++i) {
    out.pieces.push_back({n, int64_t{i} * s.key_heads * width});
  }
  out.stride = width;
  return out;
}

Piece piece_of(int weight, const DeltaSizes& s) {
  const int64_t heads = s.value_heads / s.key_heads;
  const int64_t k = s.key_dim, v = heads * s.value_dim;
  switch (weight) {
    case Weights::kQ:
      return {0, k, 2 * k + 2 * v};
    case Weights::kK:
      return {k, k, 2 * k + 2 * v};
    case Weights::kV:
      return {2 * k, v, 2 * k + 2 * v};
    case Weights::kZ:
      return {2 * k + v, v, 2 * k + 2 * v};
    case Weights::kB:
      return {0, heads, 2 * heads};
    default:
      return {heads, heads, 2 * heads};
  }
}

// The rows of q, k and v stand one after the other.
int64_t first_row(int weight, const DeltaSizes& s) {
  if (weight == Weights::kQ || weight == Weights::kQConv) return 0;
  return weight == Weights::kK || weight == Weights::kKConv ? s.keys() : int64_t{2} * s.keys();
}

bool is_of_value_heads(int weight) {
  return weight == Weights::kV || weight == Weights::kZ || weight == Weights::kB ||
         weight == Weights::kA;
}

// Qwen3.5's value heads in GGUF files.
void place_alternating(int weight, const DeltaSizes& s, int64_t cols, Source* source) {
  const bool single = weight == Weights::kB || weight == Weights::kA ||
                      weight == Weights::kDtBias || weight == Weights::kALog;
  const int32_t n = single ? 1 : s.value_dim;
  if (is_of_value_heads(weight)) {
    source->row_groups = alternating(s, n, n * cols);
  } else if (weight == Weights::kDtBias || weight == Weights::kALog) {
    source->row_groups = alternating(s, 1, 1);
  } else if (weight == Weights::kOut) {
    source->row_stride = cols;
    source->col_groups = alternating(s, n, n);
  } else if (weight == Weights::kVConv) {
    const int64_t taps = s.n_taps;
    source->row_groups.pieces.clear();
    for (int32_t k = 0; k < s.key_heads; ++k) {
      for (const SourceGroups::Piece& p : alternating(s, n, n * taps).pieces) {
        source->row_groups.pieces.push_back({p.n, p.at + k * n * taps});
      }
    }
  }
}

void place_matrix(int weight, const DeltaSizes& s, int64_t cols, Source* source) {
  const std::string& name = source->tensor;
  if (name.ends_with("in_proj_qkvz.weight") || name.ends_with("in_proj_ba.weight")) {
    const Piece piece = piece_of(weight, s);
    source->shape = {piece.all * s.key_heads, cols};
    source->row_groups = one_piece(piece.n, piece.first * cols, piece.all * cols);
  } else if (name.ends_with("in_proj_qkv.weight")) {
    source->shape = {s.channels(), cols};
    source->offset = first_row(weight, s) * cols;
  }
}

// (channels, 1, taps) in the checkpoint, (taps, channels) in the model.
void place_convolution(int weight, const DeltaSizes& s, int64_t rows, Source* source) {
  const int64_t channels = rows / s.n_taps;
  const bool all = source->tensor.ends_with(".conv1d.weight");
  source->shape = {all ? s.channels() : channels, 1, s.n_taps};
  source->offset = all ? first_row(weight, s) * s.n_taps : 0;
  source->row_stride = s.n_taps;
  source->row_groups = one_piece(channels, 0, 1);
}

}  // namespace

void add_gated_delta(Decoder* d, const char* interval_key, float eps, float beta_scale) {
  const std::vector<bool> attend = attention_layers(d, interval_key);
  const MixerConfig rule = read_rule(d, eps, beta_scale);
  for (size_t l = 0; l < attend.size(); ++l) {
    if (attend[l]) continue;
    LayerConfig& layer = d->layer(l);
    layer.has_mixer = true;
    layer.mixer.mixer = rule;
    layer.mixer.norms = layer.attention.norms;
    layer.has_attention = false;
    layer.attention = {};
  }
}

void arrange_gated_delta(Imported* out, bool alternate) {
  std::vector<DeltaSizes> sizes;
  for (const LayerConfig& layer : out->config.layers) {
    sizes.push_back(layer.has_mixer ? Weights::sizes(layer.mixer.mixer) : DeltaSizes{});
  }
  const auto first = static_cast<int>(mixer_role(built_mixer("gated_delta").kind, 0));
  out->locate = [locate = std::move(out->locate), sizes = std::move(sizes), first, alternate](
                    const SlotGroup& group, const Slot& slot) {
    Source source = locate(group, slot);
    if (group.part != Part::kMixer || slot.role < Role::kFirstMixer) return source;
    const int weight = static_cast<int>(slot.role) - first;
    const DeltaSizes& s = sizes[static_cast<size_t>(group.layer)];
    if (weight >= Weights::kQConv && weight <= Weights::kVConv) {
      place_convolution(weight, s, slot.rows, &source);
    } else if (weight <= Weights::kA) {
      place_matrix(weight, s, slot.cols, &source);
    }
    if (alternate) place_alternating(weight, s, slot.cols, &source);
    return source;
  };
}

}  // namespace moe
