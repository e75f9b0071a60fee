#pragma once
// The memory that a model may take, and its memory use.

#include "cli/common.h"

namespace moe_cli {

/// --memory in bytes; 0 when it was not given. UsageError for what is no size, or more than this
/// machine has.
uint64_t memory_cap(const ModelOptions& o);

/// A model that does not fit into the memory that is available, and for which --memory was not
/// given, is opened again under a cap, which is said on stderr.
void fit_memory(const ModelOptions& o, moe_env* env, Model& model, int n_sessions = 1);
/// A model file for `n_sessions` sessions with these options.
Model open_model_to_run(const ModelOptions& o, moe_env* env, int n_sessions = 1);

moe_memory_stats memory_stats(const moe_session* session);
/// What an account says, line by line.
Json memory_lines(const ModelOptions& o, const moe_model* model);
/// Both as one object.
Json memory_json(const ModelOptions& o, const moe_model* model, const moe_memory_stats& stats);
/// The same on stderr in a few lines; nothing without a cap. Of `n_tokens` tokens in `seconds`,
/// where these are not 0.
void print_memory(const ModelOptions& o, const moe_model* model, const moe_memory_stats& stats,
                  int n_tokens, double seconds);
/// The share of uses that were found in memory; 1 when there were none.
double hit_rate(const moe_expert_stats& experts);

}  // namespace moe_cli
