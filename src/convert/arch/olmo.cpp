// SPDX-License-Identifier: MIT
// OLMo 1 (Groeneveld et al. 2024): dense, with LayerNorms without weights; larger models clip
// queries, keys and values.

#include "src/convert/arch/decoder.h"

namespace moe::arch::olmo {
namespace {

constexpr const char* kOnes = "the weight of a norm without one";  // in no file
constexpr float kNormEps = 1e-5f;                                  // no key for it

DerivedTensor ones(int32_t n) {
  return {kOnes, {n}, std::vector<float>(static_cast<size_t>(n), 1.0f)};
}

Imported import_olmo(const JsonNode& config, const Checkpoint& checkpoint) {
  Decoder d(config, checkpoint, 0, kNormEps);
  d.config().norm = NormKind::kLayer;
  d.names(mlp_names());
  d.attention_bias("attention_bias", false);
  d.clip_qkv();
  d.quantization(Quantization::kNone);
  Imported out = d.finish();
  out.derived.push_back(ones(out.config.d_model));
  out.locate = [locate = std::move(out.locate)](const SlotGroup& group, const Slot& slot) {
    if (!slot.norm) return locate(group, slot);
    Source source;
    source.tensor = kOnes;
    return source;
  };
  return out;
}

}  // namespace

std::span<const Importer> importers() {
  static constexpr Importer kRows[] = {{"olmo", import_olmo}};
  return kRows;
}

}  // namespace moe::arch::olmo
