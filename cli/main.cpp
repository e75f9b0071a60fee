#include <cstdio>
#include <iostream>
#include <string>

#include "cli/common.h"

namespace {

int fail(int code, const char* text) {
  std::cout.flush();
  std::fprintf(stderr, "moe: %s\n", text);
  return code;
}

// No command, or a word that is none: CLI11 would only say that one is missing.
int fail_without_command(const CLI::App& app, int argc, char** argv) {
  std::string text =
      argc > 1 ? "unknown command or option '" + std::string(argv[1]) + "'" : "a command is needed";
  const char* separator = "; one of: ";
  for (const CLI::App* command : app.get_subcommands({})) {
    text += separator + command->get_name();
    separator = ", ";
  }
  return fail(moe_cli::kExitUsage, (text + "\nRun with --help for more information.").c_str());
}

}  // namespace

int main(int argc, char** argv) {
  using namespace moe_cli;
  CLI::App app{"moe: run Mixture-of-Experts language models with ternary or int8 weights"};
  app.name("moe");
  app.set_version_flag("--version", std::string("moe ") + moe_version_string());
  app.require_subcommand(1);
  app.get_formatter()->column_width(34);
  app.footer(
      "Results go to stdout, everything else to stderr.\n"
      "Exit status: 0 success, 1 error, 2 wrong usage, 130 stopped by Ctrl-C.\n"
      "'moe COMMAND --help' shows the options of a command.");
  add_generate(app);
  add_chat(app);
  add_convert(app);
  add_inspect(app);
  add_perplexity(app);
  add_tokenize(app);
  add_eval(app);
  add_bench(app);
  try {
    watch_interrupts();
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    if (e.get_exit_code() != 0 && app.get_subcommands().empty()) {
      return fail_without_command(app, argc, argv);
    }
    return app.exit(e) == 0 ? kExitOk : kExitUsage;
  } catch (const UsageError& e) {
    return fail(kExitUsage, e.what());
  } catch (const CallError& e) {
    if (e.code == MOE_ERR_CANCELLED && interrupted()) return fail(kExitInterrupted, "interrupted");
    return fail(kExitError, e.what());
  } catch (const std::exception& e) {
    return fail(kExitError, e.what());
  }
  std::cout.flush();
  if (!std::cout) return fail(kExitError, "cannot write to stdout");
  return interrupted() ? kExitInterrupted : kExitOk;
}
