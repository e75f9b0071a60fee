#pragma once
// What the parts of `moe bench` share: the options, the measurement, the result.

#include <string>
#include <vector>

#include "cli/bandwidth.h"
#include "cli/common.h"
#include "cli/disk_meter.h"

namespace moe_cli {

struct BenchOptions {
  ModelOptions model;
  std::string synthetic;
  std::string weights = "ternary2";
  bool weights_named = false;  // on the command line
  std::string save;
  std::string routing;  // a trace
  int n_prompt = 512;
  int n_generate = 64;
  int depth = 0;
  int n_sessions = 1;
  int repetitions = 3;

  /// Positions that a session needs.
  int positions() const;
};

struct Timing {
  double read_bandwidth = 0;  // bytes per second that the same number of threads reads from memory
  double prefill_tokens_per_s = 0;
  double decode_tokens_per_s = 0;  // of all sessions together
  double experts_per_token = 0;    // in one MoE layer, while decoding
  double weight_bytes_per_token = 0;
  // Under a memory cap, means of the repetitions.
  double hit_rate = 1;            // share of expert uses found in memory, while decoding
  double decode_read_bytes = 0;   // of the file, for a token
  double decode_wait_share = 0;   // of the time of decoding, spent waiting for reads
  double prefill_read_bytes = 0;  // of the file, for a prompt
  double disk_bytes_per_s = 0;    // what reads of experts get with nothing beside; 0: not measured

  /// What nobody can exceed who reads these experts: reading them, or computing, whichever takes
  /// longer. 0: not known.
  double decode_bound() const;
};

struct BenchResult {
  moe_env_info env;
  moe_model_info model;
  uint64_t kv_bytes_per_token;
  Timing timing;
  moe_memory_stats memory;
  uint64_t expert_bytes;  // of all experts
  double trace_hit_rate;  // of the trace by itself, with as large a share of its experts
  /// The bandwidth was measured on this machine's memory, not on a GPU's.
  bool on_cpu() const { return std::string_view(env.device) == "cpu"; }
  /// What decoding read, weights and keys and values.
  double decode_bytes_per_s() const;
};

/// What is measured between the repetitions; either may be null.
struct Meters {
  BandwidthMeter* memory = nullptr;
  DiskMeter* disk = nullptr;
};

/// Sizes that would take more than an hour are refused: UsageError.
Timing run_measurement(const BenchOptions& o, const moe_model* model,
                       const std::vector<moe_session*>& sessions, const Meters& meters);

void print_bench(const BenchOptions& o, const BenchResult& result);

}  // namespace moe_cli
