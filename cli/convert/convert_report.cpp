// SPDX-License-Identifier: MIT
// Prints a finished conversion for moe convert.

#include <algorithm>
#include <iomanip>
#include <iostream>
#include <map>
#include <vector>

#include "cli/convert/convert.h"
#include "cli/io/units.h"

namespace moe_cli {
namespace {

struct Report {
  Json matrices = Json::array();
  Json total;
  double seconds = 0;
};

Report read_reports(const std::vector<std::string>& reports) {
  Report report;
  for (const std::string& text : reports) {
    Json j = Json::parse(text);
    if (j.contains("matrix")) {
      report.matrices.push_back(std::move(j));
    } else {
      report.total = std::move(j);
    }
  }
  return report;
}

void print_matrix(const Json& m) {
  std::cout << "  " << std::left << std::setw(44) << m.value("matrix", "") << std::right
            << std::setw(8) << m.value("rows", 0) << " x " << std::left << std::setw(7)
            << m.value("cols", 0) << " " << std::setw(11) << m.value("format", "") << std::setw(8)
            << m.value("scale", "") << std::setw(9) << m.value("activations", "");
  if (m.value("lossless", false)) {
    std::cout << "lossless";
  } else {
    std::cout << "relative error " << std::setprecision(3) << m.value("relative_error", 0.0);
  }
  if (m.contains("expected_error")) {  // chosen for a size
    const double n = m.value("rows", 1.0) * m.value("cols", 1.0);
    std::cout << "; " << std::setprecision(3) << 8 * m.value("bytes", 0.0) / n
              << " bits, error expected " << m.value("expected_error", 0.0) << ", sensitivity "
              << m.value("sensitivity", 0.0);
  }
  std::cout << "\n";
}

void print_calibration(const Json& c) {
  const auto n_unreached = c.value("unreached_experts", uint64_t{0});
  const Json perplexity = c.value("perplexity", Json());
  std::cout << "  calibrated on " << counted(c.value("tokens", uint64_t{0}), "token");
  if (!perplexity.is_number()) {
    std::cout << " (perplexity of the source: not finite)";
  } else if (perplexity > 0) {
    std::cout << " (perplexity of the source " << std::setprecision(4) << perplexity.get<double>()
              << ")";
  }
  const auto n_passes = c.value("passes", uint64_t{1});
  if (n_passes == 0) std::cout << ", read earlier";
  if (n_passes > 1) std::cout << " in " << n_passes << " passes";
  const auto n_weighted = c.value("weighted_matrices", uint64_t{0});
  const auto n_compensated = c.value("compensated_matrices", uint64_t{0});
  std::cout << ": " << counted(n_weighted, "matrix", "matrices") << " by their inputs";
  if (n_compensated < n_weighted) std::cout << ", " << n_compensated << " with compensation";
  if (n_unreached > 0) {
    std::cout << "; " << n_unreached << " of " << c.value("experts", uint64_t{0})
              << " experts were never reached and are rounded as without a text";
  }
  std::cout << "\n";
  if (const auto n = c.value("layers_without_room", uint64_t{0}); n > 0) {
    std::cerr << "moe: warning: " << counted(n, "layer is", "layers are")
              << " without compensation: their second moments do not fit the free memory\n";
  }
}

void print_split(const Json& s) {
  const auto n_layers = s.value("layers", uint64_t{0});
  std::cout << "  " << counted(n_layers, "FFN") << " split into " << s.value("experts", 0)
            << " experts (" << s.value("by", "") << "); on "
            << counted(s.value("tokens", uint64_t{0}), "token") << " the routers explain "
            << std::setprecision(3) << 100 * s.value("explained", 0.0)
            << " % of how the experts' activations vary\n";
}

// Matrices of one type in the checkpoint and one format in the file.
struct Change {
  size_t n = 0;
  uint64_t from = 0, to = 0;  // bytes
  double worst = 0;           // relative error

  void add(const Json& m, const char* from_key) {
    ++n;
    from += m.value(from_key, uint64_t{0});
    to += m.value("bytes", uint64_t{0});
    worst = std::max(worst, m.value("relative_error", 0.0));
  }
};
using Changes = std::map<std::vector<std::string>, Change>;

// Why a file is larger than its checkpoint: its matrices that grew, most first.
void print_growth(const Report& report) {
  const auto source = report.total.value("source_file_bytes", uint64_t{0});
  const auto file = report.total.value("file_bytes", uint64_t{0});
  if (file <= source + source / 100) return;  // about as large
  Changes changes;
  uint64_t weights = 0;
  for (const Json& m : report.matrices) {
    changes[{m.value("source_type", ""), m.value("format", "")}].add(m, "source_bytes");
    weights += m.value("bytes", uint64_t{0});
  }
  std::vector<std::pair<std::vector<std::string>, Change>> grown;
  for (const auto& change : changes) {
    const Change& c = change.second;
    if (c.to > c.from && (c.to - c.from) * 50 >= file - source) grown.push_back(change);
  }
  std::sort(grown.begin(), grown.end(), [](const auto& a, const auto& b) {
    return a.second.to - a.second.from > b.second.to - b.second.from;
  });
  std::cout << "  larger than the checkpoint (" << format_bytes(source) << ")";
  for (size_t i = 0; i < grown.size(); ++i) {
    const auto& [names, change] = grown[i];
    std::cout << (i == 0 ? ": " : ", ") << counted(change.n, "matrix", "matrices") << " of "
              << names[0] << " as " << names[1] << " (" << format_bytes(change.to) << " from "
              << format_bytes(change.from) << ")";
  }
  if (grown.empty() || weights <= source) {
    std::cout << (grown.empty() ? ": " : ", ") << format_bytes(file - std::min(file, weights))
              << " of tokenizer, norms, tables and alignment";
  }
  std::cout << "\n";
}

void print_summary(const ConvertOptions& o, const Report& report) {
  struct Kind {
    size_t n = 0, lossless = 0;
    double worst = 0;
  };
  std::map<std::string, Kind> kinds;
  for (const Json& m : report.matrices) {
    Kind& k = kinds[m.value("format", "?")];
    ++k.n;
    if (m.value("lossless", false)) ++k.lossless;
    k.worst = std::max(k.worst, m.value("relative_error", 0.0));
  }
  int width = 9;
  for (const auto& kind : kinds) width = std::max(width, static_cast<int>(kind.first.size()));
  for (const auto& [format, k] : kinds) {
    std::cout << "  " << std::left << std::setw(width) << format << " "
              << counted(k.n, "matrix", "matrices") << ", " << k.lossless << " without loss";
    if (k.worst > 0) std::cout << ", largest relative error " << std::setprecision(3) << k.worst;
    std::cout << "\n";
  }
  if (const int n = report.total.value("skipped_layers", 0); n > 0) {
    std::cout << "  " << counted(static_cast<uint64_t>(n), "layer")
              << " of multi-token prediction left out\n";
  }
  if (report.total.contains("split")) print_split(report.total["split"]);
  if (report.total.contains("calibration")) print_calibration(report.total["calibration"]);
  if (report.total.contains("size")) {
    const Json& size = report.total["size"];
    std::cout << "  " << std::setprecision(3) << size.value("bits", 0.0)
              << " bits per weight; expected divergence " << size.value("expected_divergence", 0.0)
              << " nats\n";
  }
  std::cout << o.destination << ": " << format_bytes(report.total.value("file_bytes", uint64_t{0}))
            << " from " << format_bytes(report.total.value("source_bytes", uint64_t{0})) << " in "
            << std::fixed << std::setprecision(1) << report.seconds << " s"
            << (o.verify ? ", verified" : "") << "\n";
  print_growth(report);
}

// Codes of the checkpoint that a requested format rounded again.
void print_rounded_again(const Report& report) {
  Changes changes;
  for (const Json& m : report.matrices) {
    if (!m.contains("kept_format")) continue;
    changes[{m.value("source_type", ""), m.value("format", ""), m.value("kept_format", "")}].add(
        m, "kept_bytes");
  }
  for (const auto& [names, c] : changes) {
    const bool larger = c.to > c.from;
    std::cerr << "moe: " << (larger ? "warning" : "note") << ": "
              << counted(c.n, "matrix becomes ", "matrices become ") << names[1] << ", "
              << (larger ? "larger" : "smaller") << " (" << format_bytes(c.to) << ", not "
              << format_bytes(c.from) << ")";
    if (c.worst > 0) {
      std::cerr << (larger ? " and" : " but") << " worse (relative error " << std::setprecision(2)
                << c.worst << ")";
    }
    std::cerr << " than the checkpoint's own codes (" << names[0] << "), which are kept as "
              << names[2] << " without "
              << (report.total.contains("size") ? "a size to meet" : "--weights")
              << " or --set for them\n";
  }
}

// A download that was cut off may have left them, not only at the end of a file.
void print_zeros(const Report& report) {
  constexpr int64_t kFew = 4096;  // weights of a matrix that lies in one piece of a download
  size_t n = 0;
  std::string first;
  for (const Json& m : report.matrices) {
    const int64_t n_weights = m.value("rows", int64_t{0}) * m.value("cols", int64_t{0});
    if (!m.value("zeros", false) || n_weights < kFew) continue;
    if (++n == 1) first = m.value("matrix", "");
  }
  if (n == 0 || report.total.contains("split")) return;
  std::cerr << "moe: warning: " << counted(n, "matrix holds", "matrices hold") << " only zeros ("
            << (n > 1 ? "the first: " : "") << first << "); is the download complete?\n";
}

void print_dropped(const Json& tokens) {
  constexpr size_t kMost = 8;  // named
  std::string names;
  for (size_t i = 0; i < std::min(tokens.size(), kMost); ++i) {
    names += (i == 0 ? "" : ", ") + tokens[i].get<std::string>();
  }
  if (tokens.size() > kMost) names += " and " + std::to_string(tokens.size() - kMost) + " more";
  std::cerr << "moe: warning: left out of the tokenizer, because the model has no embedding for "
            << names << "\n";
}

// Problems that the next command would meet.
void print_warnings(const ConvertOptions& o, const Report& report) {
  constexpr double kMuch = 0.15;  // any ordinary matrix stays below 0.02 as int8, 0.12 as fp4
  size_t n = 0;
  Json worst;
  for (const Json& m : report.matrices) {
    const double error = m.value("relative_error", 0.0);
    if (error < kMuch || m.contains("expected_error")) continue;  // large as the size demands
    if (m.contains("own_rounding")) continue;                     // part of the model
    ++n;
    if (worst.is_null() || error > worst.value("relative_error", 0.0)) worst = m;
  }
  if (n > 0) {
    const std::string format = worst.value("format", "");
    const char* better = format.starts_with("int8") ? "bf16" : "int8";
    std::cerr << "moe: warning: " << format << " is imprecise here: " << n << " of "
              << report.matrices.size() << " matrices have a relative error of " << kMuch
              << " or more (" << std::setprecision(2) << worst.value("relative_error", 0.0)
              << " in " << worst.value("matrix", "") << "); --weights " << better
              << " is more precise\n";
  }
  print_zeros(report);
  print_rounded_again(report);
  if (!report.total.value("tokenizer", true)) {
    std::cerr << "moe: warning: no tokenizer was found in " << o.source
              << ": the model works with token ids only\n";
  }
  for (const Json& text : report.total.value("warnings", Json::array())) {
    std::cerr << "moe: warning: " << text.get<std::string>() << "\n";
  }
  if (report.total.contains("dropped_tokens")) print_dropped(report.total["dropped_tokens"]);
  for (const std::string& key : o.ignored_keys) std::cerr << "moe: ignored key " << key << "\n";
}

}  // namespace

void print_conversion_warnings(const ConvertOptions& o, const std::vector<std::string>& reports) {
  print_warnings(o, read_reports(reports));
}

void print_conversion(const ConvertOptions& o, const std::vector<std::string>& reports,
                      double seconds) {
  Report report = read_reports(reports);
  report.seconds = seconds;
  print_warnings(o, report);
  if (o.json) {
    Json j = {{"file", o.destination}, {"seconds", seconds}, {"total", report.total}};
    j["matrices"] = report.matrices;
    print_json(j);
    return;
  }
  if (o.list) {
    for (const Json& m : report.matrices) print_matrix(m);
  }
  print_summary(o, report);
}

}  // namespace moe_cli
