// SPDX-License-Identifier: MIT
#pragma once
// Runs the threads of one block as fibers of the calling thread.

#include <stddef.h>
#include <stdint.h>

#include <functional>

#include "emulator.h"

namespace emulator {

/// Runs one block; returns an empty string, or an error (a deadlock, a diverged collective).
const char* run_block(const Position& at, uint8_t* shared, const std::function<void()>& thread);
/// Static shared memory of the latest block, in bytes.
size_t static_shared();

}  // namespace emulator
