// SPDX-License-Identifier: MIT
// Looks for a member of a body's object without keeping the others.
#include "cli/serve/named_model.h"

#include <nlohmann/json.hpp>
#include <utility>

namespace moe_cli {
namespace {

/// Stops at the member "model" of the outermost object. A service refuses bodies that have it
/// twice.
struct Finder : nlohmann::json_sax<nlohmann::json> {
  int depth = 0;
  bool wanted = false;  // the next value
  std::optional<std::string> found;

  bool value() { return !std::exchange(wanted, false); }
  bool null() override { return value(); }
  bool boolean(bool) override { return value(); }
  bool number_integer(number_integer_t) override { return value(); }
  bool number_unsigned(number_unsigned_t) override { return value(); }
  bool number_float(number_float_t, const string_t&) override { return value(); }
  bool binary(binary_t&) override { return value(); }
  bool string(string_t& text) override {
    if (wanted) found = text;
    return value();
  }
  bool start_object(std::size_t) override {
    ++depth;
    return value();
  }
  bool key(string_t& name) override {
    wanted = depth == 1 && name == "model";
    return true;
  }
  bool end_object() override { return --depth > 0; }
  bool start_array(std::size_t) override {
    if (depth == 0) return false;
    ++depth;
    return value();
  }
  bool end_array() override {
    --depth;
    return true;
  }
  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception&) override {
    return false;
  }
};

}  // namespace

std::optional<std::string> named_model(std::string_view body) {
  Finder finder;
  (void)nlohmann::json::sax_parse(body, &finder);
  return finder.found;
}

}  // namespace moe_cli
