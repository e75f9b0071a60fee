// SPDX-License-Identifier: MIT
#pragma once
// A model's log-probabilities of a text, window by window.

#include <memory>
#include <optional>
#include <vector>

#include "cli/common.h"
#include "cli/compare/chosen_experts.h"

namespace moe_cli {

/// A model that reads windows of a text.
class ModelRows {
 public:
  /// Opens the model. Throws CallError if it is no decoder.
  explicit ModelRows(const ModelOptions& o);
  ModelRows(const ModelRows&) = delete;
  ModelRows& operator=(const ModelRows&) = delete;

  const std::string& path() const { return options_.path; }
  const moe_model* model() const { return model_.get(); }
  int32_t vocab_size() const { return model_info(model_.get()).vocab_size; }
  /// Tokens of a text, which begins with the prefix.
  std::vector<int32_t> encode_text(const std::string& text) const;

  /// Makes a session for windows of `length` tokens. Throws UsageError if the context is too small.
  void prepare(int32_t length);
  /// Starts a window, whose first tokens are replaced by the prefix, and reads `n` tokens of it.
  void begin(const int32_t* window, size_t n);
  /// Reads the next n tokens: rows is (n, vocab_size), each the log-probabilities of what follows.
  void next(size_t n, float* rows);

  ChosenExperts& experts() { return *experts_; }

 private:
  void eval(size_t n, moe_rows rows, float* logits);

  ModelOptions options_;
  Env env_;
  Model model_;
  std::vector<int32_t> prefix_;  // of every text
  Session session_;
  std::optional<ChosenExperts> experts_;
  std::vector<int32_t> window_;
  size_t done_ = 0;  // tokens of it that were read
};

/// Throws CallError, naming what differs, unless both models have the same vocabulary.
void check_same_vocabulary(const ModelRows& reference, const ModelRows& model);

}  // namespace moe_cli
