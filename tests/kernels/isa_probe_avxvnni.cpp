#define kernels_avxvnni unused_kernels_avxvnni
#define MOE_PROBE_FILE "kernels/cpu/isa/avxvnni.cpp"
#define MOE_PROBE_NAME probe_avxvnni
#include "tests/kernels/isa_probe.inc"
