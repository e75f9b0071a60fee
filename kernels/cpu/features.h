// SPDX-License-Identifier: MIT
#pragma once
// Features of this CPU and its operating system. Queried at each call: no state.

namespace moe {

bool cpu_has_baseline();      // always
bool cpu_has_avx2();          // AVX2, FMA, F16C
bool cpu_has_amx();           // AMX tiles with int8, and the features for avx512vnni
bool cpu_has_avxvnni();       // AVX-VNNI and the features for avx2
bool cpu_has_avx512vnni();    // AVX-512 F, BW, VL, VNNI, VBMI and the features for avx2
bool cpu_has_neon_dotprod();  // Armv8.2 dot product
bool cpu_has_neon_i8mm();     // Armv8.6 int8 matrix products, and the dot product

/// Requests the tile registers from the system, permanently for the whole process: alternate signal
/// stacks must then have room for them. False if an existing one does not.
bool allow_amx();

}  // namespace moe
