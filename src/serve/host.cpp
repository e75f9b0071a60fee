// SPDX-License-Identifier: MIT
// Turns texts into tokens and back for requests.
#include "src/serve/host.h"

namespace moe_serve {
namespace {

std::string decode(const moe_tokenizer* tokenizer, const std::vector<int32_t>& tokens) {
  size_t n = 0;
  moe_error error;
  check(moe_tokenizer_decode(tokenizer, tokens.data(), tokens.size(), 0, nullptr, 0, &n, &error),
        error);
  std::string text(n + 1, '\0');
  check(moe_tokenizer_decode(tokenizer, tokens.data(), tokens.size(), 0, text.data(), text.size(),
                             &n, &error),
        error);
  text.resize(n);
  return text;
}

}  // namespace

bool Host::chats() const { return tokenizer != nullptr && !template_text().empty(); }

std::string Host::template_text() const {
  if (!chat_template.empty()) return chat_template;
  const char* own = moe_model_chat_template(model);
  return own == nullptr ? "" : own;
}

std::vector<int32_t> Host::encode(const std::string& text, uint32_t flags) const {
  std::vector<int32_t> tokens(text.size() + 16);  // enough, but for special tokens of some models
  size_t n = 0;
  moe_error error;
  const auto run = [&] {
    return moe_tokenizer_encode(tokenizer, text.data(), text.size(), flags, tokens.data(),
                                tokens.size(), &n, &error);
  };
  moe_status status = run();
  if (status == MOE_ERR_TOO_LONG) {
    tokens.resize(n);
    status = run();
  }
  check(status, error);
  tokens.resize(n);
  return tokens;
}

// The first token of a text may lose its space: the text of the second of two is whole.
std::string Host::token_text(int32_t token) const {
  if (tokenizer == nullptr || moe_tokenizer_piece(tokenizer, token) == nullptr) return "";
  const std::string both = decode(tokenizer, {token, token});
  const std::string first = decode(tokenizer, {token});
  return both.starts_with(first) ? both.substr(first.size()) : first;
}

}  // namespace moe_serve
