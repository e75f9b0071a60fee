// SPDX-License-Identifier: MIT
#pragma once
// The keys of a `transformers` config.json. Keys that were read are recorded: at the end, a key
// that was not read must be known to be harmless, because it may change what the model computes.

#include <functional>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "formats/import/json.h"
#include "src/model/names.h"

namespace moe {

/// A key, as --ignore-key takes it, and its value.
using UnknownKey = std::pair<std::string, Json>;

/// Throws MOE_ERR_UNSUPPORTED, naming all `keys` (not empty) of the file `place` and the command
/// that ignores them.
[[noreturn]] void fail_unknown_keys(const std::string& place, const std::vector<UnknownKey>& keys);

class ConfigKeys {
 public:
  explicit ConfigKeys(const JsonNode& config) : config_(config) {}

  /// True if the key exists and is not null.
  bool has(const char* key) const { return config_.has(key); }
  /// True if the key was read or ignored.
  bool knows(const char* key) const { return known_.contains(key); }
  /// True if the key exists, even if null.
  bool contains(const char* key) const { return config_.value().contains(key); }
  /// True if the file has the key and it is not null: it is no importer's default.
  bool given(const char* key) const { return config_.given(key); }
  /// "config.json: KEY", as the file spells it.
  std::string place(const char* key) const { return config_.place(key); }
  /// "config.json", or a part of it.
  const std::string& file() const { return config_.path(); }
  /// The key as the file spells it.
  std::string spelled(const char* key) const { return config_.spelled(key); }
  /// The one of two names for one thing that the file has, or the first. Throws if it has both with
  /// different values.
  const char* either(const char* one, const char* other);
  /// The member, which must exist.
  JsonNode node(const char* key);
  int32_t integer(const char* key, int32_t min, int32_t max);
  int32_t integer(const char* key, int32_t fallback, int32_t min, int32_t max);
  /// The member, or `value`, which follows from other members: one outside the range is no default,
  /// and the member must exist.
  int32_t integer_or_derived(const char* key, int32_t value, int32_t min, int32_t max);
  float number(const char* key);
  float number(const char* key, float fallback);
  float number(const char* key, float fallback, float low, float high);
  /// The member, as positive_of reads it, or `fallback`.
  float positive(const char* key, float fallback);
  /// The number that a norm adds to a mean square or a variance: above 0 and, as a larger one would
  /// outweigh those, at most 1. `fallback` 0: the member must exist.
  float eps(const char* key, float fallback);
  bool boolean(const char* key, bool fallback);
  /// The activation that `transformers`, fairseq and torchscale call by the member's name.
  Activation activation(const char* key);
  /// A list; empty if the key is missing or null.
  std::vector<JsonNode> list(const char* key);
  /// The same with `n` entries, one or more, if the key is there. Throws MOE_ERR_SHAPE for any
  /// other number, 0 included.
  std::vector<JsonNode> list(const char* key, size_t n);

  /// Throws MOE_ERR_SHAPE unless `part`, the value of `key`, divides `whole`, that of `whole_key`.
  /// `reason` is added to the error.
  void check_divides(const char* key, int32_t part, const char* whole_key, int32_t whole,
                     const char* reason = "");

  /// Throws MOE_ERR_UNSUPPORTED, naming the key and its value, unless the key is missing, null or
  /// has this value.
  void require(const char* key, const Json& value);
  /// Keys that do not change this architecture's computation, whatever their value.
  void ignore(std::initializer_list<const char*> keys);
  /// Records a key of a nested object that nobody knows, for check_all_understood.
  void unknown(const std::string& path, const Json& value) { unknown_.emplace_back(path, value); }
  /// The same for the members of an object that are neither null nor listed.
  void unknown_members(const JsonNode& object, std::initializer_list<const char*> known);
  /// Records a sentence about a key that was accepted.
  void warn(std::string text) { warnings_.push_back(std::move(text)); }
  const std::vector<std::string>& warnings() const { return warnings_; }
  /// Adds what `other` recorded: of an object within this one.
  void take_findings(const ConfigKeys& other);
  /// Throws MOE_ERR_UNSUPPORTED for keys that were neither read nor ignored and matter at
  /// inference, naming all of them; null counts as absent. `place_of` says where another kind of
  /// file has the key, or nothing.
  void check_all_understood(
      const std::function<std::string(const std::string& key)>& place_of = {}) const;

 private:
  const JsonNode& config_;
  std::set<std::string> known_;
  std::vector<UnknownKey> unknown_;
  std::vector<std::string> warnings_;
};

/// A number of at least 1e-30 and below 1e30, so that its reciprocal is a float, too.
float positive_of(const JsonNode& node);

/// Throws MOE_ERR_UNSUPPORTED: "config.json: ONE is X, but OTHER, which means the same, is Y".
[[noreturn]] void fail_different(const JsonNode& one, const JsonNode& other);

/// Throws this if two members that mean the same have different values: of lists, for the first
/// entries that differ.
void check_same(const JsonNode& one, const JsonNode& other);

/// Throws MOE_ERR_UNSUPPORTED: "config.json: KEY: VALUE is not supported; REASON".
[[noreturn]] void fail_value(const JsonNode& node, const std::string& reason);

/// "PATH says METHOD", for errors about tensors that contradict the configuration at `node`.
std::string says_method(const JsonNode& node, const char* method);

}  // namespace moe
