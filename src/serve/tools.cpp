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

// The members of a tool that stand together in all APIs. schema: of its parameters.
Json function_of(const Json& tool, const std::string& where, const char* schema) {
  Json function = {{"name", text_in(tool, "name", where)}};
  if (function["name"] == "") throw bad_field(where + ".name", "expected a name, found \"\"");
  if (tool.contains("description") && !tool["description"].is_null()) {
    function["description"] = text_in(tool, "description", where);
  }
  if (tool.contains("strict") && !tool["strict"].is_null()) {
    function["strict"] = flag_of(tool, "strict", false, where + ".");
  }
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

// type: of the choice, of which `any` and `named` are the API's words for calls that are asked for;
// found: the field, name: the field of the tool's name.
void choose(const std::string& type, const Json& found, const char* any, const char* named,
            ToolUse& use) {
  const bool none = type == "none";
  if (!none && type != "auto" && type != any && type != named) {
    throw bad_field(
        "tool_choice",
        std::string("expected auto, none, ") + any + " or a tool, found " + shown(found),
        "unsupported_value");
  }
  if (!none && use.list.empty()) throw bad_field("tool_choice", "only with 'tools'");
  if (none) use.list = Json::array();
  use.required = type == any || type == named;
}

void choose_tool(const std::string& name, const std::string& where, ToolUse& use) {
  use.only = name;
  use.one_call = true;
  for (const Json& tool : use.list) {
    if (tool["function"]["name"] == name) return;
  }
  throw bad_field(where, "expected the name of a tool, found " + shown(Json(name)));
}

// Chat completions and responses choose with a word; an object names a tool that must be called.
void read_choice(const Json& request, ToolUse& use) {
  const auto parallel = request.find("parallel_tool_calls");
  if (parallel != request.end()) use.one_call = !flag_of(request, "parallel_tool_calls", true);
  const auto at = request.find("tool_choice");
  if (at == request.end()) return;
  if (!at->is_object()) {
    if (!at->is_string()) {
      throw bad_field("tool_choice", "expected a text or an object, found " + shown(*at),
                      "unsupported_value");
    }
    return choose(at->get<std::string>(), *at, "required", "required", use);
  }
  const std::string type = text_in(*at, "type", "tool_choice");
  choose(type == "required" || type == "auto" ? "" : type, *at, "required", "function", use);
  if (!use.required) return check_keys(*at, "tool_choice", {"type"});
  // Responses name the function beside the type.
  const auto function = at->find("function");
  if (function == at->end()) {
    check_keys(*at, "tool_choice", {"type", "name"});
    return choose_tool(text_in(*at, "name", "tool_choice"), "tool_choice.name", use);
  }
  const std::string inner = "tool_choice.function";
  check_keys(*at, "tool_choice", {"type", "function"});
  if (!function->is_object()) {
    throw bad_field(inner, "expected an object, found " + kind_of(*function));
  }
  check_keys(*function, inner, {"name"});
  choose_tool(text_in(*function, "name", inner), inner + ".name", use);
}

}  // namespace

Json ToolCall::input() const { return parse_arguments(arguments); }

// The arguments are the last member, and stay as the model wrote them. Quotes inside the strings
// before them are escaped.
ToolCall read_call(std::string_view json) {
  constexpr std::string_view kArguments = ", \"arguments\": ";
  const size_t end = json.find(kArguments);
  const Json parsed = Json::parse(std::string(json.substr(0, end)) + "}");
  ToolCall call{.id = parsed["id"], .name = parsed["name"], .arguments = {}};
  call.arguments = json.substr(end + kArguments.size());
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
  use.schema = "input_schema";
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
  use.one_call = flag_of(*at, "disable_parallel_tool_use", false, "tool_choice.");
  const std::string type = text_in(*at, "type", "tool_choice");
  choose(type, *at, "any", "tool", use);
  if (type == "tool") {
    check_keys(*at, "tool_choice", {"type", "name", "disable_parallel_tool_use"});
    choose_tool(text_in(*at, "name", "tool_choice"), "tool_choice.name", use);
  } else {
    check_keys(*at, "tool_choice", {"type", "disable_parallel_tool_use"});
  }
  return use;
}

ToolUse response_tools(const Json& request) {
  ToolUse use;
  use.schema = "parameters";
  use.list = each_tool(request, [](const Json& tool, const std::string& where) {
    check_type(tool, where, "function");
    check_keys(tool, where, {"type", "name", "description", "parameters", "strict"});
    return function_of(tool, where, "parameters");
  });
  read_choice(request, use);
  return use;
}

ToolUse free_of_form(ToolUse use) {
  for (Json& tool : use.list) tool["function"].erase("strict");
  use.required = false;
  return use;
}

void check_format_alone(const Grammar& grammar, const ToolUse& use, const char* field) {
  if (grammar == nullptr || use.list.empty()) return;
  throw bad_field(field, "not together with 'tools': what it asks for is no call");
}

}  // namespace moe_serve
