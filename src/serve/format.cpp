// SPDX-License-Identifier: MIT
// Compiles the schema of a request.
#include "src/serve/format.h"

#include "src/serve/conversation.h"
#include "src/serve/fields.h"
#include "src/serve/refusal.h"

namespace moe_serve {
namespace {

Grammar compile(const Host& host, const std::string& schema, const std::string& field) {
  moe_grammar* raw = nullptr;
  moe_error error;
  const moe_status status = moe_grammar_create(host.model, MOE_GRAMMAR_JSON_SCHEMA, schema.data(),
                                               schema.size(), &raw, &error);
  if (status == MOE_ERR_MEMORY) check(status, error);
  if (status != MOE_OK) throw bad_field(field, error.text);
  return Grammar(raw);
}

}  // namespace

Grammar read_format(const Host& host, const Json& format, const std::string& field, bool flat) {
  if (!format.is_object()) throw bad_field(field, "expected an object, found " + shown(format));
  const std::string type = text_in(format, "type", field);
  if (type == "text" || type == "json_object") {
    check_keys(format, field, {"type"});
    if (type == "text") return nullptr;
    return compile(host, R"({"type":"object"})", field);
  }
  if (type != "json_schema") {
    throw bad_field(
        field + ".type",
        "expected 'text', 'json_object' or 'json_schema', found '" + type.substr(0, 40) + "'",
        "unsupported_value");
  }
  std::string where = field;
  const Json* holder = &format;
  if (!flat) {
    check_keys(format, field, {"type", "json_schema"});
    where += ".json_schema";
    const auto at = format.find("json_schema");
    if (at == format.end()) throw missing_field(where);
    if (!at->is_object()) throw bad_field(where, "expected an object, found " + shown(*at));
    holder = &*at;
  }
  // The schema holds whether it is "strict" or not; its name and description change nothing.
  check_keys(*holder, where, {"type", "name", "description", "schema", "strict"});
  (void)flag_of(*holder, "strict", true, where + ".");
  const auto schema = holder->find("schema");
  if (schema == holder->end()) throw missing_field(where + ".schema");
  return compile(host, to_text(*schema), where + ".schema");
}

}  // namespace moe_serve
