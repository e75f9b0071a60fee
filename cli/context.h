#pragma once
// Size of a session's context without --context.

#include "cli/common.h"

namespace moe_cli {

inline constexpr int kOpenEnd = 4096;  // room for a text of unknown length

/// Opens a model that reads the text first; prepare_session() then determines the session.
Model open_model_for_text(ModelOptions o, moe_env* env);

/// Without --context: room for n_text and n_generate (0: kOpenEnd) more tokens, at most the
/// model's. Checks --memory for that session. Throws if the text does not fit.
void prepare_session(ModelOptions& o, moe_env* env, Model& model, size_t n_text, int n_generate);

int32_t model_context(const moe_model* model);

}  // namespace moe_cli
