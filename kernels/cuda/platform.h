// SPDX-License-Identifier: MIT
#pragma once
// The subset of CUDA that kernels may use: they are compiled by nvcc for a GPU, and by the host
// compiler against tests/gpu/emulator, which runs the threads of a block in turn. Only this file
// and launch.h know which.

#include <cuda_runtime.h>
#include <stdint.h>

namespace moe::cuda {

inline constexpr int kWarp = 32;

/// Unrolls the following loop, so that arrays indexed in it can be in registers; or does not, where
/// that would need too many. MOE_CUDA_UNROLL_BY(n) unrolls n iterations.
#if defined(__CUDA_ARCH__)
#define MOE_CUDA_PRAGMA(text) _Pragma(#text)
#define MOE_CUDA_UNROLL _Pragma("unroll")
#define MOE_CUDA_NO_UNROLL _Pragma("unroll 1")
#define MOE_CUDA_UNROLL_BY(n) MOE_CUDA_PRAGMA(unroll(n))
#else
#define MOE_CUDA_UNROLL
#define MOE_CUDA_NO_UNROLL
#define MOE_CUDA_UNROLL_BY(n)
#endif

/// A variable of the block in static shared memory: MOE_CUDA_SHARED(float, sums, [32]);
#if defined(MOE_CUDA_EMULATOR)
#define MOE_CUDA_SHARED(Type, name, ...)                                     \
  static Type name __VA_ARGS__;                                              \
  static ::emulator::SharedVariable name##_in_block{&name, sizeof(name), 0}; \
  ::emulator::use_shared(&name##_in_block)
#else
#define MOE_CUDA_SHARED(Type, name, ...) __shared__ Type name __VA_ARGS__
#endif

#if defined(MOE_CUDA_EMULATOR)

using emulator::cp_async_16;
using emulator::cp_async_commit;
using emulator::cp_async_wait;
using emulator::dp4a_s8;
using emulator::dp4a_u8;
using emulator::dynamic_shared;
using emulator::fast_exp2;
using emulator::fused;
using emulator::half_bits;
using emulator::half_value;
using emulator::ldmatrix_x4;
using emulator::ldmatrix_x4_turned;
using emulator::mma_f16;
using emulator::mma_s8s8;
using emulator::mma_u8s8;
using emulator::two_halves;

inline void wait_for_previous() {}
inline void prefetch_l2(const void*) {}
inline int32_t forgotten(int32_t v) { return v; }
inline uint4 load_once(const void* p) {
  return emulator::load_vector<uint4>("16 bytes that are not aligned", p);
}
inline uint2 load_once_8(const void* p) {
  return emulator::load_vector<uint2>("8 bytes that are not aligned", p);
}
inline uint4 load_in_turn(const void* p) { return load_once(p); }
inline uint2 load_in_turn_8(const void* p) { return load_once_8(p); }
inline uint4 load_shared_in_turn(const void* p) { return load_once(p); }
inline uint2 load_shared_in_turn_8(const void* p) { return load_once_8(p); }

#elif defined(__CUDACC__)

/// Waits until the kernels before this one in the stream have ended, then lets the next one start:
/// as soon as all blocks of this one have, since launch() allows it. (To let it start before the
/// wait made steps of small kernels a fifth slower on an H200.) Every kernel calls this before it
/// touches memory that another kernel writes or reads.
__device__ __forceinline__ void wait_for_previous() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}

/// Brings the line of 128 bytes at p to the L2 cache.
__device__ __forceinline__ void prefetch_l2(const void* p) {
  asm volatile("prefetch.global.L2 [%0];" : : "l"(p));
}

/// Returns v, hiding its value from the compiler: derived values are recomputed where needed
/// instead of occupying registers.
__device__ __forceinline__ int32_t forgotten(int32_t v) {
  asm volatile("" : "+r"(v));
  return v;
}

/// The block's dynamic shared memory, 128-byte aligned.
__device__ __forceinline__ uint8_t* dynamic_shared() {
  extern __shared__ __align__(128) uint8_t moe_dynamic_shared[];
  return moe_dynamic_shared;
}

/// a b + c with one rounding.
__device__ __forceinline__ float fused(float a, float b, float c) { return __fmaf_rn(a, b, c); }

/// IEEE half precision: to bits (half to even) and back.
__device__ __forceinline__ uint16_t half_bits(float x) {
  uint16_t bits;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x));
  return bits;
}
__device__ __forceinline__ float half_value(uint16_t bits) {
  float x;
  asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(bits));
  return x;
}

/// Two halves in one register, `low` in the lower half.
__device__ __forceinline__ uint32_t two_halves(float low, float high) {
  uint32_t bits;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(high), "f"(low));
  return bits;
}

/// 2^x within 2 ulp; 0 for -infinity.
__device__ __forceinline__ float fast_exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

/// 16 bytes that are read once: bypasses L1. L2 gets the whole line of 128 bytes, which may also
/// hold the scales of these codes.
__device__ __forceinline__ uint4 load_once(const void* p) {
  uint4 v;
  asm volatile("ld.global.nc.L1::no_allocate.L2::128B.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(p));
  return v;
}

/// The same with 8 bytes.
__device__ __forceinline__ uint2 load_once_8(const void* p) {
  uint2 v;
  asm volatile("ld.global.nc.L1::no_allocate.L2::128B.v2.u32 {%0, %1}, [%2];"
               : "=r"(v.x), "=r"(v.y)
               : "l"(p));
  return v;
}

/// 16 or 8 bytes that are also read by others, and may have been written since this kernel started
/// to wait (so not ld.global.nc). Not moved before preceding matrix instructions, so that the old
/// value need not be kept in registers.
__device__ __forceinline__ uint4 load_in_turn(const void* p) {
  uint4 v;
  asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(p));
  return v;
}

__device__ __forceinline__ uint2 load_in_turn_8(const void* p) {
  uint2 v;
  asm volatile("ld.global.v2.u32 {%0, %1}, [%2];" : "=r"(v.x), "=r"(v.y) : "l"(p));
  return v;
}

/// 16 or 8 bytes of shared memory, also ordered with matrix instructions.
__device__ __forceinline__ uint4 load_shared_in_turn(const void* p) {
  uint4 v;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "r"(static_cast<uint32_t>(__cvta_generic_to_shared(p))));
  return v;
}

__device__ __forceinline__ uint2 load_shared_in_turn_8(const void* p) {
  uint2 v;
  asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];"
               : "=r"(v.x), "=r"(v.y)
               : "r"(static_cast<uint32_t>(__cvta_generic_to_shared(p))));
  return v;
}

/// c + four products of the bytes of a (unsigned or signed) and of b (signed).
__device__ __forceinline__ int32_t dp4a_u8(uint32_t a, uint32_t b, int32_t c) {
  int32_t d;
  asm("dp4a.u32.s32 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
  return d;
}
__device__ __forceinline__ int32_t dp4a_s8(uint32_t a, uint32_t b, int32_t c) {
  int32_t d;
  asm("dp4a.s32.s32 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
  return d;
}

/// mma.m16n8k32: c (16, 8) += a (16, 32) b (32, 8), bytes to 32-bit sums. With g = lane / 4 and
/// q = lane % 4: a0, a1 hold row g and g + 8, columns 4q..4q+3; a2, a3 the same rows, columns
/// 16 + 4q..; b0, b1 hold column g, rows 4q.. and 16 + 4q..; c0, c1 row g, columns 2q and 2q + 1;
/// c2, c3 row g + 8.
__device__ __forceinline__ void mma_u8s8(int32_t (&c)[4], uint32_t a0, uint32_t a1, uint32_t a2,
                                         uint32_t a3, uint32_t b0, uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}
__device__ __forceinline__ void mma_s8s8(int32_t (&c)[4], uint32_t a0, uint32_t a1, uint32_t a2,
                                         uint32_t a3, uint32_t b0, uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

/// mma.m16n8k16: c (16, 8) += a (16, 16) b (16, 8), halves to float sums; a register holds two
/// consecutive halves. a0, a1: row g and g + 8, columns 2q..; a2, a3: columns 8 + 2q..; b0, b1:
/// column g, rows 2q.. and 8 + 2q..; c as above.
__device__ __forceinline__ void mma_f16(float (&c)[4], uint32_t a0, uint32_t a1, uint32_t a2,
                                        uint32_t a3, uint32_t b0, uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

/// Four 8 x 16-byte matrices from shared memory: lane l gives the address of row l % 8 of matrix
/// l / 8; out[m] gets bytes 4 (lane % 4).. of row lane / 4 of matrix m.
__device__ __forceinline__ void ldmatrix_x4(uint32_t (&out)[4], const void* row) {
  const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
               : "r"(address));
}

/// The same matrices of 8 x 8 halves, transposed: out[m] gets element lane / 4 of rows 2 (lane % 4)
/// and 2 (lane % 4) + 1.
__device__ __forceinline__ void ldmatrix_x4_turned(uint32_t (&out)[4], const void* row) {
  const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
               : "r"(address));
}

/// Copies 16 bytes to shared memory asynchronously; zeros if `valid` is false. Complete after
/// commit, wait and a barrier.
__device__ __forceinline__ void cp_async_16(void* shared, const void* global, bool valid) {
  const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(shared));
  const int bytes = valid ? 16 : 0;
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
               :
               : "r"(address), "l"(global), "r"(bytes));
}
__device__ __forceinline__ void cp_async_commit() { asm volatile("cp.async.commit_group;"); }
/// Waits until at most `kPending` of the latest groups are under way.
template <int kPending>
__device__ __forceinline__ void cp_async_wait() {
  asm volatile("cp.async.wait_group %0;" : : "n"(kPending) : "memory");
}

#endif

}  // namespace moe::cuda
