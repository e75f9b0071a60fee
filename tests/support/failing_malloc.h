// SPDX-License-Identifier: MIT
#pragma once
// malloc and related functions that can fail at any call, from any caller: a library linked before
// the C library, or preloaded. If preloaded, the environment selects the call: FAILING_MALLOC=17
// fails call number 17 (from 0) of the process, 17+ also all later ones; FAILING_MALLOC_SIZE=N
// those of malloc for at least N bytes; FAILING_MALLOC_COUNT=FILE writes the number of calls at the
// end.

#include <cstddef>

extern "C" {
/// Restarts counting at 0. Call number `n` fails and, if `and_after`, all later ones.
void failing_malloc_arm(size_t n, bool and_after);
/// Stops failing; true if any call failed.
bool failing_malloc_disarm();
/// Blocks allocated since failing_malloc_arm and not freed.
long failing_malloc_live();
}
