// SPDX-License-Identifier: MIT
#pragma once
// Memory limits of a model, and its memory use.

#include <optional>

#include "cli/common.h"

namespace moe_cli {

/// --memory in bytes; 0 if not given. UsageError for an invalid size, or more than this machine
/// has.
uint64_t memory_cap(const ModelOptions& o);

/// Reopens a model that does not fit in the available memory under the cap that the library
/// suggests, unless there is --memory, or that needs more than `most`, and reports it on stderr.
void fit_memory(const ModelOptions& o, moe_env* env, Model& model, int n_sessions = 1,
                uint64_t most = UINT64_MAX);
/// Opens a model for `n_sessions` sessions with these options.
Model open_model_to_run(const ModelOptions& o, moe_env* env, int n_sessions = 1);

/// The most that a cap may take of the memory available now; UINT64_MAX if that is unknown.
uint64_t available_budget();
/// The memory that this process holds, without files that are mapped; none if the system does not
/// say it.
std::optional<uint64_t> held_bytes();
/// The machine's memory that the model will hold with `n_sessions` sessions, under its cap if it
/// has one. A GPU's memory is another; mapped weights can be read again.
uint64_t wanted_bytes(const ModelOptions& o, moe_env* env, const moe_model* model, int n_sessions);
/// Before `n_sessions` sessions with these options are made: throws, naming the smallest cap, if
/// they do not fit.
void check_sessions(const ModelOptions& o, const moe_model* model, int n_sessions);
moe_memory_plan memory_plan(const ModelOptions& o, const moe_model* model, int n_sessions = 1);

moe_memory_stats memory_stats(const moe_session* session);
/// The memory account, line by line.
Json memory_lines(const ModelOptions& o, const moe_model* model);
/// Account and statistics as one object.
Json memory_json(const ModelOptions& o, const moe_model* model, const moe_memory_stats& stats);
/// The same on stderr in a few lines; nothing without a cap. Rates for `n_tokens` tokens in
/// `seconds`, unless 0.
void print_memory(const ModelOptions& o, const moe_model* model, const moe_memory_stats& stats,
                  int n_tokens, double seconds);
/// Counted between two moments.
moe_expert_stats since(const moe_expert_stats& before, const moe_expert_stats& now);
/// The share of uses found in memory; 1 if there were none.
double hit_rate(const moe_expert_stats& experts);

}  // namespace moe_cli
