// SPDX-License-Identifier: MIT
// Reads requests for vectors, and writes their answers.
#include "src/serve/embedding_request.h"

#include <cstring>
#include <utility>

#include "src/serve/input_texts.h"
#include "src/serve/receipt.h"

namespace moe_serve {
namespace {

constexpr int64_t kMostInputs = 2048;      // texts of a request, as in OpenAI's API
constexpr uint64_t kMostValues = 1 << 21;  // of a request's vectors, which are in memory together

// The text of a prompt of the model that stands in front of every text, or "".
std::string prompt_text(const Host& host, const Json& request) {
  const auto at = request.find("prompt_name");
  if (at != request.end() && !at->is_string()) {
    throw bad_field("prompt_name", "expected a string, found " + shown(*at));
  }
  const std::string wanted = at == request.end() ? "" : at->get<std::string>();
  std::string known;
  for (int32_t i = 0; i < host.n_prompts; ++i) {
    const char *name = nullptr, *text = nullptr;
    moe_error error;
    check(moe_model_get_prompt(host.model, i, &name, &text, &error), error);
    if (at == request.end() ? i == host.default_prompt : wanted == name) return text;
    known += std::string(", ") + name;
  }
  if (at == request.end() || wanted == "none") return "";
  throw bad_field("prompt_name",
                  "expected one of none" + known + ", found '" + wanted.substr(0, 40) + "'");
}

bool wants_base64(const Json& request) {
  const Json format = request.value("encoding_format", Json("float"));
  if (format == "float") return false;
  if (format == "base64") return true;
  throw bad_field("encoding_format", "expected float or base64, found " + shown(format));
}

// Fewer dimensions would be another vector than the model makes.
void check_dimensions(const Host& host, const Json& request) {
  const int64_t n = integer_of(request, "dimensions", 1, INT32_MAX, int64_t{host.d_model});
  if (n == host.d_model) return;
  throw bad_field("dimensions",
                  "the vectors of this model have " + std::to_string(host.d_model) +
                      ", and are not shortened; found " + std::to_string(n),
                  "unsupported_value");
}

void check_texts(const Host& host, const std::vector<std::vector<int32_t>>& texts) {
  const auto refuse = [](const std::string& text) { throw bad_field("input", text); };
  if (texts.size() > kMostInputs) {
    refuse("expected at most " + std::to_string(kMostInputs) + " texts");
  }
  if (texts.size() * static_cast<uint64_t>(host.d_model) > kMostValues) {
    refuse("expected at most " + std::to_string(kMostValues / static_cast<uint64_t>(host.d_model)) +
           " texts for this model in one request, found " + std::to_string(texts.size()));
  }
  for (size_t i = 0; i < texts.size(); ++i) {
    const std::string field = texts.size() > 1 ? "input[" + std::to_string(i) + "]" : "input";
    if (texts[i].empty()) throw bad_field(field, "the text has no tokens");
    if (texts[i].size() <= static_cast<size_t>(host.vector_tokens)) continue;
    throw Refusal(kBadRequest,
                  "'" + field + "': expected at most " + std::to_string(host.vector_tokens) +
                      " tokens, found " + std::to_string(texts[i].size()),
                  field, "context_length_exceeded");
  }
}

std::string base64(const unsigned char* bytes, size_t n) {
  constexpr const char* kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  text.reserve((n + 2) / 3 * 4);
  for (size_t i = 0; i < n; i += 3) {
    const auto byte = [&](size_t j) { return i + j < n ? unsigned{bytes[i + j]} : 0u; };
    const unsigned group = byte(0) << 16 | byte(1) << 8 | byte(2);
    for (unsigned digit = 0; digit < 4; ++digit) {
      text += i + digit > n ? '=' : kDigits[group >> (18 - 6 * digit) & 63];
    }
  }
  return text;
}

}  // namespace

EmbeddingOrder read_embedding(const Host& host, std::string_view body) {
  Json request = parse_body(body);
  check_fields(request,
               {"model", "input", "encoding_format", "dimensions", "prompt_name", "receipt"});
  check_model(host, request);
  EmbeddingOrder order;
  order.base64 = wants_base64(request);
  order.receipt = flag_of(request, "receipt", false);
  check_dimensions(host, request);
  order.texts = tokens_of_texts(
      host, request, {.field = "input", .most = kMostInputs, .before = prompt_text(host, request)});
  check_texts(host, order.texts);
  if (order.receipt || host.receipt != nullptr) order.request = std::move(request);
  return order;
}

size_t EmbeddingRequest::next(moe_session* session) {
  // Not before: requests that wait hold no vectors.
  vectors_.resize(order_.texts.size() * static_cast<size_t>(host_.d_model));
  const std::vector<int32_t>& tokens = order_.texts[n_done_];
  auto params = MOE_INIT(moe_encode_params);
  params.pooled = vectors_.data() + n_done_ * static_cast<size_t>(host_.d_model);
  moe_error error;
  check(moe_session_encode(session, tokens.data(), tokens.size(), &params, &error), error);
  ++n_done_;
  return tokens.size();
}

Json EmbeddingRequest::vector_json(size_t text) const {
  const auto d = static_cast<size_t>(host_.d_model);
  const float* const values = vectors_.data() + text * d;
  if (!order_.base64) {
    Json numbers = Json::array();
    for (size_t i = 0; i < d; ++i) numbers.push_back(short_number(values[i]));
    return numbers;
  }
  std::vector<unsigned char> bytes;  // little-endian
  bytes.reserve(4 * d);
  for (size_t i = 0; i < d; ++i) {
    uint32_t bits = 0;
    std::memcpy(&bits, values + i, sizeof bits);
    for (int shift = 0; shift < 32; shift += 8) {
      bytes.push_back(static_cast<unsigned char>(bits >> shift));
    }
  }
  return base64(bytes.data(), bytes.size());
}

void EmbeddingRequest::answer() {
  Json answer = {{"object", "list"},
                 {"data", Json::array()},
                 {"model", host_.name},
                 {"system_fingerprint", host_.fingerprint.text}};
  ReceiptTokens tokens;
  size_t n_tokens = 0;
  for (size_t i = 0; i < order_.texts.size(); ++i) {
    answer["data"].push_back(
        {{"object", "embedding"}, {"index", i}, {"embedding", vector_json(i)}});
    tokens.prompts.push_back(&order_.texts[i]);
    n_tokens += order_.texts[i].size();
  }
  answer["usage"] = {{"prompt_tokens", n_tokens}, {"total_tokens", n_tokens}};
  if (!order_.request.is_null()) {
    tokens.vectors = &vectors_;
    Json receipt = write_receipt(host_, listener_.endpoint(), order_.request, tokens);
    if (order_.receipt) answer["receipt"] = std::move(receipt);
  }
  listener_.answer(answer);
}

}  // namespace moe_serve
