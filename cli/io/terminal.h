// SPDX-License-Identifier: MIT
#pragma once
// Protects terminals from control characters in text of files and models.

#include <string>

namespace moe_cli {

/// From now on std::cout and std::cerr escape control characters on a terminal (\x1b, \u202e), and
/// show invalid UTF-8 as U+FFFD. Line ends and tabs are preserved. Files and pipes get every byte
/// unchanged.
void guard_terminals();

/// The same for text that reaches stderr another way; unchanged if stderr is not a terminal.
std::string visible(const std::string& text);

/// A name or a token for stdout: on a terminal line ends and tabs are escaped too.
std::string one_line(const std::string& text);

}  // namespace moe_cli
