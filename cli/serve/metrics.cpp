// SPDX-License-Identifier: MIT
// Writes the counts of a service for Prometheus.
#include "cli/serve/metrics.h"

#include "cli/common.h"

namespace moe_cli {
namespace {

// With a decimal point in every locale.
std::string number(double value) { return Json(value).dump(); }

double of(uint64_t count) { return static_cast<double>(count); }

/// The counts of a model, and how its values are labelled.
struct Source {
  std::string label;
  moe_service_stats stats;
};

using Value = double (*)(const moe_service_stats&);

/// A page that is being written.
class Page {
 public:
  explicit Page(const std::vector<Source>& sources) : sources_(sources) {}

  void gauge(const char* name, const char* help, Value value) { add(name, "gauge", help, value); }
  void counter(const char* name, const char* help, Value value) {
    add(name, "counter", help, value);
  }
  void summary(const char* name, const char* help, Value sum, Value count) {
    begin(name, "summary", help);
    values(std::string(name) + "_sum", sum);
    values(std::string(name) + "_count", count);
  }
  const std::string& text() const { return text_; }

 private:
  void begin(const char* name, const char* type, const char* help) {
    text_ += std::string("# HELP ") + name + " " + help + "\n# TYPE " + name + " " + type + "\n";
  }
  void values(const std::string& name, Value value) {
    for (const Source& source : sources_) {
      text_ += name + source.label + " " + number(value(source.stats)) + "\n";
    }
  }
  void add(const char* name, const char* type, const char* help, Value value) {
    begin(name, type, help);
    values(name, value);
  }

  const std::vector<Source>& sources_;
  std::string text_;
};

std::string label_of(const std::string& name) {
  std::string text = "{model=\"";
  for (const char c : name) {
    if (c == '\n') {
      text += "\\n";
      continue;
    }
    if (c == '"' || c == '\\') text += '\\';
    text += c;
  }
  return text + "\"}";
}

std::vector<Source> sources_of(ServedModels& models) {
  std::vector<Source> sources;
  for (const std::string& name : models.names()) {
    const ServedModels::Open open = models.open_one(name);
    if (open == nullptr) continue;
    sources.push_back({models.several() ? label_of(name) : "", stats_of(open->service())});
  }
  return sources;
}

using Stats = moe_service_stats;

void add_requests(Page& page) {
  page.gauge("moe_requests_waiting", "Texts that wait for a slot.",
             [](const Stats& s) -> double { return s.n_waiting; });
  page.gauge("moe_requests_running", "Texts in slots.",
             [](const Stats& s) -> double { return s.n_running; });
  page.gauge("moe_kv_cache_usage_ratio", "Positions of the KV caches in use, of all.",
             [](const Stats& s) {
               const double positions = static_cast<double>(s.n_slots) * s.context;
               return positions > 0 ? of(s.kv_positions) / positions : 0;
             });
  page.gauge("moe_slots", "Texts that can be evaluated at the same time.",
             [](const Stats& s) -> double { return s.n_slots; });
  page.counter("moe_requests_total", "Requests taken.",
               [](const Stats& s) { return of(s.n_requests); });
  page.counter("moe_requests_refused_total", "Requests not taken.",
               [](const Stats& s) { return of(s.n_refused); });
  page.counter("moe_requests_answered_total", "Requests answered.",
               [](const Stats& s) { return of(s.n_answered); });
  page.counter("moe_requests_cancelled_total",
               "Requests of clients that went away or took too long.",
               [](const Stats& s) { return of(s.n_cancelled); });
  page.counter("moe_requests_failed_total", "Requests that failed.",
               [](const Stats& s) { return of(s.n_failed); });
}

void add_tokens(Page& page) {
  page.counter("moe_prompt_tokens_total", "Tokens of prompts evaluated.",
               [](const Stats& s) { return of(s.prompt_tokens); });
  page.counter("moe_prompt_tokens_reused_total", "Tokens of prompts taken over from other texts.",
               [](const Stats& s) { return of(s.reused_tokens); });
  page.gauge("moe_cache_bytes", "Of the files in the folder of --cache.",
             [](const Stats& s) { return of(s.cache_bytes); });
  page.counter("moe_cache_errors_total", "Texts that could not be written to it.",
               [](const Stats& s) { return of(s.cache_errors); });
  page.counter("moe_generated_tokens_total", "Tokens generated.",
               [](const Stats& s) { return of(s.generated_tokens); });
  page.counter("moe_steps_total", "Passes of the model for all texts together.",
               [](const Stats& s) { return of(s.n_steps); });
  page.counter("moe_step_seconds_total", "Time of these passes.",
               [](const Stats& s) { return s.step_seconds; });
  page.summary(
      "moe_time_to_first_token_seconds", "From a request to the first token of its text.",
      [](const Stats& s) { return s.first_token_seconds; },
      [](const Stats& s) { return of(s.n_first_tokens); });
}

void add_memory(Page& page) {
  page.gauge("moe_memory_cap_bytes", "Cap of --memory; 0: none.",
             [](const Stats& s) { return of(s.cap_bytes); });
  page.gauge("moe_memory_counted_bytes", "Memory that counts against the cap.",
             [](const Stats& s) { return of(s.counted_bytes); });
  page.gauge("moe_memory_peak_bytes", "The most of it.",
             [](const Stats& s) { return of(s.peak_bytes); });
  page.counter("moe_expert_uses_total", "Experts used under a cap.",
               [](const Stats& s) { return of(s.expert_uses); });
  page.counter("moe_expert_hits_total", "Of these, found in memory.",
               [](const Stats& s) { return of(s.expert_hits); });
  page.counter("moe_expert_read_bytes_total", "Bytes read for the others.",
               [](const Stats& s) { return of(s.expert_read_bytes); });
}

}  // namespace

std::string metrics_text(ServedModels& models) {
  const std::vector<Source> sources = sources_of(models);
  Page page(sources);
  add_requests(page);
  add_tokens(page);
  add_memory(page);
  return page.text();
}

}  // namespace moe_cli
