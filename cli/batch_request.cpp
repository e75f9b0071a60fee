#include "cli/batch_request.h"

#include <algorithm>
#include <iterator>

namespace moe_cli {
namespace {

constexpr const char* kKeys[] = {"prompt", "messages", "tokens", "id", "stop"};

/// Maximum nesting of objects and lists: the JSON parser is recursive.
void check_depth(const std::string& line) {
  constexpr int kMostDepth = 64;
  int depth = 0;
  bool text = false;
  for (size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (text && c == '\\') {
      ++i;
    } else if (c == '"') {
      text = !text;
    } else if (!text && (c == '[' || c == '{') && ++depth > kMostDepth) {
      throw LineError("nested deeper than 64");
    } else if (!text && (c == ']' || c == '}')) {
      --depth;
    }
  }
}

std::string string_in(const Json& message, const char* key, const std::string& where) {
  if (!message.contains(key)) throw LineError(where + ": no '" + key + "'");
  const Json& value = message[key];
  if (value.is_string()) return value.get<std::string>();
  throw LineError(where + ": '" + key + "': expected a string, found " + value.type_name());
}

void add_message(moe_chat* chat, const Json& message, const std::string& where) {
  if (!message.is_object()) {
    throw LineError(where + ": expected an object, found " + message.type_name());
  }
  const std::string role = string_in(message, "role", where);
  const std::string content = string_in(message, "content", where);
  moe_error error;
  const moe_status status =
      moe_chat_add(chat, role.c_str(), content.data(), content.size(), &error);
  if (status == MOE_ERR_RANGE) throw LineError(where + ": " + error.text);
  check_line(status, error);
}

Json member(const Json& object, const char* key) {
  return object.is_object() && object.contains(key) ? object[key] : Json();
}

}  // namespace

void check_line(moe_status status, const moe_error& error) {
  if (blames_text(status)) throw LineError(error.text);
  check(status, error);
}

Json parse_request(const std::string& line, bool whole) {
  if (!whole) throw LineError("longer than 4 MiB, the limit for a line");
  if (line.find_first_not_of(" \t\r") == std::string::npos) {
    throw LineError("the line is empty");  // counts: results have the numbers of their lines
  }
  check_depth(line);
  Json json = Json::parse(line, nullptr, false);
  if (json.is_discarded()) throw LineError("not valid JSON in UTF-8");
  if (!json.is_object()) {
    throw LineError("expected a JSON object, found " + std::string(json.type_name()));
  }
  return json;
}

Json id_of(const Json& request) {
  const Json id = member(request, "id");
  return id.is_string() || id.is_number_integer() ? id : Json();
}

void check_keys(const Json& request) {
  if (request.contains("prompt") + request.contains("messages") + request.contains("tokens") != 1) {
    throw LineError("expected one of 'prompt', 'messages' and 'tokens'");
  }
  if (request.contains("id") && id_of(request).is_null()) {
    throw LineError("'id': expected a string or a whole number of 64 bits");
  }
  for (const auto& [key, value] : request.items()) {
    if (std::find(std::begin(kKeys), std::end(kKeys), key) != std::end(kKeys)) continue;
    throw LineError("unknown key '" + key.substr(0, 40) +
                    "'; a line has one of 'prompt', 'messages' and 'tokens', and optionally 'id' "
                    "and 'stop'");
  }
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
                      ", found " +
                      t.dump(-1, ' ', true, Json::error_handler_t::replace).substr(0, 40));
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

bool may_answer(const std::string& result, const std::string& line, bool whole,
                const moe_model* model) {
  const Json found = Json::parse(result, nullptr, false);
  Json request;
  try {
    request = parse_request(line, whole);
    if (member(found, "id") != id_of(request)) return false;
    if (!found.is_object() || !found.contains("n_prompt")) return true;
    check_keys(request);
    if (request.contains("messages")) return true;
    return found["n_prompt"] == tokens_of(request, model).size();
  } catch (const LineError&) {  // such a line has an error for a result
    return found.is_object() && found.contains("error");
  }
}

}  // namespace moe_cli
