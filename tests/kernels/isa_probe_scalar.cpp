#define kernels_scalar unused_kernels_scalar
#define MOE_PROBE_FILE "kernels/cpu/isa/scalar.cpp"
#define MOE_PROBE_NAME probe_scalar
#include "tests/kernels/isa_probe.inc"
