#include "src/convert/tokenizer/tokenizer_config.h"

#include <charconv>
#include <map>
#include <set>

#include "formats/import/failure.h"

namespace moe {
namespace {

constexpr size_t kMaxDepth = 8;

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

void add_tokens(const JsonNode& config, Json* tokenizer) {
  std::set<std::string> known;
  Json& added = (*tokenizer)["added_tokens"];
  if (added.is_null()) added = Json::array();
  for (const JsonNode& token : JsonNode(added, "tokenizer.json: added_tokens").elements()) {
    known.insert(token.at("content").string());
  }
  if (!config.has("added_tokens_decoder")) return;
  for (auto& [id, token] : tokens_by_id(config.at("added_tokens_decoder"))) {
    if (known.insert(token.at("content").text()).second) added.push_back(std::move(token));
  }
}

bool adds_tokens(const Json& processor, size_t depth = 0) {
  const Json* const type = processor.is_object() ? processor.find("type") : nullptr;
  if (type == nullptr || *type == "ByteLevel") return false;
  const Json* const parts = *type == "Sequence" ? processor.find("processors") : nullptr;
  if (parts == nullptr || !parts->is_array() || depth == kMaxDepth) return true;
  for (const Json& part : *parts) {
    if (adds_tokens(part, depth + 1)) return true;
  }
  return false;
}

// Null if the tokenizer lacks the token.
const Json* find_id(const Json& tokenizer, const std::string& name) {
  for (const Json& token : tokenizer.at("added_tokens")) {
    if (token.at("content") == name) return token.find("id");
  }
  const Json* const model = tokenizer.find("model");
  const Json* const vocab = model != nullptr && model->is_object() ? model->find("vocab") : nullptr;
  return vocab != nullptr && vocab->is_object() ? vocab->find(name) : nullptr;
}

// BOS and EOS, which two classes add as the keys say.
Json around(const JsonNode& config, const Json& tokenizer) {
  const std::string kind = config.string("tokenizer_class", "");
  if (kind != "LlamaTokenizer" && kind != "LlamaTokenizerFast") return nullptr;
  const auto ids = [&](const char* wanted, const char* key) -> NamedIds {
    const std::string name = config.boolean(wanted, false) ? token_name(config, key) : "";
    const Json* const id = name.empty() ? nullptr : find_id(tokenizer, name);
    if (id == nullptr || !id->is_number_unsigned()) return {};
    return {{name, id->get<uint64_t>()}};
  };
  return surround(ids("add_bos_token", "bos_token"), ids("add_eos_token", "eos_token"));
}

}  // namespace

std::string token_name(const JsonNode& node, const char* key) {
  if (!node.has(key)) return "";
  const JsonNode token = node.at(key);
  return token.value().is_object() ? token.at("content").string() : token.string();
}

Json surround(const NamedIds& before, const NamedIds& after) {
  Json single = Json::array(), ids = Json::object();
  const auto add = [&](const NamedIds& tokens) {
    for (const auto& [name, id] : tokens) {
      ids[name] = {{"id", name}, {"ids", Json::array({id})}, {"tokens", Json::array({name})}};
      single.push_back({{"SpecialToken", {{"id", name}, {"type_id", 0}}}});
    }
  };
  add(before);
  single.push_back({{"Sequence", {{"id", "A"}, {"type_id", 0}}}});
  add(after);
  if (ids.size() == 0) return nullptr;
  return {{"type", "TemplateProcessing"}, {"single", single}, {"special_tokens", ids}};
}

Json complete_tokenizer(Json tokenizer, const JsonNode& config) {
  if (!tokenizer.is_object() || !config.value().is_object()) return tokenizer;
  add_tokens(config, &tokenizer);
  const Json* const processor = tokenizer.find("post_processor");
  if (processor != nullptr && adds_tokens(*processor)) return tokenizer;
  if (Json added = around(config, tokenizer); !added.is_null()) {
    tokenizer["post_processor"] = std::move(added);
  }
  return tokenizer;
}

}  // namespace moe
