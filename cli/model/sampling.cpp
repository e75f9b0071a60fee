// SPDX-License-Identifier: MIT
// Declares the options, checks them against the model, and prints the model's own settings as
// options.
#include "cli/model/sampling.h"

#include <cmath>
#include <cstdio>
#include <random>

#include "cli/help/help.h"
#include "cli/io/input_file.h"

namespace moe_cli {

void add_sampling_options(CLI::App& app, SamplingOptions& o, int default_max_tokens, SampleBy by) {
  o.max_tokens = default_max_tokens;
  const bool model = by == SampleBy::kModel;
  auto sampling = [](CLI::Option* option, const char* value) {
    return option->option_text(value)->group(kSamplingGroup);
  };
  const std::string standard = model ? " (default the model's)" : " (default off)";
  sampling(app.add_option("-n,--max-tokens", o.max_tokens,
                          "Generate at most N tokens; 0: until the context is full"),
           "N")
      ->transform(integer_in(0, 1 << 30))
      ->capture_default_str();
  sampling(app.add_option("--temp", o.temperature,
                          std::string("Temperature; 0 takes the most probable token") +
                              (model ? ". Default: the model file's settings, otherwise 0.8 with "
                                       "--top-p 0.95 and --min-p 0.05"
                                     : " (default 0; 'moe chat' uses the model's settings)")),
           "X")
      ->check(number_in(0, 100));
  sampling(app.add_option("--top-k", o.top_k,
                          "Sample from the N most probable tokens only; 0: off" + standard),
           "N")
      ->transform(integer_in(0, 1 << 30));
#define MOE_SAMPLING_FILTER(name, option, off, low, high, excluded, help) \
  sampling(app.add_option("--" option, o.name, help + standard), "X")     \
      ->check(number_between(low, high, excluded));
#include "cli/model/sampling_list.h"
  sampling(app.add_option("--repetition-penalty", o.repetition_penalty,
                          "Above 1: repeat less; 1: off" + standard),
           "X")
      ->check(number_in(0.01, 100));
  sampling(app.add_option("--seed", o.seed, "The same seed gives the same text (default random)"),
           "N")
      ->transform(unsigned_64());
  sampling(app.add_option("--stop", o.stop, "Stop before this text; may be given several times"),
           "TEXT")
      ->allow_extra_args(false);
  sampling(app.add_option("--bias", o.bias,
                          "Add a number to the logit of a token; may be given several times"),
           "ID:X")
      ->allow_extra_args(false);
  app.add_flag("--ignore-eos", o.ignore_eos, "Continue after an end-of-text token")
      ->group(kSamplingGroup);
  auto* schema = sampling(app.add_option("--json-schema", o.json_schema,
                                         "Generate JSON that satisfies the JSON schema in FILE"),
                          "FILE")
                     ->check(not_empty());
  auto* grammar =
      sampling(app.add_option("--grammar", o.grammar, "Generate text of the GBNF grammar in FILE"),
               "FILE")
          ->check(not_empty())
          ->excludes(schema);
  sampling(app.add_option("--regex", o.regex,
                          "Generate text that this regular expression matches as a whole"),
           "TEXT")
      ->check(not_empty())
      ->excludes(schema)
      ->excludes(grammar);
}

void add_draft_option(CLI::App& app, SamplingOptions& o) {
  app.add_option(
         "--draft", o.max_draft,
         "Draft up to N tokens at once, from earlier text or as the model's own layer guesses, "
         "and check them together: the same output, sooner; 0 to 16")
      ->option_text("N")
      ->group(kSamplingGroup)
      ->transform(integer_in(0, 16))
      ->capture_default_str();
}

namespace {

moe_logit_bias parse_bias(const std::string& text) {
  const size_t colon = text.find(':');
  char* end = nullptr;
  moe_logit_bias b{};
  const long id = std::strtol(text.c_str(), &end, 10);
  const bool id_ok = colon != std::string::npos && end == text.c_str() + colon && colon > 0 &&
                     id >= 0 && id <= INT32_MAX;
  b.token = id_ok ? static_cast<int32_t>(id) : 0;
  b.bias = id_ok ? std::strtof(text.c_str() + colon + 1, &end) : 0;
  if (!id_ok || *end != '\0' || end == text.c_str() + colon + 1 || !std::isfinite(b.bias)) {
    throw UsageError("--bias '" + text + "': expected TOKEN_ID:VALUE, such as 42:-1.5");
  }
  return b;
}

}  // namespace

void check_sampling(const SamplingOptions& o, const moe_model* model) {
  if (!o.stop.empty() && moe_model_tokenizer(model) == nullptr) {
    throw CallError(MOE_ERR_UNSUPPORTED, "--stop: the model has no tokenizer");
  }
  const int32_t vocab_size = model_info(model).vocab_size;
  for (const std::string& text : o.bias) {
    if (parse_bias(text).token < vocab_size) continue;
    throw UsageError("--bias '" + text + "': expected a token id in 0.." +
                     std::to_string(vocab_size - 1));
  }
}

Grammar open_grammar(const SamplingOptions& o, moe_model* model) {
  const auto make = [&](moe_grammar_kind kind, const std::string& text, const char* option) {
    moe_grammar* raw = nullptr;
    moe_error error;
    const moe_status status =
        moe_grammar_create(model, kind, text.data(), text.size(), &raw, &error);
    check_option(status, error, option);
    return Grammar(raw);
  };
  const auto read = [](const std::string& path) {
    InputFile file(path);
    std::string text;
    for (auto part = file.next(); !part.empty(); part = file.next()) text += part;
    return text;
  };
  if (!o.json_schema.empty()) {
    return make(MOE_GRAMMAR_JSON_SCHEMA, read(o.json_schema), "--json-schema");
  }
  if (!o.grammar.empty()) return make(MOE_GRAMMAR_GBNF, read(o.grammar), "--grammar");
  if (!o.regex.empty()) return make(MOE_GRAMMAR_REGEX, o.regex, "--regex");
  return nullptr;
}

ModelSampling::ModelSampling(const moe_model* model) {
  settings.struct_size = sizeof settings;
  moe_error error;
  check(moe_model_get_sampling(model, &settings, &in_file, &error), error);
}

namespace {

// As people write it: 0.95, not the nearest float's 0.949999988.
std::string short_text(float value) {
  char text[32];
  std::snprintf(text, sizeof text, "%g", static_cast<double>(value));
  return text;
}

// The settings that do something: " top-p 0.95", each with `mark` and the form of the names.
std::string joined(const moe_sampling& s, const char* mark, const char* separator,
                   const char* temperature) {
  std::string text = mark + std::string(temperature) + " " + short_text(s.temperature);
  const auto add = [&](const char* name, bool on, const std::string& value) {
    if (on) text += separator + std::string(mark) + name + " " + value;
  };
  const bool samples = s.temperature > 0;
  add("top-k", samples && s.top_k != 0, std::to_string(s.top_k));
#define MOE_SAMPLING_FILTER(name, option, off, low, high, excluded, help) \
  add(option, s.name != 0 && s.name != off && samples, short_text(s.name));
#include "cli/model/sampling_list.h"
  add("repetition-penalty", s.repetition_penalty != 0 && s.repetition_penalty != 1,
      short_text(s.repetition_penalty));
  return text;
}

}  // namespace

std::string sampling_text(const moe_sampling& s) {
  std::string text = joined(s, "", ", ", "temperature");
  if (s.temperature > 0) return text;
  return "the most probable token each time" + text.substr(text.find(" 0") + 2);
}

std::string sampling_options(const moe_sampling& s) { return joined(s, "--", " ", "temp"); }

Json sampling_json(const moe_sampling& s) {
  const auto number = [](float value) { return std::strtod(short_text(value).c_str(), nullptr); };
  return {{"temperature", number(s.temperature)},
          {"top_k", s.top_k},
#define MOE_SAMPLING_FILTER(name, option, off, low, high, excluded, help) {#name, number(s.name)},
#include "cli/model/sampling_list.h"
          {"repetition_penalty", number(s.repetition_penalty)},
          {"repetition_window", s.repetition_window}};
}

Sampling::Sampling(const SamplingOptions& o, const moe_sampling* defaults) : options_(o) {
  if (defaults != nullptr) {
    sampling_ = *defaults;
  } else {
#define MOE_SAMPLING_FILTER(name, option, off, low, high, excluded, help) sampling_.name = off;
#include "cli/model/sampling_list.h"
    sampling_.repetition_penalty = 1;
  }
  const auto take = [this](const auto& given, auto* field) {
    if (given) *field = *given;
    changed_ = changed_ || given;
  };
  take(o.temperature, &sampling_.temperature);
  take(o.top_k, &sampling_.top_k);
#define MOE_SAMPLING_FILTER(name, option, off, low, high, excluded, help) \
  take(o.name, &sampling_.name);
#include "cli/model/sampling_list.h"
  take(o.repetition_penalty, &sampling_.repetition_penalty);
  if (sampling_.temperature == 0 && !o.temperature) {  // the best token passes every filter
    const char* filter = o.top_k.value_or(0) > 0 ? "--top-k" : nullptr;
#define MOE_SAMPLING_FILTER(name, option, off, low, high, excluded, help) \
  if (filter == nullptr && o.name.value_or(off) != off) filter = "--" option;
#include "cli/model/sampling_list.h"
    if (filter != nullptr) throw UsageError(std::string(filter) + " requires --temp");
  }
  for (const std::string& text : options_.bias) bias_.push_back(parse_bias(text));
  for (const std::string& s : options_.stop) {
    if (s.empty()) throw UsageError("--stop: must not be empty");
    stop_.push_back(s.c_str());
  }
  sampling_.struct_size = sizeof sampling_;
  sampling_.seed = o.seed ? *o.seed : std::random_device{}();
  sampling_.bias = bias_.data();
  sampling_.n_bias = static_cast<int32_t>(bias_.size());
  params.struct_size = sizeof params;
  params.max_tokens = o.max_tokens;
  params.sampling = &sampling_;
  params.stop = stop_.data();
  params.n_stop = static_cast<int32_t>(stop_.size());
  params.ignore_eos = o.ignore_eos ? 1 : 0;
  params.max_draft = o.max_draft;
}

std::string drafts_text(int32_t n_drafted, int32_t n_accepted) {
  if (n_drafted == 0) return "";
  return ", " + std::to_string(n_accepted) + " of " + std::to_string(n_drafted) +
         " drafted tokens accepted";
}

const char* finish_name(moe_finish finish) {
  switch (finish) {
    case MOE_FINISH_LENGTH:
      return "length";
    case MOE_FINISH_EOS:
      return "eos";
    case MOE_FINISH_STOP:
      return "stop";
    case MOE_FINISH_CONTEXT:
      return "context";
    case MOE_FINISH_CALLBACK:
      return "a failed write";  // the only reason for a command to stop
  }
  return "unknown";
}

const char* finish_text(moe_finish finish) {
  switch (finish) {
    case MOE_FINISH_LENGTH:
      return "stopped at the token limit";
    case MOE_FINISH_EOS:
      return "ended by the model";
    case MOE_FINISH_STOP:
      return "ended before a --stop text";
    case MOE_FINISH_CONTEXT:
      return "stopped at the end of the context";
    case MOE_FINISH_CALLBACK:
      return "stopped by a failed write";
  }
  return "stopped";
}

}  // namespace moe_cli
