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

// Vocabularies of lower case have a few capitals too, such as "<S>" and "<T>" in Chinese BERT's;
// those of mixed case have names and beginnings of sentences.
bool is_cased(std::span<const std::string> tokens) {
  constexpr size_t kLeast = 50;  // one capital in so many tokens
  const auto n = std::count_if(tokens.begin(), tokens.end(), has_capital);
  return static_cast<size_t>(n) * kLeast > tokens.size();
}

}  // namespace

std::string wordpiece_text(const std::string& token, bool special) {
  if (special || token.empty() || is_bracketed(token)) return token;
  const bool begins = token.size() > kBegin.size() && token.starts_with(kBegin);
  return begins ? token.substr(kBegin.size()) : "##" + token;
}

void put_wordpiece(std::span<const std::string> tokens, Json vocabulary, const std::string& unknown,
                   Json* out) {
  (*out)["model"] = {{"type", "WordPiece"},
                     {"unk_token", unknown},
                     {"continuing_subword_prefix", "##"},
                     {"max_input_chars_per_word", 100},
                     {"vocab", std::move(vocabulary)}};
  (*out)["normalizer"] = {{"type", "BertNormalizer"},
                          {"clean_text", true},
                          {"handle_chinese_chars", true},
                          {"lowercase", !is_cased(tokens)}};
  (*out)["pre_tokenizer"] = {{"type", "BertPreTokenizer"}};
  (*out)["decoder"] = {{"type", "WordPiece"}, {"prefix", "##"}, {"cleanup", true}};
}

}  // namespace moe
