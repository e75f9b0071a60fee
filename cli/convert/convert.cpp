// SPDX-License-Identifier: MIT
// moe convert: converts a checkpoint to a model file.

#include "cli/convert/convert.h"

#include <signal.h>

#include <cstring>
#include <new>
#include <optional>

#include "cli/help/help.h"
#include "cli/io/output_file.h"
#include "cli/io/progress.h"
#include "cli/io/text_input.h"
#include "cli/io/units.h"

namespace moe_cli {
namespace {

struct Run {
  std::optional<Progress> progress{true};
  std::optional<Progress>
      reading;  // a pass over the text for calibration, of which there may be several
  std::vector<std::string> reports;
  bool lost = false;  // memory ran out for a report
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

// Checks --set before the checkpoint is read.
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
        return listed("auto, " + listed_names(moe_weight_format_name))(format);
      },
      "");
}

// Files that are written replace those of their names: the text must not be one of them.
void keep_text(const ConvertOptions& o) {
  for (const std::string& written : {o.destination, o.save_statistics}) {
    if (!written.empty()) keep_input(written, o.calibrate, "the text of --calibrate");
  }
}

}  // namespace

std::vector<std::string> convert(const ConvertOptions& o) {
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
  if (!o.size.empty()) p.most_bytes = parse_bytes("--size", o.size);
  p.most_bits = o.most_bits;
  p.overrides = overrides.data();
  p.n_overrides = static_cast<int32_t>(overrides.size());
  p.n_threads = o.threads;
  p.verify = o.verify ? 1 : 0;
  p.allow_zeros = o.allow_zeros ? 1 : 0;
  p.i2_s_arm = o.i2_s_arm ? 1 : 0;
  p.no_predictions = o.no_mtp ? 1 : 0;
  p.ignored_keys = ignored_keys.data();
  p.n_ignored_keys = static_cast<int32_t>(ignored_keys.size());
  p.progress = on_progress;
  p.report = on_report;
  p.progress_user = p.report_user = &run;
  moe_error error;
  signal(SIGPIPE, SIG_IGN);  // if the reader of our output exits, leave nothing behind
  const moe_status status = moe_convert(o.source.c_str(), o.destination.c_str(), &p, &error);
  if (run.lost) throw std::bad_alloc();
  check(status, error);
  return std::move(run.reports);  // the bar goes before anything else is shown
}

void add_convert(CLI::App& app) {
  auto o = std::make_shared<ConvertOptions>();
  CLI::App* c = app.add_subcommand("convert", "Turn a checkpoint into a model file");
  example(*c, "moe convert ~/Qwen1.5-MoE-A2.7B-Chat qwen.moe --verify");
  c->add_option("SRC", o->source, "Folder with config.json and safetensors, or a GGUF file")
      ->required()
      ->check(not_empty());
  c->add_option("DST", o->destination, "Model file to write (.moe)")
      ->required()
      ->check(not_empty())
      ->check(no_stdout());
  CLI::Option* weights =
      c->add_option("--weights", o->weights,
                    "Format of linear weights: auto, mixed4 (int4_k, and int6_k where it gains "
                    "most), source (all weights in floats that hold exactly the checkpoint's), " +
                        listed_names(moe_weight_format_name))
          ->check(listed("auto, mixed4, source, " + listed_names(moe_weight_format_name)))
          ->option_text("FORMAT")
          ->capture_default_str();
  CLI::Option* size =
      c->add_option("--size", o->size,
                    "Choose the format of every matrix that --set does not name, so that the model "
                    "file has at most this many bytes, such as 11G, and loses least")
          ->option_text("SIZE")
          ->check(not_empty())
          ->excludes(weights);
  c->add_option("--bits", o->most_bits,
                "The same for a number of bits per weight, such as 2.7: the mean over all matrices")
      ->option_text("X")
      ->check(number_between(0, 64, Bound::kLow))
      ->excludes(weights, size);
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
  c->add_option(
       "--ignore-key", o->ignored_keys,
       "Ignore this key of config.json (OBJECT.KEY in an object) or of a GGUF file; several "
       "with commas, or given several times")
      ->check(not_empty())
      ->option_text("NAME")
      ->allow_extra_args(false);
  c->add_flag("--allow-zeros", o->allow_zeros,
              "Accept a file that ends in matrices of zeros (a download that was cut off?)");
  c->add_flag("--i2s-arm", o->i2_s_arm,
              "I2_S tensors were written by bitnet.cpp on ARM since November 2025");
  c->add_flag("--no-mtp", o->no_mtp,
              "Leave out the layer that predicts further tokens, which --draft uses");
  c->add_option("--compress", o->compress,
                "Compress the model file (a compressed part cannot be mapped)")
      ->check(one_of({"none", "zstd"}))
      ->option_text("none|zstd")
      ->capture_default_str();
  c->add_option("--threads", o->threads, "Threads (default all that this process may use)")
      ->transform(integer_in(0, 1024))
      ->option_text("N");
  c->add_flag("--verify", o->verify, "Read the result back and compare every weight");
  auto* list = c->add_flag("--list", o->list, "Show every matrix: format and error");
  c->add_flag("--json", o->json, "Print the report, with every matrix, as JSON")->excludes(list);
  c->callback([o] {
    const double start = now_seconds();
    const std::vector<std::string> reports = convert(*o);
    print_conversion(*o, reports, now_seconds() - start);
  });
}

}  // namespace moe_cli
