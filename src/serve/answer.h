// SPDX-License-Identifier: MIT
#pragma once
// The answers of the API: whole, or in chunks.

#include <string>
#include <vector>

#include "src/serve/text.h"

namespace moe_serve {

/// The fields that all answers to a request share.
struct AnswerHead {
  bool is_chat = false;
  std::string id;
  int64_t created = 0;  // seconds since 1970
  std::string model;
};

/// Tokens of a request.
struct Usage {
  int64_t n_prompt = 0;
  int64_t n_cached = 0;  // of these, taken over from other texts
  int64_t n_made = 0;
  int64_t n_thinking = 0;  // of these

  Json json() const;
};

/// The settings that the texts were sampled with, and the seed of the first.
Json sampling_json(const Settings& settings);

/// One choice of a whole answer.
Json choice_json(const AnswerHead& head, const Settings& settings, const Text& text,
                 const Made& made);
/// {"id": ..., "choices": choices, "usage": ...}
Json answer_json(const AnswerHead& head, const Settings& settings, Json choices,
                 const Usage& usage);
/// A chunk of a stream: the role of a reply, a piece of text, or the end of a text.
Json role_chunk(const AnswerHead& head, int index);
Json text_chunk(const AnswerHead& head, const Settings& settings, int index, const Made& made);
Json finish_chunk(const AnswerHead& head, const Settings& settings, const Text& text);
Json usage_chunk(const AnswerHead& head, const Usage& usage);

}  // namespace moe_serve
