// SPDX-License-Identifier: MIT
#include "cli/trace/trace_page.h"

#include <algorithm>
#include <cstdio>

#include "cli/io/units.h"
#include "cli/trace/svg_chart.h"
#include "cli/trace/trace_replay.h"

namespace moe_cli {
namespace {

constexpr size_t kWindow = 16;  // tokens over which shares are averaged

const char kHead[] = R"(<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<meta name="color-scheme" content="light dark">
<style>
:root{--back:#fff;--text:#1f2328;--quiet:#59636e;--line:#d1d9e0;--empty:#f0f2f4;
--l0:#cfe2f7;--l1:#a9cbf0;--l2:#6aa3e0;--l3:#2f74c0;--l4:#12407a;
--s0:#1a5fb4;--s1:#0b7a6f;--s2:#b3560a;--s3:#a3185f}
@media(prefers-color-scheme:dark){:root{--back:#0f1419;--text:#e6edf3;--quiet:#9aa5b1;--line:#36404a;
--empty:#1b2128;--l0:#16324f;--l1:#1d528a;--l2:#2f7ac4;--l3:#6cadea;--l4:#cfe6ff;
--s0:#79b0f5;--s1:#4fd1c0;--s2:#f0a45d;--s3:#f08cc0}}
body{margin:2rem auto;padding:0 1rem;max-width:52rem;background:var(--back);color:var(--text);
font:1rem/1.5 system-ui,sans-serif}
h1{font-size:1.4rem;overflow-wrap:anywhere}h2{font-size:1.1rem;margin:2rem 0 .3rem}
p{margin:.3rem 0;color:var(--quiet)}svg{width:100%;height:auto;display:block}
svg text{font:13px system-ui,sans-serif;fill:var(--quiet)}
svg .name{font-weight:600}.grid{stroke:var(--line);fill:none}.mark{stroke:var(--quiet);stroke-dasharray:3 3}
.curve{fill:none;stroke-width:2;stroke-linejoin:round}.empty{fill:var(--empty)}
.l0{fill:var(--l0)}.l1{fill:var(--l1)}.l2{fill:var(--l2)}.l3{fill:var(--l3)}.l4{fill:var(--l4)}
.s0{stroke:var(--s0)}.s1{stroke:var(--s1)}.s2{stroke:var(--s2)}.s3{stroke:var(--s3)}
svg .name.s0{fill:var(--s0);stroke:none}svg .name.s1{fill:var(--s1);stroke:none}
svg .name.s2{fill:var(--s2);stroke:none}svg .name.s3{fill:var(--s3);stroke:none}
table{border-collapse:collapse;font-variant-numeric:tabular-nums}
th,td{padding:.15rem .9rem;text-align:right;border-bottom:1px solid var(--line)}
</style>
)";

std::string number(const char* format, double v) {
  char text[64];
  std::snprintf(text, sizeof text, format, v);
  return text;
}

// The charts' tokens: first the prompt's, then the decoded ones.
struct Tokens {
  std::vector<size_t> of_use;  // by use, the index of its token
  size_t n = 0;
  size_t n_prompt = 0;
};

Tokens number_tokens(const Trace& trace) {
  std::vector<std::pair<bool, int32_t>> steps;
  for (const TraceUse& use : trace.uses) steps.emplace_back(use.decode, use.step);
  std::sort(steps.begin(), steps.end());
  steps.erase(std::unique(steps.begin(), steps.end()), steps.end());
  Tokens tokens;
  tokens.n = steps.size();
  for (const auto& step : steps) tokens.n_prompt += step.first ? size_t{0} : size_t{1};
  for (const TraceUse& use : trace.uses) {
    const auto at = std::lower_bound(steps.begin(), steps.end(), std::pair(use.decode, use.step));
    tokens.of_use.push_back(static_cast<size_t>(at - steps.begin()));
  }
  return tokens;
}

// --- Heat map ------------------------------------------------------------------------------------

std::string heat_map(const Trace& trace) {
  const auto n_layers = static_cast<size_t>(trace.n_layers);
  const auto n_experts = static_cast<size_t>(trace.n_experts);
  std::vector<std::pair<size_t, uint64_t>> cells;  // place and uses; of used experts
  std::vector<uint64_t> all(n_layers);
  std::vector<size_t> places;
  for (const TraceUse& use : trace.uses) {
    places.push_back(static_cast<size_t>(use.layer) * n_experts + static_cast<size_t>(use.expert));
    ++all[static_cast<size_t>(use.layer)];
  }
  std::sort(places.begin(), places.end());
  for (const size_t place : places) {
    if (cells.empty() || cells.back().first != place) cells.emplace_back(place, 0);
    ++cells.back().second;
  }
  HeatMap map(n_experts, n_layers);
  for (const auto& [place, uses] : cells) {
    const double even =
        static_cast<double>(all[place / n_experts]) / static_cast<double>(n_experts);
    const double times = static_cast<double>(uses) / even;
    const size_t level = times <= 0.5 ? 0 : times <= 1 ? 1 : times <= 2 ? 2 : times <= 4 ? 3 : 4;
    map.set(place % n_experts, place / n_experts, level);
  }
  return map.svg("expert", "layer",
                 {"up to half", "to 1", "to 2", "to 4", "more than 4 times the even share"});
}

// --- Token by token ------------------------------------------------------------------------------

std::vector<double> experts_per_token(const Trace& trace, const Tokens& tokens) {
  std::vector<double> uses(tokens.n);
  std::vector<double> layers(tokens.n);
  for (size_t i = 0; i < trace.uses.size(); ++i) {
    ++uses[tokens.of_use[i]];
    layers[tokens.of_use[i]] += trace.uses[i].slot == 0 ? 1 : 0;
  }
  for (size_t t = 0; t < tokens.n; ++t) uses[t] /= std::max(1.0, layers[t]);
  return uses;
}

// Hit rate over the last kWindow decoded tokens.
std::vector<double> found_over_time(const Trace& trace, const Tokens& tokens, size_t room) {
  std::vector<double> found(tokens.n - tokens.n_prompt);
  std::vector<double> uses(found.size());
  const std::vector<bool> hits = found_lru(trace, room);
  for (size_t i = 0; i < trace.uses.size(); ++i) {
    if (!trace.uses[i].decode) continue;
    const size_t t = tokens.of_use[i] - tokens.n_prompt;
    ++uses[t];
    found[t] += hits[i] ? 1 : 0;
  }
  std::vector<double> share;
  for (size_t t = 0; t < found.size(); ++t) {
    double n = 0;
    double n_found = 0;
    for (size_t u = t - std::min(t, kWindow - 1); u <= t; ++u) {
      n += uses[u];
      n_found += found[u];
    }
    share.push_back(n_found / n);
  }
  return share;
}

// Experts used since the beginning, and by the last kWindow tokens, as shares of all.
void used_over_time(const Trace& trace, const Tokens& tokens, std::vector<double>* ever,
                    std::vector<double>* lately) {
  const auto n_experts = static_cast<double>(trace.n_layers) * static_cast<double>(trace.n_experts);
  const NumberedExperts experts = number_experts(trace);
  std::vector<std::vector<size_t>> by_token(tokens.n);
  for (size_t i = 0; i < trace.uses.size(); ++i) {
    by_token[tokens.of_use[i]].push_back(experts.of_use[i]);
  }
  std::vector<bool> seen(experts.n);
  std::vector<size_t> in_window(experts.n);
  size_t n_seen = 0;
  size_t n_window = 0;
  for (size_t t = 0; t < tokens.n; ++t) {
    for (const size_t e : by_token[t]) {
      if (!seen[e]) ++n_seen;
      seen[e] = true;
      if (in_window[e]++ == 0) ++n_window;
    }
    if (t >= kWindow) {
      for (const size_t e : by_token[t - kWindow]) {
        if (--in_window[e] == 0) --n_window;
      }
    }
    ever->push_back(static_cast<double>(n_seen) / n_experts);
    lately->push_back(static_cast<double>(n_window) / n_experts);
  }
}

// --- Page ----------------------------------------------------------------------------------------

std::string section(const std::string& title, const std::string& text, const std::string& body) {
  return "<h2>" + title + "</h2>\n<p>" + text + "</p>\n" + body;
}

std::string budget_table(const Json& budgets) {
  std::string table =
      "<table>\n<tr><th>memory for</th><th>experts</th><th>LRU</th><th>best possible</th></tr>\n";
  for (const Json& b : budgets["budgets"]) {
    table += "<tr><td>" + number("%g %%", 100 * b["share"].get<double>()) + "</td><td>" +
             std::to_string(b["experts"].get<size_t>()) + "</td><td>" +
             number("%.3f", b["lru"].get<double>()) + "</td><td>" +
             number("%.3f", b["best"].get<double>()) + "</td></tr>\n";
  }
  return table + "</table>\n";
}

std::string found_chart(const Trace& trace, const Tokens& tokens, const Json& budgets) {
  LineChart chart("decoded token", 1);
  size_t style = 0;
  for (const Json& b : budgets["budgets"]) {
    const double share = b["share"].get<double>();
    if (style == 4 || b["experts"].get<size_t>() == 0) continue;
    chart.add(number("%g %% in memory", 100 * share), style++,
              found_over_time(trace, tokens, b["experts"].get<size_t>()));
  }
  return chart.svg();
}

std::string memory_chart(const Trace& trace, const Tokens& tokens) {
  std::vector<double> ever;
  std::vector<double> lately;
  used_over_time(trace, tokens, &ever, &lately);
  LineChart chart("token", 1);
  chart.mark(tokens.n_prompt, "decoding");
  chart.add("so far", 0, ever);
  chart.add("last " + std::to_string(kWindow) + " tokens", 2, lately);
  return chart.svg();
}

std::string experts_chart(const Trace& trace, const Tokens& tokens) {
  LineChart chart("token", trace.n_used);
  chart.mark(tokens.n_prompt, "decoding");
  chart.add("experts", 0, experts_per_token(trace, tokens));
  return chart.svg();
}

}  // namespace

std::string trace_page(const std::string& name, const Trace& trace, const Json& budgets) {
  const Tokens tokens = number_tokens(trace);
  const std::string title = html_text(name);
  const std::string window = std::to_string(kWindow);
  return "<!DOCTYPE html>\n<html lang=\"en\">\n" + std::string(kHead) + "<title>" + title +
         "</title>\n<h1>" + title + "</h1>\n<p>" +
         counted(static_cast<uint64_t>(trace.n_layers), "layer") + " of " +
         counted(static_cast<uint64_t>(trace.n_experts), "expert") + ", at most " +
         std::to_string(trace.n_used) + " per token. A text of " +
         counted(static_cast<uint64_t>(tokens.n_prompt), "token") + ", " +
         std::to_string(tokens.n - tokens.n_prompt) + " decoded after it.</p>\n" +
         section("Uses of each expert",
                 "How often a layer used an expert, relative to the average over its experts. "
                 "Empty: never.",
                 heat_map(trace)) +
         section("Experts per token", "Mean over the layers.", experts_chart(trace, tokens)) +
         section("Found in memory while decoding",
                 "Hit rate over the last " + window +
                     " tokens of an LRU cache with room for this share of all experts.",
                 found_chart(trace, tokens, budgets)) +
         section("The same over all decoded tokens",
                 "Best possible: evicts the expert whose next use is furthest away. First uses, "
                 "which miss "
                 "in every cache: " +
                     number("%.3f", budgets["first_uses"].get<double>()) + ".",
                 budget_table(budgets)) +
         section("Memory over time",
                 "Experts used so far, as a share of all (what a cache that never evicts holds), "
                 "and experts used by the last " +
                     window + " tokens.",
                 memory_chart(trace, tokens)) +
         "</html>\n";
}

}  // namespace moe_cli
