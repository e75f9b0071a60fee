// SPDX-License-Identifier: MIT
#pragma once
// The answers of the endpoints: whole, or in the events of a stream.

#include <memory>
#include <string>
#include <vector>

#include "src/serve/refusal.h"
#include "src/serve/request.h"
#include "src/serve/text.h"

namespace moe_serve {

/// Tokens of a request.
struct Usage {
  int64_t n_prompt = 0;
  int64_t n_cached = 0;  // of these, taken over from other texts
  int64_t n_made = 0;
  int64_t n_thinking = 0;  // of these
};

/// The fields that all events of an answer share.
struct AnswerHead {
  moe_endpoint endpoint{};
  std::string digits;   // which no other answer has: for ids
  int64_t created = 0;  // seconds since 1970
  std::string model;
  std::string fingerprint;  // of the service
};

/// Writes an answer in the shape of its API: either the events of a stream, or the whole. Used by
/// the thread of the scheduler alone.
class Answer {
 public:
  using Events = std::vector<Json>;
  virtual ~Answer() = default;

  // These write a stream: a text begins, goes on, and has ended. all: it was the last of them.
  virtual Events begin(const Text& text, const Usage& usage) = 0;
  virtual Events add(const Text& text, const Made& made) = 0;
  virtual Events end(const Text& text, const Usage& usage, bool all) = 0;
  /// The last event of a stream that fails.
  virtual Json failure(const Refusal& refusal) = 0;

  // These write a whole answer: a text is complete, and all are.
  virtual void take(const Text& text, Made made) = 0;
  virtual Json whole(const Usage& usage) = 0;
};

/// The answer of the head's endpoint. Order and settings are those of the request; the settings
/// must outlive it.
std::unique_ptr<Answer> make_answer(const AnswerHead& head, const Settings& settings,
                                    const Order& order);
std::unique_ptr<Answer> completions_answer(const AnswerHead& head, const Settings& settings,
                                           size_t n_texts);
std::unique_ptr<Answer> messages_answer(const AnswerHead& head, const Settings& settings);
std::unique_ptr<Answer> responses_answer(const AnswerHead& head, const Settings& settings,
                                         Json echo);

/// The settings that the texts were sampled with, and the seed of the first.
Json sampling_json(const Settings& settings);
/// As people write it: 0.95, not the nearest float's 0.949999988.
double short_number(float value);

}  // namespace moe_serve
