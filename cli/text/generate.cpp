// SPDX-License-Identifier: MIT
// moe generate: continue a text.

#include <unistd.h>

#include <exception>
#include <iostream>

#include "cli/help/help.h"
#include "cli/io/interrupt.h"
#include "cli/io/text_input.h"
#include "cli/io/units.h"
#include "cli/model/candidates.h"
#include "cli/model/context.h"
#include "cli/model/memory.h"
#include "cli/model/routing_stats.h"
#include "cli/model/sampling.h"

namespace moe_cli {
namespace {

struct GenerateOptions {
  ModelOptions model;
  SamplingOptions sampling;
  std::string tokens;
  TextInput input;
  bool no_echo = false;
  bool no_bos = false;
  bool special = false;
  bool stats = false;
  int n_top = 0;
};

struct Sink {
  const moe_model* model = nullptr;
  bool stream = false;
  bool ids = false;  // the model has no text
  bool first = true;
  bool begun = false;
  std::string echo;
  std::string text;
  Json tokens = Json::array();
  std::exception_ptr thrown;  // rethrown later: nothing may be thrown through the library

  void begin();
  bool take(const moe_piece& piece);
};

// Prints the prompt, which waits for the first piece: until then the call may be refused.
void Sink::begin() {
  if (!begun) std::cout << echo;
  begun = true;
}

bool Sink::take(const moe_piece& piece) {
  if (stream) begin();
  if (stream && ids) {
    std::cout << (first ? "" : ",") << piece.token << std::flush;
    first = false;
    return static_cast<bool>(std::cout);
  }
  if (stream) {
    std::cout.write(piece.text, static_cast<std::streamsize>(piece.n_bytes));
    std::cout.flush();
    return static_cast<bool>(std::cout);
  }
  text.append(piece.text, piece.n_bytes);
  if (piece.token >= 0) {
    tokens.push_back(token_json(model, {piece.token, piece.logprob}, piece.top, piece.n_top));
  }
  return true;
}

bool on_piece(void* user, const moe_piece* piece) {
  auto* sink = static_cast<Sink*>(user);
  try {
    return sink->take(*piece);
  } catch (...) {
    sink->thrown = std::current_exception();
    return false;
  }
}

void report(const moe_generate_result& r) {
  const double prompt = r.prompt_seconds > 0 ? r.n_prompt / r.prompt_seconds : 0;
  const double rate = r.generate_seconds > 0 ? r.n_generated / r.generate_seconds : 0;
  std::fprintf(stderr, "moe: prompt %s (%.0f/s), generated %s (%.0f/s)%s, %s\n",
               counted(static_cast<uint64_t>(r.n_prompt), "token").c_str(), prompt,
               counted(static_cast<uint64_t>(r.n_generated), "token").c_str(), rate,
               drafts_text(r.n_drafted, r.n_accepted).c_str(), finish_text(r.finish));
}

// Once, to a person who may not know it: a small model's most probable text soon repeats itself.
void tell_sampling(const GenerateOptions& o, const moe_model* model) {
  if (o.sampling.temperature || isatty(STDERR_FILENO) != 1) return;
  moe_sampling advice = ModelSampling(model).settings;
  if (advice.temperature == 0) advice.temperature = 0.8f;  // the checkpoint does not sample
  std::fprintf(stderr, "moe: the most probable token was taken each time; %s samples\n",
               sampling_options(advice).c_str());
}

// The text before the continuation: the prompt, or its ids if the model has no text.
std::string echo_of(const GenerateOptions& o, const moe_model* model, const std::string& prompt,
                    const std::vector<int32_t>& tokens) {
  if (o.input.given()) return prompt;
  if (moe_model_tokenizer(model) != nullptr) return decode(model, tokens, MOE_DECODE_SKIP_SPECIAL);
  std::string ids;
  for (const int32_t token : tokens) ids += (ids.empty() ? "" : ",") + std::to_string(token);
  return ids;
}

void run_generate(GenerateOptions& o) {
  Sampling sampling(o.sampling);
  const std::string prompt = o.tokens.empty() ? o.input.read() : "";
  const auto ids = parse_ids(o.tokens);
  const Env env = open_env(o.model);
  Model model = open_model_for_text(o.model, env.get());
  check_decoder(o.model, model.get(), "generate");
  check_sampling(o.sampling, model.get());
  check_ids(ids, model.get());
  const Grammar grammar = open_grammar(o.sampling, model.get());
  sampling.params.grammar = grammar.get();
  const auto tokens =
      o.input.given() ? encode(model.get(), prompt, encode_flags(o.no_bos, o.special)) : ids;
  if (tokens.empty()) TextInput::refuse_empty();
  prepare_session(o.model, env.get(), model, tokens.size(), o.sampling.max_tokens);
  const Session session = open_session(o.model, model.get());
  const CurrentSession current(session.get());
  moe_error error;
  if (o.stats) check(moe_session_count_routing(session.get(), true, &error), error);
  Sink sink;
  sink.model = model.get();
  sink.stream = !o.model.json;
  sink.ids = moe_model_tokenizer(model.get()) == nullptr;
  sampling.params.piece = on_piece;
  sampling.params.piece_user = &sink;
  sampling.params.n_top = o.n_top;
  if (sink.stream && !o.no_echo) {
    sink.echo = echo_of(o, model.get(), prompt, tokens);
    sink.first = tokens.empty();
  }
  moe_generate_result result{};
  result.struct_size = sizeof result;
  const moe_status status = moe_session_generate(session.get(), tokens.data(), tokens.size(),
                                                 &sampling.params, &result, &error);
  if (sink.thrown) std::rethrow_exception(sink.thrown);
  if (sink.stream && status == MOE_OK) sink.begin();  // nothing may have been generated
  if (sink.begun) std::cout << "\n" << std::flush;
  check(status, error);
  if (sink.stream) {
    report(result);
    report_skipped(o.model, model.get(), {session.get()});
    tell_sampling(o, model.get());
    if (o.stats) {
      print_stats(routing_json(model.get(), session.get()),
                  activations_json(model.get(), session.get()));
      print_memory(o.model, model.get(), memory_stats(session.get()),
                   result.n_prompt + result.n_generated,
                   result.prompt_seconds + result.generate_seconds);
    }
    return;
  }
  Json json = Json::object();
  if (o.input.given()) {
    json["prompt"] = prompt;
  } else {
    json["prompt_tokens"] = tokens;
  }
  json.update({{"text", sink.text},
               {"finish", finish_name(result.finish)},
               {"seed", sampling.seed()},
               {"n_prompt", result.n_prompt},
               {"n_generated", result.n_generated},
               {"prompt_seconds", result.prompt_seconds},
               {"generate_seconds", result.generate_seconds},
               {"tokens", sink.tokens}});
  if (o.sampling.max_draft > 0) {
    json.update({{"n_drafted", result.n_drafted}, {"n_accepted", result.n_accepted}});
  }
  if (may_skip(o.model)) {
    json["skipped"] = skipped_json(routing_json(model.get(), session.get()));
  }
  if (o.stats) {
    json["routing"] = routing_json(model.get(), session.get());
    json["activations"] = activations_json(model.get(), session.get());
    json["memory"] = memory_json(o.model, model.get(), memory_stats(session.get()));
  }
  print_json(json);
}

}  // namespace

void add_generate(CLI::App& app) {
  auto o = std::make_shared<GenerateOptions>();
  CLI::App* c = app.add_subcommand("generate", "Continue a text");
  example(*c, "moe generate model.moe -p 'Once upon a time' -n 60");
  add_model_options(*c, o->model);
  o->input.take_empty();
  o->input.add(*c, "Text to continue; an empty one begins a new text");
  auto* tokens = c->add_option("--tokens", o->tokens, "Token ids instead of a text")
                     ->check(not_empty())
                     ->option_text("ID,ID...");
  o->input.exclude(tokens);
  add_sampling_options(*c, o->sampling, 128);
  add_draft_option(*c, o->sampling);
  add_session_options(*c, o->model, "the length of the text plus -n; with -n 0, plus 4096");
  auto* json = c->get_option("--json");
  c->add_flag("--no-echo", o->no_echo, "Print the continuation without the prompt")->excludes(json);
  add_no_bos(*c, o->no_bos);
  c->add_flag("--special", o->special, "Recognise special tokens in the prompt")->excludes(tokens);
  c->add_flag("--stats", o->stats,
              "Report expert use, positive activations and memory use on stderr, or in the JSON");
  add_logprobs(*c, o->n_top, 1, "With --json: the N best candidates of each token")->needs(json);
  c->callback([o] { run_generate(*o); });
}

}  // namespace moe_cli
