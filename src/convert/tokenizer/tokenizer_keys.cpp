// SPDX-License-Identifier: MIT
// The list of known keys, and what is said of the others.
#include "src/convert/tokenizer/tokenizer_keys.h"

#include <algorithm>

namespace moe {
namespace {

// Keys that are obeyed, or that change neither ids nor texts here: lengths, padding and truncation
// of batches, offsets, bookkeeping, and what only tokenizers written in Python read.
constexpr const char* kKnown[] = {
    "_commit_hash",
    "add_bos_token",
    "add_eos_token",
    "add_prefix_space",
    "added_tokens_decoder",
    "additional_special_tokens",
    "auto_map",
    "backend",
    "chat_control_tokens",
    "chat_template",
    "clean_up_tokenization_spaces",
    "clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output",
    "comment",
    "device_map",
    "do_basic_tokenize",
    "do_lower_case",
    "errors",
    "extra_ids",
    "extra_special_tokens",
    "fast_tokenizer_files",
    "files_loaded",
    "fix_mistral_regex",
    "from_slow",
    "init_inputs",
    "is_local",
    "keep_accents",
    "legacy",
    "local_files_only",
    "max_len",
    "max_length",
    "merges_file",
    "model_input_names",
    "model_max_length",
    "model_specific_special_tokens",
    "name_or_path",
    "never_split",
    "normalizer_file",
    "pad_to_multiple_of",
    "pad_token_type_id",
    "padding",
    "padding_side",
    "processor_class",
    "remove_space",
    "response_schema",
    "response_template",
    "return_token_type_ids",
    "revision",
    "separate_vocabs",
    "source_lang",
    "sp_model_kwargs",
    "spaces_between_special_tokens",
    "special_tokens_map_file",
    "split_special_tokens",
    "src_lang",
    "stride",
    "strip_accents",
    "target_lang",
    "tgt_lang",
    "tokenize_chinese_chars",
    "tokenizer_class",
    "tokenizer_file",
    "transformers_version",
    "trim_offsets",
    "truncation",
    "truncation_side",
    "truncation_strategy",
    "trust_remote_code",
    "unk_id",
    "use_default_system_prompt",
    "use_fast",
    "verbose",
    "vocab_file",
};

bool is_true(const Json& config, const char* key) {
  const Json* const value = config.find(key);
  return value != nullptr && *value == Json(true);
}

bool is_known(const std::string& key, const Json& value) {
  if (value.is_null() || key.ends_with("_token")) return true;
  return std::any_of(std::begin(kKnown), std::end(kKnown),
                     [&](const char* known) { return key == known; });
}

bool has_code(const Json& config) {
  const Json* const map = config.find("auto_map");
  if (map == nullptr) return false;
  return map->is_array() ? map->size() > 0 : map->contains("AutoTokenizer");
}

bool cleans_up(const Json& config, const Json& tokenizer) {
  const Json* const model = tokenizer.find("model");
  if (model == nullptr || !is_true(config, "clean_up_tokenization_spaces")) return false;
  return text_member(*model, "type") == "Unigram";  // never done for BPE; WordPiece does it itself
}

bool lowers_case(const Json& config, const ClassChoice& choice) {
  const bool bert = choice.steps != nullptr && std::string(choice.steps->name) == "BertTokenizer";
  return !bert && is_true(config, "do_lower_case");
}

}  // namespace

void warn_about_keys(const Json& config, const Json& tokenizer, const ClassChoice& choice,
                     std::vector<std::string>* warnings) {
  if (!config.is_object()) return;
  const auto warn = [&](const std::string& text) {
    warnings->push_back(std::string(kTokenizerConfig) + ": " + text);
  };
  if (is_true(config, "split_special_tokens")) {
    warn(
        "split_special_tokens is not obeyed: chat templates and whoever asks for special tokens "
        "still find them in a text; nobody else does");
  }
  if (cleans_up(config, tokenizer)) {
    warn(
        "clean_up_tokenization_spaces is not obeyed: the decoded text keeps its spaces before "
        "punctuation");
  }
  if (is_true(config, "clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output")) {
    warn("clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output is not obeyed");
  }
  if (is_true(config, "fix_mistral_regex")) {
    warn("fix_mistral_regex is not obeyed: the pattern of tokenizer.json counts");
  }
  if (lowers_case(config, choice)) {
    warn("do_lower_case is not obeyed: the normalizer of tokenizer.json counts");
  }
  if (has_code(config)) {
    warn("auto_map names code that is not run; tokenizer.json counts");
  }
  std::string unknown;
  for (const auto& [key, value] : config.items()) {
    if (!is_known(key, value)) unknown += (unknown.empty() ? "" : ", ") + key;
  }
  if (!unknown.empty()) warn("unknown keys are not obeyed: " + unknown);
}

}  // namespace moe
