// SPDX-License-Identifier: MIT
#pragma once
// When cuBLASLt is used, and with how much memory.

#include <cstddef>
#include <cstdint>

namespace moe::cuda {

/// Measured on an H100 (tests/bench/results/2026-11-26-h100.md), in microseconds, own kernels and
/// cuBLASLt with what surrounds it: int8 2048 x 2048 with 128 rows 32.8 and 11.7, 512 rows 32.3 and
/// 17.7; ternary2 4096 x 4096 with 256 rows 45.2 and 29.9, 4096 rows 339 and 182. Fewer rows,
/// inputs and outputs were not measured: own kernels compute those.
inline constexpr int32_t kLibraryRows = 128;      // M
inline constexpr int32_t kLibraryInputs = 2048;   // K
inline constexpr int32_t kLibraryOutputs = 1024;  // N

/// Names of cuBLASLt for the loader, in order of preference.
inline constexpr const char* kCublasLtNames[] = {"libcublasLt.so.13", "libcublasLt.so.12", nullptr};

/// Tests and benchmarks use other options.
struct ProductLibraryOptions {
  const char* const* names = kCublasLtNames;  // up to a null
  int32_t rows = kLibraryRows;
  int32_t inputs = kLibraryInputs;
  int32_t outputs = kLibraryOutputs;
  // Scratch, one per GPU. Larger matrices are processed in panels, more rows of sums in chunks.
  size_t weight_bytes = size_t{16} << 20;     // plain weights: 4096 x 4096
  size_t sum_bytes = size_t{32} << 20;        // fits in an H200's L2 of 50 MB
  size_t workspace_bytes = size_t{32} << 20;  // cuBLASLt's own: NVIDIA's recommendation for Hopper
};

}  // namespace moe::cuda
