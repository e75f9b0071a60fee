// SPDX-License-Identifier: MIT
// moe perplexity: how well a model predicts a text.

#include <cstdio>
#include <iomanip>
#include <iostream>

#include "cli/help/help.h"
#include "cli/io/interrupt.h"
#include "cli/io/progress.h"
#include "cli/io/text_input.h"
#include "cli/io/units.h"
#include "cli/model/memory.h"
#include "cli/model/routing_stats.h"
#include "cli/text/sweep.h"

namespace moe_cli {
namespace {

struct PerplexityOptions {
  ModelOptions model;
  TextInput input;
  std::string sweep;
  bool stats = false;
};

struct Measured {
  moe_perplexity result{};
  double seconds = 0;
  Json routing;  // where it was counted, as the next
  Json activations;
};

Measured measure(const moe_model* model, moe_session* session, const std::vector<int32_t>& tokens,
                 bool count) {
  Measured m;
  m.result.struct_size = sizeof m.result;
  moe_error error;
  if (count) check(moe_session_count_routing(session, true, &error), error);
  const double start = now_seconds();
  {
    Progress progress(false);
    check(moe_session_perplexity(session, tokens.data(), tokens.size(), Progress::callback,
                                 &progress, &m.result, &error),
          error);
  }
  m.seconds = now_seconds() - start;
  if (count) m.routing = routing_json(model, session);
  if (count) m.activations = activations_json(model, session);
  return m;
}

Json result_json(const Measured& m, size_t n_tokens, int context) {
  return {{"perplexity", m.result.perplexity},
          {"mean_nll", m.result.mean_nll},
          {"n_tokens", n_tokens},
          {"n_scored", m.result.n_scored},
          {"context", context},
          {"seconds", m.seconds}};
}

void add_stats(const Measured& m, Json& json) {
  json["routing"] = m.routing;
  json["activations"] = m.activations;
}

void report(const PerplexityOptions& o, const Measured& m, size_t n_tokens, int context) {
  const bool skips = may_skip(o.model);
  if (o.model.json) {
    Json json = result_json(m, n_tokens, context);
    if (skips) json["skipped"] = skipped_json(m.routing);
    if (o.stats) add_stats(m, json);
    print_json(json);
    return;
  }
  std::cout << "perplexity " << std::fixed << std::setprecision(4) << m.result.perplexity
            << " over " << counted(static_cast<uint64_t>(m.result.n_scored), "token")
            << " (windows of " << context << ", " << std::setprecision(0)
            << static_cast<double>(n_tokens) / m.seconds << " tokens/s)\n";
  if (o.stats) print_stats(m.routing, m.activations);
  if (skips) print_skipped(skipped_json(m.routing));
}

void set_router(moe_session* session, const std::string& text) {
  const moe_router router = parse_router(text);
  moe_error error;
  check_option(moe_session_set_router(session, &router, &error), error, "--router " + text);
}

void run_sweep(const PerplexityOptions& o, const Sweep& sweep, const moe_model* model,
               moe_session* session, const std::vector<int32_t>& tokens) {
  std::vector<std::string> routers;
  for (size_t i = 0; i < sweep.values.size(); ++i) {
    routers.push_back(swept_router(o.model.router, sweep, i));
    set_router(session, routers.back());  // reports an invalid one before anything runs
  }
  Json rows = Json::array();
  const int width = static_cast<int>(std::max(sweep.name.size(), size_t{8}));
  if (!o.model.json) {
    std::printf("%*s  perplexity  experts  MFLOP/token  tokens/s\n", width, sweep.name.c_str());
  }
  for (size_t i = 0; i < routers.size(); ++i) {
    set_router(session, routers[i]);
    const Measured m = measure(model, session, tokens, true);
    const ExpertCost cost = expert_cost(model, m.routing);
    if (!o.model.json) {
      std::printf("%*s  %10.4f  %7.3f  %11.3f  %8.0f\n", width, sweep.values[i].c_str(),
                  m.result.perplexity, cost.experts, cost.flops * 1e-6,
                  static_cast<double>(tokens.size()) / m.seconds);
      std::fflush(stdout);
      continue;
    }
    Json row = {{"router", routers[i]},
                {"experts_per_token", cost.experts},
                {"expert_flops_per_token", cost.flops}};
    row.update(result_json(m, tokens.size(), moe_session_context(session)));
    row["skipped"] = skipped_json(m.routing);
    if (o.stats) add_stats(m, row);
    rows.push_back(std::move(row));
  }
  if (o.model.json) print_json(rows);
}

void run_perplexity(const PerplexityOptions& o) {
  Sweep sweep;
  ModelOptions first = o.model;
  if (!o.sweep.empty()) {
    sweep = parse_sweep(o.sweep);
    if (o.stats && !o.model.json) throw UsageError("--stats of a --sweep requires --json");
    first.router = swept_router(o.model.router, sweep, 0);
  }
  const std::string text = o.input.read();
  const Env env = open_env(o.model);
  const Model model = open_model_to_run(first, env.get());
  check_decoder(o.model, model.get(), "perplexity");
  const Session session = open_session(first, model.get());
  const auto tokens = encode(model.get(), text, MOE_ENCODE_NO_SPECIAL);
  const CurrentSession current(session.get());
  if (!sweep.values.empty()) {
    return run_sweep(o, sweep, model.get(), session.get(), tokens);
  }
  const bool count = o.stats || may_skip(o.model);
  report(o, measure(model.get(), session.get(), tokens, count), tokens.size(),
         moe_session_context(session.get()));
}

}  // namespace

void add_perplexity(CLI::App& app) {
  auto o = std::make_shared<PerplexityOptions>();
  CLI::App* c = app.add_subcommand("perplexity", "Measure how well a model predicts a text");
  example(*c, "moe perplexity model.moe -f book.txt");
  add_model_options(*c, o->model);
  o->input.take_whole_files();
  o->input.add_positional_file(*c, "Text file, same as -f FILE");
  o->input.add(*c, "The text");
  add_session_options(*c, o->model, "the model's, at most 4096; the length of a window");
  c->add_option(
       "--sweep", o->sweep,
       "Measure once per value of a router parameter (threshold, topk, gamma or resident), "
       "and show the mean number of experts used")
      ->option_text("NAME=FROM:TO:STEP")
      ->group(c->get_option("--router")->get_group());
  c->add_flag("--stats", o->stats,
              "Show which experts were used, and in each layer the share of positive activations");
  c->callback([o] { run_perplexity(*o); });
}

}  // namespace moe_cli
