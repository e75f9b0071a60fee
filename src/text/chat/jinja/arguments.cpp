// SPDX-License-Identifier: MIT
// The arguments that filters, methods and functions take: others fail instead of being dropped.

#include "src/base/string.h"
#include "src/text/chat/jinja/evaluator.h"

namespace moe::jinja {
namespace {

// The parameters in order; "-" has no name. Absent are those that look at all of their arguments.
struct Signature {
  std::string_view name;
  std::string_view parameters;
};

constexpr Signature kFilters[] = {{"default", "default_value boolean"},
                                  {"d", "default_value boolean"},
                                  {"length", ""},
                                  {"count", ""},
                                  {"string", ""},
                                  {"safe", ""},
                                  {"list", ""},
                                  {"items", ""},
                                  {"first", ""},
                                  {"last", ""},
                                  {"join", "d attribute"},
                                  {"int", "default base"},
                                  {"float", "default"},
                                  {"abs", ""},
                                  {"round", "precision method"},
                                  {"reverse", ""},
                                  {"sort", "reverse case_sensitive attribute"},
                                  {"dictsort", "case_sensitive by reverse"},
                                  {"min", "case_sensitive attribute"},
                                  {"max", "case_sensitive attribute"},
                                  {"unique", "case_sensitive attribute"},
                                  {"sum", "attribute start"},
                                  {"trim", "chars"},
                                  {"upper", ""},
                                  {"lower", ""},
                                  {"capitalize", ""},
                                  {"title", ""},
                                  {"indent", "width first blank"},
                                  {"replace", "old new count"}};

constexpr Signature kMethods[] = {{"strip", "-"},        {"lstrip", "-"},
                                  {"rstrip", "-"},       {"split", "sep maxsplit"},
                                  {"upper", ""},         {"replace", "- - count"},
                                  {"lower", ""},         {"capitalize", ""},
                                  {"title", ""},         {"join", "-"},
                                  {"find", "- - -"},     {"startswith", "- - -"},
                                  {"endswith", "- - -"}, {"items", ""},
                                  {"keys", ""},          {"values", ""},
                                  {"get", "- -"}};

constexpr Signature kFunctions[] = {
    {"raise_exception", "message"}, {"strftime_now", "format"}, {"range", "- - -"}};

const Signature* find_signature(std::string_view kind, std::string_view name) {
  const auto in = [&](const auto& table) -> const Signature* {
    for (const Signature& s : table) {
      if (s.name == name) return &s;
    }
    return nullptr;
  };
  return kind == "filter" ? in(kFilters) : kind == "method" ? in(kMethods) : in(kFunctions);
}

// The position of a parameter with this name, or how many there are.
size_t position_of(std::string_view parameters, std::string_view name, size_t* n) {
  size_t found = ~size_t{0};
  *n = 0;
  while (!parameters.empty()) {
    const size_t end = std::min(parameters.find(' '), parameters.size());
    const std::string_view word = slice(parameters, 0, end);
    if (word != "-" && word == name) found = *n;
    ++*n;
    parameters = slice(parameters, end + 1);
  }
  return found;
}

}  // namespace

bool Evaluator::check_arguments(const char* kind, std::string_view name,
                                const Arguments& arguments) {
  const Signature* signature = find_signature(kind, name);
  if (signature == nullptr || !charge(kLook * arguments.values.size())) return ok();
  const auto fail_name = [&](Text given, const char* what) {
    const std::string_view view = slice(heap_.view(given), 0, 60);
    fail(MOE_ERR_UNSUPPORTED, "the %s '%.*s' %s the argument '%.*s'", kind,
         static_cast<int>(name.size()), name.data(), what, static_cast<int>(view.size()),
         view.data());
  };
  size_t n_parameters = 0;
  size_t n_positions = 0;
  (void)position_of(signature->parameters, "", &n_parameters);
  for (const Text given : arguments.names) n_positions += given.size == 0 ? 1U : 0U;
  if (n_positions > n_parameters) {
    fail(MOE_ERR_UNSUPPORTED, "the %s '%.*s' takes at most %zu arguments, found %zu", kind,
         static_cast<int>(name.size()), name.data(), n_parameters, n_positions);
  }
  for (size_t i = 0; i < arguments.names.size() && ok(); ++i) {
    const Text given = arguments.names[i];
    if (given.size == 0) continue;
    const size_t at = position_of(signature->parameters, heap_.view(given), &n_parameters);
    if (at >= n_parameters) {
      fail_name(given, "does not take");
    } else if (at < n_positions) {
      fail_name(given, "gets twice");
    }
  }
  return ok();
}

}  // namespace moe::jinja
