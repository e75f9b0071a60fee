// SPDX-License-Identifier: MIT
#pragma once
// A place of moe batch: a session and the text that it generates.

#include <exception>
#include <string>
#include <vector>

#include "cli/batch/batch_request.h"
#include "cli/common.h"

namespace moe_cli {

struct Slot {
  Session session;
  size_t line = 0;  // from 1; 0: free
  uint64_t input_end = 0;
  Json id = Json::object();  // "id" or "custom_id"; empty if the line has none
  std::vector<int32_t> prompt;
  std::vector<int32_t> made;
  std::vector<std::string> stops;
  LineSettings settings;
  Json logprobs = Json::array();
  int32_t next = -1;                       // sampled and not yet evaluated
  bool has_format = false;                 // the line says what text it wants, perhaps any
  Grammar grammar;                         // of that format; null: any text
  Generation generation;                   // of a text with a grammar; null: none
  const moe_model* logprobs_of = nullptr;  // take() keeps log-probabilities; null: it does not
  std::exception_ptr thrown;               // by take(): nothing may be thrown through the library

  /// Keeps a piece of `generation`; user: the slot.
  static bool take(void* user, const moe_piece* piece);

  /// For the line that ends at byte `end` of the input.
  void begin(size_t line_number, uint64_t end);
  bool has_stop(const moe_model* model) const;
  /// The keys that every result begins with.
  Json begin_result() const;
  /// The text, or its ids without a tokenizer, up to a stop, and why it ended.
  Json result(const moe_model* model, const char* finish) const;

 private:
  std::string text(const moe_model* model) const;
};

}  // namespace moe_cli
