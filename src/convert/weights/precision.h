// SPDX-License-Identifier: MIT
#pragma once
// The stored format of each matrix and the quantisation of its inputs: rules of config.json, then
// the caller's.

#include "src/convert/importer.h"

namespace moe {

/// Precision requested for one matrix.
struct PrecisionChoice {
  std::optional<FormatId> weights;  // none: auto
  std::optional<ActPrecision> activations;
  bool shared = false;       // every token uses the matrix
  bool int8_by_row = false;  // by default int8 per row, never int8_group
  bool only_codes = false;   // `weights` only if the checkpoint has codes of that format
  bool as_source = false;    // floats that represent the checkpoint exactly; overrides `weights`
  bool fixed = false;        // an override says how it is stored, if only "auto"

  /// True if a matrix of floats gets its default.
  bool by_default() const { return !weights || only_codes; }
  /// The format of ordinary weights, not ternary. eight_bits() may replace a default of int8_group.
  FormatId for_floats() const;
  /// Precision of inputs for a format: floats remain floats; integers default to a8_block, with
  /// scales in the tile to a8_group.
  ActPrecision activations_for(FormatId stored) const;
};

/// "ternary2" and so on; empty for other names ("i32" is not a weight format). MOE_ERR_ARGUMENT for
/// a format that only files have.
std::optional<FormatId> parse_weight_format(std::string_view name);

/// The caller's default: a format, or empty for "auto". MOE_ERR_ARGUMENT; `others`: the names
/// besides those of formats that the caller takes.
std::optional<FormatId> parse_weights(const std::string& text, const char* others = "auto");

/// "PATTERN=FORMAT", "PATTERN=FORMAT:ACTIVATIONS" or "PATTERN=:ACTIVATIONS". MOE_ERR_ARGUMENT.
PrecisionRule parse_override(const std::string& text);

class PrecisionPolicy {
 public:
  /// `weights`: the caller's default for linear matrices (a float format also for embedding and
  /// head); empty: auto, which leaves the rules of config.json in force.
  PrecisionPolicy(std::vector<PrecisionRule> config_rules, std::optional<FormatId> weights,
                  std::vector<PrecisionRule> overrides)
      : config_rules_(std::move(config_rules)),
        weights_(weights),
        overrides_(std::move(overrides)),
        used_(overrides_.size(), false) {}

  /// Every matrix as floats that represent the checkpoint exactly, unless an override says
  /// otherwise.
  static PrecisionPolicy as_source(std::vector<PrecisionRule> overrides = {}) {
    PrecisionPolicy policy({}, {}, std::move(overrides));
    policy.as_source_ = true;
    return policy;
  }

  /// Four bits where they cost little and six elsewhere (mixed4_format()), in a model of
  /// `n_layers`.
  static PrecisionPolicy mixed4(std::vector<PrecisionRule> config_rules,
                                std::vector<PrecisionRule> overrides, int32_t n_layers) {
    PrecisionPolicy policy(std::move(config_rules), {}, std::move(overrides));
    policy.mixed4_layers_ = n_layers;
    return policy;
  }

  /// For a choice by size (choose_formats.h): no formats but those of overrides and of layers that
  /// round their weights in every pass.
  static PrecisionPolicy open(std::vector<PrecisionRule> config_rules,
                              std::vector<PrecisionRule> overrides) {
    for (PrecisionRule& rule : config_rules) {
      rule.weights.reset();
      rule.weights_auto = false;
    }
    return {std::move(config_rules), {}, std::move(overrides)};
  }

  /// `kind`: of the tensor with the slot's weights; `layer`: -1 outside layers.
  PrecisionChoice choose(const Slot& slot, BitLinear kind = BitLinear::kNo, int32_t layer = -1);
  /// Throws MOE_ERR_ARGUMENT if an override matched no slot: a misspelt pattern.
  void check_all_used() const;

 private:
  std::vector<PrecisionRule> config_rules_;
  std::optional<FormatId> weights_;
  std::vector<PrecisionRule> overrides_;
  std::vector<bool> used_;  // per override
  bool as_source_ = false;
  int32_t mixed4_layers_ = 0;  // 0: not requested
};

}  // namespace moe
