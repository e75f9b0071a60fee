// SPDX-License-Identifier: MIT
#pragma once
// A field of a request with one text or several, as texts or as token ids.

#include <string>
#include <vector>

#include "src/serve/host.h"
#include "src/serve/json.h"

namespace moe_serve {

struct InputTexts {
  const char* field;        // of the request
  int64_t most;             // texts
  std::string before = {};  // put in front of each text, but not of ids
};

/// The tokens of a text, of a list of ids, or of each in a list of either; one more than `most` at
/// the most. Throws Refusal.
std::vector<std::vector<int32_t>> tokens_of_texts(const Host& host, const Json& request,
                                                  const InputTexts& input);

}  // namespace moe_serve
