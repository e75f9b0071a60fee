// SPDX-License-Identifier: MIT
// Merges the added tokens of all files by id and text, and marks the special ones.
#include "src/convert/tokenizer/special_tokens.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <set>

#include "formats/import/failure.h"

namespace moe {
namespace {

constexpr const char* kNamed[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                  "pad_token", "cls_token", "mask_token"};

// An entry of added_tokens_decoder as one of added_tokens, with the defaults of `transformers`.
Json added_token(const JsonNode& token, uint64_t id) {
  const bool special = token.boolean("special", false);
  return {{"id", id},
          {"content", token.at("content").string()},
          {"special", special},
          {"lstrip", token.boolean("lstrip", false)},
          {"rstrip", token.boolean("rstrip", false)},
          {"single_word", token.boolean("single_word", false)},
          {"normalized", token.boolean("normalized", !special)}};
}

Json special_token(const std::string& text, uint64_t id) {
  return {{"id", id},        {"content", text},      {"special", true},    {"lstrip", false},
          {"rstrip", false}, {"single_word", false}, {"normalized", false}};
}

// Why a text is a special token, and what the files say about it.
struct SpecialText {
  bool given = false;  // by the files, and not only by the class
  bool named = false;  // by a "*_token" key or by the class, and not only in a list
  Json token = {};     // {"content": text, "lstrip": ...}; null where only the text is there
};

std::map<std::string, SpecialText> special_texts(const Json& config, const ClassChoice& choice) {
  std::map<std::string, SpecialText> out;
  const JsonNode node(config, kTokenizerConfig);
  const auto take = [&](const std::string& text, bool given, bool named = true,
                        const Json& token = {}) {
    if (text.empty()) return;
    SpecialText& entry = out[text];
    entry.given = entry.given || given;
    entry.named = entry.named || named;
    if (token.is_object() && entry.token.is_null()) entry.token = token;
  };
  if (choice.steps != nullptr) {
    const Json defaults = parse_json(choice.steps->tokens, choice.steps->name);
    for (const auto& [key, text] : defaults.items()) {
      if (!config.contains(key)) take(text.text(), false);
    }
  }
  if (!config.is_object()) return out;
  for (const auto& [key, value] : config.items()) {
    const bool named = std::find(std::begin(kNamed), std::end(kNamed), key) != std::end(kNamed);
    if (named || (key.ends_with("_token") && (value.is_string() || value.contains("content")))) {
      take(token_name(node, key.c_str()), true, true, value);
    }
  }
  const auto take_list = [&](const char* key) {
    const Json* const list = config.find(key);
    if (list == nullptr || list->size() == 0) return false;
    const auto text = [&](const Json& token) {
      take(token.is_string() ? token.text() : text_member(token, "content"), true,
           list->is_object(), token);
    };
    if (list->is_array()) std::for_each(list->begin(), list->end(), text);
    if (list->is_object()) {
      for (const auto& [name, token] : list->items()) text(token);
    }
    return true;
  };
  if (!take_list("extra_special_tokens")) take_list("additional_special_tokens");
  return out;
}

// Those of added_tokens.json, by id.
std::map<uint64_t, Json> legacy_tokens(const Json& added, const Json& config) {
  std::map<uint64_t, Json> out;
  if (!added.is_object()) return out;
  const auto special = special_texts(config, {});
  for (const auto& [text, id] : added.items()) {
    if (!id.is_number_unsigned()) continue;
    const auto n = id.get<uint64_t>();
    out[n] = special_token(text, n);
    out[n]["special"] = special.contains(text);
    out[n]["normalized"] = !special.contains(text);
  }
  return out;
}

void override_properties(const Json& token, Json* known) {
  for (const char* key : {"lstrip", "rstrip", "single_word", "normalized"}) {
    (*known)[key] = token.at(key);
  }
  if (token.at("special").get<bool>()) (*known)["special"] = true;
}

bool has_properties(const Json& token) {
  for (const char* key : {"lstrip", "rstrip", "single_word", "normalized"}) {
    if (token.contains(key) && token.at(key) == Json(true)) return true;
  }
  return false;
}

// A token that only the vocabulary has, with the properties that the files give it. As in
// `transformers`, they do not override those of a token that is added elsewhere, and Qwen2's class
// (`plain`) drops them.
Json vocabulary_token(const std::string& text, uint64_t id, const SpecialText& why, bool plain) {
  Json out = special_token(text, id);
  if (plain || !why.token.is_object()) return out;
  const JsonNode given(why.token, std::string(kTokenizerConfig) + ": \"" + text + "\"");
  for (const char* key : {"lstrip", "rstrip", "single_word"}) {
    out[key] = given.boolean(key, false);
  }
  out["normalized"] = given.boolean("normalized", !why.named);
  return out;
}

std::string quoted_list(const std::vector<std::string>& names) {
  constexpr size_t kMost = 8;
  std::string out;
  for (size_t i = 0; i < std::min(names.size(), kMost); ++i) {
    out += (i == 0 ? "\"" : ", \"") + names[i].substr(0, 60) + "\"";
  }
  if (names.size() > kMost) out += " and " + std::to_string(names.size() - kMost) + " more";
  return out;
}

}  // namespace

std::map<uint64_t, Json> tokens_by_id(const JsonNode& list) {
  if (!list.value().is_object()) list.fail_expected("an object");
  std::map<uint64_t, Json> out;
  for (const auto& [key, token] : list.value().items()) {
    uint64_t id = 0;
    const auto end = std::from_chars(key.data(), key.data() + key.size(), id);
    if (end.ec != std::errc() || end.ptr != key.data() + key.size()) {
      fail(MOE_ERR_FORMAT, "%s: \"%.60s\" is not a token's id", list.path().c_str(), key.c_str());
    }
    out[id] = added_token(JsonNode(token, list.path() + "[\"" + key + "\"]"), id);
  }
  return out;
}

std::string token_name(const JsonNode& node, const char* key) {
  if (!node.has(key)) return "";
  const JsonNode token = node.at(key);
  return token.value().is_object() ? token.at("content").string() : token.string();
}

int64_t token_id(const Json& tokenizer, const std::string& name) {
  const auto number = [](const Json* id) {
    return id != nullptr && id->is_number_unsigned() ? id->get<int64_t>() : int64_t{-1};
  };
  if (const Json* const added = tokenizer.find("added_tokens"); added && added->is_array()) {
    for (const Json& token : *added) {
      if (text_member(token, "content") == name) return number(token.find("id"));
    }
  }
  const Json* const model = tokenizer.find("model");
  const Json* const vocab = model != nullptr ? model->find("vocab") : nullptr;
  if (vocab != nullptr && vocab->is_object()) return number(vocab->find(name));
  for (size_t i = 0; vocab != nullptr && vocab->is_array() && i < vocab->size(); ++i) {
    const Json& piece = (*vocab)[i];
    if (piece.is_array() && piece.size() > 0 && piece[0] == Json(name)) {
      return static_cast<int64_t>(i);
    }
  }
  return -1;
}

Json with_special_map(Json config, const Json& map) {
  if (config.is_null()) config = Json::object();
  if (!config.is_object() || !map.is_object() || config.contains("added_tokens_decoder")) {
    return config;
  }
  for (const auto& [key, value] : map.items()) config[key] = value;
  return config;
}

void add_tokens(const Json& config, const Json& added_tokens, const ClassChoice& choice,
                Json* tokenizer, std::vector<std::string>* warnings) {
  const bool listed = JsonNode(config, kTokenizerConfig).has("added_tokens_decoder");
  std::map<uint64_t, Json> tokens =
      listed ? tokens_by_id(JsonNode(config, kTokenizerConfig).at("added_tokens_decoder"))
             : legacy_tokens(added_tokens, config);
  std::map<std::string, const Json*> of_config;
  for (const auto& [id, token] : tokens) of_config[token.at("content").text()] = &token;
  Json& added = (*tokenizer)["added_tokens"];
  if (added.is_null()) added = Json::array();
  std::set<std::string> known;
  std::vector<std::string> only_here;
  JsonNode(added, "tokenizer.json: added_tokens").elements();  // checks that it is an array
  for (size_t i = 0; i < added.size(); ++i) {
    const std::string text =
        JsonNode(added[i], "tokenizer.json: added_tokens").at("content").string();
    known.insert(text);
    const auto found = of_config.find(text);
    if (listed && found != of_config.end()) override_properties(*found->second, &added[i]);
    if (listed && found == of_config.end()) only_here.push_back(text);
  }
  for (auto& [id, token] : tokens) {
    if (known.insert(token.at("content").text()).second) added.push_back(std::move(token));
  }
  if (choice.name.empty() || only_here.empty()) return;
  warnings->push_back(std::string(kTokenizerConfig) + ": added_tokens_decoder lacks " +
                      quoted_list(only_here) +
                      ", added tokens of tokenizer.json; they are kept, but "
                      "the class " +
                      choice.name + " of transformers 5 would lose them");
}

void mark_special_tokens(const Json& config, const ClassChoice& choice, Json* tokenizer,
                         std::vector<std::string>* warnings) {
  const auto special = special_texts(config, choice);
  const bool restores = choice.name == "Qwen2Tokenizer";  // it adds them again, as plain ones
  std::set<std::string> known;
  std::vector<std::string> stripping;
  for (Json& token : (*tokenizer)["added_tokens"].elements()) {
    const std::string text = text_member(token, "content");
    known.insert(text);
    const auto found = special.find(text);
    if (found == special.end() || !(found->second.named || restores)) continue;
    token["special"] = true;
    if (restores && has_properties(token)) stripping.push_back(text);
  }
  std::vector<std::string> missing;
  for (const auto& [text, why] : special) {
    if (known.contains(text)) continue;
    const int64_t id = token_id(*tokenizer, text);
    if (id >= 0) {
      (*tokenizer)["added_tokens"].push_back(
          vocabulary_token(text, static_cast<uint64_t>(id), why, restores));
    } else if (why.given) {
      missing.push_back(text);
    }
  }
  if (!stripping.empty()) {
    warnings->push_back(choice.place + ": the class " + choice.name +
                        " of transformers 5 leaves the white space around " +
                        quoted_list(stripping) + " alone; the token's own properties count");
  }
  if (missing.empty()) return;
  warnings->push_back(std::string(kTokenizerConfig) + ": the vocabulary lacks the special token" +
                      (missing.size() == 1 ? " " : "s ") + quoted_list(missing) +
                      ", which a text can therefore not contain");
}

}  // namespace moe
