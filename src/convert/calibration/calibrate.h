#pragma once
// Runs the source model over a text and accumulates the inputs of its matrices.

#include <functional>
#include <memory>
#include <set>

#include "src/convert/calibration/input_statistics.h"
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
  ReadingProgress progress;
};

struct CalibrationRun {
  uint64_t n_tokens = 0;  // of the text
  uint64_t n_experts = 0;
  uint64_t n_unreached = 0;  // experts that no token reached
  double perplexity = 0;     // of the source on the text; 0: an encoder
  uint32_t n_passes = 0;  // passes over the text: as many as the memory for second moments requires
  uint32_t n_without_room = 0;  // layers without second moments
};

class Calibration {
 public:
  /// Runs the model of `n_bytes` in `file`, complete and in float formats, on all CPUs over the
  /// text, in windows of at most 512 tokens. `plan`: of that file. All except `options` must
  /// outlive this.
  Calibration(ModelSink& file, uint64_t n_bytes, const Plan& plan, const CalibrationText& text,
              CalibrationOptions options);
  ~Calibration();
  Calibration(const Calibration&) = delete;
  Calibration& operator=(const Calibration&) = delete;

  /// Call before using the statistics of a segment, in the plan's order: if its second moments are
  /// missing, frees the others and reads the text again.
  void prepare(size_t segment);
  InputStatistics& inputs();
  const CalibrationRun& run() const { return run_; }

 private:
  class Impl;
  CalibrationRun run_;
  std::unique_ptr<Impl> impl_;
};

}  // namespace moe
