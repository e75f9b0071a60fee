#define kernels_avx2 unused_kernels_avx2
#define MOE_PROBE_FILE "kernels/cpu/isa/avx2.cpp"
#define MOE_PROBE_NAME probe_avx2
#include "tests/kernels/isa_probe.inc"
