#pragma once
// Which format each matrix is stored in and how its inputs are quantised: rules of config.json,
// then the caller's.

#include "src/convert/importer.h"

namespace moe {

/// The wish for one matrix.
struct PrecisionChoice {
  std::optional<FormatId> weights;  // none: auto
  std::optional<ActPrecision> activations;
  /// Instead of `weights`, unless the checkpoint has codes of that format itself.
  std::optional<FormatId> otherwise;
  bool int8_by_row = false;  // where nothing else is wished: int8 by group is no choice
  bool as_source = false;    // floats that hold the checkpoint's own; `weights` says nothing

  /// What inputs become under a format: floats stay floats, integers default to a8_block.
  ActPrecision activations_for(FormatId stored) const;
};

/// "ternary2" and so on, or nothing for another name ("i32" is none: no weight is stored so).
std::optional<FormatId> parse_weight_format(std::string_view name);

/// "PATTERN=FORMAT", "PATTERN=FORMAT:ACTIVATIONS" or "PATTERN=:ACTIVATIONS". MOE_ERR_ARGUMENT.
PrecisionRule parse_override(const std::string& text);

class PrecisionPolicy {
 public:
  /// `weights`: the caller's default for linear matrices (a float format also for embedding and
  /// head); none: auto, which leaves the rules of config.json as they are.
  PrecisionPolicy(std::vector<PrecisionRule> config_rules, std::optional<FormatId> weights,
                  std::vector<PrecisionRule> overrides)
      : config_rules_(std::move(config_rules)),
        weights_(weights),
        overrides_(std::move(overrides)),
        used_(overrides_.size(), false) {}

  /// Everything as floats that hold what the checkpoint has.
  static PrecisionPolicy as_source() {
    PrecisionPolicy policy({}, {}, {});
    policy.as_source_ = true;
    return policy;
  }

  PrecisionChoice choose(const Slot& slot);
  /// Throws MOE_ERR_ARGUMENT when an override matched no slot: a misspelt pattern.
  void check_all_used() const;

 private:
  std::vector<PrecisionRule> config_rules_;
  std::optional<FormatId> weights_;
  std::vector<PrecisionRule> overrides_;
  std::vector<bool> used_;  // per override
  bool as_source_ = false;
};

}  // namespace moe
