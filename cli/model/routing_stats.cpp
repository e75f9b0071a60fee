// SPDX-License-Identifier: MIT
// Prints a table of layers: how evenly experts were used, and how many activations were positive.
#include "cli/model/routing_stats.h"

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <numeric>
#include <vector>

#include "cli/io/units.h"

namespace moe_cli {
namespace {

constexpr size_t kMostLines = 24;
constexpr size_t kLinesOfMany = 8;
constexpr size_t kBusiest = 3;

double quotient(uint64_t part, uint64_t whole) {
  return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
}

struct Line {
  int layer = 0;
  uint64_t n_activations = 0;
  uint64_t n_positive = 0;
  uint64_t n_tokens = 0;
  uint64_t n_served = 0;
  uint64_t n_dropped = 0;
  std::vector<uint64_t> served;   // by expert; empty: the layer is dense
  std::vector<size_t> by_demand;  // experts, the busiest first

  bool dense() const { return served.empty(); }
  double share(size_t rank) const { return quotient(served[by_demand[rank]], n_served); }
  /// The lines with the largest weights are shown if there are many.
  double weight() const { return dense() ? -quotient(n_positive, n_activations) : share(0); }
  size_t n_unused() const {
    return static_cast<size_t>(std::count(served.begin(), served.end(), uint64_t{0}));
  }
};

void read_routing(const Json& j, Line* line) {
  line->n_tokens = j["n_tokens"].get<uint64_t>();
  line->n_dropped = j["n_dropped"].get<uint64_t>();
  line->served = j["tokens_per_expert"].get<std::vector<uint64_t>>();
  line->n_served = std::accumulate(line->served.begin(), line->served.end(), uint64_t{0});
  line->by_demand.resize(line->served.size());
  std::iota(line->by_demand.begin(), line->by_demand.end(), size_t{0});
  std::stable_sort(line->by_demand.begin(), line->by_demand.end(),
                   [&](size_t a, size_t b) { return line->served[a] > line->served[b]; });
}

std::vector<Line> read_lines(const Json& routing, const Json& activations) {
  std::vector<Line> lines;
  for (const Json& j : activations) {
    Line& line = lines.emplace_back();
    line.layer = j["layer"].get<int>();
    line.n_activations = j["n_activations"].get<uint64_t>();
    line.n_positive = j["n_positive"].get<uint64_t>();
    for (const Json& r : routing) {
      if (r["layer"] == line.layer) read_routing(r, &line);
    }
  }
  return lines;
}

void print_row(const std::string& layer, const Line& line, size_t unused,
               const std::string& busiest) {
  const double positive = 100 * quotient(line.n_positive, line.n_activations);
  if (line.dense()) {
    std::fprintf(stderr, "%7s %9s %13s %8s %9s %7.1f %%%s%s\n", layer.c_str(), "-", "-", "-", "-",
                 positive, busiest.empty() ? "" : "  ", busiest.c_str());
    return;
  }
  std::fprintf(stderr, "%7s %9llu %13.2f %8zu %9llu %7.1f %%%s%s\n", layer.c_str(),
               static_cast<unsigned long long>(line.n_tokens),
               quotient(line.n_served, line.n_tokens), unused,
               static_cast<unsigned long long>(line.n_dropped), positive,
               busiest.empty() ? "" : "  ", busiest.c_str());
}

std::string busiest_text(const Line& line) {
  if (line.dense()) return "dense";
  std::string text;
  for (size_t i = 0; i < std::min(kBusiest, line.served.size()) && line.share(i) > 0; ++i) {
    char one[48];
    std::snprintf(one, sizeof one, "%s%zu (%.0f %%)", i == 0 ? "" : ", ", line.by_demand[i],
                  100 * line.share(i));
    text += one;
  }
  return text;
}

void print_all(const std::vector<Line>& lines) {
  Line all;
  size_t unused = 0;
  for (const Line& line : lines) {
    all.n_activations += line.n_activations;
    all.n_positive += line.n_positive;
    all.n_tokens += line.n_tokens;
    all.n_served += line.n_served;
    all.n_dropped += line.n_dropped;
    all.served.insert(all.served.end(), line.served.begin(), line.served.end());
    unused += line.n_unused();
  }
  print_row("all", all, unused, "");
}

std::vector<Line> of_kind(const std::vector<Line>& lines, bool dense) {
  std::vector<Line> some;
  std::copy_if(lines.begin(), lines.end(), std::back_inserter(some),
               [dense](const Line& line) { return line.dense() == dense; });
  return some;
}

void print_lines(const std::vector<Line>& lines) {
  for (const Line& line : lines) {
    print_row(std::to_string(line.layer), line, line.n_unused(), busiest_text(line));
  }
}

/// Keeps at most kMostLines lines of a kind, those with the greatest weight. Returns the note that
/// says so.
std::string shorten(std::vector<Line>* lines, const char* greatest, const char* kind) {
  const size_t n = lines->size();
  if (n <= kMostLines) return "";
  std::stable_sort(lines->begin(), lines->end(),
                   [](const Line& a, const Line& b) { return a.weight() > b.weight(); });
  lines->resize(kLinesOfMany);
  return "  (the " + std::to_string(kLinesOfMany) + " " + greatest + " of " + std::to_string(n) +
         " " + kind + " layers; --json has all)\n";
}

Json layer_routing(const moe_session* session, int32_t layer) {
  moe_routing_stats s{};
  s.struct_size = sizeof s;
  moe_error error;
  check(moe_session_get_routing(session, layer, &s, &error), error);
  uint64_t served = 0;
  for (int32_t e = 0; e < s.n_experts; ++e) served += s.tokens_per_expert[e];
  return {{"layer", layer},
          {"n_tokens", s.n_tokens},
          {"mean_experts_per_token", quotient(served, s.n_tokens)},
          {"n_dropped", s.n_dropped},
          {"n_skipped", s.n_skipped},
          {"skipped_probability", s.skipped_probability},
          {"share_positive", quotient(s.n_positive, s.n_activations)},
          {"tokens_per_expert",
           std::vector<uint64_t>(s.tokens_per_expert, s.tokens_per_expert + s.n_experts)},
          {"experts_per_token",
           std::vector<uint64_t>(s.experts_per_token, s.experts_per_token + s.n_experts + 1)}};
}

Json layer_activations(const moe_session* session, int32_t layer) {
  moe_activation_stats s{};
  s.struct_size = sizeof s;
  moe_error error;
  check(moe_session_get_activations(session, layer, &s, &error), error);
  return {{"layer", layer},
          {"n_activations", s.n_activations},
          {"n_positive", s.n_positive},
          {"share_positive", quotient(s.n_positive, s.n_activations)}};
}

}  // namespace

Json routing_json(const moe_model* model, const moe_session* session) {
  Json layers = Json::array();
  for (int32_t i = 0; i < model_info(model).n_layers; ++i) {
    if (layer_info(model, i).n_experts > 0) layers.push_back(layer_routing(session, i));
  }
  return layers;
}

Json activations_json(const moe_model* model, const moe_session* session) {
  Json layers = Json::array();
  for (int32_t i = 0; i < model_info(model).n_layers; ++i) {
    if (layer_info(model, i).d_ff > 0) layers.push_back(layer_activations(session, i));
  }
  return layers;
}

void print_stats(const Json& routing, const Json& activations) {
  const std::vector<Line> lines = read_lines(routing, activations);
  if (lines.empty()) {
    std::fputs("moe: no expert use or activations: no layer of this model has an FFN\n", stderr);
    return;
  }
  std::fputs("  layer    tokens  experts each   unused   dropped  positive  busiest experts\n",
             stderr);
  std::vector<Line> routed = of_kind(lines, false);
  std::vector<Line> dense = of_kind(lines, true);
  const std::string notes =
      shorten(&routed, "most uneven", "MoE") + shorten(&dense, "least positive", "dense");
  if (notes.empty()) {
    print_lines(lines);
  } else {
    print_lines(routed);
    print_lines(dense);
  }
  if (lines.size() > 1) print_all(lines);
  std::fputs(notes.c_str(), stderr);
}

Json skipped_json(const Json& layers) {
  uint64_t n = 0;
  double tokens = 0;
  double probability = 0;
  for (const Json& layer : layers) {
    n += layer["n_skipped"].get<uint64_t>();
    tokens += layer["n_tokens"].get<double>();
    probability += layer["skipped_probability"].get<double>();
  }
  return {{"uses", n}, {"probability", tokens > 0 ? probability / tokens : 0.0}};
}

void print_skipped(const Json& skipped) {
  std::fprintf(stderr,
               "moe: skipped %s of experts that were not in memory, %.2f %% of the probability\n",
               counted(skipped["uses"].get<uint64_t>(), "use").c_str(),
               100 * skipped["probability"].get<double>());
}

void report_skipped(const ModelOptions& o, const moe_model* model,
                    const std::vector<moe_session*>& sessions) {
  if (!may_skip(o)) return;
  Json layers = Json::array();
  for (const moe_session* session : sessions) {
    for (Json& layer : routing_json(model, session)) layers.push_back(std::move(layer));
  }
  print_skipped(skipped_json(layers));
}

}  // namespace moe_cli
