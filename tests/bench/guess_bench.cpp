// SPDX-License-Identifier: MIT
// Decoding with the layer of a model that guesses tokens, when a known share of its guesses is
// right, beside decoding without it, in turns. The layer computes its guesses; then each is made
// the right token with probability RATE, and otherwise a wrong one. So a synthetic model, whose
// guesses are never right, shows what a trained one would gain.
// Usage: guess_bench MODEL DRAFT TOKENS ROUNDS RATE...
//        guess_bench --save SHAPE FORMAT MODEL: a synthetic model with such a layer

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "src/c_api/handles.h"
#include "src/convert/synthetic.h"
#include "src/run/generate.h"

namespace moe {
namespace {

constexpr size_t kPrompt = 16;

/// The text that is generated without drafts, and how guesses of it are changed.
struct Known {
  std::vector<int32_t> text;
  double rate = 0;
  int32_t vocab_size = 0;
  uint64_t n_drawn = 0;

  static void change(void* user, std::span<const int32_t> text, std::span<int32_t> guessed) {
    Known& known = *static_cast<Known*>(user);
    for (size_t i = 0; i < guessed.size() && text.size() + i < known.text.size(); ++i) {
      const int32_t right = known.text[text.size() + i];
      const bool is_right = uniform_draw(1, known.n_drawn++) < known.rate;
      guessed[i] = is_right ? right : (right + 1) % known.vocab_size;
    }
  }
};

struct Run {
  std::vector<int32_t> text;
  GenerateResult result;
};

bool keep(void* user, const Piece& piece) {
  if (piece.token >= 0) static_cast<std::vector<int32_t>*>(user)->push_back(piece.token);
  return true;
}

Status generate_once(Session& session, int32_t n_tokens, int32_t draft, Known* known, Run* run) {
  std::vector<int32_t> prompt;
  for (size_t i = 0; i < kPrompt; ++i) {
    prompt.push_back(static_cast<int32_t>(i * 7919 % static_cast<size_t>(known->vocab_size)));
  }
  run->text = prompt;
  GenerateOptions options;
  options.max_tokens = n_tokens;
  options.ignore_eos = true;
  options.sampling.temperature = 1;  // greedy texts of random weights repeat themselves
  options.callback = keep;
  options.user = &run->text;
  options.max_draft = draft;
  options.change_guesses = Known::change;
  options.guesses_user = known;
  MOE_TRY(session.reset());
  return generate(session, nullptr, prompt, options, &run->result);
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

struct Series {
  double rate;  // below 0: without drafts
  std::vector<double> speeds;
  GenerateResult last;
};

Status measure(Session& session, int32_t draft, int32_t n_tokens, int rounds,
               std::vector<Series>* all) {
  if (session.model().config().n_predictions == 0) {
    return Status::error(MOE_ERR_UNSUPPORTED, "the model has no layer that guesses");
  }
  Known known;
  known.vocab_size = session.model().config().n_outputs();
  Run run;
  MOE_TRY(generate_once(session, n_tokens, 0, &known, &run));  // reads the weights
  known.text = run.text;
  for (int round = 0; round < rounds; ++round) {
    for (Series& series : *all) {
      known.rate = series.rate;
      MOE_TRY(generate_once(session, n_tokens, series.rate < 0 ? 0 : draft, &known, &run));
      if (run.text != known.text) return Status::error(MOE_ERR_INTERNAL, "the text differs");
      series.speeds.push_back(n_tokens / run.result.generate_seconds);
      series.last = run.result;
    }
  }
  return {};
}

Status run(const char* path, int32_t draft, int32_t n_tokens, int rounds,
           std::vector<Series>* all) {
  moe_env* env = nullptr;
  moe_model* model = nullptr;
  moe_session* session = nullptr;
  moe_error error{};
  moe_session_params params{};
  params.struct_size = sizeof params;
  params.context = n_tokens + static_cast<int32_t>(kPrompt) + 1;
  Status status;
  if (moe_env_create(nullptr, &env, &error) != MOE_OK ||
      moe_model_open(env, path, nullptr, &model, &error) != MOE_OK ||
      moe_session_create(model, &params, &session, &error) != MOE_OK) {
    status = Status::error(error.code, "%s", error.text);
  } else {
    status = measure(*session->session, draft, n_tokens, rounds, all);
  }
  moe_session_free(session);
  moe_model_free(model);
  moe_env_free(env);
  return status;
}

}  // namespace
}  // namespace moe

int main(int argc, char** argv) {
  if (argc == 5 && std::string_view(argv[1]) == "--save") {
    moe::SyntheticOptions options;
    options.weights = argv[3];
    options.prediction = true;
    const moe::Status status = moe::save_synthetic(argv[2], options, argv[4]);
    if (!status.ok()) std::fprintf(stderr, "%s\n", status.text());
    return status.ok() ? 0 : 1;
  }
  if (argc < 6) {
    std::fprintf(stderr,
                 "usage: guess_bench MODEL DRAFT TOKENS ROUNDS RATE...\n"
                 "       guess_bench --save SHAPE FORMAT MODEL\n");
    return 2;
  }
  std::vector<moe::Series> all = {{-1, {}, {}}};
  for (int i = 5; i < argc; ++i) all.push_back({std::atof(argv[i]), {}, {}});
  const moe::Status status = moe::run(argv[1], std::atoi(argv[2]), std::atoi(argv[3]),
                                      std::max(std::atoi(argv[4]), 1), &all);
  if (!status.ok()) {
    std::fprintf(stderr, "%s\n", status.text());
    return 1;
  }
  const double alone = moe::median(all[0].speeds);
  std::printf("without: %.2f tokens/s\n", alone);
  for (size_t i = 1; i < all.size(); ++i) {
    const double speed = moe::median(all[i].speeds);
    std::printf("rate %.2f: %.2f tokens/s, %.3f times; last run: %d drafted, %d right\n",
                all[i].rate, speed, speed / alone, all[i].last.n_drafted, all[i].last.n_accepted);
  }
}
