// SPDX-License-Identifier: MIT
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

/// "the text has 9 tokens, the context holds 4; --context can be at most 8 with this model", where
/// `what` is "the text has", `most` the model's context.
std::string too_long(const std::string& what, size_t n, size_t holds, size_t most,
                     const char* options = "--context");
/// Throws that, as an error of the text, if n tokens do not fit `session`.
void check_fits(const std::string& what, size_t n, const moe_session* session,
                const moe_model* model);

}  // namespace moe_cli
