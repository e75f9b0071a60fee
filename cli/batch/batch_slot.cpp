// SPDX-License-Identifier: MIT
// Decodes a slot's tokens, cuts the text at stop strings, and writes its result as JSON.
#include "cli/batch/batch_slot.h"

#include <algorithm>

#include "cli/model/candidates.h"

namespace moe_cli {
namespace {

/// Start of the match that is complete first, of several the longest; npos: none.
size_t find_stop(const std::string& text, const std::vector<std::string>& stops) {
  size_t start = std::string::npos;
  size_t end = std::string::npos;
  for (const std::string& stop : stops) {
    const size_t at = text.find(stop);
    if (at == std::string::npos || at + stop.size() > end) continue;
    start = at + stop.size() == end ? std::min(start, at) : at;
    end = at + stop.size();
  }
  return start;
}

}  // namespace

void Slot::begin(size_t line_number, uint64_t end) {
  line = line_number;
  input_end = end;
  id = Json::object();
  made.clear();
  logprobs = Json::array();
  next = -1;
  generation.reset();
  thrown = nullptr;
}

bool Slot::take(void* user, const moe_piece* piece) {
  auto* slot = static_cast<Slot*>(user);
  if (piece->token < 0) return true;
  try {
    slot->made.push_back(piece->token);
    if (slot->logprobs_of == nullptr) return true;
    slot->logprobs.push_back(
        token_json(slot->logprobs_of, {piece->token, piece->logprob}, piece->top, piece->n_top));
    return true;
  } catch (...) {
    slot->thrown = std::current_exception();
    return false;
  }
}

bool Slot::has_stop(const moe_model* model) const {
  return !stops.empty() && find_stop(text(model), stops) != std::string::npos;
}

// Decodes the text after the prompt, which affects how the first new token is decoded: a leading
// space, or the rest of a character.
std::string Slot::text(const moe_model* model) const {
  const std::string unknown = "\xEF\xBF\xBD";  // replaces an incomplete character
  std::string before = decode(model, prompt, MOE_DECODE_SKIP_SPECIAL);
  std::vector<int32_t> tokens = prompt;
  tokens.insert(tokens.end(), made.begin(), made.end());
  std::string all = decode(model, tokens, MOE_DECODE_SKIP_SPECIAL);
  if (before.ends_with(unknown) && !all.starts_with(before)) {
    before.resize(before.size() - unknown.size());
  }
  if (all.starts_with(before)) return all.substr(before.size());
  return decode(model, made, MOE_DECODE_SKIP_SPECIAL);
}

Json Slot::begin_result() const {
  Json result = {{"line", line}};
  result.update(id);
  return result;
}

Json Slot::result(const moe_model* model, const char* finish) const {
  Json result = begin_result();
  if (moe_model_tokenizer(model) != nullptr) {
    const std::string whole = text(model);
    result["text"] = whole.substr(0, find_stop(whole, stops));
  } else {
    result["tokens"] = made;
  }
  result["finish"] = finish;
  result["n_prompt"] = prompt.size();
  result["n_generated"] = made.size();
  return result;
}

}  // namespace moe_cli
