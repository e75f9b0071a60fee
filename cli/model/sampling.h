// SPDX-License-Identifier: MIT
#pragma once
// Sampling options shared by generate, chat and batch.

#include <optional>

#include "cli/common.h"

namespace moe_cli {

struct SamplingOptions {
  int max_tokens = 0;
  // Empty: not given, so that the command's default remains.
  std::optional<float> temperature;
  std::optional<int> top_k;
#define MOE_SAMPLING_FILTER(name, option, off, low, high, excluded, help) std::optional<float> name;
#include "cli/model/sampling_list.h"
  std::optional<float> repetition_penalty;
  std::optional<uint64_t> seed;
  std::vector<std::string> stop;
  std::vector<std::string> bias;  // "ID:VALUE"
  bool ignore_eos = false;
  int max_draft = 0;
  // The text must satisfy the one of these that is given.
  std::string json_schema;  // a file
  std::string grammar;      // a file of GBNF
  std::string regex;        // the expression itself
};

/// The settings that a command samples with where an option is not given.
enum class SampleBy : uint8_t { kGreedy, kModel };
void add_sampling_options(CLI::App& app, SamplingOptions& o, int default_max_tokens,
                          SampleBy by = SampleBy::kGreedy);
/// --draft, for commands that generate one text at a time.
void add_draft_option(CLI::App& app, SamplingOptions& o);

/// Throws UsageError if the model cannot do what the options ask for, before anything is generated.
void check_sampling(const SamplingOptions& o, const moe_model* model);

/// The grammar that the options ask for; empty: none. Throws UsageError, or CallError for a file.
Grammar open_grammar(const SamplingOptions& o, moe_model* model);

/// The settings of a conversation with this model where nothing is given.
struct ModelSampling {
  explicit ModelSampling(const moe_model* model);
  moe_sampling settings{};
  bool in_file = false;  // those of the model file
};

/// For a person: "temperature 0.8, top-p 0.95"; at temperature 0 "the most probable token each
/// time".
std::string sampling_text(const moe_sampling& s);
/// The same as options: "--temp 0.8 --top-p 0.95".
std::string sampling_options(const moe_sampling& s);
/// All settings but the seed.
Json sampling_json(const moe_sampling& s);

/// The C structs of the options; pointers inside point into this object.
class Sampling {
 public:
  /// `defaults`: where an option is not given; null: greedy.
  explicit Sampling(const SamplingOptions& o, const moe_sampling* defaults = nullptr);
  moe_generate_params params{};
  uint64_t seed() const { return sampling_.seed; }
  const moe_sampling& settings() const { return sampling_; }
  /// Whether an option changed the defaults.
  bool changed() const { return changed_; }

 private:
  moe_sampling sampling_{};
  bool changed_ = false;
  std::vector<moe_logit_bias> bias_;
  std::vector<const char*> stop_;
  SamplingOptions options_;
};

/// For a person: ", 12 of 20 drafted tokens accepted"; empty without --draft.
std::string drafts_text(int32_t n_drafted, int32_t n_accepted);
/// For JSON: "length", "eos" ...
const char* finish_name(moe_finish finish);
/// For a person: "stopped at the token limit" ...
const char* finish_text(moe_finish finish);

}  // namespace moe_cli
