// SPDX-License-Identifier: MIT
#pragma once
// A config.json with the keys of other decoders, which the common readers know. Errors keep the
// names that the file has.

#include "src/convert/arch/config_keys.h"

namespace moe {

class RenamedConfig {
 public:
  /// Copies `config`, which must be an object, and its spellings.
  explicit RenamedConfig(const JsonNode& config);

  /// True if the key exists and is not null.
  bool has(const char* key) const { return node().has(key); }
  /// Gives `to` the value of `from`, if that is there, and removes `from`. Throws if the file has
  /// both with different values.
  void rename(const char* from, const char* to);
  /// The same with a member anywhere in the same file, which stays.
  void take(const JsonNode& from, const char* to);
  /// Gives `key`, of this object within `config`, the value that `config` has for it, if any.
  /// Throws if both have it with different values, unless this one is an entry of the other, a
  /// list, or `saved`: what `transformers` writes here although nobody chose it (null: nothing).
  void take_beside(const JsonNode& config, const char* key, const Json& saved = {});
  /// Gives `to` the value of `from`, which is anywhere in the same file, whatever `to` was. Errors
  /// about `to` then name the place of `from`.
  void put(const JsonNode& from, const char* to);
  /// Gives `to` the value of `from`, if that is there, whatever `to` was.
  void copy(const char* from, const char* to);
  /// The value of a key that is missing or null.
  void fallback(const char* key, Json value);
  void erase(const char* key) { value_.erase(key); }
  /// For changes within a member.
  Json& json() { return value_; }

  /// Borrows this.
  JsonNode node() const { return {value_, path_, spellings_}; }

 private:
  Json value_;
  std::string path_;
  Spellings spellings_;
};

}  // namespace moe
