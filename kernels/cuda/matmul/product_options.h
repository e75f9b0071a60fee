// SPDX-License-Identifier: MIT
#pragma once
// When cuBLASLt is used, and with how much memory.

#include <cstddef>
#include <cstdint>

namespace moe::cuda {

/// Not measured on a GPU. Model for an H200 (4.3 TB/s): own kernels at 600 TOP/s (mma.sync reaches
/// about half of the tensor cores' rate there, and these kernels are untuned), cuBLASLt at 1300
/// TOP/s, but every weight is written and read once more as a plain byte, and every sum as an
/// int32: 2 N K + 8 M N bytes. The gain is 1.8e-15 M N K s, the cost 4.7e-13 N K + 1.9e-12 M N s:
/// break-even at M K = 258 K + 1033 M, so 521 rows at K = 2048, 345 at 4096 and none at 1024. With
/// few outputs three launches (10 us) are not recovered either. Own kernels therefore compute every
/// matrix product below these sizes.
inline constexpr int32_t kLibraryRows = 512;      // M
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
