// SPDX-License-Identifier: MIT
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <iostream>
#include <new>
#include <string>
#include <vector>

#include "cli/common.h"
#include "cli/help/help.h"
#include "cli/io/interrupt.h"
#include "cli/io/terminal.h"
#include "cli/version.h"

namespace {

using namespace moe_cli;

// Ends the process if memory runs out where exceptions cannot be caught: before main(), and in
// destructors.
[[noreturn]] void end_without_memory() {
  static const char kText[] = "moe: out of memory\n";
  if (write(STDERR_FILENO, kText, sizeof kText - 1) < 0) {  // stderr is gone too
  }
  _exit(kExitError);
}

// Before the static objects of other files, which allocate.
__attribute__((constructor(101))) void expect_no_memory() {
  std::set_terminate(end_without_memory);
}

int fail(int code, const char* text) {
  std::cout.flush();
  std::cerr << "moe: " << text << "\n";
  return code;
}

void add_commands(CLI::App& app) {
  app.name("moe");
  app.formatter(help_formatter());
  app.set_help_flag("-h,--help", "Show this help");
  app.set_version_flag("--version", version_text,
                       "Show version, commit, compiler and instruction sets");
  app.require_subcommand(1);
  app.footer(
      "Results go to stdout, everything else to stderr.\n"
      "Exit status: 0 success, 1 failure, 2 wrong command line, 130 stopped by Ctrl-C, SIGTERM or "
      "SIGHUP.\n"
      "'moe COMMAND --help' shows the options of a command.");
  add_generate(app);
  add_chat(app);
  add_batch(app);
  add_serve(app);
  add_convert(app);
  add_inspect(app);
  add_perplexity(app);
  add_tokenize(app);
  add_eval(app);
  add_score(app);
  add_fill(app);
  add_embed(app);
  add_translate(app);
  add_bench(app);
  add_trace(app);
  add_cache(app);
  add_completion(app);
  add_manual(app);
  for (CLI::App* command : app.get_subcommands({})) {
    for (CLI::Option* option : command->get_options()) option->disable_flag_override();
  }
}

// Otherwise a file opened later would get the number of a closed standard stream. These cannot be
// used either: reading from 0 and writing to 1 or 2 fails, as if they were closed.
void fill_standard_streams() {
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd) {
    if (fcntl(fd, F_GETFD) < 0) (void)open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY);
  }
}

bool is_command(const CLI::App& app, const std::string& word) {
  const auto commands = app.get_subcommands({});
  return std::any_of(commands.begin(), commands.end(),
                     [&](const CLI::App* c) { return c->get_name() == word; });
}

// The command line's words, the last one first. "help" and "version" stand for the options of these
// names: "help COMMAND" for "COMMAND --help".
std::vector<std::string> words_of(const CLI::App& app, int argc, char** argv) {
  std::vector<std::string> words(argv + std::min(argc, 1), argv + argc);
  const std::string first = words.empty() ? "" : words[0];
  if (first == "help") {
    words.erase(words.begin());
    const bool word = words.size() == 1 && (words[0] == "help" || words[0] == "version");
    if (word) words.clear();  // the help of moe describes them
    if (words.empty() || is_command(app, words[0])) words.push_back("--help");
  } else if (first == "version") {
    words[0] = "--version";
  }
  std::reverse(words.begin(), words.end());
  return words;
}

int run(int argc, char** argv) {
  CLI::App app{"Run Mixture-of-Experts language models with ternary, int8 or four-bit weights"};
  add_commands(app);
  try {
    app.parse(words_of(app, argc, argv));
  } catch (const CLI::ParseError& e) {
    // Help that is asked for with a word that is no command would hide that it is none.
    const bool served = e.get_exit_code() == 0 && app.remaining().empty();
    if (!served) return fail(kExitUsage, explain(app, e).c_str());
    app.exit(e);  // prints what --help and --version ask for
  }
  std::cout.flush();
  if (interrupted()) return kExitInterrupted;  // which a write may have failed of
  return std::cout ? kExitOk : fail(kExitError, "cannot write to stdout");
}

}  // namespace

int main(int argc, char** argv) {
  try {
    fill_standard_streams();
    watch_interrupts();
    guard_terminals();
    return run(argc, argv);
  } catch (const UsageError& e) {
    return fail(kExitUsage, e.what());
  } catch (const CallError& e) {
    if (!interrupted()) return fail(kExitError, e.what());
    return fail(kExitInterrupted, e.code == MOE_ERR_CANCELLED ? "interrupted" : e.what());
  } catch (const std::bad_alloc&) {
    return fail(kExitError, "out of memory");
  } catch (const std::exception& e) {
    return fail(kExitError, e.what());
  }
}
