#pragma once
// Sampling options shared by generate and chat.

#include "cli/common.h"

namespace moe_cli {

struct SamplingOptions {
  int max_tokens = 0;
  float temperature = 0;
  bool has_temperature = false;  // given
  int top_k = 0;
  float top_p = 1;
  float min_p = 0;
  float repetition_penalty = 1;
  uint64_t seed = 0;
  bool has_seed = false;
  std::vector<std::string> stop;
  std::vector<std::string> bias;  // "ID:VALUE"
  bool ignore_eos = false;
  int max_draft = 0;
};

void add_sampling_options(CLI::App& app, SamplingOptions& o, int default_max_tokens);
/// --draft, for commands that generate one text at a time.
void add_draft_option(CLI::App& app, SamplingOptions& o);

/// Throws UsageError if the model cannot do what the options ask for, before anything is generated.
void check_sampling(const SamplingOptions& o, const moe_model* model);

/// The C structs of the options; pointers inside point into this object.
class Sampling {
 public:
  explicit Sampling(const SamplingOptions& o);
  moe_generate_params params{};
  uint64_t seed() const { return sampling_.seed; }

 private:
  moe_sampling sampling_{};
  std::vector<moe_logit_bias> bias_;
  std::vector<const char*> stop_;
  SamplingOptions options_;
};

/// For a person: ", 12 of 20 guesses right"; empty without --draft.
std::string drafts_text(int32_t n_drafted, int32_t n_accepted);
/// For JSON: "length", "eos" ...
const char* finish_name(moe_finish finish);
/// For a person: "stopped at the token limit" ...
const char* finish_text(moe_finish finish);

}  // namespace moe_cli
