// SPDX-License-Identifier: MIT
// Counts brackets and colons outside of strings.
#include "cli/io/json_limits.h"

namespace moe_cli {

std::string beyond_limits(const std::string& json) {
  int n_keys[kMostDepth + 1] = {};  // of what is open
  int depth = 0;
  bool text = false;
  for (size_t i = 0; i < json.size(); ++i) {
    const char c = json[i];
    if (text) {
      if (c == '\\') ++i;
      text = c != '"';
    } else if (c == '"') {
      text = true;
    } else if (c == '[' || c == '{') {
      if (++depth > kMostDepth) return "nested deeper than " + std::to_string(kMostDepth);
      n_keys[depth] = 0;
    } else if (c == ']' || c == '}') {
      if (--depth < 0) break;  // no JSON, as the parser will find
    } else if (c == ':' && ++n_keys[depth] > kMostKeys) {
      return "an object has more than " + std::to_string(kMostKeys) + " keys";
    }
  }
  return "";
}

}  // namespace moe_cli
