// SPDX-License-Identifier: MIT
// Every instruction set, one per line, preferred ones first: its name (NAME.cpp in this folder
// defines kernels_NAME), its processors, the function that detects it, the function that requests
// it from the system, the set that must be built too (whose file contains both tables), and
// compiler flags. CMake generates kernels/cpu/isa/built.h from the lines of a build.
// clang-format off
MOE_ISA(amx,          x86_64,  cpu_has_amx,          allow_amx, "avx512vnni",   "-mavx2 -mfma -mf16c -mavx512f -mavx512bw -mavx512vl -mavx512vnni -mavx512vbmi -mamx-tile -mamx-int8")
MOE_ISA(avx512vnni,   x86_64,  cpu_has_avx512vnni,   nullptr,   "",             "-mavx2 -mfma -mf16c -mavx512f -mavx512bw -mavx512vl -mavx512vnni -mavx512vbmi")
MOE_ISA(avxvnni,      x86_64,  cpu_has_avxvnni,      nullptr,   "avx2",         "-mavx2 -mfma -mf16c -mavxvnni")
MOE_ISA(avx2,         x86_64,  cpu_has_avx2,         nullptr,   "",             "-mavx2 -mfma -mf16c")
MOE_ISA(neon_i8mm,    aarch64, cpu_has_neon_i8mm,    nullptr,   "neon_dotprod", "-march=armv8.2-a+dotprod+i8mm")
MOE_ISA(neon_dotprod, aarch64, cpu_has_neon_dotprod, nullptr,   "",             "-march=armv8.2-a+dotprod")
MOE_ISA(scalar,       any,     cpu_has_baseline,     nullptr,   "",             "")
