// SPDX-License-Identifier: MIT
#pragma once
// The text of moe --version.

#include <string>

namespace moe_cli {

/// Version, commit (if built in a checkout), compiler, instruction sets. Throws CallError.
std::string version_text();

}  // namespace moe_cli
