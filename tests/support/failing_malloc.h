#pragma once
// malloc and its relatives, of which any one call can fail, wherever it comes from: a library that
// is linked before the C library, or preloaded into any program. Preloaded, the environment says
// which: FAILING_MALLOC=17 fails the call number 17 (from 0) of the process, 17+ also all that
// follow; FAILING_MALLOC_COUNT=FILE writes the number of calls there at the end.

#include <cstddef>

extern "C" {
/// Counts from 0 again. Call number `n` fails and, if `and_after`, all that follow.
void failing_malloc_arm(size_t n, bool and_after);
/// From here on nothing fails. Whether something did.
bool failing_malloc_disarm();
/// Blocks that were allocated and not freed since failing_malloc_arm.
long failing_malloc_live();
}
