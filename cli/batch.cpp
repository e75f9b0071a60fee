// moe batch: many texts, several of them at once.

#include <algorithm>
#include <iostream>
#include <map>
#include <optional>

#include "cli/batch_files.h"
#include "cli/batch_request.h"
#include "cli/candidates.h"
#include "cli/chat_template.h"
#include "cli/context.h"
#include "cli/help.h"
#include "cli/interrupt.h"
#include "cli/memory.h"
#include "cli/progress.h"
#include "cli/sampling.h"
#include "cli/text_input.h"
#include "cli/units.h"

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

constexpr const char* kNoTemplate = "the model has no chat template; --template gives one";

/// A session and the text it generates.
struct Slot {
  Session session;
  size_t line = 0;  // from 1; 0: free
  uint64_t input_end = 0;
  Json id;
  std::vector<int32_t> prompt;
  std::vector<int32_t> made;
  std::vector<std::string> stops;
  Json logprobs = Json::array();
  int32_t next = -1;  // sampled and not yet evaluated
};

class Batch {
 public:
  Batch(const BatchOptions& o, const Sampling& sampling, moe_model* model, BatchFiles& files)
      : options_(o),
        model_(model),
        info_(model_info(model)),
        sampling_(sampling),
        template_(o.chat_template.name.empty() ? "" : read_template(o.chat_template.name)),
        in_(files.in),
        out_(files.out),
        progress_(true),
        n_before_(files.n_written),
        n_written_(files.n_written) {
    for (int i = 0; i < o.n_sessions; ++i) {
      slots_.emplace_back();
      slots_.back().session = open_session(o.model, model);
    }
    if (!o.chat_template.given()) return;
    if (!has_template()) throw CallError(MOE_ERR_UNSUPPORTED, kNoTemplate);
    (void)open_chat(slots_[0].session.get());  // reports its errors
  }
  void run();

 private:
  bool fill_free_slots();
  bool fill(Slot& slot, bool wait);
  void begin(Slot& slot, const std::string& line, bool whole);
  Chat open_chat(moe_session* session, const Json& messages = Json::array()) const;
  bool has_template() const {
    return !template_.empty() || moe_model_chat_template(model_) != nullptr;
  }
  void reply(Slot& slot, const Json& messages);
  static Json begin_result(const Slot& slot) {
    Json result = {{"line", slot.line}};
    if (!slot.id.is_null()) result["id"] = slot.id;
    return result;
  }
  void sample(Slot& slot);
  bool has_stop(const Slot& slot) const;
  std::string text_of(const Slot& slot) const;
  void step();
  void go_on(Slot& slot);
  void step_alone(Slot& slot);
  void skip_answered();
  void finish(Slot& slot, const char* why);
  void refuse(Slot& slot, const char* why);
  void give(size_t line, const Json& result, uint64_t input_end);
  bool is_eos(int32_t token) const {
    return options_.sampling.ignore_eos == 0 &&
           std::find(info_.eos_tokens, info_.eos_tokens + info_.n_eos_tokens, token) !=
               info_.eos_tokens + info_.n_eos_tokens;
  }

  const BatchOptions& options_;
  moe_model* model_;
  moe_model_info info_;
  const Sampling& sampling_;
  const std::string template_;  // of --template
  LineReader& in_;
  ResultFile& out_;
  Progress progress_;
  std::vector<Slot> slots_;
  size_t n_read_ = 0;
  size_t n_refused_ = 0;
  const size_t n_before_;  // of earlier runs
  size_t n_written_;
  std::map<size_t, std::pair<std::string, uint64_t>> waiting_;  // for earlier lines
};

void Batch::give(size_t line, const Json& result, uint64_t input_end) {
  waiting_[line] = {result.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n", input_end};
  for (auto first = waiting_.begin(); first != waiting_.end() && first->first == n_written_ + 1;
       first = waiting_.erase(first)) {
    out_.add(first->second.first);
    ++n_written_;
    Progress::callback(&progress_, first->second.second, in_.size(), "batch");
  }
}

/// The answer of a reply without thinking.
struct Answer {
  std::string text;
  const moe_model* model = nullptr;  // null: no log-probabilities
  Json logprobs = Json::array();     // of thinking, too
  bool out_of_memory = false;
  static bool take(void* user, const moe_piece* piece) {
    auto* answer = static_cast<Answer*>(user);
    try {
      if (answer->model != nullptr && piece->token >= 0) {
        answer->logprobs.push_back(
            token_json(answer->model, {piece->token, piece->logprob}, piece->top, piece->n_top));
      }
      if ((piece->flags & MOE_PIECE_THINKING) != 0) return true;
      answer->text.append(piece->text, piece->n_bytes);
    } catch (const std::bad_alloc&) {  // nothing may be thrown through the library
      answer->out_of_memory = true;
    }
    return !answer->out_of_memory;
  }
};

// --system is for conversations that do not begin with a system prompt.
Chat Batch::open_chat(moe_session* session, const Json& messages) const {
  TemplateOptions options = options_.chat_template;
  if (begins_with_system(messages)) options.system.clear();
  Chat chat;
  moe_error error;
  check_line(create_chat(options, template_, session, &chat, &error), error);
  return chat;
}

// Replies to a conversation with the library's chat, which knows its end: answered at once, while
// the others wait.
void Batch::reply(Slot& slot, const Json& messages) {
  if (!has_template()) throw LineError(std::string("'messages': ") + kNoTemplate);
  const Chat chat = open_chat(slot.session.get(), messages);
  add_messages(chat.get(), messages);
  Answer answer;
  if (options_.n_top >= 0) answer.model = model_;
  std::vector<const char*> stops;
  for (const std::string& stop : slot.stops) stops.push_back(stop.c_str());
  moe_generate_params params = sampling_.params;
  params.stop = stops.data();
  params.n_stop = static_cast<int32_t>(stops.size());
  params.callback = Answer::take;
  params.user = &answer;
  params.n_top = std::max(0, options_.n_top);
  moe_chat_result r{};
  r.struct_size = sizeof r;
  moe_error error;
  check_line(moe_chat_reply(chat.get(), &params, &r, &error), error);
  if (answer.out_of_memory) throw std::bad_alloc();
  Json result = begin_result(slot);
  result["text"] = answer.text;
  result["finish"] = finish_name(r.finish);
  result["n_prompt"] = r.n_prompt;
  result["n_generated"] = r.n_generated;
  if (options_.n_top >= 0) result["logprobs"] = answer.logprobs;
  give(slot.line, result, slot.input_end);
  slot.line = 0;
}

/// Start of the match that is complete first, of several the longest; npos: none.
size_t find_stop(const std::string& text, const std::vector<std::string>& stops) {
  size_t start = std::string::npos;
  size_t end = std::string::npos;
  for (const std::string& stop : stops) {
    const size_t at = text.find(stop);
    if (at == std::string::npos || at + stop.size() > end) continue;
    start = at + stop.size() == end ? std::min(start, at) : at;
    end = at + stop.size();
  }
  return start;
}

// Evaluates the prompt of a line and samples the first token.
void Batch::begin(Slot& slot, const std::string& line, bool whole) {
  const Json request = parse_request(line, whole);
  slot.id = id_of(request);
  check_keys(request);
  moe_error error;
  check(moe_session_rewind(slot.session.get(), 0, &error), error);
  slot.stops = stops_of(request, model_, options_.sampling.stop);
  if (request.contains("messages")) return reply(slot, request["messages"]);
  slot.prompt = tokens_of(request, model_);
  const std::vector<int32_t>& tokens = slot.prompt;
  if (tokens.empty()) throw LineError("the text has no tokens");
  try {
    check_fits("the text has", tokens.size(), slot.session.get(), model_);
  } catch (const CallError& e) {
    throw LineError(e.what());
  }
  check_line(moe_session_eval(slot.session.get(), tokens.data(), tokens.size(), nullptr, 0, &error),
             error);
  sample(slot);
}

// Samples the next token of a text, which may be its last.
void Batch::sample(Slot& slot) {
  moe_session* session = slot.session.get();
  if (moe_session_position(session) == moe_session_context(session)) return finish(slot, "context");
  moe_token_logprob chosen{};
  std::vector<moe_token_logprob> top(static_cast<size_t>(std::max(0, options_.n_top)));
  moe_error error;
  check_line(moe_session_sample(session, sampling_.params.sampling, &chosen, top.data(), top.size(),
                                &error),
             error);
  if (is_eos(chosen.token)) return finish(slot, "eos");
  slot.next = chosen.token;
  slot.made.push_back(slot.next);
  if (options_.n_top >= 0) {
    slot.logprobs.push_back(token_json(model_, chosen, top.data(), top.size()));
  }
  if (has_stop(slot)) return finish(slot, "stop");
  const int most = options_.sampling.max_tokens;
  if (most > 0 && slot.made.size() == static_cast<size_t>(most)) finish(slot, "length");
}

bool Batch::has_stop(const Slot& slot) const {
  return !slot.stops.empty() && find_stop(text_of(slot), slot.stops) != std::string::npos;
}

// Decodes the text after the prompt, which affects how the first new token is decoded: a leading
// space, or the rest of a character.
std::string Batch::text_of(const Slot& slot) const {
  const std::string unknown = "\xEF\xBF\xBD";  // replaces an incomplete character
  std::string before = decode(model_, slot.prompt, MOE_DECODE_SKIP_SPECIAL);
  std::vector<int32_t> tokens = slot.prompt;
  tokens.insert(tokens.end(), slot.made.begin(), slot.made.end());
  std::string all = decode(model_, tokens, MOE_DECODE_SKIP_SPECIAL);
  if (before.ends_with(unknown) && !all.starts_with(before)) {
    before.resize(before.size() - unknown.size());
  }
  if (all.starts_with(before)) return all.substr(before.size());
  return decode(model_, slot.made, MOE_DECODE_SKIP_SPECIAL);
}

void Batch::finish(Slot& slot, const char* why) {
  Json result = begin_result(slot);
  if (moe_model_tokenizer(model_) != nullptr) {
    const std::string text = text_of(slot);
    result["text"] = text.substr(0, find_stop(text, slot.stops));
  } else {
    result["tokens"] = slot.made;
  }
  result["finish"] = why;
  result["n_prompt"] = slot.prompt.size();
  result["n_generated"] = slot.made.size();
  if (options_.n_top >= 0) result["logprobs"] = slot.logprobs;
  give(slot.line, result, slot.input_end);
  slot.line = 0;
}

void Batch::refuse(Slot& slot, const char* why) {
  Json result = begin_result(slot);
  result["error"] = why;
  ++n_refused_;
  give(slot.line, result, slot.input_end);
  slot.line = 0;
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
    slot.line = n_read_;
    slot.input_end = in_.at();
    slot.id = nullptr;
    slot.made.clear();
    slot.logprobs = Json::array();
    slot.next = -1;
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
      moe_sessions_step(sessions.data(), tokens.data(), tokens.size(), nullptr, &error);
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
    check_line(moe_sessions_step(&session, &slot.next, 1, nullptr, &error), error);
  } catch (const LineError& e) {
    return refuse(slot, e.what());
  }
  go_on(slot);
}

// Lines with results of an earlier run.
void Batch::skip_answered() {
  LineReader results(options_.out);
  const std::string source = options_.in == "-" ? "stdin" : options_.in;
  std::string line, result;
  bool whole = true, whole_result = true;
  for (n_read_ = 0; n_read_ < n_before_; ++n_read_) {
    const std::string number = std::to_string(n_read_ + 1);
    if (!in_.next(&line, &whole)) {
      throw CallError(MOE_ERR_ARGUMENT, options_.out + " has " + counted(n_before_, "line") +
                                            ", more than " + source + " with " +
                                            std::to_string(n_read_) + ": results of another file?");
    }
    if (results.next(&result, &whole_result) && whole_result &&
        !may_answer(result, line, whole, model_)) {
      throw CallError(MOE_ERR_ARGUMENT, options_.out + ": line " + number +
                                            " is not the result of line " + number + " of " +
                                            source + ": results of another file?");
    }
  }
  std::cerr << "moe: continuing after line " << n_before_ << "; to begin again, remove "
            << options_.out << "\n";
}

void Batch::run() {
  if (n_before_ > 0) skip_answered();
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
  const Env env = open_env(o.model);
  Model model = open_model(o.model, env.get());
  check_decoder(o.model, model.get(), "batch");
  check_sampling(o.sampling, model.get());
  const Sampling sampling(o.sampling);
  BatchFiles files(o.in, o.out);
  o.n_sessions = std::max(1, files.lines_left(o.n_sessions));
  fit_memory(o.model, env.get(), model, o.n_sessions);
  share_cap(o.model, model.get(), o.n_sessions);
  Batch batch(o, sampling, model.get(), files);
  batch.run();
}

}  // namespace

void add_batch(CLI::App& app) {
  auto o = std::make_shared<BatchOptions>();
  CLI::App* c = app.add_subcommand("batch", "Continue the texts of a file, several at once");
  add_model_options(*c, o->model);
  c->add_option(
       "IN", o->in,
       "One JSON object per line (- is stdin): prompt, messages or tokens; optionally id and "
       "stop, which replaces --stop")
      ->required();
  c->add_option("OUT", o->out,
                "One JSON object per line of IN (- is stdout); lines already in it are not "
                "generated again")
      ->required();
  add_template_options(*c, o->chat_template,
                       "System prompt of conversations that do not begin with one");
  add_sampling_options(*c, o->sampling, 128);
  add_logprobs(*c, o->n_top,
               "Add the log-probability of each generated token, with its N best candidates");
  add_session_options(*c, o->model);
  c->add_option("--sessions", o->n_sessions, "Texts generated at the same time")
      ->transform(integer_in(1, 1024))
      ->capture_default_str();
  c->callback([o] { run_batch(*o); });
}

}  // namespace moe_cli
