// SPDX-License-Identifier: MIT
#pragma once
// Chooses the format of each matrix so that a file has a given size, or its matrices a given number
// of bits, with the least expected damage: docs/precision.md says what that is.

#include <functional>
#include <vector>

#include "src/convert/candidates.h"
#include "src/convert/least_damage.h"
#include "src/convert/report.h"
#include "src/convert/sensitivity.h"
#include "src/convert/size_goal.h"

namespace moe {

/// Exact bytes of the file whose segments, those of the plan in order, have these layouts.
using FileBytes = std::function<uint64_t(const std::vector<BlobLayout>& layouts)>;

class FormatChoice {
 public:
  /// Lists the formats that each matrix may have; those with a format in the plan keep it. Reads
  /// all weights. Throws MOE_ERR_ARGUMENT, naming the smallest possible size, if the goal is below
  /// it, and what choose_storage() does. `tick` is called regularly, on this thread, and may throw.
  /// The references must outlive this.
  FormatChoice(const SizeGoal& goal, Plan& plan, const ModelConfig& config,
               const Checkpoint& checkpoint, ThreadPool& pool, FileBytes file_bytes,
               std::function<void()> tick);
  FormatChoice(const FormatChoice&) = delete;
  FormatChoice& operator=(const FormatChoice&) = delete;

  /// True if input statistics can affect a matrix, in one of its formats.
  bool can_calibrate() const;

  /// Measures what each format does to a sample of the weights (measure_candidates()), and writes
  /// the formats chosen into the plan. Once. `calibration` may be null.
  SizeReport choose(Calibration* calibration);

 private:
  // Segments of one part in one layer, whose size in the file depends on all of its groups.
  struct Unit {
    std::vector<size_t> segments;
    std::vector<FormatGroup> groups;              // not fixed
    std::vector<FormatGroup> fixed;               // whose damage is expected too
    std::vector<std::vector<size_t>> selections;  // options: for each group a candidate
    SizeOptions options;
  };
  using Selection = std::vector<size_t>;

  void list_units();
  void add_matrix(const MatrixPlace& place, Unit* unit);
  void set_damages(Unit* unit) const;
  void select(const Unit& unit, const Selection& selection);
  BlobLayout layout_of(size_t segment) const;
  uint64_t file_bytes() const;
  uint64_t most_description_bytes() const;
  uint64_t matrix_bytes(size_t segment) const;
  uint64_t matrix_bytes() const;
  uint64_t bytes_of(const Unit& unit) const;
  uint64_t bytes_for_bits() const;
  void check_smallest();
  void measure(Calibration* calibration);
  void add_option(const Selection& selection, Unit* unit);
  void list_options(Unit* unit);
  uint64_t bytes_with(const std::vector<size_t>& options);
  std::vector<size_t> fit(const std::vector<SizeOptions>& parts);
  void put(const Unit& unit, const Selection& selection);

  const SizeGoal goal_;
  Plan& plan_;
  const ModelConfig& config_;
  const FileBytes file_bytes_;
  const std::function<void()> tick_;
  const CandidateSource source_;
  std::vector<Unit> units_;
  std::vector<std::vector<BlobMatrix>> blobs_;  // of each segment, as last selected
  double n_weights_ = 0;                        // of the matrices in a report
  bool fixed_calibrated_ = false;               // input statistics can affect a fixed matrix
};

}  // namespace moe
