#pragma once

namespace moe_cli {

/// Bytes per second that `threads` threads together read from memory: the median of several passes
/// over a buffer larger than the caches (512 MiB; a quarter of the free memory, but not
/// below 64 MiB, when that is less; halved while a limit of the process refuses it). It runs in a
/// child process, so that the buffer does not count as memory of this one; call it while this
/// process has one thread. Throws CallError.
double read_bandwidth(int threads);

}  // namespace moe_cli
