// SPDX-License-Identifier: MIT
#pragma once
// Formats --help, and suggests corrections for misspelt names.

#include <CLI/CLI.hpp>
#include <memory>
#include <string>
#include <vector>

namespace moe_cli {

// The sections of every command's help, in this order; options without one come first.
inline constexpr const char* kSamplingGroup = "Sampling";
inline constexpr const char* kSessionGroup = "Context and routing";
inline constexpr const char* kServerGroup = "HTTP";
inline constexpr const char* kMachineGroup = "Machine";
inline constexpr const char* kOutputGroup = "Output";

/// The description of MODEL in every command that runs one.
inline constexpr const char* kModelText =
    "Model file (.moe), or a checkpoint folder or GGUF file, which is converted once";

std::shared_ptr<CLI::FormatterBase> help_formatter();

/// The last line of the command's help, below its notes (footer) if it has some.
void example(CLI::App& command, const std::string& text);

// The help of a command, for other generated pages.
struct HelpSection {
  const char* title;
  std::vector<const CLI::Option*> options;
};
/// The sections that have options, in the order above.
std::vector<HelpSection> help_sections(const CLI::App& app);
std::vector<const CLI::Option*> help_arguments(const CLI::App& app);
/// "moe generate MODEL [options]", where `name` is "moe generate".
std::string help_usage(const CLI::App& app, const std::string& name);
/// Placeholder of an option's value: "N", "FILE"; empty for a flag.
std::string placeholder(const CLI::Option& option);
/// "-f, --file FILE"
std::string option_names(const CLI::Option& option);
std::string option_description(const CLI::Option& option);

/// Explains a command line that CLI11 rejected: names the word, a suggestion, and where to find
/// help.
std::string explain(const CLI::App& app, const CLI::ParseError& error);

/// Checks numbers, including those that CLI11's own validators accept (nan, -1 for an unsigned
/// number).
CLI::Validator number_in(double low, double high);
enum class Bound { kLow, kHigh };
/// As number_in(), without one of the bounds.
CLI::Validator number_between(double low, double high, Bound excluded);
/// "expected A, B or C, found 'X'".
CLI::Validator one_of(const std::vector<std::string>& names);
/// The same for a list "a, b".
CLI::Validator listed(const std::string& list);
/// Rejects nothing: completion offers the words "auto, cpu", and the library checks the value.
CLI::Validator suggest(const std::string& list);
/// The words of one_of() and suggest(), if an option has them.
std::vector<std::string> choices(const CLI::Option& option);
/// Integers, for transform(): what they leave is decimal, where CLI11 would read 010 as eight.
CLI::Validator integer_in(int64_t low, int64_t high);
CLI::Validator unsigned_64();
CLI::Validator not_empty();
/// "NAME=VALUE", where the option shows this `form`.
CLI::Validator with_equals(const std::string& form);
/// Checks a file to write: "-" is refused, which means stdout elsewhere.
CLI::Validator no_stdout();

}  // namespace moe_cli
