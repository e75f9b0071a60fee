#define kernels_neon_i8mm unused_kernels_neon_i8mm
#define MOE_PROBE_FILE "kernels/cpu/isa/neon_i8mm.cpp"
#define MOE_PROBE_NAME probe_neon_i8mm
#include "tests/kernels/isa_probe.inc"
