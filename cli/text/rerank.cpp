// SPDX-License-Identifier: MIT
// moe rerank: how well each line of a text answers a query, the best first.

#include <algorithm>
#include <cstring>
#include <iomanip>
#include <iostream>
#include <numeric>

#include "cli/help/help.h"
#include "cli/io/interrupt.h"
#include "cli/io/terminal.h"
#include "cli/io/text_input.h"
#include "cli/io/units.h"
#include "cli/model/context.h"
#include "cli/model/memory.h"

namespace moe_cli {
namespace {

constexpr int kNoLabel = -1;

struct RerankOptions {
  ModelOptions model;
  std::string query;
  TextInput input;
  int top = 0;           // 0: all
  int label = kNoLabel;  // whose score counts; kNoLabel: the only one's
};

void check_reranker(const RerankOptions& o, const moe_model_info& info) {
  if (std::strcmp(info.head, "classes") != 0) {
    const std::string found = info.is_encoder == 0 ? "it is not an encoder"
                              : std::strcmp(info.head, "none") == 0
                                  ? "it has no head"
                                  : std::string("its head is for ") + info.head;
    throw CallError(MOE_ERR_UNSUPPORTED,
                    o.model.path +
                        ": rerank needs an encoder with a head of classes, such as a checkpoint "
                        "of BertForSequenceClassification; " +
                        found);
  }
  if (o.label >= info.n_outputs) {
    throw UsageError("--label: expected 0 to " + std::to_string(info.n_outputs - 1) + ", found " +
                     std::to_string(o.label));
  }
  if (o.top > 0 && o.label == kNoLabel && info.n_outputs > 1) {
    throw UsageError("--top: the model gives " + std::to_string(info.n_outputs) +
                     " scores; --label says which of them counts");
  }
}

// Before any passage: that the model reads no pairs is not the fault of a line.
void check_pairs(const RerankOptions& o, const moe_model* model) {
  const moe_tokenizer* const tokenizer = moe_model_tokenizer(model);
  if (tokenizer == nullptr) {
    throw CallError(MOE_ERR_UNSUPPORTED, o.model.path + ": the model has no tokenizer");
  }
  auto pair = MOE_INIT(moe_token_pair);
  moe_error error;
  const moe_status status =
      moe_tokenizer_encode_pair(tokenizer, "", 0, "", 0, 0, 0, nullptr, 0, &pair, &error);
  if (status != MOE_OK) throw CallError(status, o.model.path + ": " + error.text);
}

/// Scores pairs of the query and one passage.
class Reranker {
 public:
  Reranker(const std::string& query, const moe_model* model, moe_session* session)
      : query_(query), model_(model), session_(session) {}

  void score(const std::string& passage, size_t line, float* scores) const {
    size_t second = 0;
    const std::vector<int32_t> tokens = tokens_of(passage, line, &second);
    moe_encode_params p{};
    p.struct_size = sizeof p;
    p.outputs = scores;
    p.n_rows = 1;
    p.second = second;
    moe_error error;
    check_line(moe_session_encode(session_, tokens.data(), tokens.size(), &p, &error), error, line);
  }

 private:
  std::vector<int32_t> tokens_of(const std::string& passage, size_t line, size_t* second) const {
    const auto most = static_cast<size_t>(moe_session_context(session_));
    const moe_tokenizer* const tokenizer = moe_model_tokenizer(model_);
    std::vector<int32_t> tokens(most);
    auto pair = MOE_INIT(moe_token_pair);
    moe_error error;
    check_line(moe_tokenizer_encode_pair(tokenizer, query_.data(), query_.size(), passage.data(),
                                         passage.size(), 0, most, tokens.data(), tokens.size(),
                                         &pair, &error),
               error, line);
    if (pair.n_cut > 0) {
      std::cerr << "moe: warning: line " << line << ": " << counted(pair.n_cut, "token")
                << " left out, of the longer text first; query and passage may have " << most
                << " together\n";
    }
    tokens.resize(pair.n_tokens);
    *second = pair.second;
    return tokens;
  }

  const std::string& query_;
  const moe_model* model_;
  moe_session* session_;
};

/// All scores: (n passages, n_outputs).
struct PairScores {
  size_t n = 0, n_outputs = 0;
  std::vector<float> values;

  const float* of(size_t i) const { return values.data() + i * n_outputs; }
  /// The passages, the best first if one score of each counts; passages with the same stay in
  /// order.
  std::vector<size_t> order(int label) const {
    std::vector<size_t> out(n);
    std::iota(out.begin(), out.end(), size_t{0});
    if (label == kNoLabel && n_outputs > 1) return out;
    const auto by = static_cast<size_t>(std::max(label, 0));
    std::stable_sort(out.begin(), out.end(),
                     [&](size_t a, size_t b) { return of(a)[by] > of(b)[by]; });
    return out;
  }
};

void print_ranked_json(const PairScores& scores, size_t i, const std::string& passage) {
  Json json = {{"index", i}};
  if (scores.n_outputs == 1) {
    json["score"] = scores.of(i)[0];
  } else {
    json["scores"] = std::vector<float>(scores.of(i), scores.of(i) + scores.n_outputs);
  }
  json["text"] = passage;
  std::cout << json.dump(-1, ' ', false, Json::error_handler_t::replace) << "\n";
}

void print_ranked(const PairScores& scores, size_t i, const std::string& passage) {
  std::cout << std::fixed << std::setprecision(4);
  for (size_t s = 0; s < scores.n_outputs; ++s) std::cout << std::setw(10) << scores.of(i)[s];
  std::cout << std::setw(7) << i + 1 << "  " << one_line(passage) << "\n";
}

void run_rerank(const RerankOptions& o) {
  const std::vector<std::string> lines = lines_of(o.input.read());
  const Env env = open_env(o.model);
  const Model model = open_model_to_run(o.model, env.get());
  const moe_model_info info = model_info(model.get());
  check_reranker(o, info);
  check_pairs(o, model.get());
  const Session session = open_session(o.model, model.get());
  const CurrentSession current(session.get());
  const Reranker reranker(o.query, model.get(), session.get());
  PairScores scores{lines.size(), static_cast<size_t>(info.n_outputs), {}};
  scores.values.resize(scores.n * scores.n_outputs);
  for (size_t i = 0; i < lines.size(); ++i) {
    stop_if_interrupted();
    reranker.score(lines[i], i + 1, scores.values.data() + i * scores.n_outputs);
  }
  std::vector<size_t> order = scores.order(o.label);
  if (o.top > 0) order.resize(std::min(order.size(), static_cast<size_t>(o.top)));
  for (const size_t i : order) {
    o.model.json ? print_ranked_json(scores, i, lines[i]) : print_ranked(scores, i, lines[i]);
  }
}

}  // namespace

void add_rerank(CLI::App& app) {
  auto o = std::make_shared<RerankOptions>();
  CLI::App* c = app.add_subcommand("rerank", "Show how well each line of a text answers a query");
  example(*c, "moe rerank model.moe -q 'what is a mixture of experts?' -f passages.txt --top 3");
  add_model_options(*c, o->model);
  c->add_option("-q,--query", o->query, "The query, the first text of each pair")
      ->required()
      ->check(not_empty())
      ->option_text("TEXT");
  o->input.take_whole_files();
  o->input.take_several();
  o->input.add(*c, "Passages, one per line; can be given several times");
  c->add_option("--top", o->top, "Print only the N best passages (default all)")
      ->check(number_in(1, 1 << 30))
      ->option_text("N");
  c->add_option("--label", o->label,
                "Sort by the score of this label, counted from 0 (default: with several labels, "
                "passages stay in order)")
      ->check(number_in(0, 1 << 20))
      ->option_text("N");
  add_encoder_options(*c, o->model);
  c->callback([o] { run_rerank(*o); });
}

}  // namespace moe_cli
