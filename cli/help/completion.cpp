// SPDX-License-Identifier: MIT
// moe completion: a shell's completion of this command, generated from its options.

#include <iostream>

#include "cli/common.h"
#include "cli/help/help.h"
#include "cli/io/strict_stream.h"

namespace moe_cli {
namespace {

// "-f --file", joined by `separator`; deprecated spellings are omitted.
std::string spellings(const CLI::Option& option, const std::string& separator) {
  std::string all;
  for (const std::string& s : option.get_snames()) all += (all.empty() ? "-" : separator + "-") + s;
  const auto& longs = option.get_lnames();
  if (longs.empty()) return all;
  return all + (all.empty() ? "--" : separator + "--") + longs.front();
}

bool takes_file(const CLI::Option& option) {
  const std::string value = placeholder(option);
  return option.get_positional() || value.compare(0, 4, "FILE") == 0 || value == "PAGE";
}

std::string spaced_choices(const CLI::Option& option) {
  return CLI::detail::join(choices(option), " ");
}

template <class Each>
void for_each_option(const CLI::App& command, const Each& each) {
  for (const HelpSection& section : help_sections(command)) {
    for (const CLI::Option* o : section.options) each(*o);
  }
}

std::string command_words(const CLI::App& app) {
  std::string words;
  for (const CLI::App* c : app.get_subcommands({})) words += c->get_name() + " ";
  return words;
}

// `text` in single quotes of a POSIX shell.
std::string shell_word(const std::string& text) {
  return "'" + CLI::detail::find_and_replace(text, "'", "'\\''") + "'";
}

// Completion of a value in bash: words, file names, or nothing.
std::string bash_value(const CLI::Option& option) {
  const std::string words = spaced_choices(option);
  const std::string offered = words.empty() ? "" : "words=" + shell_word(words);
  if (!takes_file(option) || (option.get_positional() && !words.empty())) return offered;
  return offered + (offered.empty() ? "" : "; ") + "files=1";
}

void bash_command(const CLI::App& command) {
  std::string options;
  std::string free;  // options with free-form values
  std::cout << "    " << command.get_name() << ")\n      case $before in\n";
  for_each_option(command, [&](const CLI::Option& o) {
    options += " " + spellings(o, " ");
    if (placeholder(o).empty()) return;
    const std::string value = bash_value(o);
    if (value.empty()) {
      free += (free.empty() ? "" : " | ") + spellings(o, " | ");
    } else {
      std::cout << "        " << spellings(o, " | ") << ") " << value << " ;;\n";
    }
  });
  if (!free.empty()) std::cout << "        " << free << ") ;;\n";
  std::cout << "        *) if [[ $word == -* ]]; then words=" << shell_word(options.substr(1));
  const auto arguments = help_arguments(command);  // all arguments of a command are of one kind
  if (!arguments.empty()) std::cout << "; else " << bash_value(*arguments.front());
  std::cout << "; fi ;;\n      esac ;;\n";
}

void bash_completion(const CLI::App& app) {
  std::cout << R"(# Completion of the command moe for bash, made by 'moe completion bash'.
_moe() {
  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]} words= files= joined=
  COMPREPLY=()
  # bash takes --kv=f16 apart
  if [[ $word == = ]]; then word= joined=1; elif [[ $before == = ]]; then before=${COMP_WORDS[COMP_CWORD - 2]} joined=1; fi
  if [[ $joined && $before != -* ]]; then return; fi # NAME=VALUE, which nobody can guess
  if ((COMP_CWORD < 2)); then before= words=)"
            << shell_word(command_words(app) + "--help --version") << R"(
  else case ${COMP_WORDS[1]} in
)";
  for (const CLI::App* c : app.get_subcommands({})) bash_command(*c);
  std::cout << R"(  esac; fi
  mapfile -t COMPREPLY < <(compgen -W "$words" -- "$word")
  [[ $files ]] || return
  compopt -o filenames 2>/dev/null
  mapfile -t -O ${#COMPREPLY[@]} COMPREPLY < <(compgen -f -- "$word")
}
complete -F _moe moe
)";
}

std::string zsh_escaped(std::string text, std::initializer_list<const char*> signs) {
  for (const char* sign : signs) {
    text = CLI::detail::find_and_replace(text, sign, std::string("\\") + sign);
  }
  return text;
}

std::string zsh_value(const CLI::Option& option, const std::string& shown) {
  const std::string name = zsh_escaped(shown, {"\\", ":"});
  const std::string words = spaced_choices(option);
  if (!words.empty() && takes_file(option) && !option.get_positional()) {
    return ":" + name + ":{compadd " + words + "; _files}";
  }
  if (!words.empty()) return ":" + name + ":(" + words + ")";
  return ":" + name + ":" + (takes_file(option) ? "_files" : " ");
}

// '(-f --file)'{-f,--file=}'[Read it from FILE]:FILE:_files'
void zsh_option(const CLI::Option& option) {
  const std::string about = zsh_escaped(option_description(option), {"\\", "[", "]", ":"});
  const std::string value = placeholder(option);
  const std::string end = "[" + about + "]" + (value.empty() ? "" : zsh_value(option, value));
  const bool again = option.get_items_expected_max() > 1;
  const std::string all = spellings(option, " ");
  StrictReader in(all);
  for (std::string name; in >> name;) {
    const std::string others = again ? "*" : "(" + all + ")";
    const bool joined = !value.empty() && name.compare(0, 2, "--") == 0;
    std::cout << " \\\n        " << shell_word(others + name + (joined ? "=" : "") + end);
  }
}

void zsh_command(const CLI::App& command) {
  std::cout << "    " << command.get_name() << ") _arguments";
  for_each_option(command, zsh_option);
  for (const CLI::Option* a : help_arguments(command)) {
    std::cout << " \\\n        " << shell_word(zsh_value(*a, a->get_name(true, false)));
  }
  std::cout << " ;;\n";
}

void zsh_completion(const CLI::App& app) {
  std::cout << R"(#compdef moe
# Completion of the command moe for zsh, made by 'moe completion zsh'.
_moe() {
  if ((CURRENT == 2)); then
    local -a commands=(
)";
  for (const CLI::App* c : app.get_subcommands({})) {
    std::cout << "      " << shell_word(c->get_name() + ":" + c->get_description()) << "\n";
  }
  std::cout << R"(    )
    if [[ $words[2] == -* ]]; then compadd -- )"
            << "--help --version"
            << R"(; else _describe command commands; fi
    return
  fi
  ((CURRENT -= 1))
  shift words
  case $words[1] in
)";
  for (const CLI::App* c : app.get_subcommands({})) zsh_command(*c);
  std::cout << R"(  esac
}
if [[ ${funcstack[1]} == _moe ]]; then _moe "$@"; else compdef _moe moe; fi
)";
}

// fish knows \' and \\ in single quotes.
std::string fish_word(const std::string& text) {
  const std::string slashes = CLI::detail::find_and_replace(text, "\\", "\\\\");
  return "'" + CLI::detail::find_and_replace(slashes, "'", "\\'") + "'";
}

std::string fish_value(const CLI::Option& option) {
  if (placeholder(option).empty()) return "";
  const std::string words = spaced_choices(option);
  const std::string kind = takes_file(option) ? " -r -F" : " -x";
  return words.empty() ? kind : kind + " -a " + fish_word(words);
}

void fish_command(const CLI::App& command) {
  const std::string begin =
      "complete -c moe -n '__fish_seen_subcommand_from " + command.get_name() + "'";
  for_each_option(command, [&](const CLI::Option& o) {
    std::cout << begin;
    for (const std::string& s : o.get_snames()) std::cout << " -s " << s;
    if (!o.get_lnames().empty()) std::cout << " -l " << o.get_lnames().front();
    std::cout << fish_value(o) << " -d " << fish_word(option_description(o)) << "\n";
  });
  const auto arguments = help_arguments(command);
  const std::string words = arguments.empty() ? "" : spaced_choices(*arguments.front());
  const bool files = !arguments.empty() && words.empty();
  std::cout << begin << (files ? " -F" : " -f") << (words.empty() ? "" : " -a " + fish_word(words))
            << "\n";
}

void fish_completion(const CLI::App& app) {
  const std::string none =
      "complete -c moe -n 'not __fish_seen_subcommand_from " + command_words(app) + "' -f";
  std::cout << "# Completion of the command moe for fish, made by 'moe completion fish'.\n"
            << none << " -s h -l help -d 'Show this help'\n"
            << none << " -l version -d 'Show the version'\n";
  for (const CLI::App* c : app.get_subcommands({})) {
    std::cout << none << " -a " << c->get_name() << " -d " << fish_word(c->get_description())
              << "\n";
  }
  for (const CLI::App* c : app.get_subcommands({})) fish_command(*c);
}

}  // namespace

void add_completion(CLI::App& app) {
  CLI::App* c = app.add_subcommand("completion", "Print a shell completion script");
  auto shell = std::make_shared<std::string>();
  c->add_option("SHELL", *shell, "bash, zsh or fish")
      ->check(one_of({"bash", "zsh", "fish"}))
      ->required();
  c->footer(
      "Write it to ~/.local/share/bash-completion/completions/moe for bash, to a file _moe in a\n"
      "directory of $fpath for zsh, to ~/.config/fish/completions/moe.fish for fish.");
  example(*c, "moe completion fish > ~/.config/fish/completions/moe.fish");
  c->callback([shell, &app] {
    if (*shell == "bash") return bash_completion(app);
    return *shell == "zsh" ? zsh_completion(app) : fish_completion(app);
  });
}

}  // namespace moe_cli
