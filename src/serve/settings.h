// SPDX-License-Identifier: MIT
#pragma once
// How the texts of a request are generated, whichever endpoint it is for.

#include <cstdint>
#include <string>
#include <vector>

#include "src/serve/fields.h"
#include "src/serve/host.h"
#include "src/serve/json.h"

namespace moe_serve {

inline constexpr int64_t kMostTexts = 64;  // of one request
inline constexpr int32_t kMostDraft = 16;  // tokens at once

/// How the texts of a request are generated and answered.
struct Settings {
  moe_sampling sampling{};  // without its bias
  std::vector<moe_logit_bias> bias;
  std::vector<std::string> stop;
  int32_t max_tokens = 0;  // 0: until the context is full
  int32_t max_draft = 0;   // tokens at once, while nobody else has a slot
  int32_t n = 1;           // texts for each prompt
  bool ignore_eos = false;
  Grammar grammar;                   // null: any text
  Json format = {{"type", "text"}};  // as the request of a response gives it
  bool logprobs = false;
  int32_t n_top = 0;  // of logprobs
  bool stream = false;
  bool stream_usage = false;
  bool one_call = false;  // of tools: a reply ends with its first
  bool receipt = false;   // in the answer
};

/// The fields of all endpoints that generate, and `more`.
Fields generating_fields(const Fields& more);

// All of these throw Refusal.
/// Refuses another model than the host's.
void check_model(const Host& host, const Json& request);
/// The fields of generating_fields({}), checked, with the model.
Settings read_settings(const Host& host, const Json& request);
/// A number of tokens in a field, or `otherwise`.
int32_t tokens_of(const Json& request, const char* field, int64_t otherwise);
/// The stop texts in a field.
std::vector<std::string> stops_of(const Host& host, const Json& request, const char* field);
/// The members of "stream_options", which only streams have.
void read_stream_options(const Json& request, bool with_usage, Settings& settings);

}  // namespace moe_serve
