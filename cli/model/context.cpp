// SPDX-License-Identifier: MIT
// Chooses the context from the text and the model, and says what does not fit.
#include "cli/model/context.h"

#include <algorithm>

#include "cli/io/units.h"
#include "cli/model/memory.h"

namespace moe_cli {

Model open_model_for_text(ModelOptions o, moe_env* env) {
  memory_cap(o);     // reports an invalid one before anything is read
  o.memory.clear();  // the session for the cap is not known yet
  return open_model(o, env);
}

int32_t model_context(const moe_model* model) { return model_info(model).context_length; }

std::string too_long(const std::string& what, size_t n, size_t holds, size_t most,
                     const char* options) {
  return what + " " + counted(n, "token") + ", the context holds " + std::to_string(holds) +
         (holds < most ? "; " + std::string(options) + " can be at most " + std::to_string(most) +
                             " with this model"
                       : ", this model's maximum");
}

void check_fits(const std::string& what, size_t n, const moe_session* session,
                const moe_model* model) {
  const auto holds = static_cast<size_t>(moe_session_context(session));
  if (n <= holds) return;
  const moe_model_info info = model_info(model);
  const bool encoder = info.is_encoder != 0;
  const int32_t most = encoder ? std::min(info.context_length, kMostChunk) : info.context_length;
  throw CallError(MOE_ERR_TOO_LONG, too_long(what, n, holds, static_cast<size_t>(most),
                                             encoder ? "--context and --chunk" : "--context"));
}

namespace {

void choose_context(ModelOptions& o, const moe_model* model, size_t n_text, int n_generate) {
  const auto most = static_cast<size_t>(model_context(model));
  const size_t holds = o.context == 0 ? most : static_cast<size_t>(o.context);
  if (n_text > holds) {
    throw CallError(MOE_ERR_TOO_LONG, too_long("the text has", n_text, holds, most));
  }
  if (o.context != 0) return;
  const auto more = static_cast<size_t>(n_generate == 0 ? kOpenEnd : n_generate);
  o.context = static_cast<int>(std::min(n_text + more, most));
}

}  // namespace

void prepare_session(ModelOptions& o, moe_env* env, Model& model, size_t n_text, int n_generate) {
  choose_context(o, model.get(), n_text, n_generate);
  if (o.memory.empty()) return fit_memory(o, env, model);
  model.reset();
  model = open_model(o, env);
}

}  // namespace moe_cli
