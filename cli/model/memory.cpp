// SPDX-License-Identifier: MIT
// Asks the library for a model's cap and its plan, and prints what was used.
#include "cli/model/memory.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <string_view>

#include "cli/io/units.h"

namespace moe_cli {
namespace {

void print_experts(const moe_expert_stats& e, int n_tokens, double seconds) {
  if (e.n_uses == 0) return;
  std::fprintf(stderr, "  experts: hit rate %.1f %% of %llu uses, %s read", 100 * hit_rate(e),
               static_cast<unsigned long long>(e.n_uses), format_bytes(e.read_bytes).c_str());
  if (n_tokens > 0) {
    std::fprintf(stderr, " (%s per token)",
                 format_bytes(e.read_bytes / static_cast<uint64_t>(n_tokens)).c_str());
  }
  std::fprintf(stderr, ", waited %s", format_seconds(e.wait_seconds).c_str());
  if (seconds > 0) std::fprintf(stderr, " of %s", format_seconds(seconds).c_str());
  if (n_tokens > 0) {
    std::fprintf(stderr, " (%s per token)", format_seconds(e.wait_seconds / n_tokens).c_str());
  }
  std::fputs("\n", stderr);
}

// Unlimited if the system does not report it.
moe_memory_info machine_memory() {
  moe_memory_info machine{};
  machine.struct_size = sizeof machine;
  if (moe_get_memory_info(&machine, nullptr) == MOE_OK) return machine;
  machine.total_bytes = machine.available_bytes = machine.budget_bytes = UINT64_MAX;
  return machine;
}

std::string megabytes(uint64_t bytes) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3f MB", static_cast<double>(bytes) * 1e-6);
  return text;
}

CallError too_many_sessions(const ModelOptions& o, const moe_memory_plan& plan, int n_sessions) {
  return {MOE_ERR_BUDGET, (o.path.empty() ? "" : o.path + ": ") + std::to_string(n_sessions) +
                              " sessions (--sessions): the cap of " + megabytes(plan.cap_bytes) +
                              " is too small: " + std::to_string(plan.least_bytes) +
                              " bytes at least, " + megabytes(plan.least_bytes) +
                              ", of which each session takes " + megabytes(plan.session_bytes)};
}

Json expert_json(const moe_expert_stats& e) {
  return {{"uses", e.n_uses},
          {"found_in_memory", e.n_hits},
          {"read_bytes", e.read_bytes},
          {"wait_seconds", e.wait_seconds}};
}

}  // namespace

uint64_t memory_cap(const ModelOptions& o) {
  if (o.memory.empty()) return 0;
  const uint64_t bytes = parse_bytes("--memory", o.memory);
  const moe_memory_info machine = machine_memory();
  if (o.planning || bytes <= machine.total_bytes) return bytes;
  throw CallError(MOE_ERR_BUDGET, "--memory " + o.memory + " is " + format_bytes(bytes) +
                                      "; this machine, or its memory cgroup, has " +
                                      format_bytes(machine.total_bytes));
}

void fit_memory(const ModelOptions& o, moe_env* env, Model& model, int n_sessions, uint64_t most) {
  uint64_t budget = 0;
  if (o.memory.empty()) {
    const moe_session_params session = session_params(o);
    moe_error error;
    check(moe_model_suggest_memory(model.get(), &session, n_sessions, &budget, &error), error);
  }
  const uint64_t needed = wanted_bytes(o, env, model.get(), n_sessions);
  const bool too_large = needed > most;
  if (budget == 0 && !too_large) return;
  if (too_large) budget = std::max<uint64_t>(1, budget == 0 ? most : std::min(budget, most));
  ModelOptions with = o;
  with.memory = std::to_string(budget);
  std::fprintf(stderr, "moe: %s needed, more than is available; the cap is %s%s\n",
               format_bytes(needed).c_str(), format_bytes(budget).c_str(),
               o.memory.empty() ? " (--memory sets another)" : "");
  model.reset();  // before the other is opened
  model = open_model(with, env);
}

Model open_model_to_run(const ModelOptions& o, moe_env* env, int n_sessions) {
  Model model = open_model(o, env);
  fit_memory(o, env, model, n_sessions);
  return model;
}

uint64_t available_budget() { return machine_memory().budget_bytes; }

std::optional<uint64_t> held_bytes() {
  // In pages: all, those in memory, and of these those of files.
  std::ifstream statm("/proc/self/statm");
  uint64_t all = 0;
  uint64_t resident = 0;
  uint64_t shared = 0;
  if (!(statm >> all >> resident >> shared)) return {};
  return (resident - std::min(resident, shared)) * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

uint64_t wanted_bytes(const ModelOptions& o, moe_env* env, const moe_model* model, int n_sessions) {
  if (std::string_view(env_info(env).device) != "cpu") return 0;
  const moe_memory_plan plan = memory_plan(o, model, n_sessions);
  if (o.map) return plan.session_bytes * static_cast<uint64_t>(n_sessions);
  return plan.cap_bytes == 0 ? plan.needed_bytes : std::min(plan.needed_bytes, plan.cap_bytes);
}

void check_sessions(const ModelOptions& o, const moe_model* model, int n_sessions) {
  const moe_memory_plan plan = memory_plan(o, model, n_sessions);
  if (plan.cap_bytes == 0 || plan.least_bytes <= plan.cap_bytes) return;
  throw too_many_sessions(o, plan, n_sessions);
}

moe_memory_plan memory_plan(const ModelOptions& o, const moe_model* model, int n_sessions) {
  const moe_session_params session = session_params(o);
  moe_memory_plan plan{};
  plan.struct_size = sizeof plan;
  moe_error error;
  check(moe_model_get_memory_plan(model, &session, n_sessions, &plan, &error), error);
  return plan;
}

moe_memory_stats memory_stats(const moe_session* session) {
  moe_memory_stats stats{};
  stats.struct_size = sizeof stats;
  moe_error error;
  check(moe_session_get_memory_stats(session, &stats, &error), error);
  return stats;
}

Json memory_lines(const ModelOptions& o, const moe_model* model) {
  const moe_session_params p = session_params(o);
  moe_memory_line lines[32];
  size_t n = 0;
  moe_error error;
  check(moe_model_get_memory(model, &p, 1, lines, std::size(lines), &n, &error), error);
  Json j = Json::object();
  for (size_t i = 0; i < n; ++i) j[lines[i].what] = lines[i].bytes;
  return j;
}

Json memory_json(const ModelOptions& o, const moe_model* model, const moe_memory_stats& stats) {
  return {{"cap_bytes", stats.cap_bytes},
          {"peak_bytes", stats.peak_bytes},
          {"counted_bytes", stats.counted_bytes},
          {"expert_cache_bytes", stats.arena_bytes},
          {"cached_expert_bytes", stats.expert_bytes},
          {"filled_bytes", stats.filled_bytes},
          {"experts", expert_json(stats.session)},
          {"account", memory_lines(o, model)}};
}

void print_memory(const ModelOptions& o, const moe_model* model, const moe_memory_stats& stats,
                  int n_tokens, double seconds) {
  if (stats.cap_bytes == 0) return;
  print_experts(stats.session, n_tokens, seconds);
  std::fprintf(stderr, "  memory: at most %s of the cap of %s;",
               format_bytes(stats.peak_bytes).c_str(), format_bytes(stats.cap_bytes).c_str());
  if (stats.filled_bytes > 0) {
    std::fprintf(stderr, " %s read into free memory;", format_bytes(stats.filled_bytes).c_str());
  }
  const Json lines = memory_lines(o, model);
  const char* separator = " ";
  for (const auto& [what, bytes] : lines.items()) {
    std::fprintf(stderr, "%s%s %s", separator, what.c_str(),
                 format_bytes(bytes.get<uint64_t>()).c_str());
    separator = ", ";
  }
  std::fputs("\n", stderr);
}

moe_expert_stats since(const moe_expert_stats& before, const moe_expert_stats& now) {
  return {now.n_uses - before.n_uses, now.n_hits - before.n_hits,
          now.read_bytes - before.read_bytes, now.wait_seconds - before.wait_seconds};
}

double hit_rate(const moe_expert_stats& experts) {
  return experts.n_uses == 0
             ? 1
             : static_cast<double>(experts.n_hits) / static_cast<double>(experts.n_uses);
}

}  // namespace moe_cli
