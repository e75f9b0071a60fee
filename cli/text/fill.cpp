// SPDX-License-Identifier: MIT
// moe fill: a masked language model's predictions for masks.

#include <cmath>
#include <iomanip>
#include <iostream>

#include "cli/help/help.h"
#include "cli/io/interrupt.h"
#include "cli/io/terminal.h"
#include "cli/io/text_input.h"
#include "cli/model/candidates.h"
#include "cli/model/context.h"
#include "cli/model/memory.h"

namespace moe_cli {
namespace {

struct FillOptions {
  ModelOptions model;
  TextInput input;
  int top = 5;
};

[[noreturn]] void refuse(const FillOptions& o, const std::string& why) {
  throw CallError(MOE_ERR_UNSUPPORTED, o.model.path + ": " + why);
}

// Requirements on the model.
moe_model_info check_model(const FillOptions& o, const moe_model* model) {
  const moe_model_info info = model_info(model);
  if (info.is_encoder_decoder != 0) {
    refuse(o, "an encoder-decoder; fill needs an encoder ('moe translate' runs encoder-decoders)");
  }
  if (info.is_encoder == 0) refuse(o, "a decoder; fill needs an encoder with a token head");
  if (std::string(info.head) != "tokens") {
    if (std::string(info.head) == "none") {
      refuse(o, "an encoder without a head; fill needs a token head");
    }
    refuse(o, std::string("an encoder with a head for ") + info.head + ", not tokens");
  }
  if (info.mask_token < 0) refuse(o, "the model has no mask token");
  return info;
}

std::vector<int32_t> find_masks(const FillOptions& o, const moe_model* model, int32_t mask,
                                const std::vector<int32_t>& tokens) {
  std::vector<int32_t> rows;
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] == mask) rows.push_back(static_cast<int32_t>(i));
  }
  if (rows.empty()) {
    throw CallError(MOE_ERR_ARGUMENT,
                    o.model.path + ": the text has no mask: write " +
                        one_line(moe_tokenizer_piece(moe_model_tokenizer(model), mask)) +
                        " for each token to predict");
  }
  return rows;
}

Json candidate_json(const moe_model* model, const Candidate& c) {
  Json json = token_json(model, c.id);
  json.update({{"p", std::exp(c.logprob)}, {"logprob", c.logprob}});
  return json;
}

void print(const moe_model* model, size_t mask, const std::vector<Candidate>& candidates) {
  std::cout << "mask " << mask + 1 << "\n";
  for (const Candidate& c : candidates) {
    std::cout << "  p " << std::fixed << std::setprecision(4) << std::exp(c.logprob) << std::setw(9)
              << c.id << "  " << one_line(moe_tokenizer_piece(moe_model_tokenizer(model), c.id))
              << "\n";
  }
}

void run_fill(const FillOptions& o) {
  const std::string text = o.input.read();
  const Env env = open_env(o.model);
  const Model model = open_model_to_run(o.model, env.get());
  const moe_model_info info = check_model(o, model.get());
  const auto tokens = encode(model.get(), text, MOE_ENCODE_PARSE_SPECIAL);
  const auto rows = find_masks(o, model.get(), info.mask_token, tokens);
  const Session session = open_session(o.model, model.get());
  const CurrentSession current(session.get());
  const auto vocab = static_cast<size_t>(info.n_outputs);
  check_fits("the text has", tokens.size(), session.get(), model.get());
  std::vector<float> logits(rows.size() * vocab);
  moe_encode_params p{};
  p.struct_size = sizeof p;
  p.outputs = logits.data();
  p.rows = rows.data();
  p.n_rows = rows.size();
  moe_error error;
  check(moe_session_encode(session.get(), tokens.data(), tokens.size(), &p, &error), error);
  Json masks = Json::array();
  for (size_t i = 0; i < rows.size(); ++i) {
    const auto candidates = best_candidates(logits.data() + i * vocab, vocab, o.top);
    if (!o.model.json) {
      print(model.get(), i, candidates);
      continue;
    }
    Json top = Json::array();
    for (const Candidate& c : candidates) top.push_back(candidate_json(model.get(), c));
    masks.push_back({{"position", rows[i]}, {"top", top}});
  }
  if (o.model.json) print_json({{"tokens", tokens}, {"masks", masks}});
}

}  // namespace

void add_fill(CLI::App& app) {
  auto o = std::make_shared<FillOptions>();
  CLI::App* c = app.add_subcommand("fill", "Predict the masked tokens of a text (encoders)");
  example(*c, "moe fill encoder.moe -p 'The capital of France is <mask>.'");
  add_model_options(*c, o->model);
  o->input.add(*c, "The text with its masks");
  c->add_option("--top", o->top, "Candidates to show")
      ->transform(integer_in(1, 1 << 30))
      ->capture_default_str();
  add_encoder_options(*c, o->model);
  c->callback([o] { run_fill(*o); });
}

}  // namespace moe_cli
