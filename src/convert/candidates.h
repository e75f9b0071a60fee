// SPDX-License-Identifier: MIT
#pragma once
// The formats that matrices may have, and what each does to a sample of their weights.

#include <functional>
#include <vector>

#include "formats/moe/layout.h"
#include "src/base/thread_pool.h"
#include "src/convert/calibration/calibrate.h"
#include "src/convert/plan.h"

namespace moe {

/// Finds a matrix in a plan.
struct MatrixPlace {
  size_t segment = 0;
  size_t matrix = 0;
};

/// A format that all matrices of a group may have; or as_stored: formats that differ, in which each
/// keeps the checkpoint's codes.
struct Candidate {
  FormatId format = FormatId::kF32;
  bool as_stored = false;         // `format` says nothing
  std::vector<BlobMatrix> blobs;  // of each matrix
  bool exact = false;             // holds the checkpoint's values
  bool calibrated = false;        // input statistics can affect a matrix
  // Squared, relative to noise of the weights' size: in the weights, or, with statistics of their
  // inputs, in the outputs.
  double weight_error = 0;
  double table_error = 0;  // the same of the weights alone, which an embedding's tokens get
  double input_error = 0;  // what rounding the inputs adds to it

  double error() const { return weight_error + input_error; }
  uint64_t bytes() const;
};

/// Matrices that share one format: those of a role in a layer, also in all of its experts. A gate
/// and its up belong together, as the file interleaves them. Or such matrices whose formats are
/// fixed; `candidates` is then one, without blobs.
struct FormatGroup {
  Role role = Role::kWeight;
  bool fixed = false;
  std::vector<MatrixPlace> places;
  std::vector<Candidate> candidates;  // by bytes
  double n_weights = 0;
  double damage = 0;        // per squared error
  double table_damage = 0;  // of an embedding that is the head: per table_error, besides
};

/// Has the weights for both steps. All references must outlive it; `tick` is called regularly, on
/// this thread, and may throw.
struct CandidateSource {
  const Plan& plan;
  const Checkpoint& checkpoint;
  ThreadPool& pool;
  const std::function<void()>& tick;

  const PlannedMatrix& at(const MatrixPlace& place) const {
    return plan.segments[place.segment].matrices[place.matrix];
  }
};

/// As if the caller had requested the format by name, or nothing for one as_stored.
void request(const Candidate& candidate, PrecisionChoice* choice);

/// Lists the candidates of a group that is not fixed: formats that hold all of its values, up to
/// the first that holds them exactly. Reads all weights. Throws MOE_ERR_NON_FINITE naming tensor
/// and element.
void list_candidates(const CandidateSource& source, FormatGroup* group);

/// Sets the errors of all candidates, from a sample of the weights that is the same for each. With
/// a `calibration` (or null) the sample is rounded with the statistics of its inputs, and the error
/// is that of the outputs. Goes through the calibration's segments once.
void measure_candidates(const CandidateSource& source, Calibration* calibration,
                        const std::vector<FormatGroup*>& groups);

}  // namespace moe
