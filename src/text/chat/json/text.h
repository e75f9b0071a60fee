// SPDX-License-Identifier: MIT
#pragma once
// Parts of JSON text that is_valid() has accepted, without a tree: members, elements, strings.

#include <string_view>

#include "src/base/string.h"

namespace moe::json {

/// The members of an object, or the elements of a list, one after the other.
class Parts {
 public:
  /// value: the text of a list or object, which must be valid.
  explicit Parts(std::string_view value);
  /// The next part. *key: a string with its quotes; empty in a list. False behind the last.
  bool next(std::string_view* key, std::string_view* value);

 private:
  std::string_view take_value();
  void skip_space();

  std::string_view rest_;
  bool object_;
};

bool is_object(std::string_view value);
bool is_list(std::string_view value);
bool is_string(std::string_view value);
/// Whether a string with its quotes, in which there may be escapes, has that text.
bool spells(std::string_view quoted, std::string_view text);
/// The value of an object's member, the last one of that name; empty: there is none.
std::string_view member(std::string_view object, std::string_view name);
/// How deep lists and objects are nested in a value: 1 for [5].
int nesting(std::string_view value);
/// Appends the text of a string with its quotes.
Status read_string(std::string_view quoted, String& out);
/// Appends `text`, which is UTF-8, as a string with quotes.
Status write_string(std::string_view text, String& out);

}  // namespace moe::json
