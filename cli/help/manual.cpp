// SPDX-License-Identifier: MIT
// moe man: the manual page, generated from --help.

#include <iostream>
#include <map>

#include "cli/common.h"
#include "cli/help/help.h"
#include "cli/io/strict_stream.h"

namespace moe_cli {
namespace {

constexpr int kCommon = 3;  // commands with an option from which it is listed as common

// Escapes text for roff.
std::string roff(std::string text) {
  text = CLI::detail::find_and_replace(text, "\\", "\\e");
  text = CLI::detail::find_and_replace(text, "-", "\\-");
  if (!text.empty() && (text[0] == '.' || text[0] == '\'')) text.insert(0, "\\&");
  return text;
}

std::string sentence(const std::string& text) { return roff(text) + ".\n"; }

void manual_lines(const std::string& text) {
  StrictReader in(text);
  bool first = true;
  for (std::string line; std::getline(in, line); first = false) {
    std::cout << (first ? "" : ".br\n") << roff(line) << "\n";
  }
}

void manual_option(const CLI::Option& o) {
  std::cout << ".TP\n.B " << roff(option_names(o)) << "\n" << sentence(option_description(o));
}

// Counts the commands that have this option with the same description.
class Shared {
 public:
  explicit Shared(const CLI::App& app) {
    for (const CLI::App* c : app.get_subcommands({})) {
      for (const HelpSection& s : help_sections(*c)) {
        for (const CLI::Option* o : s.options) ++count_[key(*o)];
      }
    }
  }
  bool common(const CLI::Option& o) const { return count_.at(key(o)) >= kCommon; }

 private:
  static std::string key(const CLI::Option& o) { return option_names(o) + option_description(o); }
  std::map<std::string, int> count_;
};

void manual_command(const CLI::App& app, const CLI::App& command, const Shared& shared) {
  std::cout << ".SS " << roff("\"" + help_usage(command, "moe " + command.get_name()) + "\"")
            << "\n"
            << sentence(command.get_description());
  for (const CLI::Option* a : help_arguments(command)) {
    std::cout << ".TP\n.I " << a->get_name(true, false) << "\n" << sentence(a->get_description());
  }
  std::string common;
  for (const HelpSection& s : help_sections(command)) {
    for (const CLI::Option* o : s.options) {
      if (!shared.common(*o)) {
        manual_option(*o);
      } else if (o != command.get_help_ptr()) {
        common += (common.empty() ? "" : ", ") + std::string("--") + o->get_lnames().front();
      }
    }
  }
  if (!common.empty()) std::cout << ".PP\nCommon options: " << sentence(common);
  if (command.get_footer() == app.get_footer()) return;
  std::cout << ".PP\n";
  manual_lines(command.get_footer());
}

// Each common option once, under the headings of --help.
void manual_common_options(const CLI::App& app, const Shared& shared) {
  std::map<std::string, std::map<std::string, const CLI::Option*>> sections;
  for (const CLI::App* c : app.get_subcommands({})) {
    for (const HelpSection& s : help_sections(*c)) {
      for (const CLI::Option* o : s.options) {
        if (shared.common(*o)) sections[s.title][o->get_lnames().front()] = o;
      }
    }
  }
  std::cout << ".SH COMMON OPTIONS\n";
  for (const auto& [title, options] : sections) {
    std::cout << ".SS " << title << "\n";
    for (const auto& [name, option] : options) manual_option(*option);
  }
}

void print_manual(const CLI::App& app) {
  std::string about = app.get_description();
  about[0] = static_cast<char>(about[0] - 'A' + 'a');
  std::cout << ".\\\" Made by 'moe man'.\n.TH MOE 1 \"\" \"moe " << moe_version_string()
            << "\" \"User Commands\"\n.SH NAME\nmoe \\- " << roff(about) << "\n.SH SYNOPSIS\n.B "
            << roff(help_usage(app, "moe")) << "\n.SH DESCRIPTION\n";
  manual_lines(app.get_footer());
  const Shared shared(app);
  std::cout << ".SH COMMANDS\n";
  for (const CLI::App* c : app.get_subcommands({})) manual_command(app, *c, shared);
  manual_common_options(app, shared);
}

}  // namespace

void add_manual(CLI::App& app) {
  CLI::App* c = app.add_subcommand("man", "Print the manual page of this command (roff)");
  example(*c, "moe man | man -l -");
  c->callback([&app] { print_manual(app); });
}

}  // namespace moe_cli
