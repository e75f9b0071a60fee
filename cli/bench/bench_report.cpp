// SPDX-License-Identifier: MIT
// Output of moe bench.

#include <sys/resource.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <iomanip>
#include <iostream>

#include "cli/bench/bench.h"
#include "cli/io/terminal.h"
#include "cli/io/units.h"

namespace moe_cli {
namespace {

uint64_t peak_rss() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<uint64_t>(usage.ru_maxrss) * 1024;
}

std::string format_rate(double bytes_per_s) {
  return format_bytes(static_cast<uint64_t>(bytes_per_s)) + "/s";
}

std::string experts_text(double n) {
  char text[64];
  std::snprintf(
      text, sizeof text,
      n == std::round(n) ? "%.0f experts per token, " : "%.2f experts per token on average, ", n);
  return n > 0 ? text : "";
}

// Shares of a measured limit end at 1: what is faster only shows that the meter was slow, or that a
// cache answered.
double share_of(double rate, double limit) { return std::min(1.0, rate / limit); }

std::string share_text(double rate, double limit, const std::string& limit_text) {
  if (rate >= limit) return "at or above " + limit_text;
  char text[32];
  std::snprintf(text, sizeof text, "%.1f %% of ", 100 * rate / limit);
  return text + limit_text;
}

void print_decode(const BenchOptions& o, const BenchResult& r) {
  const Timing& t = r.timing;
  std::cout << "  decode  " << std::setw(5) << o.n_generate << " tokens  " << std::setw(9)
            << t.decode_tokens_per_s << " tokens/s";
  if (o.n_sessions > 1) std::cout << " in " << o.n_sessions << " sessions together";
  std::cout << ", " << experts_text(t.experts_per_token)
            << format_bytes(static_cast<uint64_t>(t.weight_bytes_per_token)) << " of weights and "
            << format_bytes(r.kv_bytes_per_token)
            << " of keys and values per token: " << format_rate(r.decode_bytes_per_s());
  if (r.on_cpu()) {
    std::cout << ", "
              << share_text(r.decode_bytes_per_s(), t.read_bandwidth,
                            "the " + format_rate(t.read_bandwidth) + " of plain reads from memory");
  }
  std::cout << "\n";
}

void print_cache(const BenchOptions& o, const BenchResult& r) {
  if (r.memory.cap_bytes == 0) return;
  const Timing& t = r.timing;
  std::cout << "  memory  at most " << format_bytes(r.memory.peak_bytes) << " of the cap of "
            << format_bytes(r.memory.cap_bytes) << ", " << format_bytes(r.memory.arena_bytes)
            << " of it for experts\n";
  if (r.memory.model.n_uses == 0) return;
  if (o.n_prompt > 0) {
    std::cout << "  prefill read " << format_bytes(static_cast<uint64_t>(t.prefill_read_bytes))
              << " of experts per prompt\n";
  }
  if (o.n_generate > 0) {
    std::cout << "  decode read " << format_bytes(static_cast<uint64_t>(t.decode_read_bytes))
              << " of experts per token; hit rate " << 100 * t.hit_rate << " %; "
              << 100 * t.decode_wait_share << " % of the time was waiting for reads\n";
    if (t.decode_bound() > 0) {
      std::cout << "  random reads of experts reach " << format_rate(t.disk_bytes_per_s)
                << "; decode reached "
                << share_text(t.decode_tokens_per_s, t.decode_bound(), "the bound") << " of "
                << t.decode_bound() << " tokens/s\n";
    }
    if (!o.routing.empty()) {
      std::cout << "  the trace itself, replayed with room for this share of its experts: "
                << 100 * r.trace_hit_rate << " % found\n";
    }
  }
}

void print_text(const BenchOptions& o, const BenchResult& r) {
  const Timing& t = r.timing;
  std::cout << one_line(r.model.name) << " on ";
  if (r.on_cpu()) {
    std::cout << r.env.threads << " threads, " << r.env.isa;
  } else {
    std::cout << r.env.device;
  }
  std::cout << ", weights " << format_bytes(r.model.weight_bytes) << "\n"
            << std::fixed << std::setprecision(1);
  if (o.n_prompt > 0) {
    std::cout << "  prefill " << std::setw(5) << o.n_prompt << " tokens  " << std::setw(9)
              << t.prefill_tokens_per_s << " tokens/s\n";
  }
  if (o.n_generate > 0) print_decode(o, r);
  print_cache(o, r);
  std::cout << "  peak resident memory " << format_bytes(peak_rss()) << "\n";
}

void print_as_json(const BenchOptions& o, const BenchResult& r) {
  const Timing& t = r.timing;
  const double rate = r.decode_bytes_per_s();
  const double bound = t.decode_bound();
  print_json({{"model", r.model.name},
              {"weights", o.synthetic.empty() ? "" : o.weights},
              {"n_prompt", o.n_prompt},
              {"n_generate", o.n_generate},
              {"depth", o.depth},
              {"sessions", o.n_sessions},
              {"prefill_tokens_per_s", t.prefill_tokens_per_s},
              {"decode_tokens_per_s", t.decode_tokens_per_s},
              {"bytes_per_token", r.model.bytes_per_token},
              {"experts_per_token", t.experts_per_token},
              {"used_bytes_per_token", static_cast<uint64_t>(t.weight_bytes_per_token)},
              {"kv_bytes_per_token", r.kv_bytes_per_token},
              {"decode_bytes_per_s", rate},
              {"read_bandwidth_bytes_per_s", r.on_cpu() ? Json(t.read_bandwidth) : Json()},
              {"share_of_bandwidth", r.on_cpu() ? Json(share_of(rate, t.read_bandwidth)) : Json()},
              {"weight_bytes", r.model.weight_bytes},
              {"memory_cap_bytes", r.memory.cap_bytes},
              {"memory_peak_bytes", r.memory.peak_bytes},
              {"expert_cache_bytes", r.memory.arena_bytes},
              {"found_in_memory", t.hit_rate},
              {"trace_found_in_memory", o.routing.empty() ? Json() : Json(r.trace_hit_rate)},
              {"decode_read_bytes_per_token", static_cast<uint64_t>(t.decode_read_bytes)},
              {"decode_wait_share", t.decode_wait_share},
              {"disk_bytes_per_s", bound > 0 ? Json(t.disk_bytes_per_s) : Json()},
              {"decode_bound_tokens_per_s", bound > 0 ? Json(bound) : Json()},
              {"share_of_bound", bound > 0 ? Json(share_of(t.decode_tokens_per_s, bound)) : Json()},
              {"prefill_read_bytes", static_cast<uint64_t>(t.prefill_read_bytes)},
              {"peak_rss_bytes", peak_rss()},
              {"threads", r.env.threads},
              {"isa", r.env.isa},
              {"device", r.env.device}});
}

}  // namespace

double BenchResult::decode_bytes_per_s() const {
  return timing.decode_tokens_per_s *
         (timing.weight_bytes_per_token + static_cast<double>(kv_bytes_per_token));
}

void print_bench(const BenchOptions& o, const BenchResult& result) {
  o.model.json ? print_as_json(o, result) : print_text(o, result);
}

}  // namespace moe_cli
