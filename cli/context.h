#pragma once
// How many tokens a session holds when --context does not say it.

#include "cli/common.h"

namespace moe_cli {

inline constexpr int kOpenEnd = 4096;  // room for a text whose length nobody gave

/// A model whose session is made when its text is known: --memory is held against that session.
Model open_model_for_text(ModelOptions o, moe_env* env);

/// Where --context was not given: room for the text and n_generate (0: kOpenEnd) more tokens, at
/// most the model's. Throws when the text does not fit.
void choose_context(ModelOptions& o, const moe_model* model, size_t n_text, int n_generate);

int32_t model_context(const moe_model* model);

}  // namespace moe_cli
