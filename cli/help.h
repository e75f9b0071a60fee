#pragma once
// How --help looks, and what a misspelt name may have meant.

#include <CLI/CLI.hpp>
#include <memory>
#include <string>
#include <vector>

namespace moe_cli {

// The sections of every command's help, in this order; options without one come first.
inline constexpr const char* kSamplingGroup = "Sampling";
inline constexpr const char* kSessionGroup = "Context and routing";
inline constexpr const char* kMachineGroup = "Machine";
inline constexpr const char* kOutputGroup = "Output";

std::shared_ptr<CLI::FormatterBase> help_formatter();

/// What is wrong with a command line that CLI11 refused, for people: names the word, what it may
/// have meant, and where help is.
std::string explain(const CLI::App& app, const CLI::ParseError& error);

/// Checks of numbers, also of those that CLI11's own let through (nan, -1 for an unsigned number).
CLI::Validator number_in(double low, double high);
/// "expected A, B or C, found 'X'".
CLI::Validator one_of(std::vector<std::string> names);
CLI::Validator integer_in(int64_t low, int64_t high);
CLI::Validator unsigned_64();
CLI::Validator not_empty();

}  // namespace moe_cli
