#pragma once
// From a checkpoint to a model file: the edge of libmoe_convert. Nothing is thrown from here.

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "formats/moe/writer.h"
#include "src/base/status.h"
#include "src/convert/report.h"
#include "src/convert/split/split_options.h"

namespace moe {

struct ConvertOptions {
  /// Format of linear matrices ("ternary2", "int8" ...; a float format also of embedding and head;
  /// of a four-bit one not of attention and of head and merge of MH-MoE, which become int8).
  /// "auto": what config.json says, and where it says nothing ternary2 for matrices that are
  /// ternary already, the format that has the values of codes of four or eight bits (of embedding
  /// and head too), int8 for others.
  std::string weights = "auto";
  /// "PATTERN=FORMAT", "PATTERN=FORMAT:ACTIVATIONS" or "PATTERN=:ACTIVATIONS" on the matrices'
  /// names in the research layout without ".weight"; '*' stands for any characters; the last match
  /// wins.
  std::vector<std::string> overrides;
  /// Of config.json, or of a GGUF file: taken for missing, whatever they mean.
  std::vector<std::string> ignored_keys;
  bool compress = false;  // zstd for segments where it saves 5 % or more
  /// A text for the source model to read: errors of weights are then made up for by others, as the
  /// second moments of their inputs say. Views memory that must stay.
  std::optional<std::string_view> calibration;
  /// Dense FFNs become experts, with routers fitted to the calibration text.
  SplitOptions split;
  bool verify = false;  // read the result again and compare every weight with the checkpoint
  /// Bytes of the checkpoint, what is being done; return false to cancel (MOE_ERR_CANCELLED).
  std::function<bool(uint64_t done, uint64_t total, const char* what)> progress;
  std::function<void(const MatrixReport&)> on_matrix;
  /// The last that can fail, before the file gets its final name.
  std::function<void(const ConvertReport&)> on_end;
};

/// Converts the folder `source` into the file `destination`, in bounded memory (rows are streamed).
/// Everything that can be known from names, shapes and configuration is checked before anything is
/// written; the final name appears only when the file is complete. On failure an older file of that
/// name is as it was, and nothing else is left. MOE_ERR_ARGUMENT when the destination is a file of
/// the checkpoint.
/// With a calibration text a copy of the model in floats lies beside the destination meanwhile, in
/// a file without a name. MOE_ERR_ARGUMENT, before anything is written, when the text holds no
/// tokens, the checkpoint has no tokenizer, or nothing is stored with a loss that the text could
/// lessen and no FFN is split. To split FFNs takes such a text; MOE_ERR_ARGUMENT without it.
Status convert(const std::string& source, const std::string& destination,
               const ConvertOptions& options, ConvertReport* report);

/// The same into a sink (which is committed); the copy is in memory. Never verifies.
Status convert_to_sink(const std::string& source, ModelSink& sink, const ConvertOptions& options,
                       ConvertReport* report);

}  // namespace moe
