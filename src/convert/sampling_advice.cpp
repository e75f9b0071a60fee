// SPDX-License-Identifier: MIT
// Accepts the settings that the sampler has, and warns of those it lacks unless they are off.
#include "src/convert/sampling_advice.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string_view>

namespace moe {
namespace {

constexpr const char* kDocument = "generation_config.json";
constexpr std::string_view kGgufPrefix = "general.sampling.";

// Keys of generation_config.json that do not say how a token is chosen: ids, limits of lengths,
// what a call returns and how it is computed, and what only beams or a helper model use.
constexpr std::string_view kOther[] = {"assistant_confidence_threshold",
                                       "assistant_early_exit",
                                       "assistant_lookbehind",
                                       "assistant_token_id",
                                       "bos_token_id",
                                       "cache_config",
                                       "cache_implementation",
                                       "chat_format",
                                       "compile_config",
                                       "continuous_batching_config",
                                       "decoder_start_token_id",
                                       "disable_compile",
                                       "early_stopping",
                                       "eos_token_id",
                                       "is_assistant",
                                       "length_penalty",
                                       "low_memory",
                                       "max_length",
                                       "max_matching_ngram_size",
                                       "max_new_tokens",
                                       "max_time",
                                       "max_window_size",
                                       "num_assistant_tokens",
                                       "num_assistant_tokens_schedule",
                                       "num_return_sequences",
                                       "output_attentions",
                                       "output_hidden_states",
                                       "output_logits",
                                       "output_scores",
                                       "pad_token_id",
                                       "prefill_chunk_size",
                                       "prompt_lookup_num_tokens",
                                       "remove_invalid_values",
                                       "renormalize_logits",
                                       "return_dict_in_generate",
                                       "return_legacy_cache",
                                       "target_lookbehind",
                                       "token_healing",
                                       "transformers_version",
                                       "trust_remote_code",
                                       "use_cache",
                                       "use_model_defaults",
                                       "user_token_id"};

// Settings that the sampler does not have, with the number that switches them off.
constexpr struct {
  std::string_view name;
  double off;
} kOff[] = {{"typical_p", 1},
            {"top_h", 0},
            {"epsilon_cutoff", 0},
            {"eta_cutoff", 0},
            {"presence_penalty", 0},
            {"frequency_penalty", 0},
            {"no_repeat_ngram_size", 0},
            {"encoder_no_repeat_ngram_size", 0},
            {"encoder_repetition_penalty", 1},
            {"diversity_penalty", 0},
            {"penalty_alpha", 0},
            {"guidance_scale", 1},
            {"num_beams", 1},
            {"num_beam_groups", 1},
            {"min_length", 0},
            {"min_new_tokens", 0},
            {"mirostat", 0},
            {"xtc_probability", 0}};

bool is_off(const std::string& name, const Json& value) {
  if (value.is_null() || value == Json(false)) return true;
  if (value.is_array() && value.size() == 0) return true;
  return std::any_of(std::begin(kOff), std::end(kOff),
                     [&](const auto& off) { return name == off.name && value == Json(off.off); });
}

std::string shown(const Json& value) {
  constexpr size_t kMost = 40;
  const std::string text = value.dump();
  return text.size() <= kMost ? text : text.substr(0, kMost) + " ...";
}

// Settings by their names in one kind of file.
class AdviceReader {
 public:
  AdviceReader(std::string place, Json::Object settings, ModelConfig* config)
      : place_(std::move(place)), settings_(std::move(settings)), config_(config) {}

  void number(const char* name, float SamplingAdvice::*field) {
    const std::optional<Json> value = take(name);
    if (!value) return;
    if (!value->is_number()) return refuse(name, "expected a number, found " + shown(*value));
    SamplingAdvice fresh = advice;
    fresh.*field = static_cast<float>(std::clamp(value->get<double>(), -1e30, 1e30));
    if (fresh.*field < 0) return refuse(name, "expected at least 0, found " + shown(*value));
    keep(fresh);
  }

  // Below 0: as 0.
  void count(const char* name, int32_t SamplingAdvice::*field) {
    constexpr double kMost = 1 << 30;
    const std::optional<Json> value = take(name);
    if (!value) return;
    const double n = value->is_number() ? value->get<double>() : 0.5;
    if (!(n >= -kMost && n <= kMost) || n != std::floor(n)) {
      return refuse(name, "expected an integer, found " + shown(*value));
    }
    SamplingAdvice fresh = advice;
    fresh.*field = std::max(0, static_cast<int32_t>(n));
    keep(fresh);
  }

  std::optional<bool> flag(const char* name) {
    const std::optional<Json> value = take(name);
    if (!value) return std::nullopt;
    if (value->is_boolean()) return value->get<bool>();
    refuse(name, "expected true or false, found " + shown(*value));
    return std::nullopt;
  }

  std::optional<Json> take(const char* name) {
    const auto found = settings_.find(std::string_view(name));
    if (found == settings_.end()) return std::nullopt;
    const Json value = found->second;
    settings_.erase(found);
    return value.is_null() ? std::nullopt : std::optional(value);
  }

  bool switched_off(const char* name) const {
    const auto found = settings_.find(std::string_view(name));
    return found == settings_.end() || is_off(name, found->second);
  }

  /// Names what is left.
  void finish() {
    std::string names;
    for (const auto& [name, value] : settings_) {
      const bool other = std::find(std::begin(kOther), std::end(kOther), name) != std::end(kOther);
      if (other || name.starts_with('_') || is_off(name, value)) continue;
      names += (names.empty() ? "" : ", ") + name + " " + shown(value);
    }
    if (!names.empty()) {
      warnings.push_back(place_ +
                         ": not taken over, as sampling here has no such setting: " + names);
    }
  }

  SamplingAdvice advice;
  std::vector<std::string> warnings;

 private:
  void keep(const SamplingAdvice& fresh) {
    config_->sampling = fresh;
    const Status valid = validate(*config_);
    if (valid.ok()) {
      advice = fresh;
    } else {
      warn(valid.text());
    }
  }
  void refuse(const std::string& name, const std::string& why) { warn(name + ": " + why); }
  void warn(const std::string& what) {
    warnings.push_back(place_ + ": " + what + "; it is not taken over");
  }

  std::string place_;
  Json::Object settings_;
  ModelConfig* config_;  // of which only the advice is tried
};

// These have the same names in both kinds of file.
void read_filters(AdviceReader* in) {
#define MOE_SAMPLING_FILTER(name, off, range, text) in->number(#name, &SamplingAdvice::name);
#include "src/model/sampling_list.h"
}

// `transformers` samples only where do_sample says so; other programs, and most checkpoints without
// it, mean the settings that they give.
void read_document(AdviceReader* in) {
  const std::optional<bool> sample = in->flag("do_sample");
  in->number("repetition_penalty", &SamplingAdvice::repetition_penalty);
  SamplingAdvice& advice = in->advice;
  if (sample && !*sample) {
    for (const char* unused : {"temperature", "top_k"}) in->take(unused);
#define MOE_SAMPLING_FILTER(name, off, range, text) in->take(#name);
#include "src/model/sampling_list.h"
    advice.temperature = 0;
    return;
  }
  in->number("temperature", &SamplingAdvice::temperature);
  in->count("top_k", &SamplingAdvice::top_k);
  read_filters(in);
  if (sample && advice.temperature < 0) advice.temperature = 1;
}

// Keys of llama.cpp.
void read_gguf(AdviceReader* in) {
  constexpr int32_t kWindow = 64;  // where the file gives none
  SamplingAdvice& advice = in->advice;
  in->number("temp", &SamplingAdvice::temperature);
  in->count("top_k", &SamplingAdvice::top_k);
  read_filters(in);
  const std::optional<Json> window = in->take("penalty_last_n");
  advice.repetition_window = kWindow;
  if (window && window->is_number_integer()) {
    const auto n = window->get<int64_t>();
    advice.repetition_window = static_cast<int32_t>(std::clamp<int64_t>(n, 0, 1 << 30));
    if (n == 0) in->take("penalty_repeat");  // nothing is penalised
  }
  in->number("penalty_repeat", &SamplingAdvice::repetition_penalty);
  for (const auto& [name, helps] : {std::pair{"mirostat", "mirostat_tau"},
                                    {"mirostat", "mirostat_eta"},
                                    {"xtc_probability", "xtc_threshold"}}) {
    if (in->switched_off(name)) in->take(helps);
  }
}

bool says_something(const SamplingAdvice& advice) {
  bool any = advice.temperature >= 0 || advice.top_k != 0 || advice.repetition_penalty != 1;
#define MOE_SAMPLING_FILTER(name, off, range, text) any = any || advice.name != off;
#include "src/model/sampling_list.h"
  return any;
}

}  // namespace

void read_sampling_advice(const Checkpoint& checkpoint, Imported* imported) {
  ModelConfig& config = imported->config;
  if (config.is_encoder() || config.is_encoder_decoder()) return;
  const bool gguf = !checkpoint.metadata().is_null();
  Json::Object settings;
  if (gguf) {
    for (const auto& [key, value] : checkpoint.metadata().items()) {
      if (key.starts_with(kGgufPrefix)) settings.emplace(key.substr(kGgufPrefix.size()), value);
    }
  } else if (checkpoint.has_document(kDocument)) {
    const Json document = checkpoint.document(kDocument);
    JsonNode(document, kDocument).has("");  // an object
    settings = document.items();
  }
  AdviceReader in(gguf ? checkpoint.path() + ": general.sampling" : kDocument, std::move(settings),
                  &config);
  gguf ? read_gguf(&in) : read_document(&in);
  in.finish();
  config.sampling = in.advice;
  config.sampling.given = says_something(in.advice);
  imported->warnings.insert(imported->warnings.end(), in.warnings.begin(), in.warnings.end());
}

}  // namespace moe
