// SPDX-License-Identifier: MIT
// Formats the sums of a comparison.
#include "cli/compare/compare_report.h"

#include <cmath>
#include <cstdio>
#include <iostream>

#include "cli/io/terminal.h"
#include "cli/io/units.h"

namespace moe_cli {
namespace {

constexpr double kShares[] = {0.5, 0.9, 0.99, 0.999, 1};

std::string text(const char* format, double a, double b) {
  char line[128];
  std::snprintf(line, sizeof line, format, a, b);
  return line;
}

// "1.7 % more": the ratio of perplexities.
std::string ratio_text(const Estimate& difference) {
  const double ratio = std::exp(difference.mean);
  return text("%+.2f ± %.2f %%", 100 * (ratio - 1), 100 * ratio * difference.error);
}

Json estimate_json(const Estimate& e) { return {{"mean", e.mean}, {"error", e.error}}; }

std::string quantile_name(double share) {
  return share == 1 ? "most" : share == 0.5 ? "median" : text("%g %%", 100 * share, 0);
}

void print_layers(const std::vector<SharedChoices::Layer>& layers) {
  if (layers.empty()) return;
  std::cout << "\n   layer  experts chosen by both  tokens with the same experts\n";
  for (const SharedChoices::Layer& l : layers) {
    std::printf("%8d  %20.1f %%  %26.1f %%\n", l.layer, 100 * l.shared, 100 * l.all_same);
  }
}

}  // namespace

Json perplexity_json(const Estimate& nll) {
  const double perplexity = std::exp(nll.mean);
  return {{"perplexity", perplexity},
          {"perplexity_error", perplexity * nll.error},
          {"mean_nll", nll.mean}};
}

std::string perplexity_text(const Estimate& nll) {
  const double perplexity = std::exp(nll.mean);
  return text("perplexity %.4f ± %.4f", perplexity, perplexity * nll.error);
}

Json comparison_json(const Comparison& c) {
  const Divergence& d = c.divergence;
  const Estimate difference = d.nll_difference();
  Json reference = {{"path", c.reference}}, model = {{"path", c.model}};
  reference.update(perplexity_json(d.reference_nll()));
  model.update(perplexity_json(d.model_nll()));
  Json kl = estimate_json(d.kl());
  kl["median"] = d.kl_quantile(0.5);
  kl["p90"] = d.kl_quantile(0.9);
  kl["p99"] = d.kl_quantile(0.99);
  kl["p99_9"] = d.kl_quantile(0.999);
  kl["largest"] = d.kl_quantile(1);
  Json positions = Json::array(), layers = Json::array();
  for (const Divergence::Positions& p : d.by_position()) {
    positions.push_back({{"first", p.first},
                         {"last", p.last},
                         {"n_scored", p.n},
                         {"kl", p.kl},
                         {"same_best", p.same_best}});
  }
  for (const SharedChoices::Layer& l : c.layers) {
    layers.push_back({{"layer", l.layer},
                      {"n_tokens", l.n},
                      {"shared_experts", l.shared},
                      {"same_experts", l.all_same}});
  }
  return {{"reference", std::move(reference)},
          {"model", std::move(model)},
          {"nll_difference", estimate_json(difference)},
          {"kl", std::move(kl)},
          {"same_best", estimate_json(d.same_best())},
          {"n_scored", d.n_scored()},
          {"window", c.window},
          {"n_windows", c.n_windows},
          {"positions", std::move(positions)},
          {"layers", std::move(layers)}};
}

void print_comparison(const Comparison& c) {
  const Divergence& d = c.divergence;
  const Estimate kl = d.kl(), same = d.same_best();
  std::cout << "reference         " << perplexity_text(d.reference_nll()) << "  "
            << one_line(c.reference) << "\n"
            << "model             " << perplexity_text(d.model_nll()) << "  " << one_line(c.model)
            << "\ndifference        " << ratio_text(d.nll_difference()) << "\n"
            << "KL divergence     " << text("%.5f ± %.5f nats", kl.mean, kl.error);
  for (const double share : kShares) {
    std::cout << ", " << quantile_name(share) << text(" %.4f", d.kl_quantile(share), 0);
  }
  std::cout << "\nsame best token   " << text("%.2f ± %.2f %%", 100 * same.mean, 100 * same.error)
            << "\n"
            << counted(d.n_scored(), "token") << " scored, in " << counted(c.n_windows, "window")
            << " of " << c.window << "\n\n   position  KL divergence  same best token\n";
  for (const Divergence::Positions& p : d.by_position()) {
    std::printf("%5d..%-5d %13.5f  %13.1f %%\n", p.first, p.last, p.kl, 100 * p.same_best);
  }
  print_layers(c.layers);
}

}  // namespace moe_cli
