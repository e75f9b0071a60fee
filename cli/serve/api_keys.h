// SPDX-License-Identifier: MIT
#pragma once
// The keys that clients must have.

#include <string>
#include <vector>

namespace moe_cli {

class ApiKeys {
 public:
  /// One key in each line of the file; empty: no file, and every client may ask. Throws CallError
  /// for a file without keys, UsageError for one that others may read.
  explicit ApiKeys(const std::string& path);
  bool needed() const { return !keys_.empty(); }
  /// Whether the value of the header "Authorization" is "Bearer" and a key, or that of "X-Api-Key"
  /// a key. Null: there is none.
  bool allow(const char* authorization, const char* api_key) const;

 private:
  bool has(const std::string& given) const;

  std::vector<std::string> keys_;
};

}  // namespace moe_cli
