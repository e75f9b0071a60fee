// SPDX-License-Identifier: MIT
#pragma once
// CUDA on the host, for tests of kernels/cuda without a GPU: the CUDA C++ features that the kernels
// use, in ordinary C++. A launch runs its blocks one after the other. The threads of a block are
// fibers, which switch at barriers, shuffles and matrix instructions, in an order that tests can
// change. What CUDA leaves undefined is an error here: threads of a warp at different collectives,
// a barrier that a thread of the block never reaches, an asynchronous copy used before its wait,
// a vector that is not aligned, more shared memory than a block has.

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <functional>

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __shared__ static
#define __launch_bounds__(...)
#define __grid_constant__

struct dim3 {
  unsigned x = 1, y = 1, z = 1;
  dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
struct alignas(8) uint2 {
  unsigned x, y;
};
struct alignas(16) int4 {
  int x, y, z, w;
};
struct alignas(8) int2 {
  int x, y;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
struct alignas(8) float2 {
  float x, y;
};
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
inline int4 make_int4(int x, int y, int z, int w) { return {x, y, z, w}; }
inline int2 make_int2(int x, int y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
inline float2 make_float2(float x, float y) { return {x, y}; }

struct EmulatedStream;
using cudaStream_t = EmulatedStream*;

namespace emulator {

inline constexpr int kMostGridY =
    4095;  // blocks along y and z: fewer than a GPU's 65535, so that tests reach it

// --- The environment of a kernel ----------------------------------------------------------------

struct Position {
  dim3 thread, block, block_size, grid;
};
const Position& here();
uint8_t* dynamic_shared();

/// A variable in static shared memory. Each block finds it filled with 0xff bytes.
struct SharedVariable {
  void* memory;
  size_t bytes;
  uint64_t block;  // the latest that used it
};
uint64_t block_number();
void first_use(SharedVariable* variable);
inline void use_shared(SharedVariable* variable) {
  if (variable->block != block_number()) first_use(variable);
}
/// Ends the block with an error if p is not a multiple of `bytes`.
void check_aligned(const char* what, const void* p, size_t bytes);
template <class T>
T load_vector(const char* what, const void* p) {
  check_aligned(what, p, sizeof(T));
  T value;
  memcpy(&value, p, sizeof value);
  return value;
}

/// The values that the lanes of a warp exchange in one collective operation.
struct Exchange {
  struct alignas(16) Value {
    uint8_t bytes[32];
  };
  Value of[32];  // one per lane
};
/// Contributes `n` <= 32 bytes, waits for the lanes of `mask`, and returns the values of all of
/// them, which are valid until this lane's next collective. Lanes must agree on `mask` and `what`.
const Exchange& exchange(const char* what, uint32_t mask, const void* value, size_t n);
void block_barrier();
int lane();

template <class T>
T value_of(const Exchange& e, int lane) {
  T value;
  memcpy(&value, e.of[lane & 31].bytes, sizeof value);
  return value;
}
template <class T>
T shuffle(const char* what, uint32_t mask, T value, int from) {
  return value_of<T>(exchange(what, mask, &value, sizeof value), from);
}

// --- The primitives of kernels/cuda/platform.h ---------------------------------------------------

inline float fused(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
uint16_t half_bits(float x);
float half_value(uint16_t bits);
inline uint32_t two_halves(float low, float high) {
  return half_bits(low) | static_cast<uint32_t>(half_bits(high)) << 16;
}
inline float fast_exp2(float x) { return __builtin_exp2f(x); }
int32_t dp4a_u8(uint32_t a, uint32_t b, int32_t c);
int32_t dp4a_s8(uint32_t a, uint32_t b, int32_t c);
void mma_u8s8(int32_t (&c)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0,
              uint32_t b1);
void mma_s8s8(int32_t (&c)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0,
              uint32_t b1);
/// m16n8k16 with half-precision inputs and float sums; a register holds two halves, the low one
/// first.
void mma_f16(float (&c)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0,
             uint32_t b1);
void ldmatrix_x4(uint32_t (&out)[4], const void* row);
void ldmatrix_x4_turned(uint32_t (&out)[4], const void* row);
/// Copies are made at the wait, which exposes a kernel that does not wait.
void cp_async_16(void* shared, const void* global, bool valid);
void cp_async_commit();
void cp_async_wait_for(int pending);
template <int kPending>
void cp_async_wait() {
  cp_async_wait_for(kPending);
}

// --- Launches ------------------------------------------------------------------------------------

int launch_kernel(cudaStream_t stream, dim3 blocks, dim3 threads, size_t shared_bytes,
                  std::function<void()> thread);

/// The order of the threads of a block: 0 ascending, 1 descending, else a shuffle with this seed.
/// MOE_EMULATED_ORDER is the one that a program starts with. Returns the previous one.
uint32_t set_thread_order(uint32_t order);

}  // namespace emulator

#define threadIdx (::emulator::here().thread)
#define blockIdx (::emulator::here().block)
#define blockDim (::emulator::here().block_size)
#define gridDim (::emulator::here().grid)

inline void __syncthreads() { ::emulator::block_barrier(); }
inline void __syncwarp(uint32_t mask = ~0u) { ::emulator::exchange("__syncwarp", mask, &mask, 4); }
template <class T>
T __shfl_sync(uint32_t mask, T value, int from, int width = 32) {
  const int base = ::emulator::lane() & ~(width - 1);
  return ::emulator::shuffle("__shfl_sync", mask, value, base + (from & (width - 1)));
}
template <class T>
T __shfl_xor_sync(uint32_t mask, T value, int bits, int width = 32) {
  const int lane = ::emulator::lane();
  const int from = lane ^ bits;
  return ::emulator::shuffle("__shfl_xor_sync", mask, value,
                             (from & ~(width - 1)) > (lane & ~(width - 1)) ? lane : from);
}
template <class T>
T __shfl_down_sync(uint32_t mask, T value, unsigned by, int width = 32) {
  const int lane = ::emulator::lane();
  const int from = lane + static_cast<int>(by);
  return ::emulator::shuffle("__shfl_down_sync", mask, value,
                             (from & ~(width - 1)) != (lane & ~(width - 1)) ? lane : from);
}
template <class T>
T __shfl_up_sync(uint32_t mask, T value, unsigned by, int width = 32) {
  const int lane = ::emulator::lane();
  const int from = lane - static_cast<int>(by);
  return ::emulator::shuffle("__shfl_up_sync", mask, value,
                             from < (lane & ~(width - 1)) ? lane : from);
}
inline uint32_t __ballot_sync(uint32_t mask, int predicate) {
  const auto& e = ::emulator::exchange("__ballot_sync", mask, &predicate, sizeof predicate);
  uint32_t bits = 0;
  for (int i = 0; i < 32; ++i) {
    if ((mask >> i & 1) != 0 && ::emulator::value_of<int>(e, i) != 0) bits |= 1u << i;
  }
  return bits;
}
template <class T>
uint32_t __match_any_sync(uint32_t mask, T value) {
  const auto& e = ::emulator::exchange("__match_any_sync", mask, &value, sizeof value);
  uint32_t bits = 0;
  for (int i = 0; i < 32; ++i) {
    if ((mask >> i & 1) != 0 && ::emulator::value_of<T>(e, i) == value) bits |= 1u << i;
  }
  return bits;
}
inline int __any_sync(uint32_t mask, int p) { return __ballot_sync(mask, p) != 0; }
inline int __all_sync(uint32_t mask, int p) { return __ballot_sync(mask, p) == mask; }
template <class T, class F>
T emulated_reduce(const char* what, uint32_t mask, T value, F f) {
  const auto& e = ::emulator::exchange(what, mask, &value, sizeof value);
  bool first = true;
  T result{};
  for (int i = 0; i < 32; ++i) {
    if ((mask >> i & 1) == 0) continue;
    const T v = ::emulator::value_of<T>(e, i);
    result = first ? v : f(result, v);
    first = false;
  }
  return result;
}
template <class T>
T __reduce_add_sync(uint32_t mask, T v) {
  return emulated_reduce("__reduce_add_sync", mask, v, [](T a, T b) {
    return static_cast<T>(static_cast<uint32_t>(a) + static_cast<uint32_t>(b));
  });
}
template <class T>
T __reduce_max_sync(uint32_t mask, T v) {
  return emulated_reduce("__reduce_max_sync", mask, v, [](T a, T b) { return a > b ? a : b; });
}
template <class T>
T __reduce_min_sync(uint32_t mask, T v) {
  return emulated_reduce("__reduce_min_sync", mask, v, [](T a, T b) { return a < b ? a : b; });
}
template <class T>
T atomicAdd(T* p, T v) {
  const T old = *p;
  *p = static_cast<T>(old + v);
  return old;
}
template <class T>
T atomicMax(T* p, T v) {
  const T old = *p;
  if (v > old) *p = v;
  return old;
}
template <class T>
T atomicMin(T* p, T v) {
  const T old = *p;
  if (v < old) *p = v;
  return old;
}
template <class T>
T atomicCAS(T* p, T expected, T v) {
  const T old = *p;
  if (old == expected) *p = v;
  return old;
}
template <class T>
T atomicExch(T* p, T v) {
  const T old = *p;
  *p = v;
  return old;
}
inline void __threadfence() {}
inline void __threadfence_block() {}
inline int __popc(uint32_t v) { return __builtin_popcount(v); }
inline int __ffs(int v) { return __builtin_ffs(v); }
inline int __clz(int v) { return v == 0 ? 32 : __builtin_clz(static_cast<unsigned>(v)); }
inline float __int_as_float(int v) { return __builtin_bit_cast(float, v); }
inline int __float_as_int(float v) { return __builtin_bit_cast(int, v); }
inline float __uint_as_float(unsigned v) { return __builtin_bit_cast(float, v); }
inline unsigned __float_as_uint(float v) { return __builtin_bit_cast(unsigned, v); }
inline int __float2int_rn(float v) { return static_cast<int>(__builtin_rintf(v)); }
inline float __fsqrt_rn(float v) { return __builtin_sqrtf(v); }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __fmaf_rn(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
inline uint32_t __byte_perm(uint32_t a, uint32_t b, uint32_t selector) {
  const uint64_t both = static_cast<uint64_t>(b) << 32 | a;
  uint32_t out = 0;
  for (int i = 0; i < 4; ++i) {
    const uint32_t s = selector >> (4 * i) & 0xf;
    uint32_t byte = static_cast<uint32_t>(both >> (8 * (s & 7))) & 0xff;
    if ((s & 8) != 0) byte = (byte & 0x80) != 0 ? 0xff : 0;
    out |= byte << (8 * i);
  }
  return out;
}
template <class T>
T __ldg(const T* p) {
  return *p;
}
template <class T>
T __ldcg(const T* p) {
  return *p;
}
