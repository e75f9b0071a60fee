// SPDX-License-Identifier: MIT
#pragma once
// Shared by the parts of `moe bench`: options, measurement, result.

#include <string>
#include <vector>

#include "cli/bench/bandwidth.h"
#include "cli/bench/disk_meter.h"
#include "cli/common.h"

namespace moe_cli {

struct BenchOptions {
  ModelOptions model;
  std::string synthetic;
  std::string weights = "ternary2";
  bool weights_named = false;  // given on the command line
  std::string save;
  std::string routing;  // a trace
  int n_prompt = 512;
  int n_generate = 64;
  int depth = 0;
  int n_sessions = 1;
  int repetitions = 3;

  /// Positions that a session needs.
  int positions() const;
  /// Whether a synthetic model is measured from a file.
  bool from_file() const;
};

struct Timing {
  double read_bandwidth = 0;  // bytes per second read from memory by as many threads
  double prefill_tokens_per_s = 0;
  double decode_tokens_per_s = 0;  // all sessions together
  double experts_per_token = 0;    // in one MoE layer, while decoding
  double weight_bytes_per_token = 0;
  // Under a memory cap, means of the repetitions.
  double hit_rate = 1;            // share of expert uses found in memory, while decoding
  double decode_read_bytes = 0;   // of the file, per token
  double decode_wait_share = 0;   // share of decoding time spent waiting for reads
  double prefill_read_bytes = 0;  // of the file, per prompt
  double disk_bytes_per_s = 0;    // expert reads without computation; 0: not measured

  /// Upper bound of decoding with these expert reads: reading or computing, whichever takes longer.
  /// 0: unknown.
  double decode_bound() const;
};

struct BenchResult {
  moe_env_info env;
  moe_model_info model;
  uint64_t kv_bytes_per_token;
  Timing timing;
  moe_memory_stats memory;
  uint64_t expert_bytes;  // of all experts
  double trace_hit_rate;  // of the trace alone, with the same share of its experts cached
  /// True if the bandwidth is that of this machine's memory, not a GPU's.
  bool on_cpu() const { return std::string_view(env.device) == "cpu"; }
  /// Bytes read while decoding: weights, keys and values.
  double decode_bytes_per_s() const;
};

/// Measurements between repetitions; either may be null.
struct Meters {
  BandwidthMeter* memory = nullptr;
  DiskMeter* disk = nullptr;
};

/// CallError for sizes that would take more than an hour.
Timing run_measurement(const BenchOptions& o, const moe_model* model,
                       const std::vector<moe_session*>& sessions, const Meters& meters);

void print_bench(const BenchOptions& o, const BenchResult& result);

}  // namespace moe_cli
