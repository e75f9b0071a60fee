// Preloaded in front of libmoe: a moe_session_eval that begins right behind the first cancel, and
// so misses it. It ends with the second one, if that comes. A later call waits for none, and must
// not be given one.

#include <moe_c.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>

static std::atomic<int> n_cancels{0};

/// Whether there were more than n of them within so many seconds.
static bool more_than(int n, int seconds) {
  for (int ms = 0; ms < seconds * 1000 && n_cancels <= n; ++ms) usleep(1000);
  return n_cancels > n;
}

extern "C" void moe_session_cancel(moe_session*) { ++n_cancels; }

extern "C" moe_status moe_session_eval(moe_session*, const int32_t*, size_t, float*, size_t,
                                       moe_error* error) {
  static int n_calls = 0;
  error->text[0] = '\0';
  if (n_calls++ > 0) return more_than(n_cancels, 1) ? MOE_ERR_CANCELLED : MOE_OK;
  fclose(fopen(getenv("CALLED"), "w"));
  return more_than(0, 60) && more_than(1, 60) ? MOE_ERR_CANCELLED : MOE_OK;
}
