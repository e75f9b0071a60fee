// SPDX-License-Identifier: MIT
// Evaluates windows of tokens and turns logits into log-probabilities.
#include "cli/compare/model_rows.h"

#include <algorithm>
#include <string_view>

#include "cli/compare/divergence.h"
#include "cli/io/interrupt.h"
#include "cli/io/terminal.h"
#include "cli/model/context.h"

namespace moe_cli {
namespace {

// The tokens that precede every text.
std::vector<int32_t> prefix_of(const moe_model* model) {
  if (moe_model_tokenizer(model) == nullptr) return {};
  const auto plain = encode(model, "a", encode_flags(true));
  auto all = encode(model, "a", encode_flags(false));
  const auto text = std::search(all.begin(), all.end(), plain.begin(), plain.end());
  all.erase(text, all.end());
  return all;
}

std::string vocabulary_of(const ModelRows& m) {
  return m.path() + " has " + std::to_string(m.vocab_size()) + " tokens";
}

}  // namespace

ModelRows::ModelRows(const ModelOptions& o)
    : options_(o), env_(open_env(o)), model_(open_model_for_text(o, env_.get())) {
  check_decoder(o, model_.get(), "compare");
  prefix_ = prefix_of(model_.get());
}

std::vector<int32_t> ModelRows::encode_text(const std::string& text) const {
  std::vector<int32_t> tokens = prefix_;
  const auto plain = encode(model_.get(), text, encode_flags(true));
  tokens.insert(tokens.end(), plain.begin(), plain.end());
  return tokens;
}

void ModelRows::prepare(int32_t length) {
  const int32_t most = model_context(model_.get());
  if (length > most) {
    throw UsageError("windows of " + std::to_string(length) + " tokens: " + options_.path +
                     " has a context of " + std::to_string(most));
  }
  if (prefix_.size() > static_cast<size_t>(length) / 2) {
    throw UsageError("windows of " + std::to_string(length) + " tokens: expected at least " +
                     std::to_string(2 * prefix_.size()) + ", as " + options_.path +
                     " begins each with " + std::to_string(prefix_.size()));
  }
  options_.context = length;
  prepare_session(options_, env_.get(), model_, static_cast<size_t>(length), 1);
  session_ = open_session(options_, model_.get());
  experts_.emplace(model_.get(), session_.get());
}

void ModelRows::begin(const int32_t* window, size_t n) {
  moe_error error;
  check(moe_session_rewind(session_.get(), 0, &error), error);
  window_.assign(window, window + moe_session_context(session_.get()));
  std::copy(prefix_.begin(), prefix_.end(), window_.begin());
  done_ = 0;
  eval(n, MOE_ROWS_NONE, nullptr);
}

void ModelRows::next(size_t n, float* rows) {
  eval(n, MOE_ROWS_ALL, rows);
  const auto width = static_cast<size_t>(vocab_size());
  for (size_t i = 0; i < n; ++i) log_softmax(rows + i * width, width);
}

void ModelRows::eval(size_t n, moe_rows rows, float* logits) {
  const CurrentSession current(session_.get());
  moe_error error;
  const moe_status status =
      moe_session_eval(session_.get(), window_.data() + done_, n, rows, logits, &error);
  experts_->rethrow();
  check(status, error);
  done_ += n;
}

void check_same_vocabulary(const ModelRows& reference, const ModelRows& model) {
  if (reference.vocab_size() != model.vocab_size()) {
    throw CallError(MOE_ERR_ARGUMENT,
                    "two vocabularies: " + vocabulary_of(reference) + ", " + vocabulary_of(model));
  }
  const moe_tokenizer* a = moe_model_tokenizer(reference.model());
  const moe_tokenizer* b = moe_model_tokenizer(model.model());
  if (a == nullptr || b == nullptr) return;  // ids alone can be compared
  for (int32_t id = 0; id < model.vocab_size(); ++id) {
    const char* of_a = moe_tokenizer_piece(a, id);
    const char* of_b = moe_tokenizer_piece(b, id);
    if (of_a == nullptr || of_b == nullptr || std::string_view(of_a) == of_b) continue;
    throw CallError(MOE_ERR_ARGUMENT, "two vocabularies: token " + std::to_string(id) + " is '" +
                                          one_line(of_a) + "' in " + reference.path() + " and '" +
                                          one_line(of_b) + "' in " + model.path());
  }
}

}  // namespace moe_cli
