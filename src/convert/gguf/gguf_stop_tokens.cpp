// SPDX-License-Identifier: MIT
// The tokens at which a model from a GGUF file stops.

#include <algorithm>
#include <map>

#include "src/convert/gguf/gguf_source.h"

namespace moe {
namespace {

constexpr const char* kStopKeys[] = {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                                     "tokenizer.ggml.eom_token_id"};

// Most files name only the token that ends a text. llama.cpp knows by their text those that end a
// turn, whatever their type. Its "</s>" is not here: in Gemma it is HTML, elsewhere it has a key.
constexpr const char* kStopTexts[] = {"<|eot_id|>",
                                      "<|im_end|>",
                                      "<|end|>",
                                      "<|return|>",
                                      "<|call|>",
                                      "<end_of_turn>",
                                      "<|endoftext|>",
                                      "<|eom_id|>",
                                      "<EOT>",
                                      "[EOT]",
                                      "[EOS]",
                                      "<|end_of_text|>",
                                      "<turn|>",
                                      "<|tool_response>",
                                      "<｜end▁of▁sentence｜>"};

void push_once(const Json& id, Json* ids) {
  for (const Json& known : *ids) {
    if (known == id) return;
  }
  ids->push_back(id);
}

bool among(const std::string& text, std::span<const char* const> list) {
  return std::find(list.begin(), list.end(), text) != list.end();
}

}  // namespace

Json gguf_stop_ids(const JsonNode& metadata) {
  Json ids = Json::array();
  for (const char* key : kStopKeys) {
    if (metadata.has(key)) push_once(metadata.at(key).value(), &ids);
  }
  const Json* const tokens = metadata.value().find("tokenizer.ggml.tokens");
  if (tokens == nullptr || !tokens->is_array()) return ids;
  std::map<std::string, size_t> found;
  size_t i = 0;
  for (const Json& token : *tokens) {
    if (token.is_string() && among(token.text(), kStopTexts)) found.emplace(token.text(), i);
    ++i;
  }
  // gpt-oss ends a message with <|end|>, and goes on with the next.
  if (found.contains("<|return|>") && found.contains("<|call|>")) found.erase("<|end|>");
  for (const auto& [text, id] : found) push_once(id, &ids);
  return ids;
}

}  // namespace moe
