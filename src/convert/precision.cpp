#include "src/convert/precision.h"

#include "formats/import/failure.h"

namespace moe {
namespace {

struct FormatName {
  FormatId format;
  const char* name;
};
constexpr FormatName kFormats[] = {{FormatId::kTernary2, "ternary2"},
                                   {FormatId::kTernary3, "ternary3"},
                                   {FormatId::kInt8, "int8"},
                                   {FormatId::kBf16, "bf16"},
                                   {FormatId::kF16, "f16"},
                                   {FormatId::kF32, "f32"},
                                   {FormatId::kI32, "i32"}};

bool is_integer(FormatId format) {
  return format == FormatId::kTernary2 || format == FormatId::kTernary3 ||
         format == FormatId::kInt8;
}

void apply(const PrecisionRule& rule, PrecisionChoice* choice) {
  if (rule.weights_auto) choice->weights.reset();
  if (rule.weights) choice->weights = rule.weights;
  if (rule.activations) choice->activations = rule.activations;
}

}  // namespace

ActPrecision PrecisionChoice::activations_for(FormatId stored) const {
  return is_integer(stored) ? activations.value_or(ActPrecision::kA8Block) : ActPrecision::kF32;
}

std::optional<FormatId> parse_weight_format(std::string_view name) {
  for (const FormatName& f : kFormats) {
    if (name == f.name && f.format != FormatId::kI32) return f.format;
  }
  return std::nullopt;
}

const char* weight_format_name(FormatId format) {
  for (const FormatName& f : kFormats) {
    if (format == f.format) return f.name;
  }
  return "?";
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
      fail(MOE_ERR_ARGUMENT, "override \"%.100s\": expected activations f32, a8 or a8_block",
           text.c_str());
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
         "PATTERN=:ACTIVATIONS with a format of auto, ternary2, ternary3, int8, bf16, f16, f32",
         text.c_str());
  }
  return rule;
}

PrecisionChoice PrecisionPolicy::choose(const Slot& slot) {
  PrecisionChoice choice;
  const std::string name = slot.short_name();
  for (const PrecisionRule& rule : config_rules_) {
    if (matches(rule.match, name)) apply(rule, &choice);
  }
  const bool all_linear = slot.kind == SlotKind::kLinear;
  const bool wide = slot.kind == SlotKind::kVocab && weights_ && !is_integer(*weights_);
  if (weights_ && (all_linear || wide)) choice.weights = weights_;
  for (size_t i = 0; i < overrides_.size(); ++i) {
    if (!matches(overrides_[i].match, name)) continue;
    used_[i] = true;
    apply(overrides_[i], &choice);
  }
  if (slot.kind == SlotKind::kVector) choice.weights = FormatId::kF32;
  if (slot.kind == SlotKind::kTable) choice.weights = FormatId::kI32;
  // A pattern such as layers.* also covers the routers, which always stay floats.
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
