#include "cli/sampling.h"

#include <cmath>
#include <random>

#include "cli/help.h"

namespace moe_cli {

void add_sampling_options(CLI::App& app, SamplingOptions& o, int default_max_tokens) {
  o.max_tokens = default_max_tokens;
  auto sampling = [](CLI::Option* option, const char* value) {
    return option->option_text(value)->group(kSamplingGroup);
  };
  sampling(app.add_option("-n,--max-tokens", o.max_tokens,
                          "Generate at most N tokens; 0: until the context is full"),
           "N")
      ->transform(integer_in(0, 1 << 30))
      ->capture_default_str();
  sampling(app.add_option("--temp", o.temperature,
                          "Temperature; 0 takes the most probable token. The settings in a "
                          "checkpoint's generation_config.json are not used"),
           "X")
      ->check(number_in(0, 100))
      ->each([&o](const std::string&) { o.has_temperature = true; })
      ->capture_default_str();
  sampling(app.add_option("--top-k", o.top_k,
                          "Sample from the N most probable tokens only (default off)"),
           "N")
      ->transform(integer_in(0, 1 << 30));
  sampling(app.add_option("--top-p", o.top_p,
                          "Sample from the smallest set of tokens whose probabilities add up to X "
                          "(default off)"),
           "X")
      ->check(number_between(0, 1, Bound::kLow));
  sampling(app.add_option("--min-p", o.min_p,
                          "Drop tokens less probable than X times the best one (default off)"),
           "X")
      ->check(number_between(0, 1, Bound::kHigh));
  sampling(app.add_option("--repetition-penalty", o.repetition_penalty,
                          "Above 1: repeat less (default off)"),
           "X")
      ->check(number_in(0.01, 100));
  sampling(app.add_option("--seed", o.seed, "The same seed gives the same text (default random)"),
           "N")
      ->transform(unsigned_64())
      ->each([&o](const std::string&) { o.has_seed = true; });
  sampling(app.add_option("--stop", o.stop, "Stop before this text; may be given several times"),
           "TEXT")
      ->allow_extra_args(false);
  sampling(app.add_option("--bias", o.bias,
                          "Add a number to the logit of a token; may be given several times"),
           "ID:X")
      ->allow_extra_args(false);
  app.add_flag("--ignore-eos", o.ignore_eos, "Continue after an end-of-text token")
      ->group(kSamplingGroup);
}

void add_draft_option(CLI::App& app, SamplingOptions& o) {
  app.add_option("--draft", o.max_draft,
                 "Draft up to N tokens at once from earlier text and check them together: the same "
                 "output, faster where text repeats; 0 to 16")
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

Sampling::Sampling(const SamplingOptions& o) : options_(o) {
  if (!o.has_temperature) {  // the best token passes every filter
    const char* filter = o.top_k > 0   ? "--top-k"
                         : o.top_p < 1 ? "--top-p"
                         : o.min_p > 0 ? "--min-p"
                                       : nullptr;
    if (filter != nullptr) throw UsageError(std::string(filter) + " requires --temp");
  }
  for (const std::string& text : options_.bias) bias_.push_back(parse_bias(text));
  for (const std::string& s : options_.stop) {
    if (s.empty()) throw UsageError("--stop: must not be empty");
    stop_.push_back(s.c_str());
  }
  sampling_.struct_size = sizeof sampling_;
  sampling_.temperature = o.temperature;
  sampling_.top_k = o.top_k;
  sampling_.top_p = o.top_p;
  sampling_.min_p = o.min_p;
  sampling_.repetition_penalty = o.repetition_penalty;
  sampling_.seed = o.has_seed ? o.seed : std::random_device{}();
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
