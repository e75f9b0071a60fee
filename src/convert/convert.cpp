// SPDX-License-Identifier: MIT
// The order of a conversion: checkpoint, importer, plan, statistics, segments, verification, name
// of the file, report.
#include "src/convert/convert.h"

#include <algorithm>
#include <filesystem>
#include <memory>

#include "formats/import/failure.h"
#include "quant/formats.h"
#include "src/convert/calibration/calibrate.h"
#include "src/convert/calibration/calibration_text.h"
#include "src/convert/choose_formats.h"
#include "src/convert/config_write.h"
#include "src/convert/destination.h"
#include "src/convert/gguf/gguf_source.h"
#include "src/convert/plan.h"
#include "src/convert/split/split_ffn.h"
#include "src/convert/tokenizer/excess_tokens.h"
#include "src/convert/tokenizer/tokenizer_write.h"
#include "src/convert/verify.h"
#include "src/convert/weights/segment_stream.h"

namespace moe {
namespace {

PrecisionPolicy make_policy(const Imported& imported, const ConvertOptions& options) {
  std::vector<PrecisionRule> overrides;
  for (const std::string& text : options.overrides) overrides.push_back(parse_override(text));
  if (options.goal.given()) {
    return PrecisionPolicy::open(imported.precision, std::move(overrides));
  }
  if (options.weights == "source") return PrecisionPolicy::as_source(std::move(overrides));
  if (options.weights == "mixed4") {
    return PrecisionPolicy::mixed4(imported.precision, std::move(overrides),
                                   imported.config.n_main_layers());
  }
  return {imported.precision, parse_weights(options.weights, "auto, source, mixed4"),
          std::move(overrides)};
}

// A model can do without a tokenizer that is not supported; a GGUF file's own errors say how.
[[noreturn]] void fail_with_way_out(const Failure& failure, const Checkpoint& checkpoint) {
  const Status& status = failure.status();
  if (status.code() != MOE_ERR_UNSUPPORTED || !checkpoint.metadata().is_null()) throw failure;
  fail(MOE_ERR_UNSUPPORTED,
       "%.350s; with tokenizer.json renamed, the model is converted without a tokenizer",
       status.text());
}

std::optional<TokenizerData> load_tokenizer(const Imported& imported, const Checkpoint& checkpoint,
                                            std::vector<std::string>* dropped) {
  if (imported.tokenizer == TokenizerKind::kNone) return std::nullopt;
  const auto vocab_size = static_cast<uint32_t>(imported.config.vocab_size);
  TokenizerData data;
  if (imported.tokenizer == TokenizerKind::kFile) {
    try {
      data = read_tokenizer(checkpoint, imported.tokenizer_file);
      *dropped =
          drop_excess_tokens(&data, vocab_size, checkpoint.path() + "/" + imported.tokenizer_file);
      if (!imported.config.head.reads_pairs()) data.between.clear();
      check_tokenizer(data, vocab_size);
    } catch (const Failure& failure) {
      fail_with_way_out(failure, checkpoint);
    }
  } else {
    check_tokenizer(data, vocab_size);
  }
  return data;
}

void count(const PlannedMatrix& matrix, const MatrixReport& r, ConvertReport* total) {
  ++total->n_matrices;
  total->n_lossless += r.lossless ? 1 : 0;
  if (total->calibration) {
    total->calibration->n_matrices += r.weighted ? 1 : 0;
    total->calibration->n_compensated += r.compensated ? 1 : 0;
  }
  total->n_weights += static_cast<uint64_t>(matrix.slot.rows) * static_cast<uint64_t>(r.cols);
  if (r.relative_error <= total->largest_relative_error) return;
  total->largest_relative_error = r.relative_error;
  total->worst_matrix = r.name;
}

[[noreturn]] void fail_cancelled() { fail(MOE_ERR_CANCELLED, "cancelled"); }

// Progress while reading, before the plan with the byte counts exists: uses the file's size.
std::function<void()> reading_step(const std::string& source, const ConvertOptions& options) {
  std::error_code error;
  const uint64_t n_bytes = std::filesystem::file_size(source, error);
  return [&options, total = error ? 1 : n_bytes] {
    if (options.progress && !options.progress(0, total, "read")) fail_cancelled();
  };
}

// Delays a finished file's final name until it has been verified.
class UncommittedSink final : public ModelSink {
 public:
  explicit UncommittedSink(ModelSink& sink) : sink_(sink) {}
  Status write(uint64_t offset, const void* bytes, size_t n) override {
    size_ = std::max(size_, offset + n);
    return sink_.write(offset, bytes, n);
  }
  Status read(uint64_t offset, void* bytes, size_t n) override {
    return sink_.read(offset, bytes, n);
  }
  Status truncate(uint64_t size) override {
    size_ = size;
    return sink_.truncate(size);
  }
  Status commit() override { return {}; }
  uint64_t size() const { return size_; }

 private:
  ModelSink& sink_;
  uint64_t size_ = 0;
};

// Counts what a file would take.
class NoSink final : public ModelSink {
 public:
  Status write(uint64_t, const void*, size_t) override { return {}; }
  Status read(uint64_t, void*, size_t) override { return {}; }
  Status truncate(uint64_t) override { return {}; }
  Status commit() override { return {}; }
};

void check_size(const ConvertOptions& o) {
  check_goal(o.goal);
  if (o.goal.given() && o.weights != "auto") {
    fail(MOE_ERR_ARGUMENT,
         "weights \"%.40s\": a size or a number of bits chooses the formats; overrides may fix "
         "those of single matrices",
         o.weights.c_str());
  }
}

void check_statistics(const std::string& source, const std::string& destination,
                      const ConvertOptions& o) {
  if (o.statistics && o.calibration) {
    fail(MOE_ERR_ARGUMENT, "calibration: expected a text or saved statistics, found both");
  }
  if (o.save_statistics && !o.calibration) {
    fail(MOE_ERR_ARGUMENT, "statistics: those of a calibration text are saved, and none is given");
  }
  if ((o.statistics || o.save_statistics) && o.split.n_experts != 0) {
    fail(MOE_ERR_ARGUMENT,
         "split: its experts depend on the text; statistics can be neither used nor saved");
  }
  if (o.statistics) check_separate(*o.statistics, destination);
  if (!o.save_statistics) return;
  check_separate(*o.save_statistics, destination);
  check_destination(source, *o.save_statistics);
  check_replaces(*o.save_statistics, Output::kStatistics);
}

// The constructor finds every error that can be known before writing.
class Conversion {
 public:
  Conversion(const std::string& source, const ConvertOptions& options, ConvertReport* report)
      : options_(options),
        report_(report),
        checkpoint_(open_checkpoint(source, reading_step(source, options),
                                    {.ignored = options.ignored_keys,
                                     .allow_zeros = options.allow_zeros,
                                     .i2_s_arm = options.i2_s_arm})),
        pool_(system_allocator()),
        imported_(in_words_of(checkpoint_, [this] { return import(); })),
        tokenizer_(in_words_of(checkpoint_, [this] {
          return load_tokenizer(imported_, checkpoint_, &dropped_tokens_);
        })) {
    check(pool_.start(options.n_threads));
    for (DerivedTensor& t : imported_.derived) {
      checkpoint_.put_tensor(t.name, std::move(t.shape), std::move(t.values));
    }
    find_mask(&imported_.config);
    if (options.calibration) {
      text_ = read_calibration_text(*options.calibration, imported_.config, tokenizer_);
    }
    if (options.split.n_experts != 0) prepare_split();
    PrecisionPolicy policy = make_policy(imported_, options);
    plan_ = in_words_of(checkpoint_, [&] { return make_plan(imported_, checkpoint_, &policy); });
    *report_ = {};
    report_->name = imported_.config.name.c_str();
    report_->importer = imported_.importer;
    report_->n_skipped_layers = imported_.n_skipped_layers;
    report_->tokenizer = tokenizer_.has_value();
    report_->dropped_tokens = dropped_tokens_;
    report_->ignored_keys = options.ignored_keys;
    report_->warnings = checkpoint_.warnings();
    for (const std::string& text : imported_.warnings) report_->warnings.push_back(text);
    if (tokenizer_) {
      for (const std::string& text : tokenizer_->warnings) report_->warnings.push_back(text);
    }
    report_->source_bytes = plan_.source_bytes;
    for (const InputFile& file : checkpoint_.files()) report_->source_file_bytes += file.size();
    if (options.goal.given()) {
      in_words_of(checkpoint_, [&] {
        formats_.emplace(
            options.goal, plan_, imported_.config, checkpoint_, pool_,
            [this](const std::vector<BlobLayout>& layouts) { return outline_bytes(layouts); },
            [this] { advance(0); });
      });
    }
    const bool calibration = options.calibration || options.statistics;
    calibrates_ = calibration && (formats_ ? formats_->can_calibrate() : loses_something());
    if (calibration && !calibrates_ && !split_) {
      fail(MOE_ERR_ARGUMENT,
           "calibration: changes nothing here, as no matrix is rounded to codes; leave the %s "
           "out, or choose a format such as int4",
           options.statistics ? "statistics" : "text");
    }
    if (options.statistics) open_statistics();
  }

  bool splits() const { return split_.has_value(); }
  /// Whether a text is to be read.
  bool calibrates() const { return calibrates_ && !calibration_; }

  /// Groups neurons and fits routers, with a copy of the dense model in `copy`.
  void fit_split(ModelSink& copy) {
    const uint64_t n_bytes = write_copy(*dense_, dense_plan_, copy);
    report_->split = split_->fit(
        copy, n_bytes, dense_plan_, text_, pool_, [this] { advance(0); }, calibration_progress());
    start_step("convert");
  }

  /// Runs the source model over the calibration text, from a copy in `copy`, which must exist until
  /// everything is written.
  void calibrate(ModelSink& copy) {
    PrecisionPolicy policy = PrecisionPolicy::as_source();
    source_plan_ = make_plan(imported_, checkpoint_, &policy);
    CalibrationOptions options;
    options.with_moments = rounded_matrices();
    if (formats_) options.n_rounds = 2;  // to choose, and to convert
    options.progress = calibration_progress();
    if (options_.save_statistics) {
      saved_sink_ = take(open_file_sink(*options_.save_statistics));
      saved_.emplace(*saved_sink_, list_inputs(source_plan_, imported_.config),
                     identity_of(source_plan_));
      options.save = &*saved_;
    }
    const uint64_t n_bytes = write_copy(imported_, source_plan_, copy);
    calibration_ = calibrate_on_text(copy, n_bytes, source_plan_, text_, pool_, std::move(options));
    report_->calibration.emplace();
    start_step("convert");
  }

  /// Before write(), with statistics if there are any.
  void choose_formats() {
    if (!formats_) return;
    report_->size = in_words_of(checkpoint_, [&] { return formats_->choose(calibration_.get()); });
    formats_.reset();
  }

  void write(ModelSink& sink) {
    InputStatistics* inputs = calibration_ ? &calibration_->inputs() : nullptr;
    ModelWriter writer(sink, options_.compress);
    for (size_t s = 0; s < plan_.segments.size(); ++s) {
      const PlannedSegment& segment = plan_.segments[s];
      if (calibration_) calibration_->prepare(s);
      SegmentStream stream = in_words_of(checkpoint_, [&] {
        return SegmentStream(segment, checkpoint_, inputs, pool_, advancer());
      });
      in_words_of(checkpoint_, [&] { stream.write(writer); });
      report_->weight_bytes += stream.layout().bytes;
      largest_errors_.emplace_back();
      for (size_t i = 0; i < segment.matrices.size(); ++i) {
        largest_errors_.back().push_back(stream.reports()[i].max_error);
        const SlotKind kind = segment.matrices[i].slot.kind;
        if (kind == SlotKind::kVector || kind == SlotKind::kTable) continue;
        count(segment.matrices[i], stream.reports()[i], report_);
        if (options_.on_matrix) options_.on_matrix(stream.reports()[i]);
      }
    }
    finish(writer, imported_);
    report_calibration();
  }

  /// Gives the statistics their name, if any are saved.
  void commit_statistics() {
    if (saved_sink_) check(saved_sink_->commit());
  }

  void verify(const std::string& path) {
    start_step("verify");
    verify_file(path, plan_, largest_errors_, checkpoint_, [this](uint64_t n) { advance(n); });
    report_->verified = true;
  }

 private:
  // Nobody has tried what a layer guesses whose model was split.
  Imported import() const {
    Imported imported = import_checkpoint(checkpoint_);
    if (options_.no_predictions || options_.split.n_experts != 0) leave_out_predictions(&imported);
    return imported;
  }

  void find_mask(ModelConfig* config) const {
    int32_t& mask = config->mask_token_id;
    if (tokenizer_ && mask < 0 && config->is_encoder()) mask = tokenizer_->mask_id;
  }

  // Afterwards `imported_` is the model with split FFNs.
  void prepare_split() {
    if (!options_.calibration) {
      fail(MOE_ERR_ARGUMENT,
           "split: its routers are fitted to a calibration text, and none is given");
    }
    PrecisionPolicy policy = PrecisionPolicy::as_source();
    dense_.emplace(std::move(imported_));
    dense_plan_ = make_plan(*dense_, checkpoint_, &policy);
    split_.emplace(options_.split, *dense_, checkpoint_);
    imported_ = import();
    find_mask(&imported_.config);
    split_->apply(&imported_);
    check(validate(imported_.config).with_context("split"));
  }

  // Writes the model in floats; returns its bytes.
  uint64_t write_copy(const Imported& imported, const Plan& plan, ModelSink& copy) {
    start_step("copy");
    UncommittedSink sized(copy);
    ModelWriter writer(sized, false);
    for (const PlannedSegment& segment : plan.segments) {
      in_words_of(checkpoint_, [&] {
        SegmentStream(segment, checkpoint_, nullptr, pool_, advancer()).write(writer);
      });
    }
    finish(writer, imported);
    return sized.size();
  }

  ReadingProgress calibration_progress() const {
    return [this](uint64_t done, uint64_t total) {
      return !options_.progress || options_.progress(done, total, "calibrate");
    };
  }

  uint64_t outline_bytes(const std::vector<BlobLayout>& layouts) {
    NoSink nowhere;
    UncommittedSink sized(nowhere);
    ModelWriter writer(sized, false);
    for (size_t s = 0; s < layouts.size(); ++s) {
      const PlannedSegment& segment = plan_.segments[s];
      check(writer.write_hole({segment.part, segment.layer, segment.expert}, layouts[s]));
    }
    finish(writer, imported_);
    return sized.size();
  }

  void finish(ModelWriter& writer, const Imported& imported) {
    ModelWriter::Builder<fbs::Tokenizer> build_tokenizer;
    if (tokenizer_) {
      build_tokenizer = [this](flatbuffers::FlatBufferBuilder& b) {
        return write_tokenizer(b, *tokenizer_);
      };
    }
    check(finish_model(writer, imported.config, build_tokenizer,
                       {{"importer", imported.importer}, {"tool", "moe convert"}}));
  }

  uint64_t identity_of(const Plan& plan) {
    return identity(imported_.config, plan, checkpoint_, [this] { advance(0); });
  }

  void open_statistics() {
    statistics_.emplace(*options_.statistics, list_inputs(plan_, imported_.config),
                        identity_of(plan_));
    uint64_t done = 0;
    const auto tell = [&](uint64_t n) {
      done += n;
      const uint64_t total = statistics_->n_bytes();
      if (options_.progress && !options_.progress(done, total, "statistics")) fail_cancelled();
    };
    statistics_->check_values(tell);
    tell(statistics_->n_bytes() - done);  // header and numbers of tokens
    calibration_ =
        calibrate_as_saved(*statistics_, plan_, imported_.config, rounded_matrices(), pool_);
    report_->calibration.emplace();
  }

  bool loses_something() {
    for (const PlannedSegment& segment : plan_.segments) {
      for (const PlannedMatrix& m : segment.matrices) {
        const auto tick = [this] { advance(0); };
        const auto storage = in_words_of(
            checkpoint_, [&] { return choose_storage(m, checkpoint_, nullptr, pool_, tick); });
        if (can_calibrate(m, storage)) return true;
      }
    }
    return false;
  }

  // Matrices that may lose precision; with automatic formats the first pass decides.
  std::set<std::string> rounded_matrices() const {
    std::set<std::string> names;
    for (const PlannedSegment& segment : plan_.segments) {
      for (const PlannedMatrix& m : segment.matrices) {
        const std::optional<FormatId> wish = m.precision.weights;
        if (!wish || format_info(*wish).integer) names.insert(m.slot.short_name());
      }
    }
    return names;
  }

  void report_calibration() {
    if (!calibration_) return;
    const CalibrationRun& run = calibration_->run();
    CalibrationReport& r = *report_->calibration;
    r.n_tokens = run.text.n_tokens;
    r.perplexity = run.text.perplexity;
    r.n_passes = run.n_passes;
    r.n_without_room = run.n_without_room;
    r.n_experts = run.n_experts;
    r.n_unreached = run.n_unreached;
  }

  std::function<void(uint64_t)> advancer() {
    return [this](uint64_t bytes) { advance(bytes); };
  }

  void start_step(const char* what) {
    done_ = 0;
    told_ = 0;
    what_ = what;
  }

  void advance(uint64_t bytes) {
    constexpr uint64_t kStep = uint64_t{1} << 20;
    done_ += bytes;
    if (bytes != 0 && done_ - told_ < kStep && done_ != plan_.source_bytes) return;
    told_ = done_;
    if (options_.progress && !options_.progress(done_, plan_.source_bytes, what_)) fail_cancelled();
  }

  const ConvertOptions& options_;
  ConvertReport* report_;
  Checkpoint checkpoint_;
  ThreadPool pool_;
  Imported imported_;
  std::vector<std::string> dropped_tokens_;
  std::optional<TokenizerData> tokenizer_;
  Plan plan_;
  std::optional<FormatChoice> formats_;  // for a size
  CalibrationText text_;
  bool calibrates_ = false;        // errors of weights
  std::optional<Imported> dense_;  // with `split_`
  Plan dense_plan_;
  std::optional<SplitFfn> split_;
  Plan source_plan_;  // of the copy that the text is read with
  std::optional<StatisticsFile> statistics_;
  std::unique_ptr<ModelSink> saved_sink_;
  std::optional<StatisticsWriter> saved_;
  std::unique_ptr<Calibration> calibration_;
  std::vector<std::vector<double>> largest_errors_;
  uint64_t done_ = 0;
  uint64_t told_ = 0;  // done_ at the last progress call
  const char* what_ = "convert";
};

}  // namespace

Status convert(const std::string& source, const std::string& destination,
               const ConvertOptions& options, ConvertReport* report) {
  return guarded([&] {
    check_destination(source, destination);
    check_size(options);
    check_statistics(source, destination, options);
    check_replaces(destination, Output::kModel);
    std::unique_ptr<ModelSink> sink = take(open_file_sink(destination));
    std::unique_ptr<ModelSink> copy;
    Conversion conversion(source, options, report);
    if (conversion.splits()) conversion.fit_split(*take(open_unnamed_sink(destination)));
    if (conversion.calibrates()) {
      copy = take(open_unnamed_sink(destination));
      conversion.calibrate(*copy);
    }
    conversion.choose_formats();
    UncommittedSink uncommitted(*sink);
    conversion.write(uncommitted);
    if (options.verify) conversion.verify(sink->written());
    report->file_bytes = uncommitted.size();
    if (options.on_end) options.on_end(*report);
    check(sink->commit());
    conversion.commit_statistics();
  });
}

Status convert_to_sink(const std::string& source, ModelSink& sink, const ConvertOptions& options,
                       ConvertReport* report) {
  return guarded([&] {
    check_size(options);
    check_statistics(source, "", options);
    MemorySink copy;
    Conversion conversion(source, options, report);
    if (conversion.splits()) {
      MemorySink dense;
      conversion.fit_split(dense);
    }
    if (conversion.calibrates()) conversion.calibrate(copy);
    conversion.choose_formats();
    conversion.write(sink);
    conversion.commit_statistics();
  });
}

}  // namespace moe
