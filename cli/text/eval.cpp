// SPDX-License-Identifier: MIT
// moe eval: logits of the token after the given ones.

#include <cmath>
#include <iomanip>
#include <iostream>

#include "cli/help/help.h"
#include "cli/io/interrupt.h"
#include "cli/io/terminal.h"
#include "cli/io/text_input.h"
#include "cli/model/candidates.h"
#include "cli/model/context.h"
#include "cli/model/routing_stats.h"

namespace moe_cli {
namespace {

struct EvalOptions {
  ModelOptions model;
  std::string tokens;
  TextInput input;
  bool no_bos = false;
  int top = 10;
};

void run_eval(EvalOptions& o) {
  const std::string text = o.tokens.empty() ? o.input.read() : "";
  const auto ids = parse_ids(o.tokens);
  const Env env = open_env(o.model);
  Model model = open_model_for_text(o.model, env.get());
  check_decoder(o.model, model.get(), "eval");
  check_ids(ids, model.get());
  const auto tokens = o.input.given() ? encode(model.get(), text, encode_flags(o.no_bos)) : ids;
  prepare_session(o.model, env.get(), model, tokens.size(), 1);
  const Session session = open_session(o.model, model.get());
  const CurrentSession current(session.get());
  const moe_model_info info = model_info(model.get());
  moe_error error;
  std::vector<float> logits(static_cast<size_t>(info.vocab_size));
  check(moe_session_eval(session.get(), tokens.data(), tokens.size(), MOE_ROWS_LAST, logits.data(),
                         &error),
        error);
  Json rows = Json::array();
  for (const Candidate& c : best_candidates(logits.data(), logits.size(), o.top)) {
    Json row = token_json(model.get(), c.id);
    if (o.model.json) {
      row.update({{"logit", c.logit}, {"logprob", c.logprob}});
      rows.push_back(std::move(row));
    } else {
      const std::string piece = row.value("piece", "");
      std::cout << std::setw(7) << c.id << "  logit " << std::fixed << std::setprecision(4)
                << std::setw(10) << c.logit << "  p " << std::setprecision(4) << std::exp(c.logprob)
                << (row.contains("piece") ? "  " + one_line(piece) : "") << "\n";
    }
  }
  if (o.model.json) print_json({{"tokens", tokens}, {"top", rows}});
  report_skipped(o.model, model.get(), {session.get()});
}

}  // namespace

void add_eval(CLI::App& app) {
  auto o = std::make_shared<EvalOptions>();
  CLI::App* c = app.add_subcommand("eval", "Show the logits of the next token");
  example(*c, "moe eval model.moe -p 'The capital of France is'");
  add_model_options(*c, o->model);
  o->input.add(*c, "The text");
  auto* tokens = c->add_option("--tokens", o->tokens, "Token ids instead of a text")
                     ->check(not_empty())
                     ->option_text("ID,ID...");
  o->input.exclude(tokens);
  add_no_bos(*c, o->no_bos);
  c->add_option("--top", o->top, "Candidates to show")
      ->transform(integer_in(1, 1 << 30))
      ->capture_default_str();
  add_session_options(*c, o->model, "the length of the text");
  c->callback([o] { run_eval(*o); });
}

}  // namespace moe_cli
