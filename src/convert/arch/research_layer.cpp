// SPDX-License-Identifier: MIT
// Reads attention, norms, FFN, experts and router of a layer; each mistake is reported with its key
// path.
#include "src/convert/arch/research_layer.h"

#include "formats/import/failure.h"
#include "kernels/router/table.h"
#include "src/model/names.h"

namespace moe {
namespace {

constexpr int32_t kMaxWidth = 1 << 20;
constexpr int32_t kMaxContext = 1 << 24;

int32_t required(const JsonNode& node, const char* key, int32_t max) {
  return static_cast<int32_t>(node.at(key).integer(1, max));
}

const float* read_factors(const JsonNode& node, int32_t dims,
                          std::deque<std::vector<float>>* factors) {
  const std::vector<JsonNode> elements = node.elements();
  if (elements.size() != static_cast<size_t>(dims) / 2) {
    fail(MOE_ERR_SHAPE, "%s: expected %d numbers, found %zu", node.path().c_str(), dims / 2,
         elements.size());
  }
  std::vector<float>& list = factors->emplace_back();
  for (const JsonNode& x : elements) list.push_back(static_cast<float>(x.number()));
  return list.data();
}

void read_scaling(const JsonNode& node, RopeConfig* rope, std::deque<std::vector<float>>* factors) {
  rope->scaling = value_of(node.at("kind"), kRopeScalings, 1);
  switch (rope->scaling) {
    case RopeScaling::kLlama3:
      node.only({"kind", "factor", "low_freq_factor", "high_freq_factor", "original_context"});
      break;
    case RopeScaling::kYarn:
      node.only({"kind", "factor", "original_context", "beta_fast", "beta_slow", "attention_factor",
                 "truncate"});
      break;
    case RopeScaling::kLongrope:
      node.only({"kind", "factor", "short_factor", "long_factor", "original_context",
                 "attention_factor"});
      break;
    case RopeScaling::kProportional:
      node.only({"kind", "factor", "turning"});
      rope->turning = static_cast<int32_t>(node.at("turning").integer(0, rope->dims));
      break;
    default:
      node.only({"kind", "factor"});
  }
  if (rope->scaling == RopeScaling::kLongrope) {
    rope->short_factor = read_factors(node.at("short_factor"), rope->dims, factors);
    rope->long_factor = read_factors(node.at("long_factor"), rope->dims, factors);
  } else {
    (void)node.at("factor").number();
  }
  const bool context_free =
      rope->scaling == RopeScaling::kLinear || rope->scaling == RopeScaling::kProportional;
  if (!context_free) (void)node.at("original_context").number();
  rope->factor = node.number("factor", rope->factor);
  rope->low_freq_factor = node.number("low_freq_factor", rope->low_freq_factor);
  rope->high_freq_factor = node.number("high_freq_factor", rope->high_freq_factor);
  rope->beta_fast = node.number("beta_fast", rope->beta_fast);
  rope->beta_slow = node.number("beta_slow", rope->beta_slow);
  rope->truncate = node.boolean("truncate", rope->truncate);
  rope->attention_factor = node.number("attention_factor", rope->attention_factor);
  rope->original_context = node.integer("original_context", 0, 1, kMaxContext);
}

RopeConfig read_rope(const JsonNode& attention, int32_t head_dim,
                     std::deque<std::vector<float>>* factors) {
  RopeConfig rope;
  rope.kind = RopeKind::kHalf;
  rope.dims = head_dim;
  if (!attention.has("rope")) return rope;
  const JsonNode node = attention.at("rope");
  node.only({"kind", "dims", "theta", "scaling"});
  if (node.has("kind")) rope.kind = value_of(node.at("kind"), kRopeKinds);
  if (rope.kind == RopeKind::kNone) {
    RopeConfig still;  // with a latent, the width of what all keys share
    if (attention.has("latent")) still.dims = node.integer("dims", 0, 0, head_dim);
    return still;
  }
  rope.dims = node.integer("dims", head_dim, 1, head_dim);
  rope.theta = node.number("theta", rope.theta);
  if (node.has("scaling")) read_scaling(node.at("scaling"), &rope, factors);
  return rope;
}

BlockNorms read_norms(const JsonNode& node) {
  return {node.boolean("norm", true), node.boolean("out_norm", false),
          node.boolean("post_norm", false)};
}

// Common to attention and cross attention.
AttentionConfig read_heads(const JsonNode& node, const ModelConfig& model) {
  AttentionConfig a;
  a.n_heads = required(node, "n_heads", kMaxWidth);
  a.n_kv_heads = node.integer("n_kv_heads", a.n_heads, 1, a.n_heads);
  if (!node.has("head_dim") && model.d_model % a.n_heads != 0) {
    fail(MOE_ERR_SHAPE, "%s: n_heads %d does not divide d_model %d, and head_dim is missing",
         node.path().c_str(), a.n_heads, model.d_model);
  }
  a.head_dim = node.integer("head_dim", model.d_model / a.n_heads, 1, kMaxWidth);
  a.multiplier = node.number("multiplier", 0);
  a.norms = read_norms(node);
  return a;
}

AttentionConfig read_cross_attention(const JsonNode& node, const ModelConfig& model) {
  node.only({"n_heads", "n_kv_heads", "head_dim", "multiplier", "norm", "out_norm", "post_norm"});
  AttentionConfig a = read_heads(node, model);
  a.causal = false;
  return a;
}

AttentionConfig read_attention(const JsonNode& node, const ModelConfig& model,
                               std::deque<std::vector<float>>* factors) {
  node.only({"n_heads",     "n_kv_heads",   "head_dim", "window",    "multiplier", "rope",
             "qk_norm",     "sub_norm",     "sinks",    "latent",    "q_latent",   "norm",
             "out_norm",    "post_norm",    "causal",   "score_cap", "qkv_clip",   "latent_eps",
             "output_gate", "gate_by_head", "v_norm",   "v_from_k",  "kv_layer",   "in_norms"});
  AttentionConfig a = read_heads(node, model);
  a.window = node.integer("window", 0, 0, kMaxContext);
  a.causal = node.boolean("causal", true);
  if (node.has("qk_norm")) a.qk_norm = value_of(node.at("qk_norm"), kQkNorms);
  a.sub_norm = node.boolean("sub_norm", false);
  a.sinks = node.boolean("sinks", false);
  a.latent = node.integer("latent", 0, 0, kMaxWidth);
  a.q_latent = node.integer("q_latent", 0, 0, kMaxWidth);
  a.latent_eps = node.number("latent_eps", 0);
  a.score_cap = node.number("score_cap", 0);
  a.qkv_clip = node.number("qkv_clip", 0);
  a.output_gate = node.boolean("output_gate", false);
  a.gate_by_head = node.boolean("gate_by_head", false);
  a.v_norm = node.boolean("v_norm", false);
  a.v_from_k = node.boolean("v_from_k", false);
  a.in_norms = node.boolean("in_norms", false);
  a.kv_layer = node.integer("kv_layer", -1, 0, kMaxLayers);
  // Without rotary positions the object is checked but unused.
  const RopeConfig rope = read_rope(node, a.head_dim, factors);
  if (model.positions == PositionKind::kRope) a.rope = rope;
  return a;
}

MixerBlock read_mixer(const JsonNode& node) {
  std::vector<const char*> names;
  for (size_t m = 0; m < kMixers; ++m) names.push_back(kMixerRows[m].name);
  const MixerInfo& info = kMixerRows[node.at("kind").choice(names)];
  std::vector<const char*> keys = {"kind", "norm", "out_norm", "post_norm"};
  MixerBlock out;
  out.norms = read_norms(node);
  out.mixer = default_mixer(info);
  for (int i = 0; i < info.n_params(); ++i) {
    const MixerParam& param = info.params[i];
    keys.push_back(param.name);
    if (!param.required && !node.has(param.name)) continue;
    out.mixer.params[i] = static_cast<float>(node.at(param.name).number());
  }
  node.only(keys);
  return out;
}

// The scale is a key of routers whose weight rule is configurable.
bool has_key(const RouterInfo& info, const RouterField& field) {
  const uint32_t param = field.param == 0 ? uint32_t{kParamWeights} : field.param;
  return field.key != nullptr && (info.params & param) != 0;
}

// Valid keys depend on the kind: a key of another kind is an error.
void check_router_keys(const JsonNode& node, const RouterInfo& info) {
  std::vector<const char*> keys = {"kind"};
  for (const RouterField& field : kRouterFields) {
    if (has_key(info, field)) keys.push_back(field.key);
  }
  if (info.has(kParamWeights)) keys.push_back("weights");
  if (info.has(kParamGate)) keys.push_back("gate");
  if (info.has(kParamToken)) keys.push_back("normalise_token");
  if (info.has(kParamTopkNorm)) keys.push_back("topk_norm");
  if (info.scores == RouterScores::kCosine) keys.push_back("d_e");
  node.only(keys);
}

void read_router_field(const JsonNode& node, const RouterField& field, bool required,
                       int32_t n_experts, RouterConfig* r) {
  if (field.number != nullptr) {
    float& number = r->*field.number;
    number =
        required ? static_cast<float>(node.at(field.key).number()) : node.number(field.key, number);
    return;
  }
  const auto low = static_cast<int32_t>(field.low);
  int32_t& count = r->*field.count;
  count = required ? static_cast<int32_t>(node.at(field.key).integer(low, n_experts))
                   : node.integer(field.key, count, low, n_experts);
}

RouterKind read_router_kind(const JsonNode& node) {
  std::vector<const char*> names;
  for (const RouterInfo& info : kRouters) names.push_back(info.name);
  return kRouters[node.choice(names)].kind;
}

RouterWeights read_weights(const JsonNode& node, const RouterInfo& info) {
  std::vector<const char*> names;
  std::vector<RouterWeights> values;
  for (const Named<RouterWeights>& word : kRouterWeights) {
    if (word.value > RouterWeights::kRenormalised && !info.has(kParamChosen)) continue;
    // "chosen" with a threshold exists only as an override of a top-k router.
    if (word.value == RouterWeights::kChosen && info.has(kParamThreshold)) continue;
    names.push_back(word.name);
    values.push_back(word.value);
  }
  return values[node.has("weights") ? node.at("weights").choice(names) : 0];
}

RouterConfig read_router(const JsonNode& node, int32_t n_experts, int32_t* cosine_width) {
  RouterConfig r;
  r.kind = read_router_kind(node.at("kind"));
  const RouterInfo& info = router_info(r);
  check_router_keys(node, info);
  for (const RouterField& field : kRouterFields) {
    if (!has_key(info, field)) continue;
    // Only the first of a threshold's fields has no default.
    const bool required = (info.required & field.param) != 0 &&
                          (field.param != kParamThreshold || field.number != nullptr);
    read_router_field(node, field, required, n_experts, &r);
  }
  if (info.has(kParamWeights)) r.weights = read_weights(node, info);
  if (info.has(kParamGate) && node.has("gate")) r.gate = value_of(node.at("gate"), kCosineGates);
  if (info.has(kParamToken)) r.normalise_token = node.boolean("normalise_token", true);
  if (info.has(kParamTopkNorm) && node.has("topk_norm")) {
    r.topk_norm = node.at("topk_norm").boolean() ? 1 : 0;
  }
  if (info.scores == RouterScores::kCosine) *cosine_width = node.integer("d_e", 0, 1, kMaxWidth);
  return r;
}

void read_capacity(const JsonNode& node, RouterConfig* router) {
  node.only({"gamma", "min_capacity", "order"});
  router->gamma = node.number("gamma", 0);
  router->min_capacity = node.integer("min_capacity", 0, 0, INT32_MAX);
  if (node.has("order")) router->order = value_of(node.at("order"), kCapacityOrders);
}

MoeConfig read_moe(const JsonNode& node, int32_t* cosine_width) {
  node.only({"n_experts", "n_subheads", "mh", "head", "merge", "n_sublayers", "router", "shared",
             "capacity", "apart", "router_norm", "expert_scale"});
  MoeConfig m;
  m.n_experts = required(node, "n_experts", 1 << 16);
  m.n_subheads = node.integer("n_subheads", 1, 1, kMaxWidth);
  const bool both = node.boolean("mh", false) || m.n_subheads > 1;
  m.head = node.boolean("head", both);
  m.merge = node.boolean("merge", both);
  m.n_sublayers = node.integer("n_sublayers", 0, 0, 64);
  m.router = read_router(node.at("router"), m.n_experts, cosine_width);
  if (node.has("capacity")) read_capacity(node.at("capacity"), &m.router);
  if (node.has("shared")) {
    const JsonNode shared = node.at("shared");
    shared.only({"d_ff", "gated"});
    m.shared.d_ff = required(shared, "d_ff", kMaxWidth);
    m.shared.gated = shared.boolean("gated", false);
  }
  m.apart = node.boolean("apart", false);
  m.router_norm = node.boolean("router_norm", false);
  m.expert_scale = node.boolean("expert_scale", false);
  return m;
}

FfnConfig read_ffn(const JsonNode& node, int32_t* cosine_width) {
  node.only({"kind", "d_ff", "gated", "act", "alpha", "limit", "up_offset", "sub_norm", "moe",
             "norm", "out_norm", "post_norm", "in_norms"});
  FfnConfig f;
  f.kind = value_of(node.at("kind"), kFfnKinds);
  f.d_ff = required(node, "d_ff", kMaxWidth);
  f.gated = node.boolean("gated", false);
  f.sub_norm = node.boolean("sub_norm", false);
  f.in_norms = node.boolean("in_norms", false);
  f.act.kind = value_of(node.at("act"), kActivations);
  f.act.alpha = node.number("alpha", 1);
  f.act.limit = node.number("limit", 0);
  f.act.up_offset = node.number("up_offset", 0);
  f.norms = read_norms(node);
  // A dense layer may inherit a "moe" object from the defaults, which is ignored.
  if (f.kind == FfnKind::kMoe) f.moe = read_moe(node.at("moe"), cosine_width);
  return f;
}

}  // namespace

ResearchLayer read_research_layer(const JsonNode& node, const ModelConfig& model,
                                  std::deque<std::vector<float>>* factors) {
  node.only({"attention", "mixer", "cross_attention", "ffn", "multiplier"});
  ResearchLayer out;
  LayerConfig& layer = out.config;
  layer.has_attention = node.has("attention");
  layer.has_cross = node.has("cross_attention");
  layer.has_ffn = node.has("ffn");
  layer.has_mixer = node.has("mixer");
  if (layer.has_attention) layer.attention = read_attention(node.at("attention"), model, factors);
  layer.multiplier = node.number("multiplier", 1);
  if (layer.has_mixer) layer.mixer = read_mixer(node.at("mixer"));
  if (layer.has_cross) layer.cross = read_cross_attention(node.at("cross_attention"), model);
  if (layer.has_ffn) layer.ffn = read_ffn(node.at("ffn"), &out.cosine_width);
  return out;
}

}  // namespace moe
