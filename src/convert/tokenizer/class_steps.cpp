// SPDX-License-Identifier: MIT
// Changes steps as the keys that a class reads say, and warns where its other steps are not
// tokenizer.json's.
#include "src/convert/tokenizer/class_steps.h"

#include <algorithm>
#include <functional>

#include "src/convert/tokenizer/tokenizer_prefix.h"

namespace moe {
namespace {

const char* word(bool value) { return value ? "true" : "false"; }

bool is(const Json& step, const char* type) { return text_member(step, "type") == type; }

Json member(const Json& step, const char* key, const Json& fallback) {
  const Json* const value = step.find(key);
  return value == nullptr || value->is_null() ? fallback : *value;
}

// Only what ids depend on, except a ByteLevel's prefix space, which is compared on its own.
Json essence(const Json& step) {
  const std::string type = text_member(step, "type");
  if (type == "Precompiled") return {{"type", type}};
  if (type == "ByteLevel") return {{"type", type}, {"use_regex", member(step, "use_regex", true)}};
  if (type == "Metaspace") {
    const bool never = member(step, "add_prefix_space", true) == Json(false);
    return {{"type", type},
            {"replacement", member(step, "replacement", "▁")},
            {"scheme", never ? Json("never") : member(step, "prepend_scheme", "always")},
            {"split", member(step, "split", true)}};
  }
  if (type == "Split") {
    return {{"type", type},
            {"pattern", member(step, "pattern", nullptr)},
            {"behavior", member(step, "behavior", nullptr)},
            {"invert", member(step, "invert", false)}};
  }
  if (type == "BertNormalizer") {
    return {{"type", type},
            {"clean", member(step, "clean_text", true)},
            {"chinese", member(step, "handle_chinese_chars", true)},
            {"accents", member(step, "strip_accents", nullptr)},
            {"lowercase", member(step, "lowercase", true)}};
  }
  return step;
}

struct Steps {
  Json::Array normalizers;
  Json::Array pre_tokenizers;
};

void drop(Json::Array* steps, const std::function<bool(const Json&)>& which) {
  steps->erase(std::remove_if(steps->begin(), steps->end(), which), steps->end());
}

bool has(const Json::Array& steps, const std::function<bool(const Json&)>& which) {
  return std::any_of(steps.begin(), steps.end(), which);
}

std::function<bool(const Json&)> replaces(const char* kind, const char* pattern,
                                          const char* content) {
  const Json wanted = {{kind, pattern}};
  return [=](const Json& step) {
    return is(step, "Replace") && member(step, "pattern", nullptr) == wanted &&
           text_member(step, "content") == content;
  };
}

// Writes steps that do the same in the same way, if no token is searched between normalizer and
// pre_tokenizer.
void unify(Steps* s) {
  const auto words = [](const Json& step) { return is(step, "WhitespaceSplit"); };
  const auto runs_to_mark = replaces("Regex", " {2,}", "▁");
  // As SentencePiece's own cleaning of spaces is written by newer and older converters.
  if (has(s->normalizers, [](const Json& step) { return is(step, "Precompiled"); }) &&
      has(s->normalizers, runs_to_mark) && s->pre_tokenizers.size() == 1 &&
      is(s->pre_tokenizers[0], "Metaspace")) {
    drop(&s->normalizers,
         [&](const Json& step) { return runs_to_mark(step) || is(step, "Strip"); });
    const Json split = {{"type", "WhitespaceSplit"}};
    s->pre_tokenizers.insert(s->pre_tokenizers.begin(), split);
  }
  if (has(s->pre_tokenizers, words)) drop(&s->normalizers, replaces("Regex", " {2,}", " "));
  const Json in_one_piece = {
      {"type", "Metaspace"}, {"replacement", "▁"}, {"scheme", "never"}, {"split", false}};
  if (s->pre_tokenizers == Json::Array{in_one_piece}) {
    s->pre_tokenizers.clear();
    s->normalizers.push_back(
        {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", "▁"}});
  }
}

// Splitting at spaces does nothing where none are left.
void drop_idle_split(Steps* s) {
  if (!has(s->normalizers, replaces("String", " ", "▁"))) return;
  const Json space = {{"String", " "}};
  drop(&s->pre_tokenizers, [&](const Json& step) {
    return is(step, "Split") && member(step, "pattern", nullptr) == space;
  });
}

bool has_normalized_tokens(const Json& tokenizer) {
  const Json* const added = tokenizer.find("added_tokens");
  return added != nullptr && std::any_of(added->begin(), added->end(), [](const Json& token) {
           return member(token, "normalized", false) == Json(true);
         });
}

Steps steps_of(const Json& tokenizer, bool unified) {
  Steps out;
  for (const Json& step : flat_steps(tokenizer.find("normalizer"), "normalizers")) {
    const bool empty = is(step, "Precompiled") &&
                       member(step, "precompiled_charsmap", "").is_string() &&
                       member(step, "precompiled_charsmap", "").text().empty();
    if (!empty) out.normalizers.push_back(essence(step));
  }
  for (const Json& step : flat_steps(tokenizer.find("pre_tokenizer"), "pretokenizers")) {
    out.pre_tokenizers.push_back(essence(step));
  }
  if (unified) unify(&out);
  drop_idle_split(&out);
  return out;
}

Json model_essence(const Json& model) {
  const Json no_text = "";
  const char* const untyped = model.contains("merges") ? "BPE" : "Unigram";
  const Json type = member(model, "type", untyped);
  Json out = {{"type", type}, {"byte_fallback", member(model, "byte_fallback", false)}};
  if (type == "BPE") {
    out["ignore_merges"] = member(model, "ignore_merges", false);
    out["prefix"] = member(model, "continuing_subword_prefix", no_text);
    out["suffix"] = member(model, "end_of_word_suffix", no_text);
  } else if (type == "Unigram") {
    out["unk_id"] = member(model, "unk_id", nullptr);
  } else {
    out["prefix"] = member(model, "continuing_subword_prefix", "##");
  }
  return out;
}

// The rule for the space before a text, by the keys of a class.
struct Prefix {
  std::optional<bool> given;
  bool legacy = false;
  bool wanted = false;
  const char* scheme = "always";  // of the class, if it wants a space
};

Prefix prefix_of(const TokenizerClass& c, const Json& config) {
  Prefix out;
  out.given = config_flag(config, "add_prefix_space");
  out.legacy = config_flag(config, "legacy").value_or(false);
  out.wanted = out.given.value_or(c.prefix != PrefixSpace::kByteLevel);
  const bool code = std::string(c.name) == "CodeLlamaTokenizer";
  const bool first = c.prefix == PrefixSpace::kLlama ? !out.legacy : code;
  // The class takes null for false; here it is no wish, so that the file counts.
  if (c.prefix == PrefixSpace::kMetaspace && !code && !out.given) {
    out.wanted = !config.contains("add_prefix_space");
  }
  if (first) out.scheme = "first";
  return out;
}

// The class's own steps, with what the keys change in them.
Steps class_steps(const TokenizerClass& c, const Prefix& prefix, bool unified) {
  const bool has_scheme = c.prefix == PrefixSpace::kMetaspace || c.prefix == PrefixSpace::kLlama;
  Json own = {{"normalizer", parse_json(c.normalizer, c.name)},
              {"pre_tokenizer", parse_json(c.pre_tokenizer, c.name)}};
  each_step(&own, "pre_tokenizer", [&](Json* step) {
    if (!has_scheme || !is(*step, "Metaspace")) return;
    (*step)["prepend_scheme"] = prefix.wanted ? prefix.scheme : "never";
  });
  return steps_of(own, unified);
}

std::string settings_text(const TokenizerClass& c, const Prefix& prefix) {
  if (c.prefix != PrefixSpace::kLlama) return "";
  return std::string(" (legacy ") + word(prefix.legacy) + ", add_prefix_space " +
         word(prefix.wanted) + ")";
}

void compare_steps(const Json& tokenizer, const ClassChoice& choice, const Prefix& prefix,
                   const Json& bert, std::vector<std::string>* warnings) {
  const TokenizerClass& c = *choice.steps;
  const bool unified = !has_normalized_tokens(tokenizer);
  Steps wanted = class_steps(c, prefix, unified);
  if (!bert.is_null()) wanted.normalizers = {essence(bert)};
  const auto precompiled = [](const Json& step) { return is(step, "Precompiled"); };
  const Steps found = steps_of(tokenizer, unified);
  // A class with a charsmap has that of the file, or none.
  if (!has(found.normalizers, precompiled)) drop(&wanted.normalizers, precompiled);
  std::string names;
  const auto differs = [&](const char* name) {
    names += (names.empty() ? "" : ", ") + std::string(name);
  };
  if (found.normalizers != wanted.normalizers) differs("normalizer");
  if (found.pre_tokenizers != wanted.pre_tokenizers) differs("pre_tokenizer");
  const Json* const model = tokenizer.find("model");
  if (model != nullptr && model_essence(*model) != model_essence(parse_json(c.model, c.name))) {
    differs("model");
  }
  if (names.empty()) return;
  warnings->push_back(choice.place + ": the class " + choice.name + settings_text(c, prefix) +
                      " of transformers 5 has steps of its own in the place of " + names +
                      "; tokenizer.json counts, and ids can differ from that class's");
}

// The normalizer that BERT's keys ask for; null for other classes.
Json bert_normalizer(const TokenizerClass& c, const Json& config) {
  if (std::string(c.name) != "BertTokenizer") return nullptr;
  const std::optional<bool> accents = config_flag(config, "strip_accents");
  return {{"type", "BertNormalizer"},
          {"clean_text", true},
          {"handle_chinese_chars", config_flag(config, "tokenize_chinese_chars").value_or(true)},
          {"strip_accents", accents ? Json(*accents) : Json(nullptr)},
          {"lowercase", config_flag(config, "do_lower_case").value_or(true)}};
}

void obey_bert(Json* tokenizer, const Json& wanted, std::vector<std::string>* warnings) {
  if (wanted.is_null()) return;
  each_step(tokenizer, "normalizer", [&](Json* step) {
    if (!is(*step, "BertNormalizer") || essence(*step) == essence(wanted)) return;
    *step = wanted;
    warnings->push_back(std::string(kTokenizerConfig) +
                        ": do_lower_case, strip_accents and tokenize_chinese_chars, or their "
                        "defaults in this class, override the normalizer of tokenizer.json");
  });
}

void obey_prefix(Json* tokenizer, const ClassChoice& choice, const Prefix& prefix,
                 std::vector<std::string>* warnings) {
  const PrefixSpace kind = choice.steps == nullptr ? PrefixSpace::kIgnored : choice.steps->prefix;
  const bool by_default = kind == PrefixSpace::kByteLevel;
  if (!prefix.given && !by_default) return;
  if (set_prefix_space(tokenizer, kind, prefix.wanted, prefix.scheme)) {
    warnings->push_back(
        prefix.given ? std::string(kTokenizerConfig) + ": add_prefix_space " + word(prefix.wanted) +
                           " overrides tokenizer.json, which says otherwise"
                     : choice.place + ": the class " + choice.name +
                           " adds no space before a text unless add_prefix_space is true; this "
                           "overrides tokenizer.json, which adds one");
  } else if (prefix.given && adds_prefix_space(*tokenizer) != *prefix.given) {
    warnings->push_back(std::string(kTokenizerConfig) + ": add_prefix_space " +
                        word(*prefix.given) +
                        " is not obeyed: tokenizer.json says otherwise, and it counts");
  }
}

}  // namespace

std::optional<bool> config_flag(const Json& config, const char* key) {
  const Json* const value = config.find(key);
  if (value == nullptr || value->is_null()) return std::nullopt;
  return JsonNode(config, kTokenizerConfig).at(key).boolean();
}

void obey_class(Json* tokenizer, const ClassChoice& choice, const Json& config,
                std::vector<std::string>* warnings) {
  Prefix prefix;
  if (choice.steps != nullptr) {
    prefix = prefix_of(*choice.steps, config);
  } else {
    prefix.given = config_flag(config, "add_prefix_space");
    prefix.wanted = prefix.given.value_or(false);
  }
  obey_prefix(tokenizer, choice, prefix, warnings);
  if (choice.steps != nullptr) {
    const Json bert = bert_normalizer(*choice.steps, config);
    obey_bert(tokenizer, bert, warnings);
    compare_steps(*tokenizer, choice, prefix, bert, warnings);
  } else if (!choice.name.empty()) {
    warnings->push_back(choice.place + ": the class " + choice.name +
                        " of transformers 5 has steps of its own; tokenizer.json counts, and ids "
                        "can differ from that class's");
  }
}

}  // namespace moe
