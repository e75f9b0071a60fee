#pragma once
// MOE_INLINE: never a copy that the linker could share between files compiled for different CPUs.

#define MOE_INLINE static inline __attribute__((always_inline))
