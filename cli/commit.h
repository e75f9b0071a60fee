// SPDX-License-Identifier: MIT
#pragma once
// The commit that the command was built from.

namespace moe_cli {

/// Twelve digits, with "-dirty" if tracked files had changes; empty if it was not built in a
/// checkout.
const char* built_commit();

}  // namespace moe_cli
