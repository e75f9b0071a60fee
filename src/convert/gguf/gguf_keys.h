// SPDX-License-Identifier: MIT
#pragma once
// The keys of a GGUF file's architecture, with a record of those that were understood.

#include <set>

#include "formats/import/checkpoint.h"
#include "formats/import/json.h"

namespace moe {

class GgufKeys {
 public:
  /// Without an architecture yet; `checkpoint` must outlive the keys.
  explicit GgufKeys(const Checkpoint& checkpoint)
      : checkpoint_(checkpoint), all_(checkpoint.metadata(), checkpoint.path()) {}

  void set_architecture(const char* name) { arch_ = name; }
  const char* architecture() const { return arch_; }
  bool is(const char* arch) const { return std::string_view(arch_) == arch; }
  const Checkpoint& checkpoint() const { return checkpoint_; }
  const JsonNode& all() const { return all_; }

  /// The value of ARCH.key, which then counts as understood; null if missing.
  const Json* take(const std::string& key);
  const Json& at(const std::string& key) const { return all_.value().at(arch_ + ("." + key)); }
  /// As a node that names the key in errors.
  JsonNode node(const std::string& key) const { return all_.at((arch_ + ("." + key)).c_str()); }
  /// A whole number. MOE_ERR_FORMAT if the key is missing.
  int64_t count(const std::string& key, int64_t low, int64_t high);
  /// The factor of the experts' outputs. llama.cpp applies none if the key is missing or 0.
  Json expert_weights_scale();

  const SourceTensor* find(const char* tensor) const { return checkpoint_.find(tensor); }
  /// Whether some layer has a tensor of this name behind "blk.L.".
  bool any_layer_has(std::string_view tensor) const;

  /// MOE_ERR_UNSUPPORTED, with the key and its value.
  [[noreturn]] void fail_key(const std::string& key) const;
  [[noreturn]] void fail_missing(const std::string& key) const;
  /// Refuses keys of the architecture that were not taken.
  void check_all_taken() const;

 private:
  const Checkpoint& checkpoint_;
  JsonNode all_;
  const char* arch_ = "";
  std::set<std::string> taken_;
};

}  // namespace moe
