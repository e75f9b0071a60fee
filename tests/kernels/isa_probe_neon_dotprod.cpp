#define kernels_neon_dotprod unused_kernels_neon_dotprod
#define MOE_PROBE_FILE "kernels/cpu/isa/neon_dotprod.cpp"
#define MOE_PROBE_NAME probe_neon_dotprod
#include "tests/kernels/isa_probe.inc"
