// SPDX-License-Identifier: MIT
// Reads requests for scores of documents, evaluates a pair of texts at a time, and writes answers.
#include "src/serve/rerank_request.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "src/serve/fields.h"
#include "src/serve/receipt.h"
#include "src/serve/settings.h"

namespace moe_serve {
namespace {

constexpr size_t kMostDocuments = 2048;
constexpr size_t kMostQuery = size_t{1} << 16;     // bytes; it is read once for each document
constexpr size_t kMostDocument = size_t{1} << 20;  // bytes; a request ends between documents

void check_reranker(const Host& host) {
  const auto refuse = [&host](const std::string& found) {
    throw Refusal(kBadRequest,
                  "the model '" + host.name + "' gives no scores of pairs: " + found +
                      "; serve an encoder with a head of classes, such as a checkpoint of "
                      "BertForSequenceClassification",
                  "model", "unsupported_model");
  };
  auto info = MOE_INIT(moe_model_info);
  moe_error error;
  check(moe_model_get_info(host.model, &info, &error), error);
  if (host.n_scores == 0) {
    if (info.is_encoder == 0) refuse("it is no encoder");
    if (std::strcmp(info.head, "none") == 0) refuse("it has no head");
    refuse(std::string("its head is for ") + info.head);
  }
  if (host.tokenizer == nullptr) refuse("it has no tokenizer");
  auto pair = MOE_INIT(moe_token_pair);
  const moe_status status =
      moe_tokenizer_encode_pair(host.tokenizer, "", 0, "", 0, 0, 0, nullptr, 0, &pair, &error);
  if (status != MOE_OK) refuse(error.text);
}

std::string whole_text(const Json& value, const std::string& field, size_t most) {
  if (!value.is_string()) throw bad_field(field, "expected a text, found " + shown(value));
  const auto& text = value.get_ref<const std::string&>();
  if (text.size() <= most) return text;
  throw bad_field(field, "expected at most " + std::to_string(most) + " bytes, found " +
                             std::to_string(text.size()));
}

std::string document_in(const Json& value, const std::string& field) {
  if (!value.is_object()) return whole_text(value, field, kMostDocument);
  for (const auto& [key, member] : value.items()) {
    if (key == "text") continue;
    const std::string name = field + "." + key.substr(0, 40);
    throw Refusal(kBadRequest, "unknown field '" + name + "'; a document is a text", name,
                  "unknown_parameter");
  }
  const auto text = value.find("text");
  if (text == value.end()) throw missing_field(field + ".text");
  return whole_text(*text, field + ".text", kMostDocument);
}

std::vector<std::string> documents_of(const Json& request) {
  const auto at = request.find("documents");
  if (at == request.end()) throw missing_field("documents");
  if (!at->is_array() || at->empty() || at->size() > kMostDocuments) {
    throw bad_field("documents", "expected a list of 1 to " + std::to_string(kMostDocuments) +
                                     " documents, found " +
                                     (at->is_array() ? std::to_string(at->size()) : shown(*at)));
  }
  std::vector<std::string> documents;
  for (const Json& value : *at) {
    documents.push_back(document_in(value, "documents[" + std::to_string(documents.size()) + "]"));
  }
  return documents;
}

size_t label_of(const Host& host, const Json& request) {
  if (host.n_scores > 1 && !request.contains("label")) {
    throw Refusal(kBadRequest,
                  "'label' is missing: the model gives " + std::to_string(host.n_scores) +
                      " scores, and it says, counted from 0, which of them counts",
                  "label", "missing_required_parameter");
  }
  return static_cast<size_t>(integer_of(request, "label", 0, host.n_scores - 1, 0));
}

}  // namespace

RerankOrder read_rerank(const Host& host, std::string_view body) {
  Json request = parse_body(body);
  check_model(host, request);
  check_fields(request,
               {"model", "query", "documents", "top_n", "return_documents", "label", "receipt"});
  RerankOrder order;
  const auto query = request.find("query");
  if (query == request.end()) throw missing_field("query");
  order.query = whole_text(*query, "query", kMostQuery);
  if (order.query.empty()) throw bad_field("query", "the text is empty");
  order.documents = documents_of(request);
  const auto n = static_cast<int64_t>(order.documents.size());
  order.top = static_cast<size_t>(std::min(n, integer_of(request, "top_n", 1, INT32_MAX, n)));
  check_reranker(host);
  order.label = label_of(host, request);
  order.with_documents = flag_of(request, "return_documents", false);
  order.receipt = flag_of(request, "receipt", false);
  if (order.receipt || host.receipt != nullptr) order.request = std::move(request);
  return order;
}

size_t RerankRequest::next(moe_session* session) {
  const std::string& document = order_.documents[scores_.size()];
  const auto most = static_cast<size_t>(host_.context);
  std::vector<int32_t> tokens(most);
  auto pair = MOE_INIT(moe_token_pair);
  moe_error error;
  check(moe_tokenizer_encode_pair(host_.tokenizer, order_.query.data(), order_.query.size(),
                                  document.data(), document.size(), 0, most, tokens.data(),
                                  tokens.size(), &pair, &error),
        error);
  tokens.resize(pair.n_tokens);
  std::vector<float> scores(static_cast<size_t>(host_.n_scores));
  auto params = MOE_INIT(moe_encode_params);
  params.outputs = scores.data();
  params.n_rows = 1;
  params.second = pair.second;
  check(moe_session_encode(session, tokens.data(), tokens.size(), &params, &error), error);
  n_tokens_ += tokens.size();
  cut_.push_back(pair.n_cut);
  scores_.push_back(scores[order_.label]);
  if (!order_.request.is_null()) prompts_.push_back(std::move(tokens));
  return pair.n_tokens;
}

// Documents with the same score stay in order.
std::vector<size_t> RerankRequest::best_first() const {
  std::vector<size_t> order(scores_.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [this](size_t a, size_t b) { return scores_[a] > scores_[b]; });
  order.resize(order_.top);
  return order;
}

void RerankRequest::answer() {
  Json answer = {{"object", "list"},
                 {"results", Json::array()},
                 {"model", host_.name},
                 {"system_fingerprint", host_.fingerprint.text},
                 {"usage", {{"prompt_tokens", n_tokens_}, {"total_tokens", n_tokens_}}}};
  for (const size_t i : best_first()) {
    Json result = {{"index", i}, {"relevance_score", short_number(scores_[i])}};
    if (cut_[i] > 0) result["cut_tokens"] = cut_[i];
    if (order_.with_documents) result["document"] = {{"text", order_.documents[i]}};
    answer["results"].push_back(std::move(result));
  }
  if (!order_.request.is_null()) {
    ReceiptTokens tokens;
    for (const auto& prompt : prompts_) tokens.prompts.push_back(&prompt);
    tokens.vectors = &scores_;
    Json receipt = write_receipt(host_, listener_.endpoint(), order_.request, tokens);
    if (order_.receipt) answer["receipt"] = std::move(receipt);
  }
  listener_.answer(answer);
}

}  // namespace moe_serve
