// SPDX-License-Identifier: MIT
#pragma once
// Text from files inside command lines that messages offer.

#include <string>
#include <string_view>

namespace moe {

/// `text` as one word of a command line of sh: unchanged if it holds only letters, digits and
/// "_./,-+=:@%", otherwise in single quotes. Control characters are kept; messages show them as
/// '?', so that such a name is not found rather than run.
std::string shell_quoted(std::string_view text);

}  // namespace moe
