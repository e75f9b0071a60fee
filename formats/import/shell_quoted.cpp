// SPDX-License-Identifier: MIT
// Puts single quotes around text unless the shell takes it as it is.
#include "formats/import/shell_quoted.h"

#include <algorithm>

#include "src/base/number.h"

namespace moe {
namespace {

bool is_plain(char c) {
  return is_letter(c) || is_digit(c) ||
         std::string_view("_./,-+=:@%").find(c) != std::string_view::npos;
}

}  // namespace

std::string shell_quoted(std::string_view text) {
  if (!text.empty() && std::all_of(text.begin(), text.end(), is_plain)) return std::string(text);
  std::string out = "'";
  for (const char c : text) {
    if (c == '\'') {
      out += "'\\''";
    } else {
      out += c;
    }
  }
  return out + "'";
}

}  // namespace moe
