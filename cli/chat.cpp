// moe chat: a conversation, line by line.

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <exception>
#include <iostream>

#include "cli/chat_file.h"
#include "cli/chat_input.h"
#include "cli/chat_template.h"
#include "cli/context.h"
#include "cli/help.h"
#include "cli/interrupt.h"
#include "cli/memory.h"
#include "cli/routing_stats.h"
#include "cli/sampling.h"
#include "cli/text_input.h"
#include "cli/units.h"

namespace moe_cli {
namespace {

struct ChatOptions {
  ModelOptions model;
  SamplingOptions sampling;
  TemplateOptions chat_template;
  std::string first;  // message, of -p
  std::string user_prefix;
  std::string reply_prefix;
  std::string file;  // of --session
  bool render = false;
  bool stats = false;
};

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

/// The conversation and its terminal.
class Talk {
 public:
  Talk(const ChatOptions& o, moe_model* model)
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

  void restore(const ChatFile& file);
  void keep();
  void keep_answered();
  void run();
  void report_skips() const { report_skipped(options_.model, model_, {session_.get()}); }

 private:
  static bool on_piece(void* user, const moe_piece* piece) {
    auto* talk = static_cast<Talk*>(user);
    try {
      return talk->take(*piece);
    } catch (...) {  // nothing may be thrown through the library
      talk->thrown_ = std::current_exception();
      return false;
    }
  }
  bool take(const moe_piece& piece);
  void show_thinking(bool on);
  bool command(const std::string& line);
  void show_conversation();
  void answer(const std::string& message);
  void turn(const std::string& message);
  void make_room();
  void grow(int64_t needed);
  void reopen(int context);
  void name_context(moe_error* error) const;
  void tell_full() const;
  void report(const moe_chat_result& result);
  void take_back(moe_status status, const moe_error& error);
  void show(bool begin_reply);
  void add(const char* role, const std::string& text) {
    moe_error error;
    check(moe_chat_add(chat_, role, text.data(), text.size(), &error), error);
  }
  void truncate(size_t n) {
    moe_error error;
    check(moe_chat_truncate(chat_, n, &error), error);
  }

  const ChatOptions& options_;
  moe_model* model_;
  Session session_;
  Chat chat_owner_;
  moe_chat* chat_;
  Sampling sampling_;
  const bool terminal_;
  const std::unique_ptr<LineEditor> editor_;
  const bool dim_;
  std::exception_ptr thrown_;
  bool thinking_ = false;
  std::string answer_;
  std::string thought_;
  std::string system_;
  moe_expert_stats before_{};  // the last reply
};

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
  out.flush();
  return static_cast<bool>(out);
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

// If a session is too small for the conversation and the reply, replaces it by one of at least
// twice the context, if the model supports it and --context does not prevent it.
void Talk::make_room() {
  moe_error error;
  size_t n = 0;
  check(moe_chat_tokens(chat_, true, nullptr, 0, &n, &error), error);
  const int more = options_.sampling.max_tokens;
  grow(static_cast<int64_t>(n) + (more == 0 ? kOpenEnd / 2 : more));
}

void Talk::grow(int64_t needed) {
  const int64_t now = moe_session_context(session_.get());
  const int64_t most = model_context(model_);
  if (options_.model.context != 0 || now == most || needed <= now) return;
  reopen(static_cast<int>(std::min(most, std::max(2 * now, needed))));
}

// Opens an empty session with another context, or with the old one if memory is insufficient.
void Talk::reopen(int context) {
  const int now = moe_session_context(session_.get());
  if (context == now) return;
  ModelOptions other = options_.model;
  other.context = context;
  report_skips();    // of the old session
  session_.reset();  // --memory need not cover both
  try {
    session_ = open_session(other, model_);
  } catch (const CallError& e) {
    if (e.code != MOE_ERR_BUDGET && e.code != MOE_ERR_MEMORY) throw;
    other.context = now;
    session_ = open_session(other, model_);
  }
  moe_error error;
  check(moe_chat_set_session(chat_, session_.get(), &error), error);
}

// Advice that is possible here: the library speaks of sessions.
void Talk::name_context(moe_error* error) const {
  moe_error ignored;
  size_t n = 0;
  const int most = model_context(model_), now = moe_session_context(session_.get());
  if (moe_chat_tokens(chat_, true, nullptr, 0, &n, &ignored) != MOE_OK) return;
  if (n < static_cast<size_t>(now)) return;  // another limit, such as --chunk
  std::snprintf(
      error->text, sizeof error->text, "%s%s",
      too_long("the conversation has", n, static_cast<size_t>(now), static_cast<size_t>(most))
          .c_str(),
      now < most ? "" : "; /clear starts again, and a shorter message may fit");
}

// After a reply that the end of the context cut.
void Talk::tell_full() const {
  const int most = model_context(model_), now = moe_session_context(session_.get());
  std::cerr << "moe: the context of " << now << " tokens is full; ";
  if (now < most && options_.model.context == 0) {
    std::cerr << "the next message enlarges it\n";
  } else {
    if (now < most) std::cerr << "--context can be at most " << most << " with this model; ";
    std::cerr << "/clear starts again\n";
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

// Restores a stored conversation: its messages and session.
void Talk::restore(const ChatFile& file) {
  moe_error error;
  if (system_.empty() && !file.system.empty()) {
    check(moe_chat_set_system(chat_, file.system.c_str(), &error), error);
    system_ = file.system;
  }
  for (const auto& [role, content] : file.messages) {
    add(role.c_str(), content);
    if (editor_ != nullptr && role == "user") editor_->remember(content);
  }
  // The same context unless another is requested: LongRoPE's positions depend on it.
  if (options_.model.context == 0 && file.context > 0)
    reopen(std::min(file.context, model_context(model_)));
  load_chat_session(file, session_.get());
}

void Talk::keep() {
  ChatFile file;
  file.path = options_.file;
  file.system = system_;
  for (size_t i = 0; i < moe_chat_message_count(chat_); ++i) {
    moe_chat_message m{};
    m.struct_size = sizeof m;
    moe_error error;
    check(moe_chat_get_message(chat_, i, &m, &error), error);
    file.messages.emplace_back(m.role, std::string(m.content, m.n_bytes));
  }
  write_chat_file(file, session_.get());
}

// After a fatal failure: saves the answered messages.
void Talk::keep_answered() {
  const size_t n = moe_chat_message_count(chat_);
  moe_chat_message last{};
  last.struct_size = sizeof last;
  moe_error error;
  if (n > 0 && moe_chat_get_message(chat_, n - 1, &last, &error) == MOE_OK &&
      std::strcmp(last.role, "user") == 0) {
    truncate(n - 1);
  }
  try {
    keep();
  } catch (const std::exception& e) {  // report only the first failure
    std::cerr << "moe: " << options_.file << " is not written: " << e.what() << "\n";
  }
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

void run_chat(const ChatOptions& o) {
  const Env env = open_env(o.model);
  const Model model = open_model_to_run(o.model, env.get());
  check_decoder(o.model, model.get(), "chat");
  check_sampling(o.sampling, model.get());
  const auto file = o.file.empty() ? std::nullopt : read_chat_file(o.file);
  if (!o.file.empty()) check_chat_place(o.file);
  Talk talk(o, model.get());
  if (file) talk.restore(*file);
  try {
    talk.run();
  } catch (...) {
    if (!o.file.empty()) talk.keep_answered();
    throw;
  }
  if (!o.file.empty()) talk.keep();
  if (!o.render) talk.report_skips();
}

}  // namespace

void add_chat(CLI::App& app) {
  auto o = std::make_shared<ChatOptions>();
  CLI::App* c = app.add_subcommand("chat", "Chat line by line");
  add_model_options(*c, o->model);
  add_sampling_options(*c, o->sampling, 256);
  add_draft_option(*c, o->sampling);
  add_session_options(*c, o->model, "4096, or more when the conversation needs it");
  c->add_option("-p,--prompt", o->first, "The first message; the next ones come from stdin")
      ->check(not_empty())
      ->option_text("TEXT");
  add_template_options(*c, o->chat_template, "System prompt");
  c->add_option("--user-prefix", o->user_prefix,
                "With --template plain: text before each of your lines");
  c->add_option("--reply-prefix", o->reply_prefix,
                "With --template plain: text between your line and the reply");
  auto* file = c->add_option("--session", o->file,
                             "Continue the conversation in FILE, if it exists, and save it "
                             "there at the end")
                   ->check(not_empty())
                   ->option_text("FILE");
  c->add_flag("--render", o->render,
              "For each line, print what the model would read instead of a reply")
      ->excludes(file);
  c->add_flag("--stats", o->stats,
              "Report tokens, speed and, under a cap, memory use after each reply");
  c->footer(
      "Thinking goes to stderr. Commands: /clear, /system TEXT, /show, /help, /quit.\n"
      "A message of several lines: end each line but the last with \\, or write \"\"\" before and "
      "after it.\n"
      "Ctrl-C stops a reply; at the prompt it ends the chat.");
  c->callback([o] { run_chat(*o); });
}

}  // namespace moe_cli
