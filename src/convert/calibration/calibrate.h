#pragma once
// The source model reads a text, and what its matrices are multiplied with is summed up.

#include <functional>
#include <memory>
#include <set>

#include "src/convert/calibration/input_statistics.h"
#include "src/convert/calibration/source_model.h"

namespace moe {

struct CalibrationOptions {
  /// Bytes for the model and its session, of which experts get what is left; 0: half of what the
  /// machine has where the model would take more.
  uint64_t model_bytes = 0;
  /// Bytes for second moments; 0: half of what the machine has beside the model.
  uint64_t moment_bytes = 0;
  /// Matrices (Slot::short_name()) for which there are to be second moments.
  std::set<std::string> with_moments;
  ReadingProgress progress;
};

struct CalibrationRun {
  uint64_t n_tokens = 0;  // of the text
  uint64_t n_experts = 0;
  uint64_t n_unreached = 0;     // of them
  double perplexity = 0;        // of the source on the text; 0: of an encoder
  uint32_t n_passes = 0;        // over the text: as many as the room for second moments asks for
  uint32_t n_without_room = 0;  // layers that have none
};

class Calibration {
 public:
  /// Runs the model of `n_bytes` that `file` holds, complete and in float formats, on all CPUs over
  /// the text, in windows of at most 512 tokens. `plan`: what was written. All but `options` must
  /// outlive it.
  Calibration(ModelSink& file, uint64_t n_bytes, const Plan& plan, const CalibrationText& text,
              CalibrationOptions options);
  ~Calibration();
  Calibration(const Calibration&) = delete;
  Calibration& operator=(const Calibration&) = delete;

  /// Before the statistics of a segment of the plan are asked for, in the plan's order: where its
  /// second moments are not there yet, those of others go and the text is read again.
  void prepare(size_t segment);
  InputStatistics& inputs();
  const CalibrationRun& run() const { return run_; }

 private:
  class Impl;
  CalibrationRun run_;
  std::unique_ptr<Impl> impl_;
};

}  // namespace moe
