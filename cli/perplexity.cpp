// moe perplexity: how well a model predicts a text.

#include <iomanip>
#include <iostream>

#include "cli/memory.h"
#include "cli/routing_stats.h"
#include "cli/text_input.h"

namespace moe_cli {
namespace {

struct PerplexityOptions {
  ModelOptions model;
  TextInput input;
};

void run_perplexity(const PerplexityOptions& o) {
  const std::string text = o.input.read();
  const Env env = open_env(o.model);
  const Model model = open_model_to_run(o.model, env.get());
  check_decoder(o.model, model.get(), "perplexity");
  const Session session = open_session(o.model, model.get());
  const auto tokens = encode(model.get(), text, MOE_ENCODE_NO_SPECIAL);
  const CurrentSession current(session.get());
  moe_perplexity result{};
  result.struct_size = sizeof result;
  moe_error error;
  const double start = now_seconds();
  {
    Progress progress(false);
    check(moe_session_perplexity(session.get(), tokens.data(), tokens.size(), Progress::callback,
                                 &progress, &result, &error),
          error);
  }
  const double seconds = now_seconds() - start;
  const int context = moe_session_context(session.get());
  Json skipped;
  if (may_skip(o.model)) skipped = skipped_json(routing_json(model.get(), session.get()));
  if (o.model.json) {
    Json json = {{"perplexity", result.perplexity},
                 {"mean_nll", result.mean_nll},
                 {"n_tokens", tokens.size()},
                 {"n_scored", result.n_scored},
                 {"context", context},
                 {"seconds", seconds}};
    if (may_skip(o.model)) json["skipped"] = skipped;
    print_json(json);
    return;
  }
  std::cout << "perplexity " << std::fixed << std::setprecision(4) << result.perplexity << " over "
            << result.n_scored << " tokens (windows of " << context << ", " << std::setprecision(0)
            << static_cast<double>(tokens.size()) / seconds << " tokens/s)\n";
  if (may_skip(o.model)) print_skipped(skipped);
}

}  // namespace

void add_perplexity(CLI::App& app) {
  auto o = std::make_shared<PerplexityOptions>();
  CLI::App* c = app.add_subcommand("perplexity", "Measure how well a model predicts a text");
  add_model_options(*c, o->model);
  o->input.take_whole_files();
  o->input.add_positional_file(*c, "Text file, the same as -f FILE");
  o->input.add(*c, "The text");
  add_session_options(*c, o->model, "the model's, at most 4096; one window of the text");
  c->callback([o] { run_perplexity(*o); });
}

}  // namespace moe_cli
