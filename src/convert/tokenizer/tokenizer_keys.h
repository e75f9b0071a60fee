// SPDX-License-Identifier: MIT
#pragma once
// Warnings about keys of tokenizer_config.json that are not obeyed.

#include <string>
#include <vector>

#include "formats/import/json.h"
#include "src/convert/tokenizer/tokenizer_class.h"

namespace moe {

/// Adds a sentence for each key whose value asks for something that is not done, and one for all
/// keys that are unknown. `tokenizer` is tokenizer.json.
void warn_about_keys(const Json& config, const Json& tokenizer, const ClassChoice& choice,
                     std::vector<std::string>* warnings);

}  // namespace moe
