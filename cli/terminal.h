#pragma once
// What a terminal is shown: text of files and models must not be able to steer it.

#include <string>

namespace moe_cli {

/// From here on what std::cout and std::cerr write to a terminal has its control characters spelled
/// out (\x1b, \u202e), and bytes that are no UTF-8 as U+FFFD. Line ends and tabs stay. Files and
/// pipes get every byte as it is.
void guard_terminals();

/// The same for text that goes to stderr by another way; unchanged when stderr is no terminal.
std::string visible(const std::string& text);

/// A name or a token for stdout: on a terminal its line ends and tabs are spelled out too.
std::string one_line(const std::string& text);

}  // namespace moe_cli
