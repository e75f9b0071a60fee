// SPDX-License-Identifier: MIT
#pragma once
// Untrusted JSON: parsing with limits, and typed access whose errors name the key path.

#include <cstdint>
#include <initializer_list>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "formats/import/json_value.h"

namespace moe {

/// Removes what `path` ("member.member[2].member") leads to; false if there is nothing. Members may
/// have dots in their names.
bool erase_key(Json* value, std::string_view path);
/// The path of a member called `key` at any depth; empty if there is none.
std::string find_key(const Json& value, std::string_view key);

struct JsonLimits {
  uint64_t max_bytes = uint64_t{64} << 20;
  uint32_t max_depth = 64;
  uint64_t max_values = 4'000'000;  // limits the tree to about 400 MB
};

/// Parses UTF-8 text. `what` prefixes errors (a file name). Throws MOE_ERR_FORMAT for a syntax
/// error (with its byte), a duplicate key, an infinite number, or exceeded limits. The words
/// Infinity and -Infinity, which Python writes, become the strings "+inf" and "-inf".
Json parse_json(std::string_view text, const std::string& what, const JsonLimits& limits = {});
Json read_json_file(const std::string& path, const JsonLimits& limits = {});

/// How a file says what its readers call otherwise, so that errors have the words of the file.
struct Spellings {
  std::map<std::string, std::string, std::less<>> in_file;  // by the readers' names
  std::set<std::string, std::less<>> defaults;              // readers' names that the file lacks
  // Readers' names of what the file has beside the object, at its top.
  std::set<std::string, std::less<>> beside = {};
};

/// A value in a document and the path that leads to it. Borrows the document. Getters throw a
/// Failure such as `config.json: layers[2].ffn.d_ff: expected an integer in 1..1048576, found "x"`.
class JsonNode {
 public:
  /// The root: paths read "<name>: member.member[3]".
  JsonNode(const Json& value, std::string name) : value_(&value), path_(std::move(name)) {}
  /// The same with members that the file spells otherwise; borrows `spellings`, too.
  JsonNode(const Json& value, std::string name, const Spellings& spellings)
      : value_(&value), path_(std::move(name)), spellings_(&spellings) {}

  const Json& value() const { return *value_; }
  const std::string& path() const { return path_; }
  bool is_null() const { return value_->is_null(); }

  /// The member `key`, which must be there; of an object.
  JsonNode at(const char* key) const;
  /// Whether the member is there and not null.
  bool has(const char* key) const;
  /// Elements of an array.
  std::vector<JsonNode> elements() const;

  int64_t integer(int64_t min, int64_t max) const;
  double number() const;
  bool boolean() const;
  std::string string() const;
  /// Index of the string in `names`; the error lists them.
  size_t choice(std::initializer_list<const char*> names) const {
    return choice(std::span(names.begin(), names.size()));
  }
  size_t choice(std::span<const char* const> names) const;

  // The same for a member, with a default when it is missing or null.
  int32_t integer(const char* key, int32_t fallback, int32_t min, int32_t max) const;
  float number(const char* key, float fallback) const;
  bool boolean(const char* key, bool fallback) const;
  std::string string(const char* key, const char* fallback) const;
  size_t choice(const char* key, size_t fallback, std::initializer_list<const char*> names) const;

  /// Throws when the value is no object, or has members that are neither "comment" nor listed,
  /// naming them and, in config.json, how to ignore them.
  void only(std::initializer_list<const char*> keys) const {
    only(std::span(keys.begin(), keys.size()));
  }
  void only(std::span<const char* const> keys) const;

  /// The members of this object that are neither "comment" nor listed.
  std::vector<std::string> others(std::span<const char* const> keys) const;
  std::vector<std::string> others(std::initializer_list<const char*> keys) const {
    return others(std::span(keys.begin(), keys.size()));
  }
  /// The argument of --ignore-key for the member `key`: "member.member[3].key".
  std::string member_path(const std::string& key) const;
  /// The path of the member `key`.
  std::string place(const std::string& key) const;
  /// The name of the member `key` in the file.
  std::string spelled(const std::string& key) const;
  /// Whether the member is there, not null, and in the file.
  bool given(const char* key) const;
  /// Null: all members are called as in the file.
  const Spellings* spellings() const { return spellings_; }

  /// Throws MOE_ERR_FORMAT: "path: expected <expected>, found <the value>".
  [[noreturn]] void fail_expected(const std::string& expected) const;

 private:
  JsonNode child(const Json& value, const std::string& path) const;
  bool is_beside(const std::string& key) const;

  const Json* value_;
  std::string path_;
  const Spellings* spellings_ = nullptr;
  bool root_ = true;
};

}  // namespace moe
