// SPDX-License-Identifier: MIT
// Keeps the list of harmless keys, reports keys that nobody read, and names the keys that must not
// be ignored.
#include "src/convert/arch/config_keys.h"

#include <algorithm>
#include <cstdio>
#include <span>

#include "formats/import/failure.h"
#include "formats/import/shell_quoted.h"
#include "src/convert/arch/value_of.h"

namespace moe {
namespace {

// Written by `transformers` into every config.json: training, generation defaults, bookkeeping.
constexpr const char* kHarmless[] = {"add_cross_attention",
                                     "architectures",
                                     "attention_dropout",
                                     "attn_implementation",
                                     "attn_pdrop",
                                     "auto_map",
                                     "aux_loss_alpha",
                                     "bad_words_ids",
                                     "begin_suppress_tokens",
                                     "chunk_size_feed_forward",
                                     "comment",
                                     "cross_attention_hidden_size",
                                     "decoder_start_token_id",
                                     "diversity_penalty",
                                     "do_sample",
                                     "dropout",
                                     "dtype",
                                     "early_stopping",
                                     "embd_pdrop",
                                     "encoder_no_repeat_ngram_size",
                                     "exponential_decay_length_penalty",
                                     "finetuning_task",
                                     "forced_bos_token_id",
                                     "forced_eos_token_id",
                                     "gradient_checkpointing",
                                     "hidden_dropout",
                                     "id2label",
                                     "initializer_range",
                                     "is_decoder",
                                     "is_llama_config",
                                     "label2id",
                                     "length_penalty",
                                     "max_length",
                                     "min_length",
                                     "model_type",
                                     "name_or_path",
                                     "no_repeat_ngram_size",
                                     "num_beam_groups",
                                     "num_beams",
                                     "num_return_sequences",
                                     "output_attentions",
                                     "output_hidden_states",
                                     "output_router_logits",
                                     "output_scores",
                                     "prefix",
                                     "pretraining_tp",
                                     "problem_type",
                                     "pruned_heads",
                                     "remove_invalid_values",
                                     "repetition_penalty",
                                     "resid_pdrop",
                                     "return_dict",
                                     "return_dict_in_generate",
                                     "router_aux_loss_coef",
                                     "sep_token_id",
                                     "suppress_tokens",
                                     "task_specific_params",
                                     "temperature",
                                     "tie_encoder_decoder",
                                     "tokenizer_class",
                                     "top_k",
                                     "top_p",
                                     "torch_dtype",
                                     "torchscript",
                                     "transformers.js_config",
                                     "transformers_version",
                                     "typical_p",
                                     "unsloth_fixed",
                                     "unsloth_version",
                                     "use_bfloat16",
                                     "use_cache",
                                     "use_return_dict"};

// Ignoring these never gives the same model.
constexpr const char* kSignificant[] = {"attention_multiplier",  "attn_logit_softcapping",
                                        "embedding_multiplier",  "final_logit_softcapping",
                                        "logits_scaling",        "partial_rotary_factor",
                                        "query_pre_attn_scalar", "residual_multiplier",
                                        "rope_parameters",       "rope_scaling",
                                        "sliding_window"};

bool is_in(std::span<const char* const> names, const std::string& key) {
  return std::find(names.begin(), names.end(), key) != names.end();
}

constexpr Named<Activation> kActivationNames[] = {
    {Activation::kRelu, "relu"},
    {Activation::kRelu2, "relu2"},
    {Activation::kSilu, "silu"},
    {Activation::kSilu, "swish"},
    {Activation::kGelu, "gelu"},
    {Activation::kGeluTanh, "gelu_new"},
    {Activation::kGeluTanh, "gelu_pytorch_tanh"},
    {Activation::kGeluTanh, "gelu_fast"},
    {Activation::kGeluTanh, "gelu_accurate"},
};

std::string shown(const Json& value) {
  std::string text = value.dump();
  if (text.size() > 60) text = text.substr(0, 57) + "...";
  return text;
}

// Its path without the file's name, as --ignore-key takes it.
std::string key_of(const JsonNode& node) {
  const size_t end = node.path().find(": ");
  if (end == std::string::npos) return node.path();
  std::string key = node.path().substr(end + 2);
  const size_t within = key.find(": ");
  return within == std::string::npos ? key : key.replace(within, 2, ".");
}

constexpr size_t kListRoom = 180;  // bytes of keys and values in an error

// "key "a" with value 1" or "keys a (1), b (2)"; less, or only how many there are, if that takes
// more than `room` bytes.
std::string with_values(const std::vector<UnknownKey>& keys, size_t room) {
  if (keys.size() == 1) {
    const std::string key = "key \"" + keys[0].first.substr(0, 60) + "\"";
    const std::string both = key + " with value " + shown(keys[0].second);
    return both.size() <= room ? both : key;
  }
  std::string out = "keys ";
  for (const auto& [key, value] : keys) {
    out += (out.size() == 5 ? "" : ", ") + key + " (" + shown(value) + ")";
  }
  return out.size() <= room ? out : std::to_string(keys.size()) + " keys";
}

}  // namespace

void fail_value(const JsonNode& node, const std::string& reason) {
  fail(MOE_ERR_UNSUPPORTED, "%s: %s is not supported; %s", node.path().c_str(),
       shown(node.value()).c_str(), reason.c_str());
}

void fail_different(const JsonNode& one, const JsonNode& other) {
  fail(MOE_ERR_UNSUPPORTED,
       "%s is %s, but %s, which means the same, is %s; moe convert --ignore-key leaves one of them "
       "out",
       one.path().c_str(), shown(one.value()).c_str(), key_of(other).c_str(),
       shown(other.value()).c_str());
}

void check_same(const JsonNode& one, const JsonNode& other) {
  if (one.value() == other.value()) return;
  if (one.value().is_object() && other.value().is_object()) {
    for (const auto& [key, unused] : one.value().items()) {
      if (other.has(key.c_str())) check_same(one.at(key.c_str()), other.at(key.c_str()));
    }
  }
  const bool lists = one.value().is_array() && other.value().is_array();
  if (!lists || one.value().size() != other.value().size()) fail_different(one, other);
  const std::vector<JsonNode> ones = one.elements(), others = other.elements();
  for (size_t i = 0; i < ones.size(); ++i) check_same(ones[i], others[i]);
}

std::string says_method(const JsonNode& node, const char* method) {
  return node.path() + " says " + method;
}

float positive_of(const JsonNode& node) {
  const double value = node.number();
  if (!(value >= 1e-30 && value < 1e30))
    node.fail_expected("a number of at least 1e-30 and below 1e30");
  return static_cast<float>(value);
}

const char* ConfigKeys::either(const char* one, const char* other) {
  known_.insert(other);
  if (has(one) && has(other)) check_same(node(one), node(other));
  return has(one) || !has(other) ? one : other;
}

JsonNode ConfigKeys::node(const char* key) {
  known_.insert(key);
  return config_.at(key);
}

int32_t ConfigKeys::integer(const char* key, int32_t min, int32_t max) {
  return static_cast<int32_t>(node(key).integer(min, max));
}

int32_t ConfigKeys::integer(const char* key, int32_t fallback, int32_t min, int32_t max) {
  return has(key) ? integer(key, min, max) : fallback;
}

int32_t ConfigKeys::integer_or_derived(const char* key, int32_t value, int32_t min, int32_t max) {
  return has(key) || value < min || value > max ? integer(key, min, max) : value;
}

float ConfigKeys::number(const char* key) {
  (void)node(key).number();  // also if null
  return config_.number(key, 0);
}

float ConfigKeys::number(const char* key, float fallback) {
  return has(key) ? number(key) : fallback;
}

float ConfigKeys::number(const char* key, float fallback, float low, float high) {
  const float value = number(key, fallback);
  if (value >= low && value <= high) return value;
  char range[64];
  std::snprintf(range, sizeof range, "a number in %g..%g", static_cast<double>(low),
                static_cast<double>(high));
  node(key).fail_expected(range);
}

float ConfigKeys::positive(const char* key, float fallback) {
  return has(key) ? positive_of(node(key)) : fallback;
}

float ConfigKeys::eps(const char* key, float fallback) {
  const float value = fallback > 0 ? number(key, fallback) : number(key);
  if (!(value > 0 && value <= 1)) node(key).fail_expected("a number above 0 and at most 1");
  return value;
}

bool ConfigKeys::boolean(const char* key, bool fallback) {
  return has(key) ? node(key).boolean() : fallback;
}

Activation ConfigKeys::activation(const char* key) { return value_of(node(key), kActivationNames); }

std::vector<JsonNode> ConfigKeys::list(const char* key) {
  return has(key) ? node(key).elements() : std::vector<JsonNode>();
}

std::vector<JsonNode> ConfigKeys::list(const char* key, size_t n) {
  std::vector<JsonNode> out = list(key);
  if (has(key) && out.size() != n) {
    fail(MOE_ERR_SHAPE, "%s: expected %zu entries, found %zu", node(key).path().c_str(), n,
         out.size());
  }
  return out;
}

void ConfigKeys::check_divides(const char* key, int32_t part, const char* whole_key, int32_t whole,
                               const char* reason) {
  if (whole % part == 0) return;
  fail(MOE_ERR_SHAPE, "%s: %d does not divide %s %d%s", place(key).c_str(), part,
       spelled(whole_key).c_str(), whole, reason);
}

void ConfigKeys::require(const char* key, const Json& value) {
  if (!has(key) || node(key).value() == value) return;
  fail_value(node(key), "only " + shown(value) + " is");
}

void ConfigKeys::ignore(std::initializer_list<const char*> keys) {
  for (const char* key : keys) known_.insert(key);
}

void ConfigKeys::unknown_members(const JsonNode& object, std::initializer_list<const char*> known) {
  for (const std::string& key : object.others(known)) {
    if (object.has(key.c_str())) {
      unknown(object.member_path(key), object.at(key.c_str()).value());
    }
  }
}

void ConfigKeys::take_findings(const ConfigKeys& other) {
  unknown_.insert(unknown_.end(), other.unknown_.begin(), other.unknown_.end());
  warnings_.insert(warnings_.end(), other.warnings_.begin(), other.warnings_.end());
}

void ConfigKeys::check_all_understood(
    const std::function<std::string(const std::string& key)>& place_of) const {
  std::vector<UnknownKey> unknown, significant;
  for (const auto& [key, value] : config_.value().items()) {
    if (key.starts_with('_') || known_.contains(key) || !given(key.c_str())) continue;
    if (is_in(kHarmless, key)) continue;
    const std::string place = place_of ? place_of(spelled(key.c_str())) : "";
    if (!place.empty()) {
      fail(MOE_ERR_UNSUPPORTED, "%s with value %s is not supported for this architecture",
           place.c_str(), shown(value).c_str());
    }
    (is_in(kSignificant, key) ? significant : unknown)
        .emplace_back(config_.member_path(key), value);
  }
  if (!significant.empty()) {
    const bool one = significant.size() == 1;
    fail(MOE_ERR_UNSUPPORTED,
         "config.json: %s what the model computes, and this importer does not support %s",
         (with_values(significant, kListRoom) + (one ? " changes" : " change")).c_str(),
         one ? "it" : "them");
  }
  unknown.insert(unknown.end(), unknown_.begin(), unknown_.end());
  if (!unknown.empty()) fail_unknown_keys("config.json", unknown);
}

void fail_unknown_keys(const std::string& place, const std::vector<UnknownKey>& keys) {
  constexpr size_t kRoom = MOE_ERROR_TEXT_BYTES - 150;  // beside the sentence
  constexpr size_t kMostWords = 150;
  const std::string where = place.substr(0, 80);
  std::string words;
  size_t n = 0;
  for (const auto& [key, value] : keys) {
    const std::string more = (n == 0 ? "" : words + ",") + key;
    if (shell_quoted(more).size() > kMostWords) break;
    words = more;
    ++n;
  }
  std::string word = n == 0 ? "KEY" : shell_quoted(words);
  word.insert(0, word.starts_with('-') ? "=" : " ");
  const size_t n_more = n == 0 ? 0 : keys.size() - n;
  const std::string rest = n_more == 0 ? "" : "; and " + std::to_string(n_more) + " more";
  const size_t taken = where.size() + word.size() + rest.size();
  const std::string list = with_values(keys, taken < kRoom ? kRoom - taken : 0);
  const bool one = keys.size() == 1;
  fail(MOE_ERR_UNSUPPORTED,
       "%s: %s not known to this importer and may change what the model computes; if %s: moe "
       "convert --ignore-key%s%s",
       where.c_str(), (list + (one ? " is" : " are")).c_str(), one ? "it does not" : "they do not",
       word.c_str(), rest.c_str());
}

}  // namespace moe
