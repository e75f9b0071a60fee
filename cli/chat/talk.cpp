// SPDX-License-Identifier: MIT
// Runs the conversation: input, commands, replies as they come, thinking on stderr, notes.
#include "cli/chat/talk.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <iostream>
#include <iterator>

#include "cli/chat/chat_input.h"
#include "cli/help/help.h"
#include "cli/io/interrupt.h"
#include "cli/io/units.h"
#include "cli/model/memory.h"

namespace moe_cli {
namespace {

// The template for moe_chat_create: a name or Jinja text; empty for the model's own.
std::string template_text(const ChatOptions& o, const moe_model* model) {
  if (o.chat_template.name.empty()) {
    if (moe_model_chat_template(model) != nullptr) return "";
    ChatStyle().note(
        "this model has no chat template: 'plain' passes your lines and its replies as they are "
        "(--template gives another)");
    return "plain";
  }
  return read_template(o.chat_template.name);
}

Chat open_chat(const ChatOptions& o, const std::string& text, moe_session* session) {
  const bool prefixes = !o.user_prefix.empty() || !o.reply_prefix.empty();
  if (prefixes && text != "plain") {
    throw UsageError("--user-prefix and --reply-prefix require --template plain");
  }
  TemplateOptions all = o.chat_template;
  if (!o.user_prefix.empty()) all.variables.push_back("user_prefix=" + o.user_prefix);
  if (!o.reply_prefix.empty()) all.variables.push_back("reply_prefix=" + o.reply_prefix);
  Chat chat;
  moe_error error;
  check(create_chat(all, text, session, &chat, &error), error);
  return chat;
}

}  // namespace

Talk::Talk(const ChatOptions& o, moe_model* model)
    : options_(o),
      model_(model),
      session_(open_session(o.model, model)),
      template_(template_text(o, model)),
      chat_owner_(open_chat(o, template_, session_.get())),
      chat_(chat_owner_.get()),
      defaults_(model),
      sampling_(o.sampling, &defaults_.settings),
      grammar_(open_grammar(o.sampling, model)),
      terminal_(isatty(STDIN_FILENO) == 1),
      editor_(LineEditor::open(style_.colours())),
      system_(o.chat_template.system),
      shifts_(o.shift) {
  sampling_.params.piece = on_piece;
  sampling_.params.piece_user = this;
  sampling_.params.grammar = grammar_.get();
  set_tools(o.tools, chat_);
}

// Thinking goes to stderr: stdout has only answers.
void Talk::show_thinking(bool on) {
  if (on == thinking_) return;
  thinking_ = on;
  if (on) style_.begin_faint();
  if (on && !style_.colours()) std::cerr << "thinking: ";
  if (!on) style_.end_faint();
  if (!on) std::cerr << "\n";
}

bool Talk::take(const moe_piece& piece) {
  if ((piece.flags & MOE_PIECE_TOOL_CALL) != 0) {
    calls_.emplace_back(std::string(piece.text, piece.n_bytes));
    return true;
  }
  const bool thinking = (piece.flags & MOE_PIECE_THINKING) != 0;
  (thinking ? thought_ : answer_).append(piece.text, piece.n_bytes);
  if (options_.model.json || piece.n_bytes == 0) return true;
  show_thinking(thinking);
  std::ostream& out = thinking ? std::cerr : std::cout;
  out.write(piece.text, static_cast<std::streamsize>(piece.n_bytes));
  if (!out.flush()) throw write_error("-");
  return true;
}

void Talk::show(bool begin_reply) {
  moe_error error;
  size_t n = 0;
  check(moe_chat_render(chat_, begin_reply, nullptr, 0, &n, &error), error);
  std::string text(n + 1, '\0');
  check(moe_chat_render(chat_, begin_reply, text.data(), text.size(), &n, &error), error);
  text.resize(n);
  std::cout << text << (text.empty() || text.back() != '\n' ? "\n" : "") << std::flush;
}

// The seed repeats a reply: the same conversation with the same settings.
void Talk::tell_sampling() const {
  if (options_.model.json || options_.render) return;  // JSON has it
  const moe_sampling& s = sampling_.settings();
  std::string text = "sampling: " + sampling_text(s);
  if (sampling_.changed() && defaults_.in_file) text += " (the model file's, and options)";
  if (!sampling_.changed()) {
    const bool penalty = defaults_.settings.repetition_penalty != 1;  // the file gives no more
    text += defaults_.in_file ? " (the model file's)"
            : penalty         ? " (default; the penalty is the model file's)"
                              : " (default)";
  }
  if (s.temperature > 0) text += "; --seed " + std::to_string(s.seed) + " repeats it";
  style_.note(text);
}

void Talk::refuse_command(const std::string& line, const std::string& why) const {
  style_.note(why + "; quote it to send it: \"\"\"" + line + "\"\"\"");
}

// True unless the line is for the model: a message, or a word that its template knows.
bool Talk::command(const std::string& line) {
  const std::string word = command_word(line);
  if (word.empty()) return false;
  const std::string rest = line.size() > word.size() ? line.substr(word.size() + 1) : "";
  if (take_command(word, rest)) return true;
  const std::string own = template_.empty() ? moe_model_chat_template(model_) : template_;
  if (template_knows(own, word)) return false;
  refuse_command(line, "unknown command " + word + " (/help)");
  return true;
}

bool Talk::take_command(const std::string& word, const std::string& rest) {
  moe_error error;
  if (word == "/system") {
    check(moe_chat_set_system(chat_, rest.empty() ? nullptr : rest.c_str(), &error), error);
    system_ = rest;
    return true;
  }
  static const char* const kAlone[] = {"/clear", "/reset", "/show", "/shift",
                                       "/help",  "/quit",  "/exit"};
  if (std::find(std::begin(kAlone), std::end(kAlone), word) == std::end(kAlone)) return false;
  if (rest.find_first_not_of(" \t\n") != std::string::npos) {
    refuse_command(word + " " + rest, word + " takes no text");
  } else if (word == "/quit" || word == "/exit") {
    ended_ = true;
  } else if (word == "/clear" || word == "/reset") {
    truncate(0);
    calls_.clear();
  } else if (word == "/show") {
    show_conversation();
  } else if (word == "/shift") {
    shifts_ = true;
    style_.note("when the context is full, the oldest turns are dropped");
  } else {
    const Faint faint(style_);
    std::cerr << kChatHelp;
  }
  return true;
}

// Some templates refuse a conversation without a question.
void Talk::show_conversation() {
  try {
    show(false);
  } catch (const CallError& e) {
    if (e.code != MOE_ERR_TEXT || moe_chat_message_count(chat_) > 0) throw;
    style_.note("nothing to show yet");
  }
}

void Talk::report(const moe_chat_result& r) {
  if (options_.model.json) {
    Json json = {{"reply", answer_},
                 {"thinking", thought_},
                 {"finish", finish_name(r.finish)},
                 {"seed", sampling_.seed()},
                 {"sampling", sampling_json(sampling_.settings())},
                 {"n_prompt", r.n_prompt},
                 {"n_reused", r.n_reused},
                 {"n_generated", r.n_generated},
                 {"n_thinking", r.n_thinking},
                 {"prompt_seconds", r.prompt_seconds},
                 {"generate_seconds", r.generate_seconds}};
    if (options_.sampling.max_draft > 0) {
      json.update({{"n_drafted", r.n_drafted}, {"n_accepted", r.n_accepted}});
    }
    if (shifts_) json["n_dropped"] = n_dropped_;
    if (!options_.tools.file.empty()) {
      json["tool_calls"] = Json::array();
      for (const ToolCall& call : calls_) json["tool_calls"].push_back(call.json());
    }
    std::cout << json.dump(-1, ' ', false, Json::error_handler_t::replace) << "\n" << std::flush;
  }
  if (options_.stats) {
    const Faint faint(style_);
    const double rate = r.generate_seconds > 0 ? r.n_generated / r.generate_seconds : 0;
    std::fprintf(stderr, "moe: conversation %s, %d of them reused; reply %s (%.0f/s)%s, %s\n",
                 counted(static_cast<uint64_t>(r.n_prompt), "token").c_str(), r.n_reused,
                 counted(static_cast<uint64_t>(r.n_generated), "token").c_str(), rate,
                 drafts_text(r.n_drafted, r.n_accepted).c_str(), finish_text(r.finish));
    moe_memory_stats stats = memory_stats(session_.get());
    stats.session = since(before_, stats.session);
    print_memory(options_.model, model_, stats, r.n_prompt - r.n_reused + r.n_generated,
                 r.prompt_seconds + r.generate_seconds);
  }
  if (r.finish == MOE_FINISH_CONTEXT) tell_full();
  if (r.finish == MOE_FINISH_LENGTH && !options_.model.json) {
    const char* when = answer_.empty() && !thought_.empty() ? ", while the model was thinking" : "";
    style_.note("the reply was cut after " +
                counted(static_cast<uint64_t>(r.n_generated), "token") + when +
                " (-n 0: no limit)");
  }
}

// Handles a failed reply. At a terminal the conversation continues: text generated before Ctrl-C is
// stored, otherwise the line is discarded.
void Talk::take_back(moe_status status, const moe_error& error) {
  const bool stopped = status == MOE_ERR_CANCELLED && interrupted();
  calls_.clear();
  if (!terminal_ || (stopped && !forgive_interrupt())) check(status, error);
  if (stopped && !answer_.empty()) {
    add("assistant", answer_);
    return;
  }
  drop_turn();
  if (stopped) {
    style_.note("stopped before an answer; the message is discarded");
  } else {
    style_.note(error.text);
    style_.note("the message is discarded");
  }
}

// Removes the last message of the user, and the calls and results behind it.
void Talk::drop_turn() {
  calls_.clear();
  for (size_t i = moe_chat_message_count(chat_); i-- > 0;) {
    if (role_of(i) == "user") return truncate(i);
  }
}

void Talk::show_calls() const {
  for (const ToolCall& call : calls_) {
    style_.note("the model calls " + call.name + " " + call.shown());
  }
}

// The editor writes the prompt past the guard of terminals and counts its bytes, so that a name,
// which is the model's text, has only printable ASCII here.
std::string Talk::prompt() const {
  constexpr size_t kMostName = 40;
  if (calls_.empty()) return "> ";
  const std::string quoted = Json(calls_.front().name).dump(-1, ' ', true);
  std::string name = quoted.substr(1, quoted.size() - 2);
  if (name.size() > kMostName) name.replace(kMostName, std::string::npos, "...");
  return "result of " + name + "> ";
}

void Talk::turn(const std::string& message) {
  choose_tool(options_.tools, true, chat_);
  add("user", message);
  reply();
}

// The replies to results are free to be an answer.
void Talk::take_result(const std::string& text) {
  add_result(calls_.front(), text, chat_);
  calls_.pop_front();
  if (!calls_.empty()) return;
  choose_tool(options_.tools, false, chat_);
  reply();
}

void Talk::reply() {
  answer_.clear();
  thought_.clear();
  n_dropped_ = 0;
  moe_chat_result result{};
  result.struct_size = sizeof result;
  moe_error error;
  moe_status status = MOE_OK;
  try {
    make_room();
    const CurrentSession current(session_.get());
    before_ = memory_stats(session_.get()).session;
    status = moe_chat_reply(chat_, &sampling_.params, &result, &error);
    if (status == MOE_ERR_TOO_LONG) name_context(&error);  // the template's limits were met before
  } catch (const CallError& e) {
    status = e.code;
    std::snprintf(error.text, sizeof error.text, "%s", e.what());
  }
  show_thinking(false);
  if (thrown_) std::rethrow_exception(thrown_);
  if (!options_.model.json && ((status == MOE_OK && calls_.empty()) || !answer_.empty())) {
    std::cout << "\n" << std::flush;
  }
  if (status != MOE_OK) return take_back(status, error);
  if (!options_.model.json) show_calls();
  report(result);
}

void Talk::run() {
  tell_sampling();
  if (terminal_) style_.note("type a message; /help shows the commands, Ctrl-D ends");
  if (!options_.first.empty()) {
    if (editor_ != nullptr) editor_->remember(as_typed(options_.first));
    answer(options_.first);
  }
  ChatInput message;
  while (next_message({std::cin, terminal_, editor_.get(), prompt()}, &message)) {
    const std::string& text = message.text;
    if (interrupted()) return;
    if (text.empty() && calls_.empty()) continue;  // a tool may give nothing
    if (message.quoted || !command(text)) calls_.empty() ? answer(text) : take_result(text);
    if (ended_) return;
  }
}

void Talk::answer(const std::string& message) {
  if (!options_.render) return turn(message);
  add("user", message);
  show(true);
  truncate(0);
}

}  // namespace moe_cli
