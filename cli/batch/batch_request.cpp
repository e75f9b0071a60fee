// SPDX-License-Identifier: MIT
// Checks a request's keys and values, OpenAI's included, and names the key that is wrong.
#include "cli/batch/batch_request.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <iterator>
#include <sstream>
#include <type_traits>
#include <utility>

#include "cli/help/help.h"
#include "cli/io/json_limits.h"

namespace moe_cli {
namespace {

constexpr const char* kKeys[] = {
    "prompt", "messages",           "tokens",          "id",
    "stop",   "max_tokens",         "temperature",     "top_k",
#define MOE_SAMPLING_FILTER(name, option, off, low, high, excluded, help) #name,
#include "cli/model/sampling_list.h"
    "seed",   "repetition_penalty", "custom_id",       "max_completion_tokens",
    "tools",  "tool_choice",        "response_format", "parallel_tool_calls"};
// OpenAI's keys that clients always send: with these values they change nothing here.
const std::pair<const char*, Json> kWithoutEffect[] = {{"n", 1},
                                                       {"stream", false},
                                                       {"frequency_penalty", 0},
                                                       {"presence_penalty", 0},
                                                       {"logprobs", false}};
// With any value; the model is the one that the command was given.
constexpr const char* kIgnored[] = {"user", "metadata", "store", "model"};

// Keys of a message; "reasoning_content" and "name" have an effect only with calls and results.
constexpr const char* kMessageKeys[] = {"role", "content",    "reasoning_content",
                                        "name", "tool_calls", "tool_call_id"};

std::string shown(const Json& value) {
  return value.dump(-1, ' ', true, Json::error_handler_t::replace).substr(0, 40);
}

// The end of a range; whole numbers without an exponent.
std::string number_text(double value) {
  if (std::fabs(value) < 1e18 && value == std::floor(value)) {
    return std::to_string(static_cast<int64_t>(value));
  }
  std::ostringstream text;
  text << value;
  return text.str();
}

// One key of a request that holds a number. `low` and `high` belong to the range.
template <class T>
void read_number(const Json& request, const char* key, double low, double high, T* out) {
  if (!request.contains(key)) return;
  const Json& value = request[key];
  const bool right = std::is_floating_point_v<T> ? value.is_number() : value.is_number_integer();
  const double number = right ? value.get<double>() : 0;
  if (right && number >= low && number <= high) {
    *out = value.get<T>();
    return;
  }
  throw LineError("'" + std::string(key) + "': expected a " +
                  (std::is_floating_point_v<T> ? "" : "whole ") + "number in " + number_text(low) +
                  ".." + number_text(high) + ", found " + shown(value));
}

// A filter of sampling, whose range lacks one of its ends.
void read_filter(const Json& request, const char* key, double low, double high, Bound excluded,
                 float* out) {
  constexpr double kStep = 1e-6;
  const bool no_low = excluded == Bound::kLow;
  read_number(request, key, no_low ? low + kStep : low, no_low ? high : high - kStep, out);
}

template <size_t kCount>
bool is_one_of(const std::string& key, const char* const (&keys)[kCount]) {
  return std::find(std::begin(keys), std::end(keys), key) != std::end(keys);
}

Json member(const Json& object, const char* key) {
  return object.is_object() && object.contains(key) ? object[key] : Json();
}

std::string string_in(const Json& message, const char* key, const std::string& where) {
  if (!message.contains(key)) throw LineError(where + ": no '" + key + "'");
  const Json& value = message[key];
  if (value.is_string()) return value.get<std::string>();
  throw LineError(where + ": '" + key + "': expected a string, found " + value.type_name());
}

// A string, or the text of a list of parts, {"type": "text", "text": ...}.
std::string content_of(const Json& message, const std::string& where) {
  if (!message.contains("content") || !message["content"].is_array()) {
    const bool given = message.contains("content") && !message["content"].is_null();
    if (!given && member(message, "role") == "assistant") return "";  // so the API has it
    return string_in(message, "content", where);
  }
  std::string content;
  size_t i = 0;
  for (const Json& part : message["content"]) {
    const std::string here = where + ": 'content[" + std::to_string(i++) + "]'";
    if (!part.is_object())
      throw LineError(here + ": expected an object, found " + part.type_name());
    const std::string type = string_in(part, "type", here);
    if (type != "text") {
      throw LineError(here + ": expected a part of the type 'text', found '" + type.substr(0, 40) +
                      "'");
    }
    content += string_in(part, "text", here);
  }
  return content;
}

void add_message(moe_chat* chat, const Json& message, const std::string& where) {
  if (!message.is_object()) {
    throw LineError(where + ": expected an object, found " + message.type_name());
  }
  for (const auto& [key, value] : message.items()) {
    if (value.is_null() || is_one_of(key, kMessageKeys)) continue;
    throw LineError(where + ": unknown key '" + key.substr(0, 40) +
                    "'; a message has 'role', 'content', and optionally 'reasoning_content', "
                    "'name', 'tool_calls' and 'tool_call_id'");
  }
  const std::string role = string_in(message, "role", where);
  const std::string content = content_of(message, where);
  moe_error error;
  moe_status status = MOE_OK;
  if (role == "tool" || member(message, "tool_calls").size() > 0) {
    Json whole = message;
    whole["content"] = content;
    if (content.empty() && role != "tool") whole["content"] = nullptr;
    const std::string json = whole.dump(-1, ' ', false, Json::error_handler_t::replace);
    status = moe_chat_add_message(chat, json.data(), json.size(), &error);
  } else {
    status = moe_chat_add(chat, role.c_str(), content.data(), content.size(), &error);
  }
  const bool fault =
      status == MOE_ERR_RANGE || status == MOE_ERR_ARGUMENT || status == MOE_ERR_UNSUPPORTED;
  if (fault) throw LineError(where + ": " + error.text);
  check_line(status, error);
}

// A line of OpenAI's batch files: {"custom_id": ..., "method": "POST", "url": ..., "body": {...}}.
Json unwrapped(Json&& line) {
  if (!line.contains("body")) return std::move(line);
  for (const auto& [key, value] : line.items()) {
    const bool known = key == "body" || key == "custom_id" || key == "method" || key == "url";
    if (!known) throw LineError("unknown key '" + key.substr(0, 40) + "' beside 'body'");
  }
  Json body = line["body"];
  if (!body.is_object()) {
    throw LineError("'body': expected an object, found " + std::string(body.type_name()));
  }
  if (line.contains("custom_id")) body["custom_id"] = line["custom_id"];
  return body;
}

void check_without_effect(const std::string& key, const Json& value) {
  if (is_one_of(key, kIgnored)) return;
  for (const auto& [name, expected] : kWithoutEffect) {
    if (key != name) continue;
    if (value == expected) return;
    throw LineError("'" + key + "': expected " + expected.dump() + ", found " + shown(value));
  }
  throw LineError("unknown key '" + key.substr(0, 40) +
                  "'; a line has one of 'prompt', 'messages' and 'tokens', and optionally 'id' or "
                  "'custom_id', 'stop', 'max_tokens' or 'max_completion_tokens', 'temperature', "
                  "'top_k', "
#define MOE_SAMPLING_FILTER(name, option, off, low, high, excluded, help) "'" #name "', "
#include "cli/model/sampling_list.h"
                  "'repetition_penalty', 'seed', 'response_format' and 'tools'");
}

}  // namespace

void check_line(moe_status status, const moe_error& error) {
  if (blames_text(status)) throw LineError(error.text);
  check(status, error);
}

Json parse_request(const std::string& line, bool whole, Json* id) {
  if (!whole) throw LineError("longer than 4 MiB, the limit for a line");
  if (line.find_first_not_of(" \t\r") == std::string::npos) {
    throw LineError("the line is empty");  // counts: results have the numbers of their lines
  }
  if (const std::string why = beyond_limits(line); !why.empty()) throw LineError(why);
  Json json = Json::parse(line, nullptr, false);
  if (json.is_discarded()) throw LineError("not valid JSON in UTF-8");
  if (!json.is_object()) {
    throw LineError("expected a JSON object, found " + std::string(json.type_name()));
  }
  if (id != nullptr) *id = id_of(json);
  Json request = unwrapped(std::move(json));
  for (auto at = request.begin(); at != request.end();) {  // clients write null for "not given"
    at = at->is_null() ? request.erase(at) : std::next(at);
  }
  return request;
}

Json id_of(const Json& request) {
  for (const char* key : {"id", "custom_id"}) {
    const Json id = member(request, key);
    if (id.is_string() || id.is_number_integer()) return {{key, id}};
  }
  return Json::object();
}

void check_keys(const Json& request) {
  if (request.contains("prompt") + request.contains("messages") + request.contains("tokens") != 1) {
    throw LineError("expected one of 'prompt', 'messages' and 'tokens'");
  }
  if (request.contains("tools") && !request.contains("messages")) {
    throw LineError("'tools': only with 'messages'");
  }
  const Json choice = member(request, "tool_choice");
  const bool no_tools = !request.contains("tools") || request["tools"] == Json::array();
  if (no_tools && !choice.is_null() && choice != "auto" && choice != "none") {
    throw LineError("'tool_choice': only with 'tools'");
  }
  const Json parallel = member(request, "parallel_tool_calls");
  if (!parallel.is_null() && !parallel.is_boolean()) {
    throw LineError("'parallel_tool_calls': expected true or false, found " + shown(parallel));
  }
  for (const char* key : {"id", "custom_id"}) {
    if (request.contains(key) && !id_of(request).contains(key)) {
      throw LineError("'" + std::string(key) +
                      "': expected a string or a whole number of 64 bits, and only one id");
    }
  }
  if (request.contains("max_tokens") && request.contains("max_completion_tokens")) {
    throw LineError("'max_tokens' and 'max_completion_tokens' are the same; give one of them");
  }
  for (const auto& [key, value] : request.items()) {
    if (is_one_of(key, kKeys)) continue;
    check_without_effect(key, value);
  }
}

LineSettings settings_of(const Json& request, const LineSettings& common) {
  constexpr int32_t kMostTokens = 1 << 24;
  LineSettings s = common;
  read_number(request, "max_tokens", 1, kMostTokens, &s.max_tokens);
  read_number(request, "max_completion_tokens", 1, kMostTokens, &s.max_tokens);
  read_number(request, "temperature", 0, 1e6, &s.sampling.temperature);
  read_number(request, "top_k", 0, INT32_MAX, &s.sampling.top_k);
#define MOE_SAMPLING_FILTER(name, option, off, low, high, excluded, help) \
  read_filter(request, #name, low, high, excluded, &s.sampling.name);
#include "cli/model/sampling_list.h"
  read_number(request, "repetition_penalty", 0.01, 100, &s.sampling.repetition_penalty);
  read_number(request, "seed", 0, 9007199254740992.0, &s.sampling.seed);
  return s;
}

std::vector<int32_t> tokens_of(const Json& request, const moe_model* model) {
  if (request.contains("prompt")) {
    if (!request["prompt"].is_string()) throw LineError("'prompt': expected a string");
    if (moe_model_tokenizer(model) == nullptr) {
      throw LineError("'prompt': the model has no tokenizer; give ids as 'tokens'");
    }
    try {
      return encode(model, request["prompt"].get<std::string>(), 0);
    } catch (const CallError& e) {
      throw LineError(e.what());
    }
  }
  std::vector<int32_t> tokens;
  if (!request["tokens"].is_array()) throw LineError("'tokens': expected a list of numbers");
  const int32_t vocab_size = model_info(model).vocab_size;
  for (const Json& t : request["tokens"]) {
    const int64_t id = t.is_number_integer() ? t.get<int64_t>() : -1;
    if (id < 0 || id >= vocab_size) {
      throw LineError("'tokens': expected ids in 0.." + std::to_string(vocab_size - 1) +
                      ", found " + shown(t));
    }
    tokens.push_back(static_cast<int32_t>(id));
  }
  return tokens;
}

std::vector<std::string> stops_of(const Json& request, const moe_model* model,
                                  const std::vector<std::string>& others) {
  if (!request.contains("stop")) return others;
  if (moe_model_tokenizer(model) == nullptr) throw LineError("'stop': the model has no tokenizer");
  std::vector<std::string> stops;
  const Json given = request["stop"].is_array() ? request["stop"] : Json::array({request["stop"]});
  for (const Json& stop : given) {
    const bool good = stop.is_string() && !stop.get_ref<const std::string&>().empty() &&
                      stop.get_ref<const std::string&>().find('\0') == std::string::npos;
    if (!good) throw LineError("'stop': expected a non-empty string, or a list of such strings");
    stops.push_back(stop.get<std::string>());
  }
  return stops;
}

namespace {

// Throws LineError if a format has a key that is not one of `known`.
void check_format_keys(const Json& format, const std::string& where,
                       std::initializer_list<const char*> known) {
  if (!format.is_object()) return;  // and so has no "type" or "schema", which is refused
  for (const auto& [key, value] : format.items()) {
    if (value.is_null() || std::find(known.begin(), known.end(), key) != known.end()) continue;
    throw LineError("'" + where + "': unknown key '" + key.substr(0, 40) + "'");
  }
}

}  // namespace

// As in the service: a schema holds whether it is "strict" or not.
Grammar format_of(const Json& request, moe_model* model) {
  if (!request.contains("response_format")) return nullptr;
  const Json& format = request["response_format"];
  const Json type = member(format, "type");
  if (type == "text" || type == "json_object") {
    check_format_keys(format, "response_format", {"type"});
  }
  if (type == "text") return nullptr;
  std::string schema = R"({"type": "object"})";
  if (type == "json_schema") {
    check_format_keys(format, "response_format", {"type", "json_schema"});
    const Json holder = member(format, "json_schema");
    check_format_keys(holder, "response_format.json_schema",
                      {"name", "description", "schema", "strict"});
    const Json given = member(holder, "schema");
    if (given.is_null()) throw LineError("'response_format.json_schema.schema' is missing");
    schema = given.dump(-1, ' ', false, Json::error_handler_t::replace);
  } else if (type != "json_object") {
    throw LineError(
        "'response_format.type': expected 'text', 'json_object' or 'json_schema', found " +
        shown(type));
  }
  moe_grammar* raw = nullptr;
  moe_error error;
  const moe_status status = moe_grammar_create(model, MOE_GRAMMAR_JSON_SCHEMA, schema.data(),
                                               schema.size(), &raw, &error);
  if (status == MOE_ERR_MEMORY) check_line(status, error);
  if (status != MOE_OK) throw LineError(std::string("'response_format': ") + error.text);
  return Grammar(raw);
}

bool begins_with_system(const Json& messages) {
  if (!messages.is_array() || messages.empty()) return false;
  const Json role = member(messages[0], "role");
  return role == "system" || role == "developer";
}

void add_messages(moe_chat* chat, const Json& messages) {
  if (!messages.is_array() || messages.empty()) {
    throw LineError("'messages': expected a non-empty list");
  }
  for (size_t i = 0; i < messages.size(); ++i) {
    add_message(chat, messages[i], "'messages[" + std::to_string(i) + "]'");
  }
}

bool one_call(const Json& request) { return member(request, "parallel_tool_calls") == false; }

namespace {

// A function that is named is called once.
void choose_tool(moe_chat* chat, const Json& choice, bool one) {
  if (choice.is_null() || choice == "auto") return;
  const Json name = member(member(choice, "function"), "name");
  const bool named = member(choice, "type") == "function" && name.is_string();
  if (choice != "required" && !named) {
    throw LineError(
        "'tool_choice': expected \"auto\", \"none\", \"required\" or {\"type\": \"function\", "
        "\"function\": {\"name\": ...}}, found " +
        shown(choice));
  }
  // C has no other names, and takes an empty one for any tool.
  const std::string tool = named ? name.get<std::string>() : "";
  if (named && (tool.empty() || tool.find('\0') != std::string::npos)) {
    throw LineError("'tool_choice': expected the name of a tool, found " + shown(name));
  }
  moe_error error;
  const moe_status status =
      moe_chat_set_tool_choice(chat, named || one ? MOE_TOOLS_ONE : MOE_TOOLS_REQUIRED,
                               named ? tool.c_str() : nullptr, &error);
  if (status == MOE_ERR_MEMORY) check_line(status, error);
  if (status != MOE_OK) throw LineError(std::string("'tool_choice': ") + error.text);
}

}  // namespace

void add_tools(moe_chat* chat, const Json& request) {
  const Json choice = member(request, "tool_choice");
  if (!request.contains("tools") || choice == "none") return;
  const std::string json = request["tools"].dump(-1, ' ', false, Json::error_handler_t::replace);
  moe_error error;
  const moe_status status = moe_chat_set_tools(chat, json.data(), json.size(), &error);
  if (status == MOE_ERR_MEMORY) check_line(status, error);
  if (status != MOE_OK) throw LineError(std::string("'tools': ") + error.text);
  choose_tool(chat, choice, one_call(request));
}

bool may_answer(const std::string& result, const std::string& line, bool whole,
                const moe_model* model) {
  Json found;  // null: damaged
  if (beyond_limits(result).empty()) found = Json::parse(result, nullptr, false);
  Json request;
  try {
    request = parse_request(line, whole);
    if (id_of(found) != id_of(request)) return false;
    if (!found.is_object()) return true;  // damaged
    if (!found.contains("n_prompt")) return found.contains("error");
    check_keys(request);
    if (request.contains("messages")) return true;
    return found["n_prompt"] == tokens_of(request, model).size();
  } catch (const LineError&) {  // such a line has an error for a result
    return found.is_object() && found.contains("error");
  }
}

}  // namespace moe_cli
