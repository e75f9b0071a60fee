// SPDX-License-Identifier: MIT
// Chooses the answer of an endpoint, and writes what answers have in common.
#include "src/serve/answer.h"

#include <charconv>

namespace moe_serve {

std::unique_ptr<Answer> make_answer(const AnswerHead& head, const Settings& settings,
                                    const Order& order) {
  switch (head.endpoint) {
    case MOE_ENDPOINT_MESSAGES:
      return messages_answer(head, settings);
    case MOE_ENDPOINT_RESPONSES:
      return responses_answer(head, settings, order.echo);
    default:
      return completions_answer(head, settings,
                                order.prompts.size() * static_cast<size_t>(settings.n));
  }
}

double short_number(float value) {
  char text[64];
  const auto end = std::to_chars(text, text + sizeof text, value).ptr;
  double number = 0;
  std::from_chars(text, end, number);
  return number;
}

Json sampling_json(const Settings& settings) {
  const moe_sampling& s = settings.sampling;
  return {{"temperature", short_number(s.temperature)},
          {"top_k", s.top_k},
          {"top_p", short_number(s.top_p)},
          {"min_p", short_number(s.min_p)},
          {"repetition_penalty", short_number(s.repetition_penalty)},
          {"seed", s.seed}};
}

}  // namespace moe_serve
