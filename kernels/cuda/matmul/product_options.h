#pragma once
// When and with how much memory cuBLASLt is used.

#include <cstddef>
#include <cstdint>

namespace moe::cuda {

/// Nothing here was measured on a GPU. Model, for an H200 (4.3 TB/s): own kernels at 600 TOP/s
/// (mma.sync reaches about half of the tensor cores' rate there, and these kernels have not been
/// tuned), cuBLASLt at 1300 TOP/s, but for it every weight is written once and read once more as a
/// plain byte, and every sum as an int32: 2 N K + 8 M N bytes. The time won is 1.8e-15 M N K s, the
/// time lost 4.7e-13 N K + 1.9e-12 M N s: M K = 258 K + 1033 M on the border, so 521 rows at
/// K = 2048, 345 at 4096 and none at 1024. With few outputs three launches (10 us) are not won back
/// either. Own kernels therefore keep every product below these sizes.
inline constexpr int32_t kLibraryRows = 512;      // M
inline constexpr int32_t kLibraryInputs = 2048;   // K
inline constexpr int32_t kLibraryOutputs = 1024;  // N

/// Where cuBLASLt is looked for, by the loader's rules, in this order.
inline constexpr const char* kCublasLtNames[] = {"libcublasLt.so.13", "libcublasLt.so.12", nullptr};

/// Tests and benchmarks choose others.
struct ProductLibraryOptions {
  const char* const* names = kCublasLtNames;  // up to a null
  int32_t rows = kLibraryRows;
  int32_t inputs = kLibraryInputs;
  int32_t outputs = kLibraryOutputs;
  // Scratch, one per GPU. Larger matrices go panel by panel, more rows of sums chunk by chunk.
  size_t weight_bytes = size_t{16} << 20;     // plain weights: 4096 x 4096
  size_t sum_bytes = size_t{32} << 20;        // sums: they stay within an H200's L2 of 50 MB
  size_t workspace_bytes = size_t{32} << 20;  // cuBLASLt's own: what NVIDIA advises for Hopper
};

}  // namespace moe::cuda
