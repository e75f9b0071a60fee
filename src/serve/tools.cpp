// SPDX-License-Identifier: MIT
// Reads the tools of the three APIs into the shape of chat completions, which templates know.
#include "src/serve/tools.h"

#include "src/serve/conversation.h"
#include "src/serve/refusal.h"

namespace moe_serve {
namespace {

const Json* tools_in(const Json& request) {
  const auto at = request.find("tools");
  if (at == request.end() || *at == Json::array()) return nullptr;
  if (at->is_array()) return &*at;
  throw bad_field("tools", "expected a list, found " + kind_of(*at));
}

Json function_tool(const Json& function) { return {{"type", "function"}, {"function", function}}; }

// A grammar of the tool's parameters would be asked for here.
void check_strict(const Json& tool, const std::string& where) {
  const Json strict = tool.value("strict", Json(false));
  if (strict == false || strict.is_null()) return;
  throw bad_field(where + ".strict",
                  "arguments that are held to their schema are not supported; send false, or leave "
                  "it out, and check the arguments of each call",
                  "unsupported_value");
}

// The members of a tool that stand together in all APIs. schema: of its parameters.
Json function_of(const Json& tool, const std::string& where, const char* schema) {
  Json function = {{"name", text_in(tool, "name", where)}};
  if (function["name"] == "") throw bad_field(where + ".name", "expected a name, found \"\"");
  if (tool.contains("description") && !tool["description"].is_null()) {
    function["description"] = text_in(tool, "description", where);
  }
  check_strict(tool, where);
  const auto at = tool.find(schema);
  if (at == tool.end() || at->is_null()) return function;
  if (!at->is_object()) {
    throw bad_field(where + "." + schema, "expected an object, found " + kind_of(*at));
  }
  function["parameters"] = *at;
  return function;
}

template <class Read>
Json each_tool(const Json& request, Read&& read) {
  Json list = Json::array();
  const Json* tools = tools_in(request);
  if (tools == nullptr) return list;
  for (size_t i = 0; i < tools->size(); ++i) {
    const std::string where = "tools[" + std::to_string(i) + "]";
    const Json& tool = (*tools)[i];
    if (!tool.is_object()) throw bad_field(where, "expected an object, found " + kind_of(tool));
    list.push_back(function_tool(read(tool, where)));
  }
  return list;
}

void check_type(const Json& tool, const std::string& where, const char* expected) {
  const Json type = tool.value("type", Json(expected));
  if (type == expected) return;
  throw bad_field(where + ".type",
                  std::string("expected '") + expected + "', found " + shown(type) +
                      ": the service has no tools of its own",
                  "unsupported_value");
}

// type: of the choice; found: the field.
void choose(const std::string& type, const Json& found, ToolUse& use) {
  const bool chosen = type == "auto" || type == "none";
  if (chosen && type == "auto" && use.list.empty()) {
    throw bad_field("tool_choice", "only with 'tools'");
  }
  if (type == "none") use.list = Json::array();
  if (chosen) return;
  throw bad_field("tool_choice",
                  "expected auto or none, found " + shown(found) +
                      ": a call cannot be forced; ask for it in a message",
                  "unsupported_value");
}

// Chat completions and responses choose with a word; an object names a tool that must be called.
void read_choice(const Json& request, ToolUse& use) {
  const auto parallel = request.find("parallel_tool_calls");
  if (parallel != request.end()) use.one_call = !flag_of(request, "parallel_tool_calls", true);
  const auto at = request.find("tool_choice");
  if (at == request.end()) return;
  const bool none = *at == Json{{"type", "none"}};
  choose(none ? "none" : at->is_string() ? at->get<std::string>() : "", *at, use);
}

}  // namespace

Json ToolCall::input() const { return Json::parse(arguments); }

// The arguments are the last member, and stay as the model wrote them. Quotes inside the strings
// before them are escaped.
ToolCall read_call(std::string_view json) {
  constexpr std::string_view kArguments = ", \"arguments\": ";
  const Json parsed = Json::parse(json);
  ToolCall call{.id = parsed["id"], .name = parsed["name"], .arguments = {}};
  call.arguments = json.substr(json.find(kArguments) + kArguments.size());
  call.arguments.pop_back();
  return call;
}

ToolUse chat_tools(const Json& request) {
  ToolUse use;
  use.list = each_tool(request, [](const Json& tool, const std::string& where) {
    check_type(tool, where, "function");
    check_keys(tool, where, {"type", "function"});
    const auto function = tool.find("function");
    const std::string inner = where + ".function";
    if (function == tool.end()) throw missing_field(inner);
    if (!function->is_object()) {
      throw bad_field(inner, "expected an object, found " + kind_of(*function));
    }
    check_keys(*function, inner, {"name", "description", "parameters", "strict"});
    return function_of(*function, inner, "parameters");
  });
  read_choice(request, use);
  return use;
}

ToolUse message_tools(const Json& request) {
  ToolUse use;
  use.list = each_tool(request, [](const Json& tool, const std::string& where) {
    check_type(tool, where, "custom");
    check_keys(tool, where,
               {"type", "name", "description", "input_schema", "strict", "cache_control"});
    if (!tool.contains("input_schema")) throw missing_field(where + ".input_schema");
    return function_of(tool, where, "input_schema");
  });
  const auto at = request.find("tool_choice");
  if (at == request.end()) return use;
  if (!at->is_object()) throw bad_field("tool_choice", "expected an object, found " + shown(*at));
  check_keys(*at, "tool_choice", {"type", "name", "disable_parallel_tool_use"});
  use.one_call = flag_of(*at, "disable_parallel_tool_use", false, "tool_choice.");
  choose(text_in(*at, "type", "tool_choice"), *at, use);
  return use;
}

ToolUse response_tools(const Json& request) {
  ToolUse use;
  use.list = each_tool(request, [](const Json& tool, const std::string& where) {
    check_type(tool, where, "function");
    check_keys(tool, where, {"type", "name", "description", "parameters", "strict"});
    return function_of(tool, where, "parameters");
  });
  read_choice(request, use);
  return use;
}

void check_format_alone(const Grammar& grammar, const ToolUse& use, const char* field) {
  if (grammar == nullptr || use.list.empty()) return;
  throw bad_field(field, "not together with 'tools': what it asks for is no call");
}

}  // namespace moe_serve
