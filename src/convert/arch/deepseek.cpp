// SPDX-License-Identifier: MIT
// DeepSeek-V2 and V3 (Liu et al. 2024), Kimi-K2 and GLM-4.7-Flash: keys and values of all heads are
// projected from one latent (kv_lora_rank), queries from another (q_lora_rank) or from the model,
// and the keys' positions from a rotary part shared by all heads. In each head of a model file the
// rotated dimensions come first, and values are padded with zeros to the width of keys. V3 selects
// experts like GLM-4.5, but only from the best groups.

#include "src/convert/arch/deepseek.h"

#include <cmath>

#include "formats/import/failure.h"

namespace moe::arch::deepseek {
namespace {

constexpr int32_t kMaxWidth = 1 << 20;
constexpr int64_t kMaxDerived = int64_t{1} << 26;
constexpr float kLatentEps = 1e-6f;  // of the latents' norms, which has no key
constexpr const char* kSharedKey = "the rotary part added to every head";  // in no file

constexpr TensorName kNames[] = {
    {"attention.q_latent.weight", "self_attn.q_a_proj.weight"},
    {"attention.q_latent_norm.weight", "self_attn.q_a_layernorm.weight"},
    {"attention.latent.weight", "self_attn.kv_a_proj_with_mqa.weight"},
    {"attention.latent_norm.weight", "self_attn.kv_a_layernorm.weight"},
    {"moe.shared.gate.weight", "mlp.shared_experts.gate_proj.weight"},
    {"moe.shared.up.weight", "mlp.shared_experts.up_proj.weight"},
    {"moe.shared.down.weight", "mlp.shared_experts.down_proj.weight"},
    {"moe.shared.gate.weight", "mlp.shared_expert.gate_proj.weight"},
    {"moe.shared.up.weight", "mlp.shared_expert.up_proj.weight"},
    {"moe.shared.down.weight", "mlp.shared_expert.down_proj.weight"}};

// GGUF files have two tensors instead of kv_b_proj; keys are transposed per head.
constexpr const char* kKeys = "self_attn.k_b_proj.weight";
constexpr const char* kValues = "self_attn.v_b_proj.weight";

constexpr TensorName kSelectionBias[] = {
    {"moe.router.selection_bias", "mlp.gate.e_score_correction_bias"},
    {"moe.router.selection_bias", "mlp.gate.exp_probs_b.bias"}};  // GGUF's

/// Widths within one head.
struct Head {
  int32_t nope = 0;  // of query and key, not rotated
  int32_t rope = 0;
  int32_t value = 0;
  int32_t width() const { return nope + rope; }
};

Head read_head(ConfigKeys* keys) {
  Head h;
  h.nope = keys->integer("qk_nope_head_dim", 1, kMaxWidth);
  h.rope = keys->integer("qk_rope_head_dim", 2, kMaxWidth);
  h.value = keys->integer("v_head_dim", 1, kMaxWidth);
  keys->require("qk_head_dim", h.width());
  keys->require("head_dim", h.rope);
  if (h.value > h.width()) {
    fail_value(keys->node("v_head_dim"), "at most qk_nope_head_dim + qk_rope_head_dim, " +
                                             std::to_string(h.width()) + ", is");
  }
  return h;
}

// A file that has one of keys and values by themselves lacks the other, not both together.
void name_projections(Decoder* d, const Checkpoint& checkpoint) {
  bool apart = false;
  for (const auto& [name, tensor] : checkpoint.tensors()) {
    apart = apart || name.ends_with(kKeys) || name.ends_with(kValues);
  }
  constexpr const char* kBoth = "self_attn.kv_b_proj.weight";
  d->replace_name({"attention.k.weight", apart ? kKeys : kBoth});
  d->replace_name({"attention.v.weight", apart ? kValues : kBoth});
  if (d->layer(0).attention.q_latent > 0) {
    d->replace_name({"attention.q.weight", "self_attn.q_b_proj.weight"});
  }
}

// The scale of yarn on the scores (Peng et al. 2023), squared as in DeepSeek.
float score_multiplier(const ConfigKeys& keys, const JsonNode& config, const Head& h) {
  double strength = 1;
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    if (!keys.has(key)) continue;
    const JsonNode node = config.at(key);
    const double all = node.number("mscale_all_dim", 0), factor = node.number("factor", 1);
    strength = all != 0 && factor > 1 ? 0.1 * all * std::log(factor) + 1 : 1;
    if (!(std::fabs(strength) < 1e9)) {
      fail_value(node.at("mscale_all_dim"), "a number of a smaller size is");
    }
  }
  return static_cast<float>(strength * strength / std::sqrt(static_cast<double>(h.width())));
}

void read_attention(Decoder* d, const JsonNode& config, const Head& h, bool rotates) {
  const int32_t latent = d->keys.integer("kv_lora_rank", 1, kMaxWidth);
  const float multiplier = score_multiplier(d->keys, config, h);
  d->keys.require("attention_bias", false);
  d->keys.require("num_key_value_heads", d->layer(0).attention.n_heads);
  const int32_t q_latent = d->keys.integer("q_lora_rank", 0, 1, kMaxWidth);
  const bool neighbours = d->keys.boolean("rope_interleave", true);
  for (LayerConfig& layer : d->layers()) {
    AttentionConfig& a = layer.attention;
    a.head_dim = h.width();
    if (!rotates) a.rope = {};
    if (rotates) a.rope.kind = neighbours ? RopeKind::kInterleaved : RopeKind::kHalf;
    a.rope.dims = h.rope;
    a.latent = latent;
    a.q_latent = q_latent;
    if (d->config().norm_eps != kLatentEps) a.latent_eps = kLatentEps;
    a.multiplier = multiplier;
  }
}

RouterConfig read_v2_router(ConfigKeys* keys) {
  RouterConfig r;
  keys->require("scoring_func", "softmax");
  keys->require("norm_topk_prob", false);
  keys->ignore({"n_group", "topk_group"});
  if (!keys->has("topk_method")) return r;
  if (keys->node("topk_method").choice({"greedy", "group_limited_greedy"}) == 0) return r;
  read_expert_groups(keys, "n_routed_experts", 1, 1, &r);
  return r;
}

RouterConfig read_v3_router(ConfigKeys* keys) {
  keys->require("topk_method", "noaux_tc");
  keys->require("scoring_func", "sigmoid");
  RouterConfig r;
  read_expert_groups(keys, "n_routed_experts", 8, 4, &r);
  if (!keys->has("routed_scaling_factor")) {
    fail(MOE_ERR_NOT_FOUND, "%s is missing", keys->place("routed_scaling_factor").c_str());
  }
  r.kind = RouterKind::kSigmoid;
  if (keys->boolean("norm_topk_prob", true)) r.weights = RouterWeights::kRenormalised;
  return r;
}

// The layers without experts: those of the list or, without one, the first ones. `transformers`
// saves its default number of the first ones beside another list.
std::vector<bool> dense_layers(Decoder* d) {
  const char *const count_key = "first_k_dense_replace", *const list_key = "mlp_layer_types";
  const auto first = static_cast<size_t>(d->keys.integer(count_key, 0, 0, 1 << 16));
  const size_t n = d->layers().size();
  const std::vector<JsonNode> types = d->keys.list(list_key, n);
  std::vector<bool> dense;
  bool same = true;
  for (size_t l = 0; l < n; ++l) {
    dense.push_back(types.empty() ? l < first : types[l].choice({"dense", "sparse"}) == 0);
    same = same && dense[l] == (l < first);
  }
  if (!same && d->keys.given(count_key)) {
    d->keys.warn(d->keys.place(count_key) + " is not used: the dense layers of " +
                 d->keys.spelled(list_key) + " are others");
  }
  return dense;
}

void read_experts(Decoder* d, const RouterConfig& router) {
  const FfnConfig dense = d->layer(0).ffn;
  d->keys.require("moe_layer_freq", 1);
  d->keys.require("mlp_bias", false);
  d->keys.ignore({"seq_aux", "ep_size"});                             // training
  if (router.kind == RouterKind::kSigmoid) d->names(kSelectionBias);  // V3's
  const int32_t width = d->keys.integer("moe_intermediate_size", 1, kMaxWidth);
  const int32_t n_shared = d->keys.integer("n_shared_experts", 0, 0, kMaxWidth / width);
  const float scale = d->keys.number("routed_scaling_factor", 1);
  const std::vector<bool> is_dense = dense_layers(d);
  d->experts("n_routed_experts", "num_local_experts", width, RouterWeights::kRaw);
  for (size_t l = 0; l < d->layers().size(); ++l) {
    FfnConfig& ffn = d->layer(l).ffn;
    ffn.moe.shared = {.d_ff = n_shared * width};
    const int32_t k = ffn.moe.router.k;
    ffn.moe.router = router;
    ffn.moe.router.k = k;
    ffn.moe.router.scale = scale;
    if (is_dense[l]) ffn = dense;
  }
}

// 1 where an element of the shared key belongs to a head's key.
DerivedTensor shared_key(int32_t n_heads, const Head& h) {
  const int64_t rows = int64_t{n_heads} * h.width();
  if (rows > kMaxDerived / h.rope) {
    fail(MOE_ERR_RANGE, "config.json: num_attention_heads %d of %d numbers are too many", n_heads,
         h.width());
  }
  DerivedTensor out{kSharedKey, {rows, h.rope}, {}};
  out.values.resize(static_cast<size_t>(rows * h.rope));
  for (int32_t head = 0; head < n_heads; ++head) {
    for (int32_t i = 0; i < h.rope; ++i) {
      out.values[static_cast<size_t>((int64_t{head} * h.width() + i) * h.rope + i)] = 1;
    }
  }
  return out;
}

// Pieces of a head, without empty ones.
SourceGroups groups(std::initializer_list<SourceGroups::Piece> pieces, int64_t stride) {
  SourceGroups out;
  for (const SourceGroups::Piece& piece : pieces) {
    if (piece.n > 0) out.pieces.push_back(piece);
  }
  out.stride = stride;
  return out;
}

void arrange_heads(const Head& h, int32_t n_heads, Imported* out) {
  auto locate = std::move(out->locate);
  out->locate = [locate, h, n_heads](const SlotGroup& group, const Slot& slot) {
    if (slot.role == Role::kKRope) {
      Source shared;
      shared.tensor = kSharedKey;
      return shared;
    }
    Source s = locate(group, slot);
    if (group.part != Part::kAttention) return s;
    const int64_t cols = slot.cols;
    const int32_t padding = h.width() - h.value;
    if (slot.role == Role::kQ) {
      s.shape = {slot.rows, cols};
      s.row_groups = groups({{h.rope, h.nope * cols}, {h.nope, 0}}, h.width() * cols);
    } else if (s.tensor.ends_with(kKeys)) {
      s.shape = {n_heads, cols, h.nope};
      s.row_stride = 1;
      s.col_stride = h.nope;
      s.row_groups = groups({{h.rope, -1}, {h.nope, 0}}, h.nope * cols);
    } else if (s.tensor.ends_with(kValues)) {
      s.shape = {n_heads, h.value, cols};
      s.row_groups = groups({{h.value, 0}, {padding, -1}}, h.value * cols);
    } else if (slot.role == Role::kK || slot.role == Role::kV) {
      s.shape = {int64_t{n_heads} * (h.nope + h.value), cols};
      const int64_t stride = (h.nope + h.value) * cols;
      s.row_groups = slot.role == Role::kK
                         ? groups({{h.rope, -1}, {h.nope, 0}}, stride)
                         : groups({{h.value, h.nope * cols}, {padding, -1}}, stride);
    } else if (slot.role == Role::kO) {
      s.shape = {slot.rows, int64_t{n_heads} * h.value};
      s.row_stride = int64_t{n_heads} * h.value;
      s.col_groups = groups({{h.value, 0}, {padding, -1}}, h.value);
    }
    return s;
  };
}

// `head_dim` is the width of what is rotated; without it, that of a model without a latent would be
// derived, and need not be whole.
RenamedConfig with_head_dim(const JsonNode& config) {
  RenamedConfig c(config);
  const Json* const rotated = config.value().find("qk_rope_head_dim");
  if (!config.has("head_dim") && rotated != nullptr && rotated->is_number() &&
      rotated->get<double>() >= 1) {
    c.copy("qk_rope_head_dim", "head_dim");
  }
  return c;
}

using ReadRouter = RouterConfig (*)(ConfigKeys* keys);

Imported import_deepseek(const JsonNode& original, const Checkpoint& checkpoint,
                         ReadRouter read_router, int32_t n_predictions, const Variant& variant) {
  const RenamedConfig with_width = with_head_dim(original);
  const JsonNode config = with_width.node();
  Decoder d(config, checkpoint, 10000);
  const Head h = read_head(&d.keys);
  if (d.layer(0).attention.rope.dims != h.rope) {
    fail(MOE_ERR_UNSUPPORTED,
         "config.json: partial_rotary_factor: qk_rope_head_dim %d is rotated whole; only 1 is "
         "supported",
         h.rope);
  }
  const int32_t n_heads = d.layer(0).attention.n_heads;
  d.names(mlp_names());
  d.names(moe_names());
  d.names(kNames);
  read_attention(&d, config, h, variant.rotates);
  name_projections(&d, checkpoint);
  read_experts(&d, read_router(&d.keys));
  if (variant.extend) variant.extend(&d);
  d.prediction_layers(n_predictions);
  d.quantization(Quantization::kNone);
  PrecisionRule exact;  // 0 and 1
  exact.match = "*.attention.k_rope";
  exact.weights = FormatId::kBf16;
  d.precision(exact);
  Imported out = d.finish();
  out.derived.push_back(shared_key(n_heads, h));
  arrange_heads(h, n_heads, &out);
  return out;
}

Imported import_v2(const JsonNode& config, const Checkpoint& checkpoint) {
  return import_deepseek(config, checkpoint, read_v2_router, 0, {});
}
Imported import_v3(const JsonNode& config, const Checkpoint& checkpoint) {
  return import_deepseek(config, checkpoint, read_v3_router, 1, {});
}
// V3's computation with other defaults.
Imported import_glm4_lite(const JsonNode& config, const Checkpoint& checkpoint) {
  RenamedConfig c(config);
  for (const char* key : {"n_group", "topk_group", "first_k_dense_replace"}) c.fallback(key, 1);
  return import_v3(c.node(), checkpoint);
}

}  // namespace

Imported import_v3_variant(const JsonNode& config, const Checkpoint& checkpoint,
                           const Variant& variant) {
  return import_deepseek(config, checkpoint, read_v3_router, 0, variant);
}

std::span<const Importer> importers() {
  static constexpr Importer kRows[] = {{"deepseek_v2", import_v2},
                                       {"deepseek_v3", import_v3},
                                       {"kimi_k2", import_v3},
                                       {"glm4_moe_lite", import_glm4_lite}};
  return kRows;
}

}  // namespace moe::arch::deepseek
