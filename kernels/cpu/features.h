#pragma once
// What this CPU and its operating system can run. Computed anew at each call: no state.

namespace moe {

bool cpu_has_baseline();      // always
bool cpu_has_avx2();          // AVX2, FMA, F16C
bool cpu_has_amx();           // AMX tiles with int8, and what avx512vnni needs
bool cpu_has_avxvnni();       // AVX-VNNI and what avx2 needs
bool cpu_has_avx512vnni();    // AVX-512 F, BW, VL, VNNI, VBMI and what avx2 needs
bool cpu_has_neon_dotprod();  // Armv8.2 dot product
bool cpu_has_neon_i8mm();     // Armv8.6 int8 matrix products, and the dot product

/// Asks Linux for the tile registers, for the whole process and for good: alternate signal stacks
/// must have room for them from then on. False where an existing one has not.
bool allow_amx();

}  // namespace moe
