// SPDX-License-Identifier: MIT
// moe translate: translates each line with an encoder-decoder.

#include <algorithm>
#include <iomanip>
#include <iostream>

#include "cli/help/help.h"
#include "cli/io/interrupt.h"
#include "cli/io/terminal.h"
#include "cli/io/text_input.h"
#include "cli/model/context.h"
#include "cli/model/memory.h"

namespace moe_cli {
namespace {

struct TranslateOptions {
  ModelOptions model;
  std::string tokens;
  TextInput input;
  int beam = 5;
  int n_best = 1;
  int min_tokens = 1;
  int max_tokens = 0;
  float length_penalty = 1;
  std::string search_end = "count";
  std::string prefix;
  bool no_bos = false;
};

struct Translation {
  std::vector<int32_t> tokens;
  std::string text;  // empty without a tokenizer
  float score;
};

void check_encoder_decoder(const TranslateOptions& o, const moe_model* model) {
  const moe_model_info info = model_info(model);
  if (info.is_encoder_decoder != 0) return;
  throw CallError(MOE_ERR_UNSUPPORTED, o.model.path +
                                           (info.is_encoder != 0 ? ": an encoder" : ": a decoder") +
                                           "; translate needs an encoder-decoder");
}

moe_beam_stop stop_of(const std::string& name) {
  if (name == "bound") return MOE_BEAM_STOP_BOUND;
  return name == "step" ? MOE_BEAM_STOP_STEP : MOE_BEAM_STOP_COUNT;
}

void check_lengths(const TranslateOptions& o) {
  if (o.max_tokens == 0 || o.min_tokens <= o.max_tokens) return;
  throw UsageError("--min-tokens " + std::to_string(o.min_tokens) + ": expected at most " +
                   std::to_string(o.max_tokens) + ", the --max-tokens");
}

// The start token takes a position.
void check_most(const TranslateOptions& o, int context) {
  if (o.max_tokens < context) return;
  throw UsageError("--max-tokens " + std::to_string(o.max_tokens) + ": expected at most " +
                   std::to_string(context - 1) + " in a context of " + std::to_string(context));
}

moe_translate_params params_of(const TranslateOptions& o, const std::vector<int32_t>& prefix) {
  moe_translate_params p{};
  p.struct_size = sizeof p;
  p.beam = o.beam;
  p.n_best = o.n_best;
  p.min_tokens = o.min_tokens == 0 ? -1 : o.min_tokens;
  p.max_tokens = o.max_tokens;
  p.length_penalty = o.length_penalty;
  p.score = o.length_penalty == 0 ? MOE_BEAM_SCORE_SUM : MOE_BEAM_SCORE_POWER;
  p.stop = stop_of(o.search_end);
  p.prefix = prefix.data();
  p.n_prefix = prefix.size();
  return p;
}

std::vector<Translation> translate(const moe_model* model, moe_session* session,
                                   const moe_translate_params& p,
                                   const std::vector<int32_t>& source, size_t number) {
  size_t n_texts = 0;
  moe_error error;
  check_line(moe_session_translate(session, source.data(), source.size(), &p, &n_texts, &error),
             error, number);
  std::vector<Translation> texts;
  for (size_t i = 0; i < n_texts; ++i) {
    auto t = MOE_INIT(moe_translation);
    check(moe_session_get_translation(session, i, &t, &error), error);
    texts.push_back({{t.tokens, t.tokens + t.n_tokens}, "", t.score});
    if (moe_model_tokenizer(model) == nullptr) continue;
    texts.back().text = decode(model, texts.back().tokens, MOE_DECODE_SKIP_SPECIAL);
  }
  return texts;
}

// Without a tokenizer the ids, except the end-of-text token.
std::string shown(const moe_model* model, const Translation& t) {
  if (moe_model_tokenizer(model) != nullptr) return one_line(t.text);
  std::string ids;
  for (size_t i = 0; i + 1 < t.tokens.size(); ++i) {
    ids += (i == 0 ? "" : ",") + std::to_string(t.tokens[i]);
  }
  return ids;
}

void print(const TranslateOptions& o, const moe_model* model,
           const std::vector<Translation>& texts) {
  for (const Translation& t : texts) {
    if (o.n_best > 1) std::cout << std::fixed << std::setprecision(4) << t.score << "\t";
    std::cout << shown(model, t) << "\n";
  }
}

void print_as_json(const moe_model* model, const std::string& source,
                   const std::vector<Translation>& texts) {
  Json list = Json::array();
  for (const Translation& t : texts) {
    Json j = Json::object();
    if (moe_model_tokenizer(model) != nullptr) j["text"] = t.text;
    j["score"] = t.score;
    j["tokens"] = t.tokens;
    list.push_back(std::move(j));
  }
  Json line = Json::object();
  if (moe_model_tokenizer(model) != nullptr) line["source"] = source;
  line["translations"] = std::move(list);
  std::cout << line.dump(-1, ' ', false, Json::error_handler_t::replace) << "\n";
}

void translate_line(const TranslateOptions& o, const moe_model* model, moe_session* session,
                    const moe_translate_params& p, const std::string& text, size_t number) {
  const bool ids = !o.tokens.empty();
  std::vector<Translation> texts;
  if (ids || !text.empty()) {  // empty lines are not translated
    const auto source = ids ? parse_ids(o.tokens) : encode(model, text, encode_flags(o.no_bos));
    texts = translate(model, session, p, source, number);
  } else if (!o.model.json) {
    std::cout << "\n";
  }
  if (o.model.json) {
    print_as_json(model, text, texts);
  } else {
    print(o, model, texts);
  }
  std::cout.flush();
}

void run_translate(TranslateOptions& o) {
  if (o.n_best > o.beam) {
    throw UsageError("--nbest " + std::to_string(o.n_best) + " is more than --beam " +
                     std::to_string(o.beam));
  }
  check_lengths(o);
  const auto ids = parse_ids(o.tokens);
  const std::vector<std::string> lines =
      o.tokens.empty() ? lines_of(o.input.read()) : std::vector<std::string>{""};
  const Env env = open_env(o.model);
  // Before checking a cap with the default beam.
  check_encoder_decoder(o, open_model_for_text(o.model, env.get()).get());
  o.model.max_beam = o.beam;
  const Model model = open_model_to_run(o.model, env.get());
  check_ids(ids, model.get());
  std::vector<int32_t> prefix;
  if (!o.prefix.empty())
    prefix = encode(model.get(), o.prefix, MOE_ENCODE_NO_SPECIAL | MOE_ENCODE_PARSE_SPECIAL);
  const moe_translate_params p = params_of(o, prefix);
  const Session session = open_session(o.model, model.get());
  check_most(o, moe_session_context(session.get()));
  const CurrentSession current(session.get());
  for (size_t i = 0; i < lines.size(); ++i) {
    stop_if_interrupted();
    translate_line(o, model.get(), session.get(), p, lines[i], i + 1);
  }
}

void add_search_options(CLI::App& app, TranslateOptions& o) {
  app.add_option("--beam", o.beam, "Beam size, 1 to 64")
      ->transform(integer_in(1, 64))
      ->capture_default_str();
  app.add_option("--nbest", o.n_best, "Translations shown per line, best first, with their scores")
      ->transform(integer_in(1, 64))
      ->capture_default_str();
  app.add_option("--length-penalty", o.length_penalty,
                 "Exponent X of the score: log-probability / tokens ^ X")
      ->check(number_in(-100, 100))
      ->option_text("X")
      ->capture_default_str();
  app.add_option("--min-tokens", o.min_tokens, "Minimum tokens of a translation")
      ->transform(integer_in(0, 1 << 24))
      ->option_text("N")
      ->capture_default_str();
  app.add_option("--max-tokens", o.max_tokens,
                 "Maximum tokens of a translation (default 256, or what the context leaves)")
      ->transform(integer_in(1, 1 << 24))
      ->option_text("N");
  app.add_option(
         "--search-end", o.search_end,
         "When a search ends: count (once --beam texts have finished), step (the same at the "
         "end of that step, keeping the best), bound (once no text can beat these)")
      ->check(one_of({"count", "step", "bound"}))
      ->option_text("count|step|bound")
      ->capture_default_str();
  app.add_option(
         "--prefix", o.prefix,
         "Forced beginning of every translation, such as a language token (default the model's)")
      ->check(not_empty())
      ->option_text("TEXT");
}

}  // namespace

void add_translate(CLI::App& app) {
  auto o = std::make_shared<TranslateOptions>();
  CLI::App* c = app.add_subcommand("translate", "Translate each line of a text (encoder-decoders)");
  example(*c, "echo 'Good morning' | moe translate en-de.moe");
  add_model_options(*c, o->model);
  o->input.take_whole_files();
  o->input.add(*c, "Texts, one per line");
  auto* tokens = c->add_option("--tokens", o->tokens, "Token ids of a source instead of a text")
                     ->check(not_empty())
                     ->option_text("ID,ID...");
  o->input.exclude(tokens);
  add_no_bos(*c, o->no_bos);
  add_search_options(*c, *o);
  add_session_options(*c, o->model, "the model's, at most 4096", "the context");
  c->callback([o] { run_translate(*o); });
}

}  // namespace moe_cli
