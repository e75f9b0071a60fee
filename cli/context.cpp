#include "cli/context.h"

#include <algorithm>

#include "cli/memory.h"
#include "cli/units.h"

namespace moe_cli {

Model open_model_for_text(ModelOptions o, moe_env* env) {
  memory_cap(o);     // reports an invalid one before anything is read
  o.memory.clear();  // the session for the cap is not known yet
  return open_model(o, env);
}

int32_t model_context(const moe_model* model) { return model_info(model).context_length; }

namespace {

void choose_context(ModelOptions& o, const moe_model* model, size_t n_text, int n_generate) {
  const auto most = static_cast<size_t>(model_context(model));
  if (n_text > most) {
    throw CallError(MOE_ERR_TOO_LONG, "the text has " + counted(n_text, "token") +
                                          "; this model's context, the limit of --context, is " +
                                          std::to_string(most));
  }
  if (o.context != 0 && n_text > static_cast<size_t>(o.context)) {
    throw CallError(MOE_ERR_TOO_LONG, "the text has " + counted(n_text, "token") + ", --context " +
                                          std::to_string(o.context) +
                                          " is smaller; this model takes up to " +
                                          std::to_string(most));
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
