// moe chat: a conversation, line by line, over one growing context.

#include <unistd.h>

#include <iostream>

#include "cli/sampling.h"

namespace moe_cli {
namespace {

struct ChatOptions {
  ModelOptions model;
  SamplingOptions sampling;
  std::string system;
  std::string user_prefix;
  std::string reply_prefix;
};

bool print_piece(void*, const moe_piece* piece) {
  std::cout.write(piece->text, static_cast<std::streamsize>(piece->n_bytes));
  std::cout.flush();
  return static_cast<bool>(std::cout);
}

// One turn: true to go on. A turn that does not fit says so and leaves the conversation as it was.
bool turn(const ChatOptions& o, const Model& model, const Session& session, const std::string& line,
          bool first) {
  const std::string text =
      (first ? o.system : std::string("\n")) + o.user_prefix + line + o.reply_prefix;
  const auto tokens = encode(model.get(), text, first ? 0 : MOE_ENCODE_NO_SPECIAL);
  if (tokens.empty()) return true;
  Sampling sampling(o.sampling);
  sampling.params.callback = print_piece;
  moe_generate_result result{};
  result.struct_size = sizeof result;
  moe_error error;
  set_current_session(session.get());
  const moe_status status = moe_session_generate(session.get(), tokens.data(), tokens.size(),
                                                 &sampling.params, &result, &error);
  set_current_session(nullptr);
  std::cout << "\n" << std::flush;
  if (status == MOE_ERR_TOO_LONG) {
    std::cerr << "moe: " << error.text << "; /reset starts again\n";
    return true;
  }
  check(status, error);
  if (result.finish == MOE_FINISH_CONTEXT) {
    std::cerr << "moe: the context is full; /reset starts again\n";
  }
  return !interrupted();
}

void run_chat(const ChatOptions& o) {
  const Env env = open_env(o.model);
  const Model model = open_model(o.model, env.get());
  const Session session = open_session(o.model, model.get());
  const bool terminal = isatty(STDIN_FILENO) == 1;
  if (terminal) std::cerr << "moe: type a line; /reset forgets, /quit or Ctrl-D ends\n";
  bool first = true;
  std::string line;
  moe_error error;
  while (true) {
    if (terminal) std::cerr << "> " << std::flush;
    if (!std::getline(std::cin, line) || line == "/quit" || interrupted()) return;
    if (line == "/reset") {
      check(moe_session_rewind(session.get(), 0, &error), error);
      first = true;
      continue;
    }
    if (line.empty()) continue;
    if (!turn(o, model, session, line, first)) return;
    first = moe_session_position(session.get()) == 0;
  }
}

}  // namespace

void add_chat(CLI::App& app) {
  auto o = std::make_shared<ChatOptions>();
  CLI::App* c = app.add_subcommand("chat", "Talk line by line; the context grows with each turn");
  add_model_options(*c, o->model);
  add_sampling_options(*c, o->sampling, 256);
  add_session_options(*c, o->model);
  c->add_option("--system", o->system, "Text in front of the first line");
  c->add_option("--user-prefix", o->user_prefix, "Text in front of each of your lines");
  c->add_option("--reply-prefix", o->reply_prefix, "Text between your line and the reply");
  c->callback([o] { run_chat(*o); });
}

}  // namespace moe_cli
