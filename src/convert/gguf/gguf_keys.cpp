// SPDX-License-Identifier: MIT
// Looks up the keys of a GGUF file's architecture, and refuses those that nobody took.
#include "src/convert/gguf/gguf_keys.h"

#include <algorithm>

#include "formats/import/failure.h"
#include "src/convert/arch/config_keys.h"

namespace moe {

const Json* GgufKeys::take(const std::string& key) {
  taken_.insert(key);
  return all_.value().find(arch_ + ("." + key));
}

int64_t GgufKeys::count(const std::string& key, int64_t low, int64_t high) {
  if (take(key) == nullptr) fail_missing(key);
  return node(key).integer(low, high);
}

Json GgufKeys::expert_weights_scale() {
  const Json* const scale = take("expert_weights_scale");
  return scale == nullptr || *scale == 0 ? Json(1.0) : *scale;
}

bool GgufKeys::any_layer_has(std::string_view tensor) const {
  const auto& tensors = checkpoint_.tensors();
  return std::any_of(tensors.begin(), tensors.end(), [&](const auto& entry) {
    return entry.first.starts_with("blk.") && entry.first.ends_with("." + std::string(tensor));
  });
}

void GgufKeys::fail_key(const std::string& key) const {
  const std::string value = node(key).value().dump();
  fail(MOE_ERR_UNSUPPORTED, "%s: key %s.%.60s with value %.60s is not supported",
       checkpoint_.path().c_str(), arch_, key.c_str(), value.c_str());
}

void GgufKeys::fail_missing(const std::string& key) const {
  fail(MOE_ERR_FORMAT, "%s: key %s.%.60s is missing", checkpoint_.path().c_str(), arch_,
       key.c_str());
}

void GgufKeys::check_all_taken() const {
  const std::string prefix = std::string(arch_) + ".";
  std::vector<UnknownKey> unknown;
  for (const auto& [key, value] : all_.value().items()) {
    if (key.starts_with(prefix) && !taken_.contains(key.substr(prefix.size()))) {
      unknown.emplace_back(key, value);
    }
  }
  if (!unknown.empty()) fail_unknown_keys(checkpoint_.path(), unknown);
}

}  // namespace moe
