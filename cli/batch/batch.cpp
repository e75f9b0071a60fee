// SPDX-License-Identifier: MIT
// moe batch: many texts, several of them at once.

#include <algorithm>
#include <iostream>
#include <map>
#include <utility>

#include "cli/batch/batch_chat.h"
#include "cli/batch/batch_files.h"
#include "cli/batch/batch_request.h"
#include "cli/batch/batch_slot.h"
#include "cli/help/help.h"
#include "cli/io/interrupt.h"
#include "cli/io/progress.h"
#include "cli/io/text_input.h"
#include "cli/io/units.h"
#include "cli/model/candidates.h"
#include "cli/model/context.h"
#include "cli/model/memory.h"
#include "cli/model/sampling.h"

namespace moe_cli {
namespace {

struct BatchOptions {
  ModelOptions model;
  SamplingOptions sampling;
  TemplateOptions chat_template;
  std::string in;
  std::string out;
  int n_sessions = 8;
  int n_top = -1;  // of --logprobs; -1: not given
};

class Batch {
 public:
  Batch(const BatchOptions& o, const Sampling& sampling, moe_model* model, BatchFiles& files)
      : options_(o),
        model_(model),
        info_(model_info(model)),
        sampling_(sampling),
        chat_(o.chat_template, model),
        in_(files.in),
        out_(files.out),
        progress_(true),
        n_read_(files.n_written),
        n_before_(files.n_written),
        n_written_(files.n_written) {
    for (int i = 0; i < o.n_sessions; ++i) {
      slots_.emplace_back();
      slots_.back().session = open_session(o.model, model);
    }
    chat_.check_options(slots_[0].session.get());
  }
  void run();

 private:
  bool fill_free_slots();
  bool fill(Slot& slot, bool wait);
  void begin(Slot& slot, const std::string& line, bool whole);
  void reply(Slot& slot, const Json& request);
  void constrain(Slot& slot);
  moe_grammar* grammar_of(const Slot& slot) const {
    return slot.has_format ? slot.grammar.get() : sampling_.params.grammar;
  }
  void sample(Slot& slot);
  void sample_constrained(Slot& slot);
  void step();
  void go_on(Slot& slot);
  void step_alone(Slot& slot);
  void finish(Slot& slot, const char* why);
  void refuse(Slot& slot, const char* why);
  void give(Slot& slot, const Json& result);
  bool is_eos(int32_t token) const {
    return options_.sampling.ignore_eos == 0 &&
           std::find(info_.eos_tokens, info_.eos_tokens + info_.n_eos_tokens, token) !=
               info_.eos_tokens + info_.n_eos_tokens;
  }

  const BatchOptions& options_;
  moe_model* model_;
  moe_model_info info_;
  const Sampling& sampling_;
  const BatchChat chat_;
  LineReader& in_;
  ResultFile& out_;
  Progress progress_;
  std::vector<Slot> slots_;
  size_t n_read_;
  size_t n_refused_ = 0;
  const size_t n_before_;  // of earlier runs
  size_t n_written_;
  std::map<size_t, std::pair<std::string, uint64_t>> waiting_;  // for earlier lines
};

// Ends the slot's line.
void Batch::give(Slot& slot, const Json& result) {
  waiting_[slot.line] = {result.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n",
                         slot.input_end};
  slot.line = 0;
  for (auto first = waiting_.begin(); first != waiting_.end() && first->first == n_written_ + 1;
       first = waiting_.erase(first)) {
    out_.add(first->second.first);
    ++n_written_;
    Progress::callback(&progress_, first->second.second, in_.size(), "batch");
  }
}

// Answers a conversation at once, while the others wait.
void Batch::reply(Slot& slot, const Json& request) {
  std::vector<const char*> stops;
  for (const std::string& stop : slot.stops) stops.push_back(stop.c_str());
  moe_generate_params params = sampling_.params;
  params.sampling = &slot.settings.sampling;
  params.max_tokens = slot.settings.max_tokens;
  params.stop = stops.data();
  params.n_stop = static_cast<int32_t>(stops.size());
  params.grammar = grammar_of(slot);
  params.n_top = std::max(0, options_.n_top);
  Json result = slot.begin_result();
  chat_.reply(slot.session.get(), request, params, options_.n_top >= 0, result);
  give(slot, result);
}

// Evaluates the prompt of a line and samples the first token.
void Batch::begin(Slot& slot, const std::string& line, bool whole) {
  const Json request = parse_request(line, whole, &slot.id);
  slot.id = id_of(request);
  check_keys(request);
  moe_error error;
  check(moe_session_rewind(slot.session.get(), 0, &error), error);
  slot.stops = stops_of(request, model_, options_.sampling.stop);
  slot.settings = settings_of(request, {options_.sampling.max_tokens, *sampling_.params.sampling});
  slot.has_format = request.contains("response_format");
  slot.grammar = format_of(request, model_);
  if (request.contains("messages")) return reply(slot, request);
  slot.prompt = tokens_of(request, model_);
  const std::vector<int32_t>& tokens = slot.prompt;
  if (tokens.empty()) throw LineError("the text has no tokens");
  try {
    check_fits("the text has", tokens.size(), slot.session.get(), model_);
  } catch (const CallError& e) {
    throw LineError(e.what());
  }
  check_line(moe_session_eval(slot.session.get(), tokens.data(), tokens.size(), MOE_ROWS_NONE,
                              nullptr, &error),
             error);
  if (grammar_of(slot) != nullptr) constrain(slot);
  sample(slot);
}

// Has the text follow the grammar; the slot looks for stop strings as in others.
void Batch::constrain(Slot& slot) {
  moe_generate_params params = sampling_.params;
  params.sampling = &slot.settings.sampling;
  params.max_tokens = slot.settings.max_tokens;
  params.stop = nullptr;
  params.n_stop = 0;
  params.grammar = grammar_of(slot);
  params.n_top = std::max(0, options_.n_top);
  params.piece = Slot::take;
  params.piece_user = &slot;
  slot.logprobs_of = options_.n_top >= 0 ? model_ : nullptr;
  moe_generation* raw = nullptr;
  moe_error error;
  check_line(moe_generation_create(slot.session.get(), &params, &raw, &error), error);
  slot.generation.reset(raw);
}

void Batch::sample_constrained(Slot& slot) {
  moe_finish why{};
  moe_error error;
  const moe_status status = moe_generation_next(slot.generation.get(), &slot.next, &why, &error);
  if (slot.thrown) std::rethrow_exception(slot.thrown);
  check_line(status, error);
  if (slot.has_stop(model_)) return finish(slot, "stop");
  if (slot.next < 0) finish(slot, finish_name(why));
}

// Samples the next token of a text, which may be its last.
void Batch::sample(Slot& slot) {
  if (slot.generation) return sample_constrained(slot);
  moe_session* session = slot.session.get();
  if (moe_session_position(session) == moe_session_context(session)) return finish(slot, "context");
  moe_token_logprob chosen{};
  std::vector<moe_token_logprob> top(static_cast<size_t>(std::max(0, options_.n_top)));
  moe_error error;
  check_line(
      moe_session_sample(session, &slot.settings.sampling, &chosen, top.data(), top.size(), &error),
      error);
  if (is_eos(chosen.token)) return finish(slot, "eos");
  slot.next = chosen.token;
  slot.made.push_back(slot.next);
  if (options_.n_top >= 0) {
    slot.logprobs.push_back(token_json(model_, chosen, top.data(), top.size()));
  }
  if (slot.has_stop(model_)) return finish(slot, "stop");
  const int most = slot.settings.max_tokens;
  if (most > 0 && slot.made.size() == static_cast<size_t>(most)) finish(slot, "length");
}

void Batch::finish(Slot& slot, const char* why) {
  Json result = slot.result(model_, why);
  if (options_.n_top >= 0) result["logprobs"] = slot.logprobs;
  give(slot, result);
}

void Batch::refuse(Slot& slot, const char* why) {
  Json result = slot.begin_result();
  result["error"] = why;
  ++n_refused_;
  give(slot, result);
}

// Begins the next valid line; false if there are no more, or without `wait`, if none has arrived.
bool Batch::fill(Slot& slot, bool wait) {
  std::string line;
  bool whole = true;
  while (slot.line == 0) {
    if (!wait && !in_.ready()) return false;
    if (!in_.next(&line, &whole)) return false;
    ++n_read_;
    stop_if_interrupted();
    slot.begin(n_read_, in_.at());
    try {
      begin(slot, line, whole);
    } catch (const LineError& e) {
      refuse(slot, e.what());
    }
  }
  return true;
}

// Waits for a line only if there is nothing else to do: whoever writes them may wait for an answer.
// False if no text is active.
bool Batch::fill_free_slots() {
  bool any = std::any_of(slots_.begin(), slots_.end(), [](const Slot& s) { return s.line != 0; });
  for (Slot& slot : slots_) {
    if (slot.line != 0) continue;
    const CurrentSession current(slot.session.get());
    if (!fill(slot, !any)) break;
    any = true;
  }
  return any;
}

// Generates one token for every active text, in one pass.
void Batch::step() {
  std::vector<moe_session*> sessions;
  std::vector<int32_t> tokens;
  for (const Slot& slot : slots_) {
    if (slot.line == 0) continue;
    sessions.push_back(slot.session.get());
    tokens.push_back(slot.next);
  }
  stop_if_interrupted();
  moe_error error;
  const moe_status status =
      moe_sessions_eval(sessions.data(), tokens.data(), nullptr, tokens.size(), nullptr, &error);
  const bool one_is_to_blame = status == MOE_ERR_NON_FINITE;  // and no session has advanced
  if (!one_is_to_blame) check(status, error);
  for (Slot& slot : slots_) {
    if (slot.line == 0) continue;
    if (one_is_to_blame) {
      step_alone(slot);
    } else {
      go_on(slot);
    }
  }
}

void Batch::go_on(Slot& slot) {
  try {
    sample(slot);
  } catch (const LineError& e) {
    refuse(slot, e.what());
  }
}

void Batch::step_alone(Slot& slot) {
  moe_session* session = slot.session.get();
  moe_error error;
  try {
    check_line(moe_session_eval(session, &slot.next, 1, MOE_ROWS_NONE, nullptr, &error), error);
  } catch (const LineError& e) {
    return refuse(slot, e.what());
  }
  go_on(slot);
}

void Batch::run() {
  try {
    while (fill_free_slots()) step();
  } catch (const CallError& e) {
    if (e.code == MOE_ERR_CANCELLED && n_written_ > n_before_) {
      std::cerr << "moe: " << counted(n_written_ - n_before_, "line") << " done"
                << (options_.out == "-" ? "" : "; the same command continues") << "\n";
    }
    throw;
  }
  const size_t n_done = n_written_ - n_before_;
  std::cerr << "moe: " << counted(n_done, "line") << " done";
  if (n_refused_ > 0 && n_refused_ == n_done) {
    std::cerr << ", all with errors";
  } else if (n_refused_ > 0) {
    std::cerr << ", " << n_refused_ << " with errors";
  }
  std::cerr << "\n";
}

void run_batch(BatchOptions& o) {
  Sampling sampling(o.sampling);
  const Env env = open_env(o.model);
  Model model = open_model(o.model, env.get());
  check_decoder(o.model, model.get(), "batch");
  check_sampling(o.sampling, model.get());
  const Grammar grammar = open_grammar(o.sampling, model.get());
  sampling.params.grammar = grammar.get();
  BatchFiles files(o.in, o.out);
  o.n_sessions = std::max(1, files.lines_left(o.n_sessions));
  fit_memory(o.model, env.get(), model, o.n_sessions);
  check_sessions(o.model, model.get(), o.n_sessions);
  Batch batch(o, sampling, model.get(), files);
  files.skip_answered(model.get());
  batch.run();
}

}  // namespace

void add_batch(CLI::App& app) {
  auto o = std::make_shared<BatchOptions>();
  CLI::App* c = app.add_subcommand("batch", "Continue the texts of a file, several at once");
  example(*c, "moe batch model.moe prompts.jsonl answers.jsonl -n 100");
  add_model_options(*c, o->model, {.json = false});
  c->add_option(
       "IN", o->in,
       "One JSON object per line (- is stdin): prompt, messages or tokens; optionally an id, and "
       "stop, max_tokens, temperature and others in place of the options; or a batch file of "
       "OpenAI's API")
      ->required()
      ->check(not_empty());
  c->add_option("OUT", o->out,
                "One JSON object per line of IN (- is stdout); lines already in it are not "
                "generated again")
      ->required()
      ->check(not_empty());
  add_template_options(*c, o->chat_template,
                       "System prompt of conversations that do not begin with one");
  add_sampling_options(*c, o->sampling, 128);
  add_logprobs(*c, o->n_top, 0,
               "Add the log-probability of each generated token, with its N best candidates");
  add_session_options(*c, o->model);
  c->add_option("--sessions", o->n_sessions, "Texts generated at the same time")
      ->transform(integer_in(1, 1024))
      ->capture_default_str();
  c->callback([o] { run_batch(*o); });
}

}  // namespace moe_cli
