#define kernels_avx512vnni unused_kernels_avx512vnni
#define MOE_PROBE_FILE "kernels/cpu/isa/avx512vnni.cpp"
#define MOE_PROBE_NAME probe_avx512vnni
#include "tests/kernels/isa_probe.inc"
