// SPDX-License-Identifier: MIT
#pragma once
// An architecture gives the converter the model's configuration, and the location of each matrix in
// the checkpoint. Each architecture is one file in src/convert/arch and one line in
// arch/list.h.

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>

#include "formats/import/checkpoint.h"
#include "formats/import/json.h"
#include "src/convert/weights/slot.h"

namespace moe {

/// Encoding of weights in a U8 tensor.
enum class Packing : uint8_t {
  kNone,
  /// (..., cols / 32, 16): FP4 (E2M1), low nibble first. Scales (..., cols / 32): E8M0, U8.
  kMxfp4
};

/// Rows or columns of a matrix that are stored in groups, for example the heads of q, k and v in
/// one matrix. A group is a sequence of pieces.
struct SourceGroups {
  struct Piece {
    int32_t n = 0;
    int64_t at = 0;  // in weights from the group's start; -1: not in the checkpoint, zeros
  };
  std::vector<Piece> pieces = {};  // empty: no groups
  int64_t stride = 0;              // in weights, between groups
};

/// A number by which consecutive rows of a matrix are multiplied.
struct SourceFactor {
  int32_t rows = 0;
  float factor = 1;
};

/// A selection of rows or columns of a larger matrix.
struct SourcePick {
  int32_t of = 0;                                     // size of the larger matrix; 0: no selection
  std::shared_ptr<const std::vector<int32_t>> items;  // ascending
};

/// Location of a matrix (rows, cols) in a tensor: element (r, c) is element offset + r * row_stride
/// + c * col_stride. Covers slices of rows, transposes, stacked experts and interleaved gate and
/// up.
struct Source {
  std::string tensor = {};  // empty: an optional tensor is absent
  std::vector<int64_t> shape =
      {};  // required shape of the tensor; empty: (rows, cols), vectors (rows)
  int64_t offset = 0;
  int64_t row_stride = 0;  // 0: cols
  int64_t col_stride = 1;
  SourceGroups row_groups = {};  // unpacked tensors
  SourceGroups col_groups = {};  // the same, with col_stride 1 and an explicit row_stride
  SourcePick rows = {};          // of the matrix described by the fields above
  SourcePick cols = {};
  // They are those of all rows in order, for multipliers that a model file does not have; empty: 1.
  std::vector<SourceFactor> factors = {};
  bool required = false;  // a missing tensor is an error even if the slot is optional
  // U8 tensors: offset and strides count weights, in whole rows.
  Packing packing = Packing::kNone;
  std::string scales = {};  // the tensor of scales
};

/// Precision of matrices whose short name matches; unset fields leave an earlier rule in force.
struct PrecisionRule {
  std::string match;  // '*' stands for any characters
  std::optional<FormatId> weights;
  bool weights_auto = false;  // explicit "auto": cancels an earlier format
  std::optional<ActPrecision> activations;
};

enum class TokenizerKind : uint8_t { kNone, kBytes, kFile };

/// A tensor derived from the configuration: positions given by a formula.
struct DerivedTensor {
  std::string name;
  std::vector<int64_t> shape;
  std::vector<float> values;
};

/// An imported checkpoint.
struct Imported {
  ModelConfig config;
  std::string importer;                  // model_type
  std::vector<int32_t> cosine_widths;    // d_e per layer; 0 without a cosine router
  std::vector<PrecisionRule> precision;  // later rules win
  TokenizerKind tokenizer = TokenizerKind::kNone;
  std::string tokenizer_file;  // in the checkpoint's folder
  /// Locates a slot. The research layout's names are the slots' own.
  std::function<Source(const SlotGroup&, const Slot&)> locate;
  std::vector<DerivedTensor> derived;  // in addition to the checkpoint's
  std::vector<std::string> ignored;    // patterns of tensors that the model does not need
  std::vector<std::string> warnings;   // of keys: accepted or left out, a sentence each
  int32_t n_skipped_layers = 0;        // layers of the checkpoint that the model does not need
  // Patterns of the tensors of the layer that guesses (ModelConfig::n_predictions); empty: none.
  std::vector<std::string> predictions;
  std::deque<std::vector<float>> factors;  // memory behind RopeConfig's pointers
  std::deque<std::string> texts;           // memory behind Prompt's pointers
  std::deque<std::vector<uint8_t>> signs;  // memory behind RotationSigns' pointers
};

/// A row of arch::NAME::importers(), which each file of src/convert/arch defines.
struct Importer {
  const char* model_type;  // of config.json
  Imported (*read)(const JsonNode& config, const Checkpoint& checkpoint);
  const char* architecture = "";  // in "architectures", for published files without model_type
};

/// Reads config.json and selects the importer. Throws MOE_ERR_UNSUPPORTED for an unknown
/// model_type, listing the known ones. The configuration is validated.
Imported import_checkpoint(const Checkpoint& checkpoint);

/// The same with a given config.json. `config` must only outlive the call.
Imported import_config(const JsonNode& config, const Checkpoint& checkpoint);

/// Takes the layer that guesses tokens out of the model, if it has one.
void leave_out_predictions(Imported* imported);
/// The layer whose settings a layer that guesses has: the last with attention, of those with
/// experts if there are any; null if none has attention.
const LayerConfig* like_guessing(const ModelConfig& config);

/// The parts of a known architecture that no layer here computes; null for any other name.
const char* beyond_layers(std::string_view architecture);

/// True if `text` matches `pattern`, in which '*' matches any characters, including none.
bool matches(std::string_view pattern, std::string_view text);

}  // namespace moe
