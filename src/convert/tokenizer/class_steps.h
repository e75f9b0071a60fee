// SPDX-License-Identifier: MIT
#pragma once
// Steps of tokenizer.json against those of a class of `transformers` 5.

#include <optional>
#include <string>
#include <vector>

#include "formats/import/json.h"
#include "src/convert/tokenizer/tokenizer_class.h"

namespace moe {

/// Changes the steps of tokenizer.json as the keys say that the class reads, and adds a sentence to
/// `warnings` for each change, for each key that is not obeyed, and if the class has other steps
/// than tokenizer.json. `config` is tokenizer_config.json, or null.
void obey_class(Json* tokenizer, const ClassChoice& choice, const Json& config,
                std::vector<std::string>* warnings);

/// The value of a key that must be true or false; nothing if it is missing or null. Throws
/// MOE_ERR_FORMAT for another value.
std::optional<bool> config_flag(const Json& config, const char* key);

}  // namespace moe
