#include "cli/routing_stats.h"

#include <algorithm>
#include <cstdio>
#include <numeric>
#include <vector>

namespace moe_cli {
namespace {

constexpr size_t kMostLines = 24;
constexpr size_t kLinesOfMany = 8;
constexpr size_t kBusiest = 3;

struct Line {
  int layer;
  uint64_t n_tokens;
  uint64_t n_served;
  uint64_t n_dropped;
  std::vector<uint64_t> served;   // by expert
  std::vector<size_t> by_demand;  // experts, the busiest first

  double share(size_t rank) const {
    return n_served == 0
               ? 0
               : static_cast<double>(served[by_demand[rank]]) / static_cast<double>(n_served);
  }
  size_t n_unused() const {
    return static_cast<size_t>(std::count(served.begin(), served.end(), uint64_t{0}));
  }
};

Line read_line(const Json& j) {
  Line line{j["layer"].get<int>(),
            j["n_tokens"].get<uint64_t>(),
            0,
            j["n_dropped"].get<uint64_t>(),
            j["tokens_per_expert"].get<std::vector<uint64_t>>(),
            {}};
  line.n_served = std::accumulate(line.served.begin(), line.served.end(), uint64_t{0});
  line.by_demand.resize(line.served.size());
  std::iota(line.by_demand.begin(), line.by_demand.end(), size_t{0});
  std::stable_sort(line.by_demand.begin(), line.by_demand.end(),
                   [&](size_t a, size_t b) { return line.served[a] > line.served[b]; });
  return line;
}

void print_row(const std::string& layer, uint64_t tokens, uint64_t served, uint64_t unused,
               uint64_t dropped, const std::string& busiest) {
  const double each = tokens == 0 ? 0 : static_cast<double>(served) / static_cast<double>(tokens);
  std::fprintf(stderr, "%7s %9llu %13.2f %8llu %9llu%s%s\n", layer.c_str(),
               static_cast<unsigned long long>(tokens), each,
               static_cast<unsigned long long>(unused), static_cast<unsigned long long>(dropped),
               busiest.empty() ? "" : "  ", busiest.c_str());
}

std::string busiest_text(const Line& line) {
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
  uint64_t tokens = 0;
  uint64_t served = 0;
  uint64_t unused = 0;
  uint64_t dropped = 0;
  for (const Line& line : lines) {
    tokens += line.n_tokens;
    served += line.n_served;
    unused += line.n_unused();
    dropped += line.n_dropped;
  }
  print_row("all", tokens, served, unused, dropped, "");
}

}  // namespace

Json routing_json(const moe_model* model, const moe_session* session) {
  Json layers = Json::array();
  const moe_model_info info = model_info(model);
  moe_error error;
  for (int32_t i = 0; i < info.n_layers; ++i) {
    moe_routing_stats s{};
    s.struct_size = sizeof s;
    const moe_status status = moe_session_get_routing(session, i, &s, &error);
    if (status == MOE_ERR_UNSUPPORTED) continue;
    check(status, error);
    uint64_t served = 0;
    for (int32_t e = 0; e < s.n_experts; ++e) served += s.tokens_per_expert[e];
    layers.push_back(
        {{"layer", i},
         {"n_tokens", s.n_tokens},
         {"mean_experts_per_token",
          s.n_tokens == 0 ? 0.0 : static_cast<double>(served) / static_cast<double>(s.n_tokens)},
         {"n_dropped", s.n_dropped},
         {"n_skipped", s.n_skipped},
         {"skipped_probability", s.skipped_probability},
         {"share_positive", s.n_activations == 0 ? 0.0
                                                 : static_cast<double>(s.n_positive) /
                                                       static_cast<double>(s.n_activations)},
         {"tokens_per_expert",
          std::vector<uint64_t>(s.tokens_per_expert, s.tokens_per_expert + s.n_experts)},
         {"experts_per_token",
          std::vector<uint64_t>(s.experts_per_token, s.experts_per_token + s.n_experts + 1)}});
  }
  return layers;
}

void print_routing(const Json& layers) {
  std::vector<Line> lines;
  for (const Json& layer : layers) lines.push_back(read_line(layer));
  if (lines.empty()) {
    std::fputs("moe: no experts were used: every layer is dense\n", stderr);
    return;
  }
  std::fputs("  layer    tokens  experts each   unused   dropped  busiest experts\n", stderr);
  const bool many = lines.size() > kMostLines;
  std::vector<Line> shown = lines;
  if (many) {
    std::stable_sort(shown.begin(), shown.end(),
                     [](const Line& a, const Line& b) { return a.share(0) > b.share(0); });
    shown.resize(kLinesOfMany);
  }
  for (const Line& line : shown) {
    print_row(std::to_string(line.layer), line.n_tokens, line.n_served, line.n_unused(),
              line.n_dropped, busiest_text(line));
  }
  if (lines.size() > 1) print_all(lines);
  if (many) {
    std::fprintf(stderr, "  (the %zu most uneven of %zu layers; --json has all)\n", kLinesOfMany,
                 lines.size());
  }
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
               "moe: skipped %llu uses of experts that were not in memory, %.2f %% of the "
               "probability\n",
               static_cast<unsigned long long>(skipped["uses"].get<uint64_t>()),
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
