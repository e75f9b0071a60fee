// SPDX-License-Identifier: MIT
#pragma once
// The limit of open files, which connections count against.

namespace moe_cli {

/// Raises the limit of this process so that n connections fit. If it cannot be raised so far, says
/// so on stderr and returns how many fit. Throws CallError if fewer than two do.
int make_room_for_connections(int n);

}  // namespace moe_cli
