#pragma once
// What a terminal is shown: text of files and models must not be able to steer it.

namespace moe_cli {

/// From here on what std::cout and std::cerr write to a terminal has its control characters spelled
/// out (\x1b, \u202e), and bytes that are no UTF-8 as U+FFFD. Line ends and tabs stay. Files and
/// pipes get every byte as it is.
void guard_terminals();

}  // namespace moe_cli
