// SPDX-License-Identifier: MIT
#pragma once
// The parts of a service that every request needs: its model and its limits.

#include <cstdint>
#include <string>
#include <vector>

#include "src/serve/handles.h"

namespace moe_serve {

struct Host {
  moe_model* model = nullptr;
  const moe_tokenizer* tokenizer = nullptr;
  std::string name;           // of the model, in requests and answers
  std::string chat_template;  // a name or Jinja text; empty: the model's own
  moe_sampling sampling{};    // where a request says nothing
  int32_t vocab_size = 0;
  int32_t context = 0;             // of each session
  int32_t max_prompt = 0;          // tokens
  moe_session* witness = nullptr;  // a session of the model, for moe_chat_create

  bool chats() const;
  /// The text of the template that is used; empty: none.
  std::string template_text() const;
  std::vector<int32_t> encode(const std::string& text, uint32_t flags) const;
  /// The text of one token, as it stands inside a text.
  std::string token_text(int32_t token) const;
};

}  // namespace moe_serve
