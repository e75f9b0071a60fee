// SPDX-License-Identifier: MIT
#pragma once
// Statistics of the inputs of a model's matrices: from a text that the source model reads, or from
// a file that an earlier conversion saved.

#include <functional>
#include <memory>
#include <set>

#include "formats/import/failure.h"
#include "src/convert/calibration/input_statistics.h"
#include "src/convert/calibration/saved_statistics.h"
#include "src/convert/calibration/source_model.h"

namespace moe {

struct CalibrationOptions {
  /// Bytes for the model and its session, the rest being for experts; 0: half of the machine's
  /// memory if the model would need more.
  uint64_t model_bytes = 0;
  /// Bytes for second moments; 0: half of the memory left by the model.
  uint64_t moment_bytes = 0;
  /// Matrices (Slot::short_name()) that need second moments.
  std::set<std::string> with_moments;
  /// How often prepare() goes through the segments. The model stays in memory until the last time,
  /// unless all second moments fit at once.
  int32_t n_rounds = 1;
  ReadingProgress progress;
  /// Receives the statistics of all matrices, not only of `with_moments`; or null.
  StatisticsWriter* save = nullptr;
};

struct CalibrationRun {
  TextRead text;
  uint64_t n_experts = 0;
  uint64_t n_unreached = 0;  // experts that no token reached
  // Passes over the text: as many as the memory for second moments requires; 0: saved statistics.
  uint32_t n_passes = 0;
  uint32_t n_without_room = 0;  // layers without second moments
};

class Calibration {
 public:
  explicit Calibration(ThreadPool& pool) : pool_(pool) {}
  virtual ~Calibration() = default;
  Calibration(const Calibration&) = delete;
  Calibration& operator=(const Calibration&) = delete;

  /// Call before using the statistics of a segment: in the plan's order, again from the start if
  /// need be.
  virtual void prepare(size_t segment) = 0;
  InputStatistics& inputs() { return inputs_; }
  const CalibrationRun& run() const { return run_; }

 protected:
  /// Counts the plan's experts, and those that no token reached. All inputs must have been counted.
  void count_experts(const Plan& plan, int32_t n_layers);

  ThreadPool& pool_;
  InputStatistics inputs_{pool_};
  CalibrationRun run_;
};

/// Runs the model of `n_bytes` in `file`, complete and in float formats, on all threads over the
/// text, in windows of at most 512 tokens. `plan`: of that file. prepare() reads the text again if
/// the second moments of the segment are missing, after freeing the others. All except `options`
/// must outlive the result.
std::unique_ptr<Calibration> calibrate_on_text(ModelSink& file, uint64_t n_bytes, const Plan& plan,
                                               const CalibrationText& text, ThreadPool& pool,
                                               CalibrationOptions options);

/// Reads the statistics from `file`, which was made with `plan` and `config`, and the second
/// moments of the matrices `with_moments` of one segment at a time. All except `with_moments` must
/// outlive the result.
std::unique_ptr<Calibration> calibrate_as_saved(const StatisticsFile& file, const Plan& plan,
                                                const ModelConfig& config,
                                                const std::set<std::string>& with_moments,
                                                ThreadPool& pool);

}  // namespace moe
