#pragma once
// What the converter asks of an architecture: the configuration of the model, and where each of its
// matrices lies in the checkpoint. Each architecture is one file in src/convert/arch and one line
// in arch/list.h.

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>

#include "formats/import/checkpoint.h"
#include "formats/import/json.h"
#include "src/convert/weights/slot.h"

namespace moe {

/// How a U8 tensor holds weights.
enum class Packing : uint8_t {
  kNone,
  /// (rows / 4, cols): bits 2 i and 2 i + 1 of row r hold code + 1 of row r + i rows / 4. One
  /// scale.
  kTernaryRows,
  /// (..., cols / 32, 16): FP4 (E2M1), low nibble first. Scales (..., cols / 32): E8M0, U8.
  kMxfp4
};

/// Rows or columns of a matrix that lie in the tensor group by group: the heads of q, k and v in
/// one matrix, say. A group is its pieces one after the other.
struct SourceGroups {
  struct Piece {
    int32_t n = 0;
    int64_t at = 0;  // in weights from the group's beginning; -1: the checkpoint has none, zeros
  };
  std::vector<Piece> pieces = {};  // empty: no groups
  int64_t stride = 0;              // in weights, from group to group
};

/// Some rows or columns of a larger matrix.
struct SourcePick {
  int32_t of = 0;                                     // that the larger one has; 0: all are taken
  std::shared_ptr<const std::vector<int32_t>> items;  // ascending
};

/// Where a matrix of (rows, cols) lies in a tensor: element (r, c) is element
/// offset + r * row_stride + c * col_stride. Slices of rows, transposes, experts stacked in one
/// tensor and interleaved gate and up are all of this form.
struct Source {
  std::string tensor = {};  // empty: the checkpoint has no such (optional) tensor
  std::vector<int64_t> shape =
      {};  // that the tensor must have; empty: (rows, cols), vectors (rows)
  int64_t offset = 0;
  int64_t row_stride = 0;  // 0: cols
  int64_t col_stride = 1;
  SourceGroups row_groups = {};  // unpacked tensors
  SourceGroups col_groups = {};  // the same, with col_stride 1, and row_stride is set
  SourcePick rows = {};          // of the matrix that the fields above describe
  SourcePick cols = {};
  bool required = false;  // a missing tensor is an error although the slot is optional
  // U8 tensors: offset and strides count weights, and are whole rows.
  Packing packing = Packing::kNone;
  std::string scales = {};     // the tensor of scales
  bool scale_divides = false;  // kTernaryRows: codes / scale instead of codes * scale
};

/// A wish about matrices whose short name matches; what is not set stays as an earlier rule had it.
struct PrecisionRule {
  std::string match;  // '*' stands for any characters
  std::optional<FormatId> weights;
  bool weights_auto = false;  // "auto", said explicitly: takes back an earlier format
  std::optional<ActPrecision> activations;
};

enum class TokenizerKind : uint8_t { kNone, kBytes, kFile };

/// A tensor that follows from the configuration: positions that are a formula.
struct DerivedTensor {
  std::string name;
  std::vector<int64_t> shape;
  std::vector<float> values;
};

/// A checkpoint understood.
struct Imported {
  ModelConfig config;
  std::string importer;                  // model_type
  std::vector<int32_t> cosine_widths;    // d_e per layer; 0 where there is no cosine router
  std::vector<PrecisionRule> precision;  // later rules win
  TokenizerKind tokenizer = TokenizerKind::kNone;
  std::string tokenizer_file;  // in the checkpoint's folder
  /// Where a slot lies. The research layout's names are the slots' own.
  std::function<Source(const SlotGroup&, const Slot&)> locate;
  std::vector<DerivedTensor> derived;      // found beside the checkpoint's own
  std::vector<std::string> ignored;        // patterns of tensors that a model does not need
  int32_t n_skipped_layers = 0;            // of the checkpoint, that a model does not need
  std::deque<std::vector<float>> factors;  // memory behind RopeConfig's pointers
};

struct Importer {
  const char* model_type;  // of config.json
  Imported (*read)(const JsonNode& config, const Checkpoint& checkpoint);
  const char* architecture = "";  // in "architectures", where published files have no model_type
};

/// What each file of arch defines, in a namespace of its own: an importer for each model_type.
#define MOE_ARCHITECTURE(name)           \
  namespace arch::name {                 \
  std::span<const Importer> importers(); \
  }
#include "src/convert/arch/list.h"
#undef MOE_ARCHITECTURE

/// Reads config.json and finds the importer. Throws MOE_ERR_UNSUPPORTED for an unknown model_type,
/// with those that are known. The configuration is validated.
Imported import_checkpoint(const Checkpoint& checkpoint);

/// The same with config.json at hand. `config` must outlive the call only.
Imported import_config(const JsonNode& config, const Checkpoint& checkpoint);

/// Whether `text` matches `pattern`, in which '*' stands for any characters, none included.
bool matches(std::string_view pattern, std::string_view text);

}  // namespace moe
