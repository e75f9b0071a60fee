// SPDX-License-Identifier: MIT
// Reads receipts and finds where two of them differ.
#include "cli/serve/receipt.h"

#include <algorithm>

#include "cli/io/json_limits.h"
#include "cli/serve/endpoints.h"

namespace moe_cli {
namespace {

bool is_list_of_ids(const Json& list) {
  return list.is_array() && std::all_of(list.begin(), list.end(),
                                        [](const Json& id) { return id.is_number_integer(); });
}

bool has_text(const Json& receipt, const char* member) {
  return receipt.contains(member) && receipt[member].is_string();
}

bool gives_numbers(const Json& endpoint) {
  return endpoint == "/v1/embeddings" || endpoint == "/v1/rerank";
}

bool has_texts(const Json& receipt) {
  if (!receipt.contains("texts")) return gives_numbers(receipt["endpoint"]);
  const Json& texts = receipt["texts"];
  return texts.is_array() && std::all_of(texts.begin(), texts.end(), [](const Json& text) {
           return text.is_object() && is_list_of_ids(text.value("tokens", Json())) &&
                  has_text(text, "finish");
         });
}

std::string ids_difference(const std::string& what, const Json& ids, const Json& found) {
  const size_t n = std::min(ids.size(), found.size());
  for (size_t i = 0; i < n; ++i) {
    if (ids[i] == found[i]) continue;
    return what + " differs at token " + std::to_string(i + 1) + ": " + ids[i].dump() + " there, " +
           found[i].dump() + " here";
  }
  if (ids.size() == found.size()) return "";
  return what + " has " + std::to_string(ids.size()) + " tokens there, " +
         std::to_string(found.size()) + " here";
}

std::string number_of(const char* what, size_t index, size_t n) {
  return n == 1 ? std::string("the ") + what : what + (" " + std::to_string(index + 1));
}

std::string prompts_difference(const Json& a, const Json& b) {
  if (a.size() != b.size()) return "the number of prompts differs";
  for (size_t i = 0; i < a.size(); ++i) {
    const std::string text = ids_difference(number_of("prompt", i, a.size()), a[i], b[i]);
    if (!text.empty()) return text;
  }
  return "";
}

std::string texts_difference(const Json& a, const Json& b) {
  if (a.size() != b.size()) return "the number of texts differs";
  for (size_t i = 0; i < a.size(); ++i) {
    const std::string what = number_of("text", i, a.size());
    const std::string text = ids_difference(what, a[i]["tokens"], b[i]["tokens"]);
    if (!text.empty()) return text;
    if (a[i]["finish"] == b[i]["finish"]) continue;
    return what + " ends with " + a[i]["finish"].dump() + " there, " + b[i]["finish"].dump() +
           " here";
  }
  return "";
}

}  // namespace

Json read_receipt(const std::string& where, const std::string& line) {
  const auto fail = [&](const std::string& what) {
    throw CallError(MOE_ERR_FORMAT, where + ": " + what);
  };
  if (const std::string why = beyond_limits(line); !why.empty()) fail(why);
  Json json = Json::object();
  try {
    json = Json::parse(line);
  } catch (const Json::exception&) {
    fail("expected a receipt, found no JSON");
  }
  if (!json.is_object()) fail("expected a receipt, found " + std::string(json.type_name()));
  Json& holder =
      json.contains("response") && json["response"].is_object() ? json["response"] : json;
  return holder.contains("receipt") ? holder["receipt"] : holder;
}

std::string receipt_problem(const Json& r) {
  if (!r.is_object() || r.value("object", Json()) != "moe.receipt") return "this is no receipt";
  const bool complete = has_text(r, "endpoint") && has_text(r, "model") && has_text(r, "hash") &&
                        has_text(r, "system_fingerprint") &&
                        r.value("settings", Json()).is_object() &&
                        r.value("request", Json()).is_object() &&
                        r.value("prompts", Json()).is_array() && has_texts(r);
  if (!complete) return "a part of the receipt is missing";
  for (const Json& prompt : r["prompts"]) {
    if (!is_list_of_ids(prompt)) return "a prompt of the receipt is no list of token ids";
  }
  const moe_endpoint endpoint = endpoint_of(r["endpoint"].get_ref<const std::string&>());
  const bool known =
      endpoint != 0 && endpoint != MOE_ENDPOINT_TOKENIZE && endpoint != MOE_ENDPOINT_COUNT_TOKENS;
  return known ? "" : "the receipt is of an unknown endpoint";
}

std::string request_text(const Json& receipt) {
  Json request = receipt["request"];
  request["receipt"] = true;
  if (receipt.contains("seed")) request["seed"] = receipt["seed"];
  return request.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Json receipt_of_answer(const std::string& event, int status) {
  Json json = Json::parse(event, nullptr, false);
  Json* holder = &json;
  if (json.contains("response")) holder = &json["response"];
  if (status == 200 && holder->contains("receipt")) return std::move((*holder)["receipt"]);
  const Json error = holder->value("error", Json::object());
  return {{"error", error.is_object() ? error.value("message", "no answer") : "no answer"}};
}

std::string difference_of(const Json& receipt, const Json& found) {
  if (!found.is_object()) return "there was not enough memory for the answer";
  if (found.contains("error")) return "no answer here: " + found["error"].get<std::string>();
  std::string text = prompts_difference(receipt["prompts"], found["prompts"]);
  const bool vectors = !receipt.contains("texts") || !found.contains("texts");
  if (text.empty() && !vectors) text = texts_difference(receipt["texts"], found["texts"]);
  if (!text.empty() || receipt["hash"] == found["hash"]) return text;
  if (!vectors) return "the receipt is damaged: its hash is not of its tokens";
  return receipt["endpoint"] == "/v1/rerank" ? "the scores differ" : "the vectors differ";
}

std::vector<std::string> different_settings(const Json& receipt, const Json& found) {
  std::vector<std::string> texts;
  if (!found.is_object() || !found.contains("settings")) return texts;
  const Json& here = found["settings"];
  for (const auto& [key, value] : receipt["settings"].items()) {
    const Json other = here.value(key, Json());
    if (value != other) texts.push_back(key + " " + value.dump() + ", here " + other.dump());
  }
  return texts;
}

}  // namespace moe_cli
