// SPDX-License-Identifier: MIT
// moe compare: how far a model's predictions of a text are from a reference's.

#include <algorithm>
#include <cmath>
#include <iostream>
#include <optional>

#include "cli/compare/base_file.h"
#include "cli/compare/compare_report.h"
#include "cli/compare/model_rows.h"
#include "cli/help/help.h"
#include "cli/io/interrupt.h"
#include "cli/io/output_file.h"
#include "cli/io/progress.h"
#include "cli/io/text_input.h"
#include "cli/io/units.h"
#include "cli/model/context.h"

namespace moe_cli {
namespace {

constexpr int32_t kDefaultWindow = 512;
constexpr int32_t kLeastWindow = 3;
constexpr size_t kRowBytes = size_t{32} << 20;  // of the logits of one call

struct CompareOptions {
  ModelOptions model;
  std::string reference;
  std::string save_base;
  TextInput input;
};

ModelOptions options_of_reference(const CompareOptions& o) {
  ModelOptions options = o.model;
  options.path = o.reference;
  options.in_floats = true;
  return options;
}

// Windows of the text, in tokens of `first`; what does not fill a window is left out.
Windows windows_of(const CompareOptions& o, const std::string& text, const ModelRows& first,
                   const ModelRows* second) {
  Windows w;
  w.tokens = first.encode_text(text);
  w.vocab_size = first.vocab_size();
  w.length = o.model.context;
  if (w.length == 0) {
    w.length = std::min(kDefaultWindow, model_context(first.model()));
    if (second != nullptr) w.length = std::min(w.length, model_context(second->model()));
    w.length =
        static_cast<int32_t>(std::min<size_t>(w.tokens.size(), static_cast<size_t>(w.length)));
  }
  if (w.tokens.size() < static_cast<size_t>(w.length) || w.length < kLeastWindow) {
    throw CallError(MOE_ERR_ARGUMENT,
                    "the text has " + counted(w.tokens.size(), "token") + ", expected at least " +
                        std::to_string(std::max(w.length, kLeastWindow)) + ", a window");
  }
  w.tokens.resize(w.count() * static_cast<size_t>(w.length));
  return w;
}

// Rows of logits that one call gives.
size_t most_rows(const Windows& w) {
  const size_t row = sizeof(float) * static_cast<size_t>(w.vocab_size);
  return std::clamp<size_t>(kRowBytes / row, 1, static_cast<size_t>(w.length));
}

std::vector<float> row_buffer(const Windows& w) {
  return std::vector<float>(most_rows(w) * static_cast<size_t>(w.vocab_size));
}

// Calls row(window, position, at) for each prediction in the order of the text: fill(n) puts the
// next n rows into a buffer, and `at` is where the row begins there.
template <class Begin, class Fill, class Row>
void each_row(const Windows& w, Begin&& begin, Fill&& fill, Row&& row) {
  const auto width = static_cast<size_t>(w.vocab_size);
  const auto first = static_cast<size_t>(w.first_scored());
  const size_t end = static_cast<size_t>(w.length) - 1;
  const size_t most = most_rows(w);
  Progress progress(false);
  for (size_t i = 0; i < w.count(); ++i) {
    stop_if_interrupted();
    begin(w.window(i), first);
    for (size_t at = first; at < end;) {
      const size_t n = std::min(most, end - at);
      fill(n);
      for (size_t r = 0; r < n; ++r) row(w.window(i), at + r, r * width);
      at += n;
    }
    Progress::callback(&progress, (i + 1) * static_cast<size_t>(w.length), w.tokens.size(),
                       "compare");
  }
}

void show(const CompareOptions& o, const Comparison& c) {
  o.model.json ? print_json(comparison_json(c)) : print_comparison(c);
}

Comparison comparison(const CompareOptions& o, const Windows& w) {
  return {
      o.reference, o.model.path, w.length, w.count(), Divergence(w.first_scored(), w.length - 1),
      {}};
}

// The file that --save-base names, if it does.
struct Saved {
  Saved(const std::string& path, const Windows& w) : file(path) {
    if (!path.empty()) writer.emplace(file.begin(), w);
  }
  void row(const float* row) {
    if (writer) writer->write_row(row);
  }
  OutputFile file;
  std::optional<BaseWriter> writer;
};

void compare_with_file(const CompareOptions& o) {
  BaseReader base(o.reference);
  const Windows& w = base.windows();
  ModelRows model(o.model);
  if (model.vocab_size() != w.vocab_size) {
    throw CallError(MOE_ERR_ARGUMENT,
                    "two vocabularies: " + o.reference + " has " + std::to_string(w.vocab_size) +
                        " tokens, " + o.model.path + " has " + std::to_string(model.vocab_size()));
  }
  model.prepare(w.length);
  const auto width = static_cast<size_t>(w.vocab_size);
  std::vector<float> rows = row_buffer(w), reference(width);
  Comparison c = comparison(o, w);
  each_row(
      w, [&](const int32_t* window, size_t n) { model.begin(window, n); },
      [&](size_t n) { model.next(n, rows.data()); },
      [&](const int32_t* window, size_t at, size_t row) {
        base.read_row(reference.data());
        c.divergence.add(static_cast<int32_t>(at), window[at + 1], reference.data(), &rows[row],
                         width, kBaseFloor);
      });
  show(o, c);
}

void compare_models(const CompareOptions& o) {
  const std::string text = o.input.read();
  ModelRows reference(options_of_reference(o)), model(o.model);
  check_same_vocabulary(reference, model);
  const Windows w = windows_of(o, text, reference, &model);
  reference.prepare(w.length);
  model.prepare(w.length);
  Saved saved(o.save_base, w);
  SharedChoices shared(reference.experts(), model.experts());
  const auto width = static_cast<size_t>(w.vocab_size);
  std::vector<float> of_reference = row_buffer(w), of_model = row_buffer(w);
  Comparison c = comparison(o, w);
  each_row(
      w,
      [&](const int32_t* window, size_t n) {
        shared.add(reference.experts(), model.experts());
        reference.begin(window, n);
        model.begin(window, n);
      },
      [&](size_t n) {
        reference.next(n, of_reference.data());
        model.next(n, of_model.data());
      },
      [&](const int32_t* window, size_t at, size_t row) {
        c.divergence.add(static_cast<int32_t>(at), window[at + 1], &of_reference[row],
                         &of_model[row], width, -HUGE_VAL);
        saved.row(&of_reference[row]);
      });
  shared.add(reference.experts(), model.experts());
  c.layers = shared.layers();
  if (saved.writer) saved.file.finish();
  show(o, c);
}

void save_base(const CompareOptions& o) {
  const std::string text = o.input.read();
  ModelRows reference(options_of_reference(o));
  const Windows w = windows_of(o, text, reference, nullptr);
  reference.prepare(w.length);
  Saved saved(o.save_base, w);
  std::vector<float> rows = row_buffer(w);
  RunningMean nll;
  each_row(
      w,
      [&](const int32_t* window, size_t n) {
        reference.experts().clear();
        reference.begin(window, n);
      },
      [&](size_t n) { reference.next(n, rows.data()); },
      [&](const int32_t* window, size_t at, size_t row) {
        nll.add(-double{rows[row + static_cast<size_t>(window[at + 1])]});
        saved.row(&rows[row]);
      });
  saved.file.finish();
  if (o.model.json) {
    Json json = {{"path", o.reference}};
    json.update(perplexity_json(nll.estimate()));
    json.update({{"n_scored", nll.count()}, {"window", w.length}, {"n_windows", w.count()}});
    return print_json({{"reference", std::move(json)}});
  }
  std::cout << perplexity_text(nll.estimate()) << " over " << counted(nll.count(), "token") << " ("
            << counted(w.count(), "window") << " of " << w.length << ")\n";
}

void run_compare(const CompareOptions& o, const CLI::App& app) {
  const bool from_file = is_base_file(o.reference);
  if (from_file) {
    for (const char* name : {"--prompt", "--file", "--context", "--save-base"}) {
      if (app.get_option(name)->count() == 0) continue;
      throw UsageError(std::string(name) + ": " + o.reference +
                       " holds its text, in windows, and is not written again");
    }
    if (o.model.path.empty()) {
      throw UsageError("MODEL is missing: " + o.reference + " holds log-probabilities of a model");
    }
    return compare_with_file(o);
  }
  if (o.model.path.empty() && o.save_base.empty()) {
    throw UsageError("MODEL is missing; --save-base FILE keeps what REFERENCE predicts for later");
  }
  if (!o.save_base.empty()) {
    keep_input(o.save_base, o.reference, "the reference");
    if (!o.model.path.empty()) keep_input(o.save_base, o.model.path, "the model");
    o.input.keep_from(o.save_base);
  }
  o.model.path.empty() ? save_base(o) : compare_models(o);
}

}  // namespace

void add_compare(CLI::App& app) {
  auto o = std::make_shared<CompareOptions>();
  CLI::App* c = app.add_subcommand(
      "compare", "Measure how far a model's predictions are from those of another");
  example(*c, "moe compare ~/SmolLM2-135M smollm2.moe -f book.txt");
  c->add_option("REFERENCE", o->reference,
                "Model file (.moe), a checkpoint folder or GGUF file, whose weights are taken as "
                "they are, in floats, or a file of --save-base")
      ->required()
      ->check(not_empty());
  c->add_option("MODEL", o->model.path, std::string(kModelText) + " by default")
      ->check(not_empty());
  add_model_options(*c, o->model, {.path = false});
  o->input.take_whole_files();
  o->input.add(*c, "The text");
  c->add_option("--save-base", o->save_base,
                "Write the reference's log-probabilities to FILE, which later stands for it and "
                "the text, here and as --kl-divergence-base of llama.cpp's llama-perplexity")
      ->check(not_empty())
      ->check(no_stdout())
      ->option_text("FILE");
  add_session_options(*c, o->model,
                      "512; the length of a window, of which the second half is scored");
  c->callback([o, c] { run_compare(*o, *c); });
}

}  // namespace moe_cli
