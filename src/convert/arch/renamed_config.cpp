// SPDX-License-Identifier: MIT
// Renames keys, and remembers what the file calls them.
#include "src/convert/arch/renamed_config.h"

namespace moe {

RenamedConfig::RenamedConfig(const JsonNode& config)
    : value_(config.value()), path_(config.path()) {
  if (!value_.is_object()) config.fail_expected("an object");
  if (config.spellings() != nullptr) spellings_ = *config.spellings();
}

void RenamedConfig::rename(const char* from, const char* to) {
  if (has(from)) take(node().at(from), to);
  erase(from);
}

void RenamedConfig::take(const JsonNode& from, const char* to) {
  if (from.is_null()) return;
  if (node().given(to)) check_same(from, node().at(to));
  put(from, to);
}

void RenamedConfig::put(const JsonNode& from, const char* to) {
  spellings_.in_file[to] = from.path().substr(path_.size() + 2);
  spellings_.defaults.erase(to);
  value_[to] = Json(from.value());
}

void RenamedConfig::copy(const char* from, const char* to) {
  if (!has(from)) return;
  spellings_.in_file[to] = node().spelled(from);
  if (node().given(from)) {
    spellings_.defaults.erase(to);
  } else {
    spellings_.defaults.insert(to);
  }
  value_[to] = Json(value_.at(from));
}

void RenamedConfig::fallback(const char* key, Json value) {
  if (has(key)) return;
  value_[key] = std::move(value);
  spellings_.defaults.insert(key);
}

}  // namespace moe
