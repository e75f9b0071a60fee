// SPDX-License-Identifier: MIT
// Applies the class, the special tokens and the keys of tokenizer_config.json in the order of
// `transformers`.
#include "src/convert/tokenizer/tokenizer_config.h"

#include <algorithm>
#include <sstream>

#include "src/convert/tokenizer/class_steps.h"
#include "src/convert/tokenizer/tokenizer_keys.h"

namespace moe {
namespace {

constexpr size_t kMaxDepth = 8;

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

// BOS and EOS, which two classes add as the keys say.
Json around(const JsonNode& config, const Json& tokenizer) {
  const std::string kind = config.string("tokenizer_class", "");
  if (kind != "LlamaTokenizer" && kind != "LlamaTokenizerFast") return nullptr;
  const auto ids = [&](const char* wanted, const char* key) -> NamedIds {
    const std::string name = config.boolean(wanted, false) ? token_name(config, key) : "";
    const int64_t id = name.empty() ? -1 : token_id(tokenizer, name);
    if (id < 0) return {};
    return {{name, static_cast<uint64_t>(id)}};
  };
  return surround(ids("add_bos_token", "bos_token"), ids("add_eos_token", "eos_token"));
}

void add_around(CompletedTokenizer* out) {
  const Json* const processor = out->tokenizer.find("post_processor");
  if (processor != nullptr && adds_tokens(*processor)) return;
  Json added = around(JsonNode(out->config, kTokenizerConfig), out->tokenizer);
  if (added.is_null()) return;
  out->tokenizer["post_processor"] = std::move(added);
  out->warnings.push_back(std::string(kTokenizerConfig) +
                          ": add_bos_token and add_eos_token count, as tokenizer.json puts no "
                          "token around a text; transformers 5 adds none there");
}

// The ids of the tokens that `keys` name, of tokenizer_config.json or of the class.
TokenIds named_ids(const CompletedTokenizer& c, const char* keys) {
  const Json defaults = parse_json(c.choice.steps->tokens, c.choice.steps->name);
  TokenIds out;
  std::istringstream names(keys);
  for (std::string key; names >> key;) {
    const bool given = c.config.contains(key);
    std::string text = given ? token_name(JsonNode(c.config, kTokenizerConfig), key.c_str())
                             : text_member(defaults, key.c_str());
    if (text.empty() && key == "src_lang") text = "en_XX";
    const int64_t id = token_id(c.tokenizer, text);
    if (id >= 0) out.push_back(static_cast<uint32_t>(id));
  }
  return out;
}

void compare_flag(const char* wanted, const char* key, const TokenIds& ids, CompletedTokenizer* c) {
  const std::optional<bool> says = config_flag(c->config, wanted);
  if (!says) return;
  const std::string name = token_name(JsonNode(c->config, kTokenizerConfig), key);
  const int64_t id = name.empty() ? -1 : token_id(c->tokenizer, name);
  const bool adds = std::any_of(ids.begin(), ids.end(), [id](uint32_t i) { return i == id; });
  if (adds == *says) return;
  c->warnings.push_back(std::string(kTokenizerConfig) + ": " + wanted +
                        (*says ? " true" : " false") +
                        " is not obeyed, as in transformers 5: tokenizer.json " +
                        (adds ? "adds the token" : "does not add the token") + ", and it counts");
}

// The key by which a GGUF file's tokens of one text are told apart (gguf_tokenizer.cpp) means
// nothing in a folder's tokenizer.json.
void forget_roles(Json* tokenizer) {
  const Json* const added = tokenizer->find("added_tokens");
  if (added == nullptr || !added->is_array()) return;
  for (Json& token : (*tokenizer)["added_tokens"].elements()) {
    if (token.is_object()) token.erase("same_text");
  }
}

}  // namespace

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

CompletedTokenizer complete_tokenizer(TokenizerFiles files) {
  CompletedTokenizer out;
  out.tokenizer = std::move(files.tokenizer);
  if (out.tokenizer.is_object()) forget_roles(&out.tokenizer);
  out.config = with_special_map(std::move(files.config), files.special_tokens_map);
  if (!out.tokenizer.is_object() || !out.config.is_object()) return out;
  out.choice = choose_class(out.tokenizer, out.config, files.model);
  add_tokens(out.config, files.added_tokens, out.choice, &out.tokenizer, &out.warnings);
  mark_special_tokens(out.config, out.choice, &out.tokenizer, &out.warnings);
  obey_class(&out.tokenizer, out.choice, out.config, &out.warnings);
  add_around(&out);
  warn_about_keys(out.config, out.tokenizer, out.choice, &out.warnings);
  return out;
}

void compare_around(const TokenIds& prefix, const TokenIds& suffix, CompletedTokenizer* c) {
  compare_flag("add_bos_token", "bos_token", prefix, c);
  compare_flag("add_eos_token", "eos_token", suffix, c);
  const TokenizerClass* const steps = c->choice.steps;
  if (steps == nullptr || steps->before == nullptr) return;
  if (prefix == named_ids(*c, steps->before) && suffix == named_ids(*c, steps->after)) return;
  c->warnings.push_back(c->choice.place + ": the class " + c->choice.name +
                        " of transformers 5 puts other tokens around a text than the "
                        "post_processor of tokenizer.json, which counts");
}

}  // namespace moe
