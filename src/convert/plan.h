// SPDX-License-Identifier: MIT
#pragma once
// Plan of a conversion: every slot of the model with its tensor and precision. Making it finds
// missing, extra and misshapen tensors before anything is written.

#include <optional>

#include "src/convert/weights/precision.h"

namespace moe {

/// Why a format was chosen for a number of bytes.
struct FormatReason {
  double error = 0;   // expected (Candidate::error()), not squared
  double damage = 0;  // expected per squared error, of all matrices that share the choice
};

struct PlannedMatrix {
  Slot slot;
  Source source;
  const SourceTensor* tensor = nullptr;  // of the checkpoint
  PrecisionChoice precision;
  std::optional<FormatReason> reason = {};

  /// Bytes of the checkpoint for `n_weights` weights in whole rows, without scales.
  uint64_t source_bytes(uint64_t n_weights) const;
  /// Bytes of the checkpoint for all of its weights, with scales.
  uint64_t file_bytes() const;
};

struct PlannedSegment {
  Part part = Part::kEmbedding;
  int32_t layer = -1;
  int32_t expert = -1;
  std::vector<PlannedMatrix> matrices;
};

struct Plan {
  std::vector<PlannedSegment> segments;
  uint64_t source_bytes = 0;  // of all used tensors
};

/// Throws MOE_ERR_NOT_FOUND (missing), MOE_ERR_FORMAT (extra, wrong dtype) or MOE_ERR_SHAPE, naming
/// the tensor. `checkpoint` must outlive the plan.
Plan make_plan(const Imported& imported, const Checkpoint& checkpoint, PrecisionPolicy* policy);

}  // namespace moe
