// SPDX-License-Identifier: MIT
// Checks of the values of options (help.h).

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>

#include "cli/help/help.h"
#include "cli/io/strict_stream.h"

namespace moe_cli {
namespace {

std::string out_of_range(const std::string& text, const std::string& low, const std::string& high) {
  return "expected a whole number in " + low + ".." + high + ", found '" + text + "'";
}

// The words of "a, b".
std::vector<std::string> words_of(std::string list) {
  std::vector<std::string> words;
  std::replace(list.begin(), list.end(), ',', ' ');
  StrictReader in(list);
  for (std::string word; in >> word;) words.push_back(word);
  return words;
}

std::string short_number(double v) {
  char text[32];
  std::snprintf(text, sizeof text, "%g", v);
  return text;
}

}  // namespace

CLI::Validator number_in(double low, double high) {
  return CLI::Validator(
      [low, high](std::string& text) -> std::string {
        char* end = nullptr;
        const double v = std::strtod(text.c_str(), &end);
        const bool whole = end != text.c_str() && *end == '\0';
        if (whole && v >= low && v <= high) return "";  // false for nan
        return "expected a number in " + short_number(low) + ".." + short_number(high) +
               ", found '" + text + "'";
      },
      "");
}

CLI::Validator number_between(double low, double high, Bound excluded) {
  return CLI::Validator(
      [=](std::string& text) -> std::string {
        const bool above = excluded == Bound::kLow;
        const auto kept = static_cast<float>(std::strtod(text.c_str(), nullptr));
        const bool inside = above ? kept > low : kept < high;
        if (inside && number_in(low, high)(text).empty()) return "";
        return std::string("expected a number ") + (above ? "above " : "of at least ") +
               short_number(low) + (above ? " and at most " : " and below ") + short_number(high) +
               ", found '" + text + "'";
      },
      "");
}

CLI::Validator one_of(const std::vector<std::string>& names) {
  return CLI::Validator(
      [names](std::string& text) -> std::string {
        std::string list;
        for (size_t i = 0; i < names.size(); ++i) {
          if (text == names[i]) return "";
          list += (i == 0 ? "" : i + 1 == names.size() ? " or " : ", ") + names[i];
        }
        return "expected " + list + ", found '" + text + "'";
      },
      "{" + CLI::detail::join(names, ", ") + "}");
}

CLI::Validator listed(const std::string& list) { return one_of(words_of(list)); }

CLI::Validator suggest(const std::string& list) {
  return CLI::Validator([](std::string&) -> std::string { return ""; }, "{" + list + "}");
}

std::vector<std::string> choices(const CLI::Option& option) {
  const std::string type = option.get_type_name();  // TEXT:{f16, int8}
  const size_t begin = type.find('{');
  const size_t end = type.find('}');
  if (begin == type.npos || end == type.npos) return {};
  return words_of(type.substr(begin + 1, end - begin - 1));
}

CLI::Validator integer_in(int64_t low, int64_t high) {
  return CLI::Validator(
      [low, high](std::string& text) -> std::string {
        char* end = nullptr;
        errno = 0;
        const long long v = std::strtoll(text.c_str(), &end, 10);
        const bool whole = end != text.c_str() && *end == '\0' && errno == 0;
        if (!whole || v < low || v > high) {
          return out_of_range(text, std::to_string(low), std::to_string(high));
        }
        text = std::to_string(v);
        return "";
      },
      "");
}

CLI::Validator unsigned_64() {
  return CLI::Validator(
      [](std::string& text) -> std::string {
        char* end = nullptr;
        errno = 0;
        const unsigned long long v = std::strtoull(text.c_str(), &end, 10);
        const bool digits = !text.empty() && text.find_first_not_of("0123456789") == text.npos;
        if (!digits || *end != '\0' || errno != 0) {
          return out_of_range(text, "0", std::to_string(UINT64_MAX));
        }
        text = std::to_string(v);
        return "";
      },
      "");
}

CLI::Validator not_empty() {
  return CLI::Validator(
      [](std::string& text) -> std::string { return text.empty() ? "must not be empty" : ""; }, "");
}

CLI::Validator with_equals(const std::string& form) {
  return CLI::Validator(
      [form](std::string& text) -> std::string {
        const size_t equals = text.find('=');
        const bool good = equals != text.npos && equals > 0;
        return good ? "" : "expected " + form + ", found '" + text + "'";
      },
      "");
}

CLI::Validator no_stdout() {
  return CLI::Validator(
      [](std::string& text) -> std::string {
        return text == "-" ? "this file cannot be stdout; give its name" : "";
      },
      "");
}

}  // namespace moe_cli
