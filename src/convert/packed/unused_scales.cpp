// SPDX-License-Identifier: MIT
// Recognises such tensors by their names and removes them.
#include "src/convert/packed/unused_scales.h"

#include <algorithm>

namespace moe {
namespace {

// A cache with a bias stores the difference from it, and adds it when read.
bool is_of_cache(const std::string& name) {
  constexpr const char* kEnds[] = {".k_scale",      ".v_scale",       ".k_zero_point",
                                   ".v_zero_point", ".k_proj.k_bias", ".v_proj.v_bias"};
  return std::any_of(std::begin(kEnds), std::end(kEnds),
                     [&](const char* end) { return name.ends_with(end); });
}

}  // namespace

std::vector<std::string> unused_scales(const std::string& name) {
  std::vector<std::string> out;
  for (const char* end :
       {".input_scale", ".input_zero_point", ".input_global_scale", ".output_scale",
        ".output_zero_point", ".activation_scale", "_activation_scale"}) {
    out.push_back(name + end);
  }
  return out;
}

std::vector<std::string> scales_alone(const Checkpoint& checkpoint, const std::string& scales,
                                      const char* codes) {
  std::vector<std::string> out;
  for (const auto& [name, tensor] : checkpoint.tensors()) {
    if (!name.ends_with(scales)) continue;
    const std::string matrix = name.substr(0, name.size() - scales.size());
    const bool alone = checkpoint.find(matrix + codes) == nullptr &&
                       checkpoint.find(matrix + ".weight") == nullptr;
    if (alone) out.push_back(matrix);
  }
  return out;
}

void drop_unused_scales(Checkpoint* checkpoint) {
  constexpr std::string_view kWeight = ".weight";
  std::vector<std::string> unused;
  for (const auto& [name, tensor] : checkpoint->tensors()) {
    if (is_of_cache(name)) unused.push_back(name);
    if (!name.ends_with(kWeight)) continue;
    const std::vector<std::string> scales =
        unused_scales(name.substr(0, name.size() - kWeight.size()));
    unused.insert(unused.end(), scales.begin(), scales.end());
  }
  for (const std::string& name : unused) checkpoint->remove_tensor(name);
}

}  // namespace moe
