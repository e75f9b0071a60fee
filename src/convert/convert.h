// SPDX-License-Identifier: MIT
#pragma once
// Converts a checkpoint to a model file: the interface of libmoe_convert. Never throws.

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "formats/moe/writer.h"
#include "src/base/status.h"
#include "src/convert/report.h"
#include "src/convert/size_goal.h"
#include "src/convert/split/split_options.h"

namespace moe {

struct ConvertOptions {
  /// Format of linear matrices ("ternary2", "int8" ...; a float format also of embedding and head;
  /// one of two to five bits not of attention and of head and merge of MH-MoE). "auto": what
  /// config.json says, and where it says nothing ternary2 for matrices that are ternary already,
  /// the format that has the values of codes of two to eight bits, and for others int8, or
  /// int8_group where every token uses the matrix: attention, head and merge of MH-MoE, embedding
  /// and head. "source": every matrix in floats that represent the checkpoint exactly. "mixed4":
  /// int4_k, and int6_k where every token uses the matrix and for `down` in about half of the
  /// layers.
  std::string weights = "auto";
  /// With "auto": formats are chosen to meet it, except for matrices of which an override says one.
  SizeGoal goal;
  /// "PATTERN=FORMAT", "PATTERN=FORMAT:ACTIVATIONS" or "PATTERN=:ACTIVATIONS" on matrix names in
  /// the research layout without ".weight"; '*' matches any characters; the last match wins.
  std::vector<std::string> overrides;
  /// Keys of config.json or of a GGUF file to ignore.
  std::vector<std::string> ignored_keys;
  /// Accepts files that end in matrices of zeros, which a download that was cut off leaves.
  bool allow_zeros = false;
  /// I2_S tensors of a GGUF file are in blocks of 64 weights, not 128.
  bool i2_s_arm = false;
  /// Leaves out the layer that guesses tokens (ModelConfig::n_predictions).
  bool no_predictions = false;
  int n_threads = 0;      // 0: one per usable CPU
  bool compress = false;  // zstd for segments where it saves at least 5 %
  /// A text for the source model: later weights then compensate for rounding errors, according to
  /// the second moments of their inputs. The memory must outlive the conversion.
  std::optional<std::string_view> calibration;
  /// Instead of a text: a file that `save_statistics` wrote, for this model. The result is the same
  /// as with the text.
  std::optional<std::string> statistics;
  /// With a text, not with a split: the file to write its statistics to, for all formats.
  std::optional<std::string> save_statistics;
  /// Splits dense FFNs into experts, with routers fitted to the calibration text.
  SplitOptions split;
  bool verify = false;  // read the result back and compare every weight with the checkpoint
  /// Bytes of the checkpoint, current activity; return false to cancel (MOE_ERR_CANCELLED).
  std::function<bool(uint64_t done, uint64_t total, const char* what)> progress;
  std::function<void(const MatrixReport&)> on_matrix;
  /// Last step that can fail before the file gets its final name.
  std::function<void(const ConvertReport&)> on_end;
};

/// Converts the folder or GGUF file `source` to the file `destination`, in bounded memory (rows are
/// streamed). Names, shapes and configuration are checked before anything is written; the final
/// name appears only when the file is complete. On failure an older file of that name is unchanged,
/// and nothing else remains. MOE_ERR_ARGUMENT if the destination is a file of the checkpoint. With
/// a calibration text a float copy of the model temporarily exists next to the destination, in an
/// unnamed file. MOE_ERR_ARGUMENT, before anything is written, if the text has no tokens, the
/// checkpoint has no tokenizer, or no matrix is rounded (with a goal: none can be) and no FFN is
/// split. Splitting FFNs requires such a text; otherwise MOE_ERR_ARGUMENT. Saved statistics get
/// their name just after the destination does: if that alone fails, the model is complete, and an
/// older file of statistics is unchanged. MOE_ERR_ARGUMENT if they are the destination, a file of
/// the checkpoint or a model file.
Status convert(const std::string& source, const std::string& destination,
               const ConvertOptions& options, ConvertReport* report);

/// The same to a sink (which is committed); the copy is in memory. Never verifies.
Status convert_to_sink(const std::string& source, ModelSink& sink, const ConvertOptions& options,
                       ConvertReport* report);

}  // namespace moe
