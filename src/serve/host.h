// SPDX-License-Identifier: MIT
#pragma once
// The parts of a service that every request needs: its model and its limits.

#include <cstdint>
#include <string>
#include <vector>

#include "src/serve/fingerprint.h"
#include "src/serve/handles.h"

namespace moe_serve {

struct Host {
  moe_model* model = nullptr;
  const moe_tokenizer* tokenizer = nullptr;
  std::string name;            // of the model, in requests and answers
  std::string chat_template;   // a name or Jinja text; empty: the model's own
  moe_sampling sampling{};     // where a request says nothing
  int32_t max_draft = 0;       // likewise
  bool whole_prompts = false;  // an expert capacity counts the tokens of a call
  int32_t vocab_size = 0;
  int32_t context = 0;        // of each session
  int32_t max_prompt = 0;     // tokens
  uint64_t weight_bytes = 0;  // of the model, all in memory
  // Requests for vectors and scores need these.
  int32_t d_model = 0;
  int32_t vector_tokens = 0;  // of a text, the most
  int32_t n_scores = 0;       // that the model gives a pair of texts
  int32_t n_prompts = 0;
  int32_t default_prompt = -1;     // -1: none
  moe_session* witness = nullptr;  // a session of the model, for moe_chat_create
  Fingerprint fingerprint;
  moe_service_receipt_fn receipt = nullptr;  // gets every receipt; null: nobody does
  void* receipt_user = nullptr;

  bool chats() const;
  /// The text of the template that is used; empty: none.
  std::string template_text() const;
  std::vector<int32_t> encode(const std::string& text, uint32_t flags) const;
  /// The text of one token, as it stands inside a text.
  std::string token_text(int32_t token) const;
};

}  // namespace moe_serve
