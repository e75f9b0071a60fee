// SPDX-License-Identifier: MIT
#pragma once
// Report of a conversion, as data and as JSON.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "quant/format.h"

namespace moe {

/// One stored matrix (norms, biases and tables are not reported).
struct MatrixReport {
  std::string name;  // in the research layout: "layers.3.moe.experts.7.up"
  int32_t rows = 0;
  int32_t cols = 0;
  FormatId format = FormatId::kF32;
  ScaleKind scale = ScaleKind::kNone;
  int32_t group = 0;
  ActPrecision act = ActPrecision::kF32;
  bool lossless = false;
  double relative_error = 0;  // Frobenius norm of the difference / that of the matrix
  double max_error = 0;       // largest absolute difference
  uint64_t bytes = 0;         // tiles and scales
  std::string source_type;    // in the checkpoint
  uint64_t source_bytes = 0;  // there, with scales
  bool zeros = false;         // every weight is 0
  bool own_rounding = false;  // the model rounds its weights to this format itself
  // With a requested format, if the default would keep the checkpoint's codes.
  std::optional<FormatId> kept;  // in this format
  uint64_t kept_bytes = 0;
  // With a size to meet: why it has this format (FormatReason).
  std::optional<double> expected_error;
  double sensitivity = 0;
  // With a calibration text.
  bool weighted = false;      // input statistics were used
  bool compensated = false;   // with second moments, not only mean squares
  double weighted_error = 0;  // as relative_error, of the outputs
  uint64_t n_tokens = 0;      // tokens that reached the matrix
};

/// Effects of a calibration text.
struct CalibrationReport {
  uint64_t n_tokens = 0;
  double perplexity = 0;        // of the source on the text; 0: an encoder
  uint64_t n_matrices = 0;      // that were weighted
  uint64_t n_compensated = 0;   // of n_matrices
  uint32_t n_passes = 0;        // over the text; 0: its statistics were saved
  uint32_t n_without_room = 0;  // layers whose second moments did not fit
  uint64_t n_experts = 0;
  uint64_t n_unreached =
      0;  // of these: experts that no token selected, quantised without statistics
};

/// Result of splitting dense FFNs into experts.
struct SplitReport {
  int32_t n_experts = 0;
  bool clusters = false;
  uint64_t n_layers = 0;
  uint64_t n_tokens = 0;  // of the text
  double perplexity = 0;  // of the dense model on the text; 0: an encoder
  uint32_t n_passes = 0;  // over the text
  double explained = 0;   // share of the router targets' variance explained, mean over the layers
};

/// A choice of formats by size.
struct SizeReport {
  uint64_t most_bytes = 0;  // asked for, or 0
  double most_bits = 0;     // the same
  double bits = 0;          // per weight, mean over all matrices
  double damage = 0;        // expected, in nats, with that of fixed formats
};

struct ConvertReport {
  std::string name;  // of the model
  std::string importer;
  uint64_t n_matrices = 0;
  uint64_t n_lossless = 0;
  uint64_t n_weights = 0;  // elements of all matrices
  uint64_t source_bytes = 0;
  uint64_t source_file_bytes = 0;  // of the files with the weights
  uint64_t weight_bytes = 0;       // all segments, in memory
  uint64_t file_bytes = 0;
  double largest_relative_error = 0;
  std::string worst_matrix;  // empty if all are lossless
  bool verified = false;
  bool tokenizer = false;                   // the checkpoint has one
  int32_t n_skipped_layers = 0;             // layers of multi-token prediction
  std::vector<std::string> dropped_tokens;  // added tokens without an embedding
  std::vector<std::string> ignored_keys;
  // A sentence for each thing that was accepted or left out though it is unusual.
  std::vector<std::string> warnings;
  std::optional<SplitReport> split;
  std::optional<CalibrationReport> calibration;
  std::optional<SizeReport> size;
};

/// {"matrix": "layers.3...", "rows": ...}
std::string to_json(const MatrixReport& report);
/// {"model": "...", "matrices": ...}
std::string to_json(const ConvertReport& report);

}  // namespace moe
