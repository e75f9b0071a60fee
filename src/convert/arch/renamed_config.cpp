// SPDX-License-Identifier: MIT
// Renames keys, and remembers what the file calls them.
#include "src/convert/arch/renamed_config.h"

#include <algorithm>

namespace moe {

RenamedConfig::RenamedConfig(const JsonNode& config)
    : value_(config.value()), path_(config.path()) {
  if (!value_.is_object()) config.fail_expected("an object");
  if (config.spellings() != nullptr) spellings_ = *config.spellings();
}

void RenamedConfig::rename(const char* from, const char* to) {
  if (has(from) && node().given(to)) check_same(node().at(from), node().at(to));
  copy(from, to);
  erase(from);
}

void RenamedConfig::take(const JsonNode& from, const char* to) {
  if (from.is_null()) return;
  if (node().given(to)) check_same(from, node().at(to));
  put(from, to);
}

void RenamedConfig::take_beside(const JsonNode& config, const char* key, const Json& saved) {
  if (!config.has(key)) return;
  const JsonNode beside = config.at(key);
  const Json own = has(key) ? Json(value_.at(key)) : Json();
  const auto is_own = [&](const JsonNode& entry) { return entry.value() == own; };
  bool differs = own != saved;
  if (differs && beside.value().is_array()) {
    const std::vector<JsonNode> entries = beside.elements();
    differs = std::none_of(entries.begin(), entries.end(), is_own);
  }
  if (!differs) erase(key);
  take(beside, key);
}

void RenamedConfig::put(const JsonNode& from, const char* to) {
  const std::string& path = from.path();
  const bool within = path.starts_with(path_ + ": ");
  spellings_.in_file[to] = path.substr((within ? path_.size() : path.find(": ")) + 2);
  spellings_.beside.erase(to);
  if (!within) spellings_.beside.insert(to);
  spellings_.defaults.erase(to);
  value_[to] = Json(from.value());
}

void RenamedConfig::copy(const char* from, const char* to) {
  if (!has(from)) return;
  spellings_.in_file[to] = node().spelled(from);
  for (auto* const names : {&spellings_.defaults, &spellings_.beside}) {
    names->erase(to);
    if (names->contains(from)) names->insert(to);
  }
  value_[to] = Json(value_.at(from));
}

void RenamedConfig::fallback(const char* key, Json value) {
  if (has(key)) return;
  value_[key] = std::move(value);
  spellings_.defaults.insert(key);
}

}  // namespace moe
