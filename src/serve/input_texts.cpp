// SPDX-License-Identifier: MIT
// Reads the texts of completions and embeddings.
#include "src/serve/input_texts.h"

#include "src/serve/refusal.h"

namespace moe_serve {
namespace {

std::vector<int32_t> ids_of(const Host& host, const Json& list, const char* field) {
  std::vector<int32_t> ids;
  for (const Json& value : list) {
    const bool good = value.is_number_integer() && value >= 0 && value < host.vocab_size;
    if (!good) {
      throw bad_field(field, "expected token ids in 0.." + std::to_string(host.vocab_size - 1) +
                                 ", found " + shown(value));
    }
    ids.push_back(value.get<int32_t>());
  }
  return ids;
}

std::vector<int32_t> text_tokens(const Host& host, const Json& value, const InputTexts& input) {
  if (value.is_array()) return ids_of(host, value, input.field);
  if (!value.is_string()) {
    throw bad_field(
        input.field,
        "expected a text, a list of token ids, or a list of those, found " + shown(value));
  }
  if (host.tokenizer == nullptr) {
    throw bad_field(input.field, "the model has no tokenizer; give a list of token ids");
  }
  return host.encode(input.before + value.get<std::string>(), 0);
}

}  // namespace

std::vector<std::vector<int32_t>> tokens_of_texts(const Host& host, const Json& request,
                                                  const InputTexts& input) {
  const auto at = request.find(input.field);
  if (at == request.end()) throw missing_field(input.field);
  const bool several = at->is_array() && !at->empty() && !(*at)[0].is_number();
  std::vector<std::vector<int32_t>> texts;
  for (const Json& value : several ? *at : Json::array({*at})) {
    texts.push_back(text_tokens(host, value, input));
    if (static_cast<int64_t>(texts.size()) > input.most) break;
  }
  return texts;
}

}  // namespace moe_serve
