// SPDX-License-Identifier: MIT
// Counts the uses of experts, experts per token, hits of LRU caches and memory over time.
#include "cli/trace/trace_curves.h"

#include <algorithm>

#include "cli/trace/trace_replay.h"

namespace moe_cli {
namespace {

constexpr size_t kWindow = 16;  // tokens over which shares are averaged

// The tokens of the curves: first the prompt's, then the decoded ones.
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

// {layer, expert, uses} of each expert that was used.
Json uses_of_experts(const Trace& trace) {
  const auto n_experts = static_cast<size_t>(trace.n_experts);
  std::vector<size_t> places;
  for (const TraceUse& use : trace.uses) {
    places.push_back(static_cast<size_t>(use.layer) * n_experts + static_cast<size_t>(use.expert));
  }
  std::sort(places.begin(), places.end());
  Json out = Json::array();
  for (size_t i = 0, next = 0; i < places.size(); i = next) {
    while (next < places.size() && places[next] == places[i]) ++next;
    out.push_back({places[i] / n_experts, places[i] % n_experts, next - i});
  }
  return out;
}

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
  std::vector<bool> used(experts.n);
  std::vector<size_t> in_window(experts.n);
  size_t n_used = 0;
  size_t n_window = 0;
  for (size_t t = 0; t < tokens.n; ++t) {
    for (const size_t e : by_token[t]) {
      if (!used[e]) ++n_used;
      used[e] = true;
      if (in_window[e]++ == 0) ++n_window;
    }
    if (t >= kWindow) {
      for (const size_t e : by_token[t - kWindow]) {
        if (--in_window[e] == 0) --n_window;
      }
    }
    ever->push_back(static_cast<double>(n_used) / n_experts);
    lately->push_back(static_cast<double>(n_window) / n_experts);
  }
}

}  // namespace

void add_trace_curves(const Trace& trace, Json* figures) {
  const Tokens tokens = number_tokens(trace);
  for (Json& budget : (*figures)["budgets"]) {
    budget["found"] = found_over_time(trace, tokens, budget["experts"].get<size_t>());
  }
  std::vector<double> ever;
  std::vector<double> lately;
  used_over_time(trace, tokens, &ever, &lately);
  (*figures)["window"] = kWindow;
  (*figures)["uses_of_experts"] = uses_of_experts(trace);
  (*figures)["experts_per_token"] = experts_per_token(trace, tokens);
  (*figures)["used_so_far"] = std::move(ever);
  (*figures)["used_lately"] = std::move(lately);
}

}  // namespace moe_cli
