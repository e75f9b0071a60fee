// SPDX-License-Identifier: MIT
// Counts brackets outside of strings.
#include "cli/io/json_depth.h"

namespace moe_cli {

bool nested_too_deep(const std::string& json) {
  int depth = 0;
  bool text = false;
  for (size_t i = 0; i < json.size(); ++i) {
    const char c = json[i];
    if (text && c == '\\') {
      ++i;
    } else if (c == '"') {
      text = !text;
    } else if (!text && (c == '[' || c == '{')) {
      if (++depth > kMostDepth) return true;
    } else if (!text && (c == ']' || c == '}')) {
      --depth;
    }
  }
  return false;
}

}  // namespace moe_cli
