// SPDX-License-Identifier: MIT
// Derives the tensors of norms plus 1, which replace the checkpoint's in the plan.
#include "src/convert/arch/plus_one.h"

#include <string_view>

namespace moe {
namespace {

constexpr const char* kPlusOne = " + 1";  // suffix of a derived tensor
constexpr uint64_t kWidestNorm = 1 << 20;

bool is_less_by_one(std::string_view name, std::string_view plain) {
  if (name.starts_with("mtp.pre_fc_norm_")) return true;
  const bool of_model = name.starts_with("model.") || name.starts_with("mtp.");
  const bool of_matrix =
      name.ends_with("_proj.norm.weight") || name.ends_with("_proj.rms_norm.weight");
  return of_model && name.ends_with("norm.weight") && !of_matrix &&
         (plain.empty() || !name.ends_with(plain));
}

}  // namespace

void add_one_to_norms(const Checkpoint& checkpoint, const char* plain, Imported* out) {
  for (const auto& [name, tensor] : checkpoint.tensors()) {
    if (!is_less_by_one(name, plain) || tensor.n_elements > kWidestNorm) continue;
    DerivedTensor& derived = out->derived.emplace_back();
    derived.name = name + kPlusOne;
    derived.shape = tensor.shape;
    derived.values.resize(tensor.n_elements);
    checkpoint.read(tensor, 0, derived.values.size(), derived.values.data());
    for (float& v : derived.values) v += 1;
    out->ignored.push_back(name);
  }
  out->locate = [locate = std::move(out->locate), plain, &checkpoint](const SlotGroup& group,
                                                                      const Slot& slot) {
    Source source = locate(group, slot);
    const bool exists = checkpoint.find(source.tensor) != nullptr;  // else an error names it
    if (exists && is_less_by_one(source.tensor, plain)) source.tensor += kPlusOne;
    return source;
  };
}

}  // namespace moe
