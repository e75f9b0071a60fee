#pragma once
// How many tokens a session holds when --context does not say it.

#include "cli/common.h"

namespace moe_cli {

inline constexpr int kOpenEnd = 4096;  // room for a text whose length nobody gave

/// A model that reads the text first: prepare_session() says what the session is to be.
Model open_model_for_text(ModelOptions o, moe_env* env);

/// Where --context was not given: room for n_text and n_generate (0: kOpenEnd) more tokens, at most
/// the model's. Holds --memory against that session. Throws when the text does not fit.
void prepare_session(ModelOptions& o, moe_env* env, Model& model, size_t n_text, int n_generate);

int32_t model_context(const moe_model* model);

}  // namespace moe_cli
