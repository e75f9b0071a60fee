// SPDX-License-Identifier: MIT
// moe score: the log-likelihood of each line of a text.

#include <algorithm>
#include <cmath>
#include <iomanip>
#include <iostream>

#include "cli/help/help.h"
#include "cli/io/interrupt.h"
#include "cli/io/terminal.h"
#include "cli/io/text_input.h"
#include "cli/io/units.h"
#include "cli/model/candidates.h"
#include "cli/model/context.h"
#include "cli/model/routing_stats.h"

namespace moe_cli {
namespace {

struct ScoreOptions {
  ModelOptions model;
  std::string tokens;
  TextInput input;
  bool no_bos = false;
};

struct ScoredLine {
  std::string text;
  std::vector<int32_t> tokens;
  std::vector<float> logprobs = {};  // of all tokens except the first
  double sum = 0;
};

std::vector<ScoredLine> read_scored(const ScoreOptions& o, const std::string& text,
                                    const moe_model* model) {
  if (!o.input.given()) {
    auto ids = parse_ids(o.tokens);
    check_ids(ids, model);
    return {{"", std::move(ids)}};
  }
  std::vector<ScoredLine> lines;
  for (std::string& line : lines_of(text)) {
    auto tokens = encode(model, line, encode_flags(o.no_bos));
    lines.push_back({std::move(line), std::move(tokens)});
  }
  return lines;
}

// The tokens of the longest line; all of them must fit into the model's context, or --context.
size_t longest(const ScoreOptions& o, const std::vector<ScoredLine>& lines,
               const moe_model* model) {
  const auto most = static_cast<size_t>(model_context(model));
  const size_t holds = o.model.context == 0 ? most : static_cast<size_t>(o.model.context);
  size_t found = 1;
  for (size_t i = 0; i < lines.size(); ++i) {
    const size_t n = lines[i].tokens.size();
    found = std::max(found, n);
    if (n <= holds) continue;
    throw CallError(MOE_ERR_TOO_LONG,
                    too_long("line " + std::to_string(i + 1) + " has", n, holds, most) +
                        " ('moe perplexity' scores longer texts in windows)");
  }
  return found;
}

void score_line(moe_session* session, ScoredLine& line, size_t number) {
  moe_error error;
  check(moe_session_rewind(session, 0, &error), error);
  line.logprobs.resize(std::max<size_t>(line.tokens.size(), 1) - 1);
  check_line(moe_session_score(session, line.tokens.data(), line.tokens.size(),
                               line.logprobs.data(), line.logprobs.size(), &error),
             error, number);
  for (const float logprob : line.logprobs) line.sum += static_cast<double>(logprob);
}

void print_scored_json(const ScoreOptions& o, const moe_model* model, const ScoredLine& line) {
  Json tokens = Json::array();
  for (size_t i = 0; i < line.tokens.size(); ++i) {
    Json token = token_json(model, line.tokens[i]);
    token["logprob"] = i > 0 ? Json(line.logprobs[i - 1]) : Json();
    tokens.push_back(std::move(token));
  }
  Json json = Json::object();
  if (o.input.given()) json["text"] = line.text;
  json["logprob"] = line.sum;
  json["n_scored"] = line.logprobs.size();
  json["tokens"] = std::move(tokens);
  std::cout << json.dump(-1, ' ', false, Json::error_handler_t::replace) << "\n";
}

void print_scored(const ScoreOptions& o, const moe_model* model, const ScoredLine& line) {
  if (o.model.json) return print_scored_json(o, model, line);
  std::cout << std::fixed << std::setprecision(4) << std::setw(12) << line.sum << std::setw(7)
            << line.logprobs.size() << "  " << one_line(line.text) << "\n";
}

void report_scores(const std::vector<ScoredLine>& lines) {
  double sum = 0;
  size_t n = 0;
  for (const ScoredLine& line : lines) {
    sum += line.sum;
    n += line.logprobs.size();
  }
  std::fprintf(stderr, "moe: %s, %s scored, log-likelihood %.4f",
               counted(lines.size(), "line").c_str(), counted(n, "token").c_str(), sum);
  if (n > 0) std::fprintf(stderr, ", perplexity %.4f", std::exp(-sum / static_cast<double>(n)));
  std::fputs("\n", stderr);
}

void run_score(ScoreOptions& o) {
  const std::string text = o.tokens.empty() ? o.input.read() : "";
  const Env env = open_env(o.model);
  Model model = open_model_for_text(o.model, env.get());
  check_decoder(o.model, model.get(), "score");
  std::vector<ScoredLine> lines = read_scored(o, text, model.get());
  prepare_session(o.model, env.get(), model, longest(o, lines, model.get()), 1);
  const Session session = open_session(o.model, model.get());
  const CurrentSession current(session.get());
  for (size_t i = 0; i < lines.size(); ++i) {
    stop_if_interrupted();
    score_line(session.get(), lines[i], i + 1);
    print_scored(o, model.get(), lines[i]);
  }
  std::cout.flush();
  report_scores(lines);
  report_skipped(o.model, model.get(), {session.get()});
}

}  // namespace

void add_score(CLI::App& app) {
  auto o = std::make_shared<ScoreOptions>();
  CLI::App* c = app.add_subcommand("score", "Show how likely each line of a text is");
  example(*c, "moe score model.moe -f sentences.txt");
  add_model_options(*c, o->model);
  o->input.take_whole_files();
  o->input.add(*c, "Texts, one per line");
  auto* tokens = c->add_option("--tokens", o->tokens, "Token ids instead of a text")
                     ->check(not_empty())
                     ->option_text("ID,ID...");
  o->input.exclude(tokens);
  add_no_bos(*c, o->no_bos);
  add_session_options(*c, o->model, "the length of the longest line");
  c->callback([o] { run_score(*o); });
}

}  // namespace moe_cli
