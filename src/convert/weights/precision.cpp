// SPDX-License-Identifier: MIT
// Applies the rules in order, each to the slots that its pattern matches, and chooses the
// quantisation of inputs.
#include "src/convert/weights/precision.h"

#include "formats/import/failure.h"
#include "quant/formats.h"

namespace moe {
namespace {

bool is_integer(FormatId format) { return format_info(format).integer; }

// True for group formats of at most five bits, which is little for what every token uses.
bool has_few_bits(FormatId id) {
  const WeightFormat& format = format_info(id);
  return format.group != 0 &&
         8 * format.tile_bytes(kActBlock) <= 5 * format_info(FormatId::kInt8).tile_bytes(kActBlock);
}

void apply(const PrecisionRule& rule, PrecisionChoice* choice) {
  if (rule.weights_auto) {
    choice->weights.reset();
    choice->int8_by_row = false;
  }
  if (rule.weights) choice->weights = rule.weights;
  if (rule.weights || rule.weights_auto) choice->only_codes = false;
  if (rule.activations) choice->activations = rule.activations;
}

// Few weights, used by every token: docs/precision.md gives the cost of int8 and four bits there.
bool is_shared_by_all(const Slot& slot) {
  if (slot.kind == SlotKind::kVocab) return true;
  if (slot.kind != SlotKind::kLinear) return false;
  if (slot.role >= Role::kFirstMixer) return true;
  switch (slot.role) {
    case Role::kQ:
    case Role::kK:
    case Role::kV:
    case Role::kO:
    case Role::kLatent:
    case Role::kQLatent:
    case Role::kHead:
    case Role::kMerge:
    case Role::kDense:
    case Role::kNext:
    case Role::kHidden:
      return true;
    default:
      return false;
  }
}

// docs/precision.md measures what this mixture costs. Errors of `down` go straight into the
// residual stream; six bits in the outer eighths of the layers and in every third one between buy
// most of what six bits in all layers would.
FormatId mixed4_format(const Slot& slot, int32_t layer, int32_t n_layers) {
  if (is_shared_by_all(slot)) return FormatId::kInt6K;
  if (slot.role != Role::kDown) return FormatId::kInt4K;
  const int32_t outer = n_layers / 8;
  const bool ends = layer < outer || layer >= n_layers - outer;
  return ends || (layer - outer) % 3 == 2 ? FormatId::kInt6K : FormatId::kInt4K;
}

// The rule for a linear layer that rounds its inputs, and maybe its weights, in every forward pass.
PrecisionRule bit_linear_rule(BitLinear kind) {
  PrecisionRule rule;
  if (kind == BitLinear::kNo) return rule;
  rule.activations = ActPrecision::kA8;
  if (kind == BitLinear::kRounded) rule.weights = FormatId::kTernary2;
  return rule;
}

}  // namespace

FormatId PrecisionChoice::for_floats() const {
  if (!by_default()) return *weights;
  return shared && !int8_by_row ? FormatId::kInt8Group : FormatId::kInt8;
}

ActPrecision PrecisionChoice::activations_for(FormatId stored) const {
  const WeightFormat& format = format_info(stored);
  if (!format.integer) return ActPrecision::kF32;
  const ActPrecision usual = format.group != 0 ? format.act : ActPrecision::kA8Block;
  return activations.value_or(usual);
}

std::optional<FormatId> parse_weight_format(std::string_view name) {
  const WeightFormat* format = find_weight_format(name);
  if (format != nullptr && format->only_blocks()) {
    fail(MOE_ERR_ARGUMENT,
         "%s: weights are not rounded to this format; without a request for another, matrices "
         "that a GGUF file has in it keep it",
         format->name);
  }
  return format == nullptr ? std::nullopt : std::optional(format->id);
}

std::optional<FormatId> parse_weights(const std::string& text, const char* others) {
  const std::optional<FormatId> weights = parse_weight_format(text);
  if (!weights && text != "auto") {
    fail(MOE_ERR_ARGUMENT, "weights \"%.40s\": expected %s or one of %s", text.c_str(), others,
         weight_format_names());
  }
  return weights;
}

PrecisionRule parse_override(const std::string& text) {
  const size_t equals = text.rfind('=');
  PrecisionRule rule;
  std::string wish = equals == std::string::npos ? "" : text.substr(equals + 1);
  rule.match = text.substr(0, equals);
  const size_t colon = wish.find(':');
  if (colon != std::string::npos) {
    ActPrecision act;
    if (!parse_in(kActPrecisions, wish.substr(colon + 1), &act)) {
      fail(MOE_ERR_ARGUMENT,
           "override \"%.100s\": expected activations f32, a8, a8_block or a8_group", text.c_str());
    }
    rule.activations = act;
    wish.resize(colon);
  }
  rule.weights_auto = wish == "auto";
  rule.weights = parse_weight_format(wish);
  const bool says_something =
      rule.weights_auto || rule.weights || (wish.empty() && rule.activations);
  if (rule.match.empty() || !says_something) {
    fail(MOE_ERR_ARGUMENT,
         "override \"%.100s\": expected PATTERN=FORMAT, PATTERN=FORMAT:ACTIVATIONS or "
         "PATTERN=:ACTIVATIONS with a format of auto, %s",
         text.c_str(), weight_format_names());
  }
  if (rule.weights && !is_integer(*rule.weights) &&
      rule.activations.value_or(ActPrecision::kF32) != ActPrecision::kF32) {
    fail(MOE_ERR_ARGUMENT,
         "override \"%.100s\": expected activations f32, which float weights have", text.c_str());
  }
  return rule;
}

PrecisionChoice PrecisionPolicy::choose(const Slot& slot, BitLinear kind, int32_t layer) {
  PrecisionChoice choice;
  if (slot.kind == SlotKind::kLinear && !as_source_) {
    apply(bit_linear_rule(kind), &choice);
  }
  const std::string name = slot.short_name();
  for (const PrecisionRule& rule : config_rules_) {
    if (matches(rule.match, name)) apply(rule, &choice);
  }
  const bool all_linear = slot.kind == SlotKind::kLinear;
  const bool wide = slot.kind == SlotKind::kVocab && weights_ && !is_integer(*weights_);
  if (weights_ && (all_linear || wide)) choice.weights = weights_;
  if (mixed4_layers_ > 0 && (all_linear || slot.kind == SlotKind::kVocab)) {
    choice.weights = mixed4_format(slot, layer, mixed4_layers_);
  }
  choice.shared = is_shared_by_all(slot);
  choice.int8_by_row = weights_ == FormatId::kInt8;
  choice.only_codes = choice.shared && all_linear && weights_ && has_few_bits(*weights_);
  for (size_t i = 0; i < overrides_.size(); ++i) {
    if (!matches(overrides_[i].match, name)) continue;
    used_[i] = true;
    apply(overrides_[i], &choice);
    choice.fixed |= overrides_[i].weights || overrides_[i].weights_auto;
  }
  if (slot.kind == SlotKind::kVector) choice.weights = FormatId::kF32;
  if (slot.kind == SlotKind::kTable) choice.weights = FormatId::kI32;
  choice.as_source = as_source_ && !choice.weights;
  // A pattern such as layers.* also matches the routers, which always remain floats.
  if (slot.kind == SlotKind::kExact && choice.weights && is_integer(*choice.weights)) {
    choice.weights.reset();
  }
  return choice;
}

void PrecisionPolicy::check_all_used() const {
  for (size_t i = 0; i < overrides_.size(); ++i) {
    if (used_[i]) continue;
    fail(MOE_ERR_ARGUMENT, "override for \"%.100s\": no tensor of this model matches",
         overrides_[i].match.c_str());
  }
}

}  // namespace moe
