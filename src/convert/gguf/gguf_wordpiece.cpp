// SPDX-License-Identifier: MIT
// The WordPiece vocabulary of a GGUF file as a tokenizer.json.
#include "src/convert/gguf/gguf_wordpiece.h"

#include <algorithm>

namespace moe {
namespace {

constexpr std::string_view kBegin = "▁";

bool is_bracketed(const std::string& token) {
  return token.size() > 2 && token.starts_with('[') && token.ends_with(']');
}

bool has_capital(const std::string& token) {
  return !is_bracketed(token) &&
         std::any_of(token.begin(), token.end(), [](char c) { return c >= 'A' && c <= 'Z'; });
}

}  // namespace

std::string wordpiece_text(const std::string& token) {
  if (token.empty() || is_bracketed(token)) return token;
  const bool begins = token.size() > kBegin.size() && token.starts_with(kBegin);
  return begins ? token.substr(kBegin.size()) : "##" + token;
}

void put_wordpiece(std::span<const std::string> tokens, Json vocabulary, const std::string& unknown,
                   Json* out) {
  const bool cased = std::any_of(tokens.begin(), tokens.end(), has_capital);
  (*out)["model"] = {{"type", "WordPiece"},
                     {"unk_token", unknown},
                     {"continuing_subword_prefix", "##"},
                     {"max_input_chars_per_word", 100},
                     {"vocab", std::move(vocabulary)}};
  (*out)["normalizer"] = {{"type", "BertNormalizer"},
                          {"clean_text", true},
                          {"handle_chinese_chars", true},
                          {"lowercase", !cased}};
  (*out)["pre_tokenizer"] = {{"type", "BertPreTokenizer"}};
  (*out)["decoder"] = {{"type", "WordPiece"}, {"prefix", "##"}, {"cleanup", true}};
}

}  // namespace moe
