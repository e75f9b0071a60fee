#pragma once
// What a conversion did, as data and as JSON.

#include <cstdint>
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
  double relative_error = 0;  // Frobenius norm of the difference over that of the matrix
  double max_error = 0;       // largest absolute difference
  uint64_t bytes = 0;         // tiles and scales
};

struct ConvertReport {
  std::string name;  // of the model
  std::string importer;
  uint64_t n_matrices = 0;
  uint64_t n_lossless = 0;
  uint64_t n_weights = 0;  // elements of all matrices
  uint64_t source_bytes = 0;
  uint64_t weight_bytes = 0;  // all segments, in memory
  uint64_t file_bytes = 0;
  double largest_relative_error = 0;
  std::string worst_matrix;  // empty when all are lossless
  bool verified = false;
  bool tokenizer = false;  // the checkpoint has one
  std::vector<std::string> ignored_keys;
};

/// {"matrix": "layers.3...", "rows": ...}
std::string to_json(const MatrixReport& report);
/// {"model": "...", "matrices": ...}
std::string to_json(const ConvertReport& report);

}  // namespace moe
