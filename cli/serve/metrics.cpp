// SPDX-License-Identifier: MIT
// Writes the counts of a service for Prometheus.
#include "cli/serve/metrics.h"

#include "cli/common.h"

namespace moe_cli {
namespace {

// With a decimal point in every locale.
std::string number(double value) { return Json(value).dump(); }

void add(std::string& text, const char* name, const char* type, const char* help, double value) {
  text += std::string("# HELP ") + name + " " + help + "\n# TYPE " + name + " " + type + "\n" +
          name + " " + number(value) + "\n";
}

double of(uint64_t count) { return static_cast<double>(count); }

}  // namespace

std::string metrics_text(const moe_service_stats& s) {
  std::string text;
  const auto gauge = [&](const char* name, const char* help, double value) {
    add(text, name, "gauge", help, value);
  };
  const auto counter = [&](const char* name, const char* help, double value) {
    add(text, name, "counter", help, value);
  };
  gauge("moe_requests_waiting", "Texts that wait for a slot.", s.n_waiting);
  gauge("moe_requests_running", "Texts in slots.", s.n_running);
  const double positions = static_cast<double>(s.n_slots) * s.context;
  gauge("moe_kv_cache_usage_ratio", "Positions of the KV caches in use, of all.",
        positions > 0 ? of(s.kv_positions) / positions : 0);
  gauge("moe_slots", "Texts that can be evaluated at the same time.", s.n_slots);
  counter("moe_requests_total", "Requests taken.", of(s.n_requests));
  counter("moe_requests_refused_total", "Requests not taken.", of(s.n_refused));
  counter("moe_requests_answered_total", "Requests answered.", of(s.n_answered));
  counter("moe_requests_cancelled_total", "Requests of clients that went away or took too long.",
          of(s.n_cancelled));
  counter("moe_requests_failed_total", "Requests that failed.", of(s.n_failed));
  counter("moe_prompt_tokens_total", "Tokens of prompts evaluated.", of(s.prompt_tokens));
  counter("moe_prompt_tokens_reused_total", "Tokens of prompts taken over from other texts.",
          of(s.reused_tokens));
  counter("moe_generated_tokens_total", "Tokens generated.", of(s.generated_tokens));
  counter("moe_steps_total", "Passes of the model for all texts together.", of(s.n_steps));
  counter("moe_step_seconds_total", "Time of these passes.", s.step_seconds);
  text +=
      "# HELP moe_time_to_first_token_seconds From a request to the first token of its text.\n"
      "# TYPE moe_time_to_first_token_seconds summary\n";
  text += "moe_time_to_first_token_seconds_sum " + number(s.first_token_seconds) +
          "\nmoe_time_to_first_token_seconds_count " + std::to_string(s.n_first_tokens) + "\n";
  gauge("moe_memory_cap_bytes", "Cap of --memory; 0: none.", of(s.cap_bytes));
  gauge("moe_memory_counted_bytes", "Memory that counts against the cap.", of(s.counted_bytes));
  gauge("moe_memory_peak_bytes", "The most of it.", of(s.peak_bytes));
  counter("moe_expert_uses_total", "Experts used under a cap.", of(s.expert_uses));
  counter("moe_expert_hits_total", "Of these, found in memory.", of(s.expert_hits));
  counter("moe_expert_read_bytes_total", "Bytes read for the others.", of(s.expert_read_bytes));
  return text;
}

}  // namespace moe_cli
