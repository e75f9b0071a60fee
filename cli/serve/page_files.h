// SPDX-License-Identifier: MIT
#pragma once
// The files of the page at "/", which are in the program (cli/serve/page).

#include <string_view>

namespace moe_cli {

struct PageFile {
  std::string_view path;  // of the request
  std::string_view type;
  std::string_view text;
};

/// Null: no such file.
const PageFile* page_file(std::string_view path);

/// The page loads nothing from elsewhere and sends nothing there; no text that it shows can become
/// a program.
inline constexpr const char* kPagePolicy =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

}  // namespace moe_cli
