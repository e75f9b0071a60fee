// SPDX-License-Identifier: MIT
// Preloaded before libmoe. The first moe_session_eval simulates a call that begins just after a
// cancel and misses it: it ends at the second cancel. A later call must receive no cancel.

#include <moe_c.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>

static std::atomic<int> n_cancels{0};

/// Whether the number of cancels exceeds n within the given time.
static bool more_than(int n, int seconds) {
  for (int ms = 0; ms < seconds * 1000 && n_cancels <= n; ++ms) usleep(1000);
  return n_cancels > n;
}

extern "C" void moe_session_cancel(moe_session*) { ++n_cancels; }

extern "C" moe_status moe_session_eval(moe_session*, const int32_t*, size_t, moe_rows, float*,
                                       moe_error* error) {
  static int n_calls = 0;
  error->text[0] = '\0';
  if (n_calls++ > 0) return more_than(n_cancels, 1) ? MOE_ERR_CANCELLED : MOE_OK;
  fclose(fopen(getenv("CALLED"), "w"));
  return more_than(0, 60) && more_than(1, 60) ? MOE_ERR_CANCELLED : MOE_OK;
}
