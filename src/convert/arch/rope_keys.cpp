// SPDX-License-Identifier: MIT
// Rotary positions in `transformers` files, in both forms.

#include <algorithm>
#include <cmath>
#include <span>
#include <string_view>

#include "formats/import/failure.h"
#include "src/convert/arch/decoder.h"

namespace moe {
namespace {

constexpr int32_t kMaxContext = 1 << 24;

float positive(const JsonNode& node, const char* key, float fallback) {
  return node.has(key) ? positive_of(node.at(key)) : fallback;
}

double read_share(const JsonNode& node) {
  const double share = node.number();
  if (!(share > 0 && share <= 1)) node.fail_expected("a number above 0 and at most 1");
  return share;
}

// The rotated part of each head.
int32_t rotated_part(const JsonNode& node, int32_t head_dim) {
  const double factor = read_share(node);
  const auto dims = static_cast<int32_t>(head_dim * factor);
  if (factor < 1 && (dims < 2 || dims % 2 != 0)) {
    fail_value(node, "a share of head_dim, " + std::to_string(head_dim) +
                         ", that is even and at least 2 is");
  }
  return dims;
}

constexpr const char* kShare = "partial_rotary_factor";

// Also without scaling; some files have these keys next to the object.
void read_base(const JsonNode& node, int32_t head_dim, RopeConfig* rope) {
  rope->theta = positive(node, "rope_theta", rope->theta);
  if (node.has(kShare)) rope->dims = rotated_part(node.at(kShare), head_dim);
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

// The factor on cos and sin in DeepSeek's yarn checkpoints (Peng et al. 2023, section 3.4, with
// separate scales in numerator and denominator).
float yarn_attention_factor(const JsonNode& node, float factor) {
  if (node.has("attention_factor")) return node.number("attention_factor", 0);
  const double own = node.number("mscale", 0), all = node.number("mscale_all_dim", 0);
  if (own == 0 || all == 0 || factor <= 1) return 0;  // derived at run time
  const double log_factor = 0.1 * std::log(static_cast<double>(factor));
  return static_cast<float>((own * log_factor + 1) / (all * log_factor + 1));
}

enum Kind { kDefault, kLinear, kLlama3, kYarn, kLongrope, kDynamic, kProportional };

// "su" is "longrope"; "mrope" shares the rotation among axes, which are one for a text.
void check_same_kind(const JsonNode& kind, const JsonNode& older) {
  const auto is = [&](const char* one, const char* other) {
    return kind.value() == one && older.value() == other;
  };
  if (is("longrope", "su") || is("su", "longrope") || is("default", "mrope")) return;
  check_same(kind, older);
}

Kind read_kind(const JsonNode& node) {
  const char* const key = node.has("rope_type") ? "rope_type" : "type";
  if (!node.has(key)) return kDefault;
  if (node.has("rope_type") && node.has("type"))
    check_same_kind(node.at("rope_type"), node.at("type"));
  const std::initializer_list<const char*> names = {"default",  "linear",  "llama3",       "yarn",
                                                    "longrope", "dynamic", "proportional", "su"};
  const JsonNode kind = node.at(key);
  bool known = false;
  for (const char* name : names) known |= kind.string() == name;
  if (!known)
    fail_value(kind, "default, linear, llama3, yarn, dynamic, longrope and proportional are");
  const size_t found = kind.choice(names);
  return found > kProportional ? kLongrope : static_cast<Kind>(found);  // alias "su"
}

constexpr const char* kKindNames[] = {"default",  "linear",  "llama3",      "yarn",
                                      "longrope", "dynamic", "proportional"};

std::vector<std::string_view> keys_of(Kind kind) {
  std::vector<std::string_view> keys = {"rope_type", "type", "rope_theta", "partial_rotary_factor"};
  const auto add = [&](std::initializer_list<std::string_view> more) {
    keys.insert(keys.end(), more);
  };
  if (kind != kDefault) add({"factor"});
  if (kind != kDefault && kind != kLinear && kind != kProportional) {
    add({"original_max_position_embeddings"});
  }
  if (kind == kLlama3) add({"low_freq_factor", "high_freq_factor"});
  if (kind == kYarn || kind == kLongrope) add({"attention_factor"});
  if (kind == kYarn) add({"beta_fast", "beta_slow", "mscale", "mscale_all_dim", "truncate"});
  if (kind == kLongrope) add({"short_factor", "long_factor", "short_mscale", "long_mscale"});
  return keys;
}

bool is_in(std::span<const std::string_view> keys, std::string_view key) {
  return std::find(keys.begin(), keys.end(), key) != keys.end();
}

// Notes of trainers, and switches of earlier code whose usual value is what is computed anyway.
bool changes_nothing(const std::string& key, const Json& value) {
  if (key == "finetuned" || key.starts_with('_') || value.is_null()) return true;
  if (key == "dynamic") return value == false;
  return (key == "attn_factor" || key == "extrapolation_factor") && value == 1;
}

// A key of another kind of scaling has no effect in `transformers` either; without a type it might
// be meant to have one.
void check_keys(const JsonNode& node, Kind kind, ConfigKeys* keys) {
  std::vector<std::string_view> others;
  if (node.has("rope_type") || node.has("type")) {
    for (const Kind other : {kLinear, kLlama3, kYarn, kLongrope}) {
      for (const std::string_view key : keys_of(other)) others.push_back(key);
    }
  }
  const std::vector<std::string_view> known = keys_of(kind);
  for (const std::string& key : node.others({})) {
    const Json& value = *node.value().find(key);
    if (is_in(known, key) || changes_nothing(key, value)) continue;
    if (is_in(others, key)) {
      keys->warn(node.path() + "." + key + " is not used: it has no meaning for the type " +
                 kKindNames[kind]);
    } else {
      keys->unknown(node.member_path(key), value);
    }
  }
}

// Without a factor, the attention factor follows from how far the checkpoint's context was
// extended, not from the session's.
void read_longrope(const JsonNode& node, int32_t context, RopeConfig* rope,
                   std::deque<std::vector<float>>* factors) {
  if (!node.has("factor")) {
    rope->factor = static_cast<float>(context) / static_cast<float>(rope->original_context);
  }
  rope->short_factor = read_factors(node.at("short_factor"), rope->dims, factors);
  rope->long_factor = read_factors(node.at("long_factor"), rope->dims, factors);
  rope->attention_factor = node.number("attention_factor", 0);
  if (!node.has("short_mscale") && !node.has("long_mscale")) return;
  rope->attention_factor = node.number("long_mscale", 0);
  if (node.number("short_mscale", 0) == rope->attention_factor) return;
  fail_value(node.at("short_mscale"), "it must be long_mscale");
}

void read_scaling(const JsonNode& node, Kind kind, int32_t context, int32_t original,
                  RopeConfig* rope, std::deque<std::vector<float>>* factors) {
  const RopeScaling scalings[] = {RopeScaling::kNone, RopeScaling::kLinear, RopeScaling::kLlama3,
                                  RopeScaling::kYarn, RopeScaling::kLongrope};
  rope->scaling = scalings[kind];
  if (kind != kLongrope) (void)node.at("factor").number();
  rope->factor = positive(node, "factor", 1);
  rope->original_context =
      node.integer("original_max_position_embeddings", original, 1, kMaxContext);
  rope->low_freq_factor = positive(node, "low_freq_factor", rope->low_freq_factor);
  rope->high_freq_factor = positive(node, "high_freq_factor", rope->high_freq_factor);
  rope->beta_fast = positive(node, "beta_fast", rope->beta_fast);
  rope->beta_slow = positive(node, "beta_slow", rope->beta_slow);
  rope->truncate = node.boolean("truncate", true);
  if (kind == kYarn && rope->theta <= 1) {
    fail(MOE_ERR_RANGE, "%s: yarn needs a rope_theta above 1, found %g", node.path().c_str(),
         static_cast<double>(rope->theta));
  }
  if (kind == kYarn) rope->attention_factor = yarn_attention_factor(node, rope->factor);
  if (kind == kLongrope) read_longrope(node, context, rope, factors);
}

// The share of pairs that turn, of all of a head's, whose frequencies are those of a whole
// rotation.
void read_proportional(const JsonNode& node, int32_t head_dim, RopeConfig* rope) {
  const double share = node.has(kShare) ? read_share(node.at(kShare)) : 1;
  rope->theta = positive(node, "rope_theta", rope->theta);
  rope->scaling = RopeScaling::kProportional;
  rope->dims = head_dim;
  rope->turning = 2 * static_cast<int32_t>(share * head_dim / 2);
  rope->factor = positive(node, "factor", 1);
}

// Dynamic frequencies change when a text exceeds max_position_embeddings, also for earlier
// positions. Up to there nothing is scaled, and contexts here are never longer.
void check_dynamic(const JsonNode& node) {
  (void)node.at("factor").number();
  (void)positive(node, "factor", 1);
}

// Two forms of one object: what both have must be the same.
void check_both_objects(ConfigKeys* keys) {
  if (!keys->has("rope_scaling") || !keys->has("rope_parameters")) return;
  const JsonNode older = keys->node("rope_scaling"), node = keys->node("rope_parameters");
  for (const std::string& key : older.others({})) {
    const char* const name = key.c_str();
    if (older.has(name) && node.has(name)) check_same(older.at(name), node.at(name));
  }
}

// Keys of the object that the file has next to it, too.
void check_beside(const JsonNode& node, ConfigKeys* keys) {
  for (const char* key :
       {"rope_theta", "partial_rotary_factor", "original_max_position_embeddings"}) {
    if (keys->given(key) && node.has(key)) check_same(keys->node(key), node.at(key));
  }
}

}  // namespace

RopeConfig read_rope(ConfigKeys& keys, int32_t head_dim, int32_t context, float default_theta,
                     std::deque<std::vector<float>>* factors) {
  RopeConfig rope;
  rope.kind = RopeKind::kHalf;
  rope.dims = head_dim;
  rope.theta = keys.has("rope_theta") ? keys.positive("rope_theta", 0) : default_theta;
  if (keys.has("partial_rotary_factor")) {
    rope.dims = rotated_part(keys.node("partial_rotary_factor"), head_dim);
  }
  check_both_objects(&keys);
  const int32_t original =
      keys.integer("original_max_position_embeddings", context, 1, kMaxContext);
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    if (!keys.has(key)) continue;
    const JsonNode node = keys.node(key);
    const Kind kind = read_kind(node);
    check_keys(node, kind, &keys);
    check_beside(node, &keys);
    if (kind == kProportional) {
      read_proportional(node, head_dim, &rope);
      continue;
    }
    read_base(node, head_dim, &rope);
    if (kind == kDynamic) check_dynamic(node);
    if (kind != kDefault && kind != kDynamic)
      read_scaling(node, kind, context, original, &rope, factors);
  }
  if (rope.theta == 0) (void)keys.number("rope_theta");  // reports that it is missing
  return rope;
}

void split_rope(const char* local_key, const Json& local_theta, RenamedConfig* config) {
  Json local = {{"rope_type", "default"}};
  const RenamedConfig whole = *config;
  const JsonNode node = whole.node();
  if (node.has("rope_parameters") && node.at("rope_parameters").has("full_attention")) {
    const JsonNode both = node.at("rope_parameters");
    both.only({"full_attention", "sliding_attention"});
    if (both.has("sliding_attention")) local = both.at("sliding_attention").value();
    config->put(both.at("full_attention"), "rope_parameters");
  }
  config->json()["rope_local"] = {{"rope_parameters", local}, {local_key, local_theta}};
}

RopeConfig read_local_rope(ConfigKeys& keys, const char* local_key, int32_t head_dim,
                           int32_t context, std::deque<std::vector<float>>* factors) {
  Json local = keys.node("rope_local").value();
  Spellings spellings = {{{"rope_parameters", "rope_parameters.sliding_attention"},
                          {"rope_theta", keys.spelled(local_key)}},
                         {}};
  if (!keys.given(local_key)) spellings.defaults.insert("rope_theta");
  local["rope_theta"] = Json(local.at(local_key));
  const JsonNode node(local, keys.file(), spellings);
  ConfigKeys local_keys(node);
  const RopeConfig rope = read_rope(local_keys, head_dim, context, 0, factors);
  keys.take_findings(local_keys);
  return rope;
}

int32_t scaled_context(ConfigKeys& keys, const RopeConfig& rope, int32_t context) {
  if (rope.scaling != RopeScaling::kYarn) return context;
  bool has_original = false;
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    has_original |= keys.has(key) && keys.node(key).has("original_max_position_embeddings");
  }
  const double scaled = static_cast<double>(rope.factor) * rope.original_context;
  const bool longer = has_original && scaled > context && scaled <= kMaxContext;
  return longer ? static_cast<int32_t>(scaled) : context;
}

}  // namespace moe
