// moe convert: converts a checkpoint to a model file.

#include <signal.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <iomanip>
#include <iostream>
#include <map>
#include <new>
#include <optional>

#include "cli/common.h"
#include "cli/help.h"
#include "cli/progress.h"
#include "cli/text_input.h"
#include "cli/units.h"

namespace moe_cli {
namespace {

struct ConvertOptions {
  std::string source;
  std::string destination;
  std::string weights = "auto";
  std::string compress = "none";
  std::vector<std::string> overrides;
  std::vector<std::string> ignored_keys;
  std::string calibrate;  // file
  std::string statistics;
  std::string save_statistics;
  int32_t split_ffn = 0;
  std::string split_by = "clusters";
  bool verify = false;
  bool json = false;
  bool list = false;
};

struct Run {
  std::optional<Progress> progress{true};
  std::optional<Progress>
      reading;  // a pass over the text for calibration, of which there may be several
  std::vector<std::string> reports;
  bool lost = false;  // memory ran out for a report
  Json matrices = Json::array();
  Json total;
  double seconds = 0;
};

// Text alone: destroying a Json takes memory, and where there is none nothing is cleaned up.
void on_report(void* user, const char* json) {
  auto* run = static_cast<Run*>(user);
  try {
    run->reports.emplace_back(json);
  } catch (const std::bad_alloc&) {  // nothing may be thrown through the library
    run->lost = true;
  }
}

void read_reports(Run* run) {
  for (const std::string& report : run->reports) {
    Json j = Json::parse(report);
    if (j.contains("matrix")) {
      run->matrices.push_back(std::move(j));
    } else {
      run->total = std::move(j);
    }
  }
}

bool on_progress(void* user, uint64_t done, uint64_t total, const char* what) {
  auto* run = static_cast<Run*>(user);
  if (run->lost) return false;
  if (std::strcmp(what, "calibrate") != 0) {
    run->reading.reset();
    return Progress::callback(&*run->progress, done, total, what);
  }
  if (done == 0 || !run->reading) run->reading.emplace(false);
  return Progress::callback(&*run->reading, done, total, what);
}

void print_matrix(const Json& m) {
  std::cout << "  " << std::left << std::setw(44) << m.value("matrix", "") << std::right
            << std::setw(8) << m.value("rows", 0) << " x " << std::left << std::setw(7)
            << m.value("cols", 0) << " " << std::setw(11) << m.value("format", "") << std::setw(8)
            << m.value("scale", "") << std::setw(9) << m.value("activations", "");
  if (m.value("lossless", false)) {
    std::cout << "lossless\n";
  } else {
    std::cout << "relative error " << std::setprecision(3) << m.value("relative_error", 0.0)
              << "\n";
  }
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

void print_summary(const ConvertOptions& o, const Run& run) {
  struct Kind {
    size_t n = 0, lossless = 0;
    double worst = 0;
  };
  std::map<std::string, Kind> kinds;
  for (const Json& m : run.matrices) {
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
  if (const int n = run.total.value("skipped_layers", 0); n > 0) {
    std::cout << "  " << counted(static_cast<uint64_t>(n), "layer")
              << " of multi-token prediction left out\n";
  }
  if (run.total.contains("split")) print_split(run.total["split"]);
  if (run.total.contains("calibration")) print_calibration(run.total["calibration"]);
  std::cout << o.destination << ": " << format_bytes(run.total.value("file_bytes", uint64_t{0}))
            << " from " << format_bytes(run.total.value("source_bytes", uint64_t{0})) << " in "
            << std::fixed << std::setprecision(1) << run.seconds << " s"
            << (o.verify ? ", verified" : "") << "\n";
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
void print_warnings(const ConvertOptions& o, const Run& run) {
  constexpr double kMuch = 0.15;  // any ordinary matrix stays below 0.02 as int8, 0.12 as fp4
  size_t n = 0;
  Json worst;
  for (const Json& m : run.matrices) {
    const double error = m.value("relative_error", 0.0);
    if (error < kMuch) continue;
    ++n;
    if (worst.is_null() || error > worst.value("relative_error", 0.0)) worst = m;
  }
  if (n > 0) {
    const std::string format = worst.value("format", "");
    const char* better = format.starts_with("int8") ? "bf16" : "int8";
    std::cerr << "moe: warning: " << format << " is imprecise here: " << n << " of "
              << run.matrices.size() << " matrices have a relative error of " << kMuch
              << " or more (" << std::setprecision(2) << worst.value("relative_error", 0.0)
              << " in " << worst.value("matrix", "") << "); --weights " << better
              << " is more precise\n";
  }
  if (!run.total.value("tokenizer", true)) {
    std::cerr << "moe: warning: no tokenizer was found in " << o.source
              << ": the model works with token ids only\n";
  }
  if (run.total.contains("dropped_tokens")) print_dropped(run.total["dropped_tokens"]);
  for (const std::string& key : o.ignored_keys) std::cerr << "moe: ignored key " << key << "\n";
}

std::vector<const char*> pointers(const std::vector<std::string>& texts) {
  std::vector<const char*> out;
  for (const std::string& text : texts) out.push_back(text.c_str());
  return out;
}

std::string read_calibration(const std::string& path) {
  std::string text = read_file(path, kMostTextBytes);
  if (text.empty()) {
    throw CallError(MOE_ERR_ARGUMENT,
                    (path == "-" ? "stdin" : path) + ": holds no text to calibrate with");
  }
  return text;
}

// Of --set, before the checkpoint is read.
CLI::Validator override_format() {
  return CLI::Validator(
      [](std::string& text) -> std::string {
        std::string error = with_equals("PATTERN=FORMAT or PATTERN=FORMAT:ACTIVATIONS")(text);
        if (!error.empty()) return error;
        const std::string wish = text.substr(text.rfind('=') + 1);
        const size_t colon = wish.find(':');
        const std::string format = wish.substr(0, colon);
        if (colon != wish.npos)
          error = listed("f32, a8, a8_block, a8_group")(wish.substr(colon + 1));
        if (!error.empty() || (format.empty() && colon != wish.npos)) return error;
        return listed("auto, " + std::string(moe_weight_formats()))(format);
      },
      "");
}

// What is written replaces a file of that name.
void keep_text(const ConvertOptions& o) {
  const std::string text = o.calibrate == "-" ? "/dev/stdin" : o.calibrate;
  for (const std::string& written : {o.destination, o.save_statistics}) {
    if (written.empty()) continue;
    for (const char* end : {"", ".partial"}) {
      std::error_code ignored;  // there is no such file
      if (!std::filesystem::equivalent(text, written + end, ignored)) continue;
      throw UsageError(written + end + ": this is the text of --calibrate; expected another file");
    }
  }
}

void run_convert(const ConvertOptions& o) {
  const std::vector<const char*> overrides = pointers(o.overrides);
  const std::vector<const char*> ignored_keys = pointers(o.ignored_keys);
  Run run;
  moe_convert_params p{};
  p.struct_size = sizeof p;
  std::string text;
  if (!o.calibrate.empty()) {
    keep_text(o);
    text = read_calibration(o.calibrate);
    p.calibration = text.data();
    p.n_calibration = text.size();
  }
  if (o.split_ffn > 0 && o.calibrate.empty()) {
    throw UsageError("--split-ffn fits routers to a text: --calibrate FILE is missing");
  }
  if (!o.statistics.empty()) p.statistics = o.statistics.c_str();
  if (!o.save_statistics.empty()) p.save_statistics = o.save_statistics.c_str();
  p.split_ffn = o.split_ffn;
  p.split_by_clusters = o.split_ffn > 0 && o.split_by == "clusters" ? 1 : 0;
  p.compress = o.compress == "zstd" ? 1 : 0;
  p.weights = o.weights.c_str();
  p.overrides = overrides.data();
  p.n_overrides = static_cast<int32_t>(overrides.size());
  p.verify = o.verify ? 1 : 0;
  p.ignored_keys = ignored_keys.data();
  p.n_ignored_keys = static_cast<int32_t>(ignored_keys.size());
  p.progress = on_progress;
  p.report = on_report;
  p.user = &run;
  moe_error error;
  signal(SIGPIPE, SIG_IGN);  // if the reader of our output exits, leave no partial file
  const double start = now_seconds();
  const moe_status status = moe_convert(o.source.c_str(), o.destination.c_str(), &p, &error);
  if (run.lost) throw std::bad_alloc();
  check(status, error);
  run.seconds = now_seconds() - start;
  run.reading.reset();
  run.progress.reset();  // the bar goes before anything else is shown
  read_reports(&run);
  print_warnings(o, run);
  if (o.json) {
    Json j = {{"file", o.destination}, {"seconds", run.seconds}, {"total", run.total}};
    j["matrices"] = run.matrices;
    print_json(j);
    return;
  }
  if (o.list) {
    for (const Json& m : run.matrices) print_matrix(m);
  }
  print_summary(o, run);
}

}  // namespace

void add_convert(CLI::App& app) {
  auto o = std::make_shared<ConvertOptions>();
  CLI::App* c = app.add_subcommand("convert", "Turn a checkpoint into a model file");
  c->add_option("SRC", o->source, "Folder with config.json and safetensors, or a GGUF file")
      ->required();
  c->add_option("DST", o->destination, "Model file to write (.moe)")
      ->required()
      ->check(no_stdout());
  c->add_option("--weights", o->weights,
                "Format of linear weights: auto, " + std::string(moe_weight_formats()))
      ->check(listed("auto, " + std::string(moe_weight_formats())))
      ->option_text("FORMAT")
      ->capture_default_str();
  c->add_option("--set", o->overrides,
                "Format of the tensors whose name matches; * matches anything; the last match wins")
      ->option_text("PATTERN=FORMAT")
      ->check(override_format())
      ->allow_extra_args(false);
  CLI::Option* calibrate =
      c->add_option("--calibrate", o->calibrate,
                    "Compensate for rounding errors, using the source model's activations on FILE "
                    "(- is stdin), at most 256 MiB")
          ->check(not_empty())
          ->option_text("FILE");
  CLI::Option* statistics =
      c->add_option("--statistics", o->statistics,
                    "Instead of --calibrate: the FILE that --save-statistics wrote for this SRC")
          ->check(not_empty())
          ->option_text("FILE")
          ->excludes(calibrate);
  CLI::Option* save_statistics =
      c->add_option("--save-statistics", o->save_statistics,
                    "Write what --calibrate found to FILE, for conversions to other formats")
          ->check(not_empty())
          ->check(no_stdout())
          ->option_text("FILE")
          ->needs(calibrate);
  CLI::Option* split =
      c->add_option("--split-ffn", o->split_ffn,
                    "Split the FFNs of a dense model into N experts, with routers fitted to the "
                    "text of --calibrate; run the result with --router threshold:T")
          ->transform(integer_in(2, 65536))
          ->option_text("N")
          ->excludes(statistics, save_statistics);
  c->add_option("--split-by", o->split_by,
                "Neurons of an expert: clusters (of similar weights) or in-order")
      ->check(one_of({"clusters", "in-order"}))
      ->option_text("clusters|in-order")
      ->capture_default_str()
      ->needs(split);
  c->add_option("--ignore-key", o->ignored_keys,
                "Ignore this key of config.json or of a GGUF file; may be given several times")
      ->option_text("NAME")
      ->allow_extra_args(false);
  c->add_option("--compress", o->compress,
                "Compress the model file (a compressed part cannot be mapped)")
      ->check(one_of({"none", "zstd"}))
      ->option_text("none|zstd")
      ->capture_default_str();
  c->add_flag("--verify", o->verify, "Read the result back and compare every weight");
  c->add_flag("--list", o->list, "Show every matrix: format and error");
  c->add_flag("--json", o->json, "Print the report as JSON");
  c->callback([o] { run_convert(*o); });
}

}  // namespace moe_cli
