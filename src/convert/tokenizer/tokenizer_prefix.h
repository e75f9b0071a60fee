// SPDX-License-Identifier: MIT
#pragma once
// The space before a text: what tokenizer.json does, and changing it as add_prefix_space says.

#include <functional>

#include "formats/import/json.h"
#include "src/convert/tokenizer/tokenizer_class.h"

namespace moe {

/// The steps of a normalizer or pre_tokenizer, without sequences around them; `list` is the name of
/// a sequence's member. Empty for null.
Json::Array flat_steps(const Json* node, const char* list, size_t depth = 0);

/// Calls f(step) for every step of a member of tokenizer.json: "normalizer", "pre_tokenizer" or
/// "decoder".
void each_step(Json* tokenizer, const char* member, const std::function<void(Json* step)>& f);

/// Whether tokenizer.json puts a space before a text.
bool adds_prefix_space(const Json& tokenizer);

/// Makes it do so or not, where the class can. `scheme` is the Metaspace scheme of the class for
/// its space. False if nothing had to change, or nothing could.
bool set_prefix_space(Json* tokenizer, PrefixSpace kind, bool wanted, const char* scheme);

}  // namespace moe
