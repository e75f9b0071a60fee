// SPDX-License-Identifier: MIT
// Prints options as a list wrapped between words, and finds the nearest known word by
// edit distance.
#include "cli/help/help.h"

#include <algorithm>

#include "cli/io/strict_stream.h"

namespace moe_cli {
namespace {

constexpr size_t kNamesWidth = 30;
constexpr size_t kLineWidth = 100;

// One list entry: names on the left, text on the right, wrapped between words.
void print_entry(std::ostream& out, const std::string& names, const std::string& text) {
  out << "  " << names;
  size_t at = 2 + names.size();
  if (at + 2 > kNamesWidth) {
    out << "\n";
    at = 0;
  }
  StrictReader words(text);
  bool first = true;
  for (std::string word; words >> word; first = false) {
    if (!first && at + 1 + word.size() > kLineWidth) {
      out << "\n";
      at = 0;
      first = true;
    }
    if (at < kNamesWidth && first) {
      out << std::string(kNamesWidth - at, ' ');
      at = kNamesWidth;
    }
    out << (first ? "" : " ") << word;
    at += word.size() + (first ? 0 : 1);
  }
  out << "\n";
}

constexpr const char* kOptionsGroup = "Options";

class Help : public CLI::FormatterBase {
 public:
  std::string make_help(const CLI::App* app, std::string name,
                        CLI::AppFormatMode /*mode*/) const override {
    StrictWriter out;
    out << app->get_description() << "\n\nUsage: " << help_usage(*app, name) << "\n";
    const auto arguments = help_arguments(*app);
    if (!arguments.empty()) out << "\nArguments:\n";
    for (const CLI::Option* a : arguments) {
      print_entry(out, a->get_name(true, false), a->get_description());
    }
    const auto commands = app->get_subcommands({});
    if (!commands.empty()) out << "\nCommands:\n";
    for (const CLI::App* c : commands) print_entry(out, c->get_name(), c->get_description());
    for (const HelpSection& section : help_sections(*app)) {
      out << "\n" << section.title << ":\n";
      for (const CLI::Option* o : section.options) {
        print_entry(out, option_names(*o), option_description(*o));
      }
    }
    out << "\n" << app->get_footer() << "\n";
    return out.str();
  }
};

std::vector<const CLI::Option*> options_of(const CLI::App& app, const std::string& group) {
  std::vector<const CLI::Option*> found;
  for (const CLI::Option* o : app.get_options()) {
    const bool help = o == app.get_help_ptr() || o == app.get_version_ptr();
    const std::string its = help ? kOutputGroup : o->get_group();
    if (!o->get_positional() && its == group) found.push_back(o);
  }
  return found;
}

// Edit distance with transpositions.
size_t distance(const std::string& a, const std::string& b) {
  std::vector<std::vector<size_t>> d(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) {
    for (size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        d[i][j] = i + j;
        continue;
      }
      const size_t change = d[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      d[i][j] = std::min({d[i - 1][j] + 1, d[i][j - 1] + 1, change});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
      }
    }
  }
  return d[a.size()][b.size()];
}

// The name nearest to `word`, or empty if none is near.
std::string nearest(const std::string& word, const std::vector<std::string>& names) {
  if (word.size() < 3 || word.size() > 64) return "";
  std::string best;
  size_t least = std::max<size_t>(word.size() / 3, 1);
  for (const std::string& name : names) {
    const size_t common = std::min(word.size(), name.size());
    const bool begins = common >= 4 && name.compare(0, common, word, 0, common) == 0;
    const size_t n = begins ? 1 : distance(word, name);
    if (n > least || (n == least && !best.empty())) continue;
    least = n;
    best = name;
  }
  return best;
}

std::string question(const std::string& name) {
  return name.empty() ? "" : "; did you mean '" + name + "'?";
}

std::string unknown_option(const CLI::App& command, const std::string& word) {
  std::vector<std::string> names;
  for (const CLI::Option* o : command.get_options()) {
    for (const std::string& l : o->get_lnames()) names.push_back("--" + l);
    for (const std::string& s : o->get_snames()) names.push_back("-" + s);
  }
  std::string name = word.substr(0, word.find('='));
  if (name.size() > 2 && name[1] != '-') name.insert(0, "-");  // -temp
  return "unknown option '" + word + "'" + question(nearest(name, names));
}

std::vector<std::string> command_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* c : app.get_subcommands({})) names.push_back(c->get_name());
  return names;
}

std::string list(const std::vector<std::string>& names) {
  return "; one of: " + CLI::detail::join(names, ", ");
}

// An unexpected word.
std::string unknown_word(const CLI::App& app, const std::string& word) {
  if (word.size() > 1 && word[0] == '-') return unknown_option(app, word);
  const std::vector<std::string> names = command_names(app);
  if (names.empty()) {
    const bool takes_text = app.get_option_no_throw("--prompt") != nullptr;
    return "unexpected argument '" + word + "'" + (takes_text ? "; give a text with -p TEXT" : "");
  }
  const std::string near = nearest(word, names);
  return "unknown command '" + word + "'" + (near.empty() ? list(names) : question(near));
}

// The texts of CLI11 for a missing value, for one too many, and for an option that is given twice.
std::string plain(const std::string& text) {
  const auto has = [&](const char* part) { return text.find(part) != std::string::npos; };
  const std::string option = text.substr(0, text.find_first_of(": "));
  if (has(": 1 required ") && has(" missing")) return option + ": its value is missing";
  if (has(": At Most 1 required ")) return option + ": given more than once";
  if (has(" was given a disallowed flag override")) return "--" + option + ": it takes no value";
  const std::string excludes = option + " excludes ";
  if (!text.starts_with(excludes)) return text;
  return option + " and " + text.substr(excludes.size()) + " cannot be combined";
}

}  // namespace

std::shared_ptr<CLI::FormatterBase> help_formatter() { return std::make_shared<Help>(); }

void example(CLI::App& command, const std::string& text) {
  const std::string notes = command.get_footer();
  const bool inherited = notes == command.get_parent()->get_footer();
  command.footer((inherited ? "" : notes + "\n\n") + "Example: " + text);
}

std::vector<const CLI::Option*> help_arguments(const CLI::App& app) {
  return app.get_options(
      [](const CLI::Option* o) { return o->get_positional() && !o->get_group().empty(); });
}

std::vector<HelpSection> help_sections(const CLI::App& app) {
  std::vector<HelpSection> sections;
  for (const char* group :
       {kOptionsGroup, kSamplingGroup, kServerGroup, kSessionGroup, kMachineGroup, kOutputGroup}) {
    auto options = options_of(app, group);
    if (!options.empty()) sections.push_back({group, std::move(options)});
  }
  return sections;
}

std::string help_usage(const CLI::App& app, const std::string& name) {
  std::string usage = name;
  if (!app.get_subcommands({}).empty()) usage += " COMMAND";
  for (const CLI::Option* a : help_arguments(app)) {
    const std::string text = a->get_name(true, false);
    usage += " " + (a->get_required() ? text : "[" + text + "]");
  }
  return usage + " [options]";
}

std::string placeholder(const CLI::Option& option) {
  if (option.get_expected_min() == 0 || option.get_type_size() == 0) return "";
  if (!option.get_option_text().empty()) return option.get_option_text();
  const std::string type = option.get_type_name();
  if (type.compare(0, 3, "INT") == 0 || type.compare(0, 4, "UINT") == 0) return "N";
  return type.compare(0, 5, "FLOAT") == 0 ? "X" : "TEXT";
}

std::string option_names(const CLI::Option& option) {
  std::string names;
  for (const std::string& s : option.get_snames()) names += (names.empty() ? "-" : ", -") + s;
  const auto& longs = option.get_lnames();  // the others are deprecated spellings
  if (!longs.empty()) names += (names.empty() ? "--" : ", --") + longs.front();
  const std::string value = placeholder(option);
  return value.empty() ? names : names + " " + value;
}

std::string option_description(const CLI::Option& option) {
  const std::string& given = option.get_default_str();
  return option.get_description() + (given.empty() ? "" : " (default " + given + ")");
}

std::string explain(const CLI::App& app, const CLI::ParseError& error) {
  const CLI::App* command = &app;
  if (app.remaining().empty() && !app.get_subcommands().empty()) {
    command = app.get_subcommands()[0];
  }
  const std::vector<std::string> rest = command->remaining();
  const std::string call = command == &app ? "moe" : "moe " + command->get_name();
  const auto option = std::find_if(
      rest.begin(), rest.end(), [](const std::string& w) { return w.size() > 1 && w[0] == '-'; });
  std::string text = plain(error.what());
  if (!rest.empty() && command == &app) {
    text = unknown_word(app, rest.front());
  } else if (!rest.empty()) {
    text = unknown_word(*command, option == rest.end() ? rest.front() : *option);
  } else if (command == &app) {
    text = "a command is needed" + list(command_names(app));
  }
  return text + "\nSee '" + call + " --help'.";
}

}  // namespace moe_cli
