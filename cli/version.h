// SPDX-License-Identifier: MIT
#pragma once
// The text of moe --version, and what tells one build from another.

#include <string>

namespace moe_cli {

/// Version, commit (if built in a checkout), compiler, instruction sets. Throws CallError.
std::string version_text();

/// "0.1.0", with "+COMMIT" if built in a checkout.
std::string build_name();

}  // namespace moe_cli
