#pragma once
// MOE_INLINE: no copy that the linker could share between files compiled for different CPUs.

#if defined(__CUDACC__)
#define MOE_INLINE static __host__ __device__ __forceinline__
#else
#define MOE_INLINE static inline __attribute__((always_inline))
#endif
