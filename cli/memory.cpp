#include "cli/memory.h"

#include <algorithm>
#include <cstdio>
#include <string_view>

namespace moe_cli {
namespace {

void print_experts(const moe_expert_stats& e, int n_tokens, double seconds) {
  if (e.n_uses == 0) return;
  std::fprintf(stderr, "  experts: %.1f %% of %llu uses found in memory, %s read",
               100 * hit_rate(e), static_cast<unsigned long long>(e.n_uses),
               format_bytes(e.read_bytes).c_str());
  if (n_tokens > 0) {
    std::fprintf(stderr, " (%s a token)",
                 format_bytes(e.read_bytes / static_cast<uint64_t>(n_tokens)).c_str());
  }
  std::fprintf(stderr, ", waited %.2f s", e.wait_seconds);
  if (seconds > 0) std::fprintf(stderr, " of %.2f", seconds);
  std::fputs("\n", stderr);
}

// Counts everything except weights per session: a slight overestimate.
uint64_t needed_for(const ModelOptions& o, const moe_model* model, int n_sessions) {
  uint64_t one = 0;
  for (const Json& bytes : memory_lines(o, model)) one += bytes.get<uint64_t>();
  const moe_model_info info = model_info(model);
  const uint64_t session = one - std::min(one, info.weight_bytes);
  return one + static_cast<uint64_t>(n_sessions - 1) * session;
}

// As moe_model_suggest_memory(), for several sessions.
uint64_t budget_for(const ModelOptions& o, moe_env* env, uint64_t needed) {
  moe_env_info device{};
  device.struct_size = sizeof device;
  moe_memory_info machine{};
  machine.struct_size = sizeof machine;
  moe_error error;
  check(moe_env_get_info(env, &device, &error), error);
  const bool on_cpu = std::string_view(device.device) == "cpu";
  if (o.map || !on_cpu || moe_get_memory_info(&machine, nullptr) != MOE_OK) return 0;
  const uint64_t most = machine.available_bytes / 16 * 15;
  return needed > most ? most : 0;
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
  moe_memory_info machine{};
  machine.struct_size = sizeof machine;
  if (o.planning || moe_get_memory_info(&machine, nullptr) != MOE_OK) return bytes;
  if (bytes <= machine.total_bytes) return bytes;
  throw UsageError("--memory " + o.memory + " is " + format_bytes(bytes) +
                   "; this machine, or its memory cgroup, has " +
                   format_bytes(machine.total_bytes));
}

void fit_memory(const ModelOptions& o, moe_env* env, Model& model, int n_sessions) {
  if (!o.memory.empty()) return;
  const moe_session_params session = session_params(o);
  uint64_t budget = 0;
  moe_error error;
  check(moe_model_suggest_memory(model.get(), &session, &budget, &error), error);
  const uint64_t needed = needed_for(o, model.get(), n_sessions);
  if (budget == 0 && n_sessions > 1) budget = budget_for(o, env, needed);
  if (budget == 0) return;
  std::fprintf(stderr,
               "moe: %s needed, more than is available; the cap is %s (--memory sets another)\n",
               format_bytes(needed).c_str(), format_bytes(budget).c_str());
  ModelOptions with = o;
  with.memory = std::to_string(budget);
  model.reset();
  model = open_model(with, env);
}

Model open_model_to_run(const ModelOptions& o, moe_env* env, int n_sessions) {
  Model model = open_model(o, env);
  fit_memory(o, env, model, n_sessions);
  return model;
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
  check(moe_model_get_memory(model, &p, lines, std::size(lines), &n, &error), error);
  Json j;
  for (size_t i = 0; i < n; ++i) j[lines[i].what] = lines[i].bytes;
  return j;
}

Json memory_json(const ModelOptions& o, const moe_model* model, const moe_memory_stats& stats) {
  return {{"cap_bytes", stats.cap_bytes},
          {"peak_bytes", stats.peak_bytes},
          {"counted_bytes", stats.counted_bytes},
          {"expert_cache_bytes", stats.arena_bytes},
          {"cached_expert_bytes", stats.expert_bytes},
          {"experts", expert_json(stats.session)},
          {"account", memory_lines(o, model)}};
}

void print_memory(const ModelOptions& o, const moe_model* model, const moe_memory_stats& stats,
                  int n_tokens, double seconds) {
  if (stats.cap_bytes == 0) return;
  print_experts(stats.session, n_tokens, seconds);
  std::fprintf(stderr, "  memory: at most %s of the cap of %s;",
               format_bytes(stats.peak_bytes).c_str(), format_bytes(stats.cap_bytes).c_str());
  const Json lines = memory_lines(o, model);
  const char* separator = " ";
  for (const auto& [what, bytes] : lines.items()) {
    std::fprintf(stderr, "%s%s %s", separator, what.c_str(),
                 format_bytes(bytes.get<uint64_t>()).c_str());
    separator = ", ";
  }
  std::fputs("\n", stderr);
}

double hit_rate(const moe_expert_stats& experts) {
  return experts.n_uses == 0
             ? 1
             : static_cast<double>(experts.n_hits) / static_cast<double>(experts.n_uses);
}

}  // namespace moe_cli
