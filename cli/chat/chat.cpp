// SPDX-License-Identifier: MIT
// moe chat: a conversation, line by line.

#include "cli/chat/talk.h"
#include "cli/help/help.h"
#include "cli/model/memory.h"

namespace moe_cli {
namespace {

void run_chat(const ChatOptions& o) {
  const auto saved = o.file.empty() ? nullptr : lock_chat_file(o.file);
  const Env env = open_env(o.model);
  const Model model = open_model_to_run(o.model, env.get());
  check_decoder(o.model, model.get(), "chat");
  check_sampling(o.sampling, model.get());
  const auto file = o.file.empty() ? std::nullopt : read_chat_file(o.file);
  Talk talk(o, model.get());
  if (file) {
    talk.restore(*file);
  } else if (!o.file.empty()) {
    ChatStyle().note(o.file + " is new: the conversation is saved there at the end");
  }
  try {
    talk.run();
  } catch (...) {
    if (saved) talk.keep_answered(*saved);
    throw;
  }
  if (saved) talk.keep(*saved);
  if (!o.render) talk.report_skips();
}

}  // namespace

void add_chat(CLI::App& app) {
  auto o = std::make_shared<ChatOptions>();
  CLI::App* c = app.add_subcommand("chat", "Chat line by line");
  add_model_options(*c, o->model);
  add_sampling_options(*c, o->sampling, 256, SampleBy::kModel);
  add_draft_option(*c, o->sampling);
  add_session_options(*c, o->model, "4096, or more when the conversation needs it");
  c->add_option("-p,--prompt", o->first, "The first message; the next ones come from stdin")
      ->check(not_empty())
      ->option_text("TEXT");
  add_template_options(*c, o->chat_template, "System prompt");
  add_tool_options(*c, o->tools);
  c->add_option("--user-prefix", o->user_prefix,
                "With --template plain: text before each of your lines");
  c->add_option("--reply-prefix", o->reply_prefix,
                "With --template plain: text between your line and the reply");
  auto* file = c->add_option("--session", o->file,
                             "Continue the conversation in FILE, if it exists, and save it "
                             "there at the end")
                   ->check(not_empty())
                   ->option_text("FILE");
  c->add_flag("--shift", o->shift,
              "When the context is full, drop the oldest turns; the system prompt stays");
  auto* stats = c->add_flag("--stats", o->stats,
                            "Report tokens, speed and, under a cap, memory use after each reply");
  c->add_flag("--render", o->render,
              "For each line, print what the model would read instead of a reply")
      ->excludes(file)
      ->excludes(stats)
      ->excludes(c->get_option("--json"));
  c->footer(
      "Thinking goes to stderr. Commands: /clear, /system TEXT, /show, /shift, /help, /quit.\n"
      "A message of several lines: end each line but the last with \\, or write \"\"\" before and "
      "after it.\n"
      "A message that begins with a slash: \"\"\"/like this\"\"\".\n"
      "Ctrl-C stops a reply, and clears what is typed; on an empty line it ends the chat.");
  example(*c, "moe chat model.moe --system 'Answer in one sentence.'");
  c->callback([o] { run_chat(*o); });
}

}  // namespace moe_cli
