#include "cli/talk.h"

#include <unistd.h>

#include <cstdio>
#include <iostream>

#include "cli/chat_input.h"
#include "cli/help.h"
#include "cli/interrupt.h"
#include "cli/memory.h"
#include "cli/units.h"

namespace moe_cli {
namespace {

// The template for moe_chat_create: a name or Jinja text; empty for the model's own.
std::string template_text(const ChatOptions& o, const moe_model* model) {
  if (o.chat_template.name.empty()) {
    if (moe_model_chat_template(model) != nullptr) return "";
    std::cerr << "moe: this model has no chat template: 'plain' only joins the lines "
                 "(--template gives another)\n";
    return "plain";
  }
  return read_template(o.chat_template.name);
}

Chat open_chat(const ChatOptions& o, const moe_model* model, moe_session* session) {
  const std::string text = template_text(o, model);
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
      chat_owner_(open_chat(o, model, session_.get())),
      chat_(chat_owner_.get()),
      sampling_(o.sampling),
      terminal_(isatty(STDIN_FILENO) == 1),
      editor_(LineEditor::open()),
      dim_(isatty(STDERR_FILENO) == 1),
      system_(o.chat_template.system) {
  sampling_.params.callback = on_piece;
  sampling_.params.user = this;
}

// Thinking goes to stderr: stdout has only answers.
void Talk::show_thinking(bool on) {
  if (on == thinking_) return;
  thinking_ = on;
  if (dim_) std::fputs(on ? "\033[2m" : "\033[0m", stderr);  // std::cerr would escape it
  if (!on) std::cerr << "\n";
}

bool Talk::take(const moe_piece& piece) {
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

// True if the line is a command. Other lines that begin with a slash are for the model, such as
// Qwen3's /think.
bool Talk::command(const std::string& line) {
  moe_error error;
  if (line == "/clear" || line == "/reset") {
    truncate(0);
  } else if (line == "/show") {
    show_conversation();
  } else if (line == "/help") {
    std::cerr << kChatHelp;
  } else if (line == "/system" || line.compare(0, 8, "/system ") == 0) {
    const std::string text = line.size() > 8 ? line.substr(8) : "";
    check(moe_chat_set_system(chat_, text.empty() ? nullptr : text.c_str(), &error), error);
    system_ = text;
  } else {
    return false;
  }
  return true;
}

// Some templates refuse a conversation without a question.
void Talk::show_conversation() {
  try {
    show(false);
  } catch (const CallError& e) {
    if (e.code != MOE_ERR_TEXT || moe_chat_message_count(chat_) > 0) throw;
    std::cerr << "moe: nothing to show yet\n";
  }
}

void Talk::report(const moe_chat_result& r) {
  if (options_.model.json) {
    Json json = {{"reply", answer_},
                 {"thinking", thought_},
                 {"finish", finish_name(r.finish)},
                 {"seed", sampling_.seed()},
                 {"n_prompt", r.n_prompt},
                 {"n_reused", r.n_reused},
                 {"n_generated", r.n_generated},
                 {"n_thinking", r.n_thinking},
                 {"prompt_seconds", r.prompt_seconds},
                 {"generate_seconds", r.generate_seconds}};
    if (options_.sampling.max_draft > 0) {
      json.update({{"n_drafted", r.n_drafted}, {"n_accepted", r.n_accepted}});
    }
    std::cout << json.dump(-1, ' ', false, Json::error_handler_t::replace) << "\n" << std::flush;
  }
  if (options_.stats) {
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
    std::fprintf(stderr, "moe: the reply was cut after %s%s (-n 0: no limit)\n",
                 counted(static_cast<uint64_t>(r.n_generated), "token").c_str(),
                 answer_.empty() && !thought_.empty() ? ", while the model was thinking" : "");
  }
}

// Handles a failed reply. At a terminal the conversation continues: text generated before Ctrl-C is
// stored, otherwise the line is discarded.
void Talk::take_back(moe_status status, const moe_error& error) {
  const bool stopped = status == MOE_ERR_CANCELLED && interrupted();
  if (!terminal_ || (stopped && !forgive_interrupt())) check(status, error);
  if (stopped && !answer_.empty()) {
    add("assistant", answer_);
    return;
  }
  truncate(moe_chat_message_count(chat_) - 1);
  if (stopped) {
    std::cerr << "moe: stopped before an answer; the message is discarded\n";
  } else {
    std::cerr << "moe: " << error.text << "\nmoe: the message is discarded\n";
  }
}

void Talk::turn(const std::string& message) {
  answer_.clear();
  thought_.clear();
  add("user", message);
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
  if (!options_.model.json && (status == MOE_OK || !answer_.empty())) {
    std::cout << "\n" << std::flush;
  }
  if (status != MOE_OK) return take_back(status, error);
  report(result);
}

void Talk::run() {
  if (terminal_) {
    std::cerr << "moe: type a message; /help shows the commands, Ctrl-D ends\n";
  }
  if (!options_.first.empty()) answer(options_.first);
  ChatInput message;
  while (next_message({std::cin, terminal_, editor_.get()}, &message)) {
    const std::string& text = message.text;
    if (interrupted() || (!message.quoted && (text == "/quit" || text == "/exit"))) return;
    if (text.empty() || (!message.quoted && command(text))) continue;
    answer(text);
  }
}

void Talk::answer(const std::string& message) {
  if (!options_.render) return turn(message);
  add("user", message);
  show(true);
  truncate(0);
}

}  // namespace moe_cli
