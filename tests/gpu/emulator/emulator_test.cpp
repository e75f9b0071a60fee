// SPDX-License-Identifier: MIT
// Tests of the emulator: features that kernels use, and errors that it must detect.

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <numeric>
#include <random>
#include <set>
#include <vector>

#include "cuda_runtime.h"
#include "kernels/cuda/platform.h"

namespace {

template <class T>
struct OnDevice {
  explicit OnDevice(size_t n) : size(n) { cudaMalloc(&data, n * sizeof(T)); }
  explicit OnDevice(const std::vector<T>& v) : OnDevice(v.size()) {
    cudaMemcpy(data, v.data(), size * sizeof(T), cudaMemcpyHostToDevice);
  }
  ~OnDevice() { cudaFree(data); }
  std::vector<T> values() const {
    std::vector<T> v(size);
    cudaDeviceSynchronize();
    cudaMemcpy(v.data(), data, size * sizeof(T), cudaMemcpyDeviceToHost);
    return v;
  }
  T* data = nullptr;
  size_t size;
};

template <class F>
cudaError_t run(unsigned blocks, unsigned threads, F f, size_t shared = 0) {
  const cudaError_t error = emulator::launch(nullptr, blocks, threads, shared, f);
  return error != cudaSuccess ? error : cudaDeviceSynchronize();
}

class Emulator : public testing::TestWithParam<uint32_t> {
 protected:
  void SetUp() override { before_ = emulator::set_thread_order(GetParam()); }
  void TearDown() override {
    emulator::set_thread_order(before_);
    emulator::clear_failure();
  }
  uint32_t before_ = 0;
};
INSTANTIATE_TEST_SUITE_P(Orders, Emulator, testing::Values(0, 1, 7));

TEST_P(Emulator, BarriersOrderSharedMemory) {
  const OnDevice<int> out(2 * 96);
  int* y = out.data;
  ASSERT_EQ(run(2, 96,
                [=] {
                  MOE_CUDA_SHARED(int, turned, [96]);
                  turned[95 - threadIdx.x] = static_cast<int>(100 * blockIdx.x + threadIdx.x);
                  __syncthreads();
                  y[96 * blockIdx.x + threadIdx.x] = turned[threadIdx.x];
                }),
            cudaSuccess);
  const std::vector<int> v = out.values();
  for (int i = 0; i < 192; ++i) EXPECT_EQ(v[static_cast<size_t>(i)], 100 * (i / 96) + 95 - i % 96);
}

TEST_P(Emulator, ShufflesReductionsAndBallots) {
  const OnDevice<int> out(4 * 64);
  int* y = out.data;
  ASSERT_EQ(run(1, 64,
                [=] {
                  const int t = static_cast<int>(threadIdx.x);
                  y[t] = __shfl_xor_sync(~0u, t, 5);
                  y[64 + t] = __reduce_add_sync(~0u, t);
                  y[128 + t] = static_cast<int>(__ballot_sync(~0u, t % 3 == 0));
                  // half a warp alone, then the whole warp
                  if (t % 32 < 16) y[192 + t] = __shfl_sync(0xffffu, t, 3);
                  const int sum = __shfl_down_sync(~0u, t, 16);
                  if (t % 32 >= 16) y[192 + t] = sum;
                }),
            cudaSuccess);
  const std::vector<int> v = out.values();
  for (int t = 0; t < 64; ++t) {
    const int first = t & ~31;
    EXPECT_EQ(v[static_cast<size_t>(t)], t ^ 5);
    EXPECT_EQ(v[static_cast<size_t>(64 + t)], 32 * first + 31 * 16);
    for (int l = 0; l < 32; ++l) {
      EXPECT_EQ(v[static_cast<size_t>(128 + t)] >> l & 1, (first + l) % 3 == 0);
    }
    EXPECT_EQ(v[static_cast<size_t>(192 + t)], t % 32 < 16 ? first + 3 : t);
  }
}

TEST_P(Emulator, MatrixInstructionIsAProduct) {
  std::mt19937 random(3);
  std::vector<uint8_t> a(16 * 32);
  std::vector<int8_t> b(32 * 8);
  for (auto& v : a) v = static_cast<uint8_t>(random());
  for (auto& v : b) v = static_cast<int8_t>(random());
  const OnDevice<uint8_t> da(a);
  const OnDevice<int8_t> db(b);
  const OnDevice<int> out(16 * 8);
  ASSERT_EQ(
      run(1, 32,
          [=, a_ = da.data, b_ = db.data, y = out.data] {
            const unsigned g = threadIdx.x / 4;
            const unsigned q = threadIdx.x % 4;
            const auto word_a = [&](unsigned row, unsigned k) {
              uint32_t w;
              memcpy(&w, a_ + row * 32 + k, 4);
              return w;
            };
            const auto word_b = [&](unsigned k) {
              uint32_t w = 0;
              for (unsigned i = 0; i < 4; ++i) {
                w |= static_cast<uint32_t>(static_cast<uint8_t>(b_[(k + i) * 8 + g])) << (8 * i);
              }
              return w;
            };
            int32_t c[4] = {1, 1, 1, 1};
            emulator::mma_u8s8(c, word_a(g, 4 * q), word_a(g + 8, 4 * q), word_a(g, 16 + 4 * q),
                               word_a(g + 8, 16 + 4 * q), word_b(4 * q), word_b(16 + 4 * q));
            for (unsigned i = 0; i < 4; ++i) {
              y[(g + i / 2 * 8) * 8 + 2 * q + i % 2] = c[i];
            }
          }),
      cudaSuccess);
  const std::vector<int> v = out.values();
  for (size_t r = 0; r < 16; ++r) {
    for (size_t c = 0; c < 8; ++c) {
      int sum = 1;
      for (size_t k = 0; k < 32; ++k) sum += a[r * 32 + k] * b[k * 8 + c];
      EXPECT_EQ(v[r * 8 + c], sum);
    }
  }
}

TEST_P(Emulator, AsynchronousCopiesArriveAtTheWait) {
  std::vector<int> values(32);
  std::iota(values.begin(), values.end(), 5);
  const OnDevice<int> in(values);
  const OnDevice<int> out(64);
  ASSERT_EQ(run(
                1, 8,
                [=, x = in.data, y = out.data] {
                  int* s = reinterpret_cast<int*>(emulator::dynamic_shared());
                  const unsigned t = threadIdx.x;
                  for (unsigned i = 0; i < 4; ++i) s[4 * t + i] = -7;
                  emulator::cp_async_16(s + 4 * t, x + 4 * t, t != 3);
                  emulator::cp_async_commit();
                  emulator::cp_async_commit();
                  emulator::cp_async_wait<2>();
                  for (unsigned i = 0; i < 4; ++i) y[4 * t + i] = s[4 * t + i];
                  emulator::cp_async_wait<1>();
                  for (unsigned i = 0; i < 4; ++i) y[32 + 4 * t + i] = s[4 * t + i];
                },
                128),
            cudaSuccess);
  const std::vector<int> v = out.values();
  for (size_t i = 0; i < 32; ++i) {
    EXPECT_EQ(v[i], -7);
    EXPECT_EQ(v[32 + i], i / 4 == 3 ? 0 : values[i]);
  }
}

TEST_P(Emulator, FindsWhatAGpuWouldHangOn) {
  EXPECT_EQ(run(1, 64,
                [] {
                  if (threadIdx.x < 40) __syncthreads();
                }),
            cudaErrorLaunchFailure);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaErrorLaunchFailure);  // the error is sticky
  emulator::clear_failure();
  EXPECT_EQ(run(1, 32,
                [] {
                  if (threadIdx.x < 3) {
                    __syncwarp();
                  } else {
                    __any_sync(~0u, 1);
                  }
                }),
            cudaErrorLaunchFailure);
  emulator::clear_failure();
  EXPECT_EQ(run(1, 32,
                [] {
                  if (threadIdx.x != 9) __shfl_sync(~0u, 1, 0);
                }),
            cudaErrorLaunchFailure);
  emulator::clear_failure();
  EXPECT_EQ(run(1, 2000, [] {}), cudaErrorInvalidConfiguration);
}

TEST_P(Emulator, ABlockFindsNothingOfTheOneBefore) {
  const OnDevice<int> out(3);
  ASSERT_EQ(run(3, 32,
                [y = out.data] {
                  MOE_CUDA_SHARED(int, kept);
                  if (threadIdx.x == 5) y[blockIdx.x] = kept;
                  __syncthreads();
                  if (threadIdx.x == 6) kept = 1000;
                }),
            cudaSuccess);
  EXPECT_EQ(out.values(), (std::vector<int>{-1, -1, -1}));
}

TEST_P(Emulator, VectorsMustBeAligned) {
  const OnDevice<uint8_t> in(std::vector<uint8_t>(64, 1));
  const auto with = [&](size_t in_global, size_t in_shared, auto f) {
    const cudaError_t error = run(
        1, 32, [=, x = in.data] { f(x + in_global, emulator::dynamic_shared() + in_shared); },
        1024);
    emulator::clear_failure();
    return error;
  };
  const auto copy = [](const uint8_t* global, uint8_t* shared) {
    emulator::cp_async_16(shared, global, true);
    emulator::cp_async_commit();
    emulator::cp_async_wait<0>();
  };
  const auto rows = [](const uint8_t*, uint8_t* shared) {
    uint32_t out[4];
    emulator::ldmatrix_x4(out, shared + 16 * (threadIdx.x % 32));
  };
  const auto turned = [](const uint8_t*, uint8_t* shared) {
    uint32_t out[4];
    emulator::ldmatrix_x4_turned(out, shared + 16 * (threadIdx.x % 32));
  };
  const auto sixteen = [](const uint8_t* global, uint8_t* shared) {
    *shared = static_cast<uint8_t>(moe::cuda::load_in_turn(global).x);
  };
  const auto eight = [](const uint8_t* global, uint8_t* shared) {
    *shared = static_cast<uint8_t>(moe::cuda::load_shared_in_turn_8(shared + *global).x);
  };
  EXPECT_EQ(with(16, 32, copy), cudaSuccess);
  EXPECT_EQ(with(8, 32, copy), cudaErrorLaunchFailure);
  EXPECT_EQ(with(16, 40, copy), cudaErrorLaunchFailure);
  EXPECT_EQ(with(0, 0, rows), cudaSuccess);
  EXPECT_EQ(with(0, 4, rows), cudaErrorLaunchFailure);
  EXPECT_EQ(with(0, 0, turned), cudaSuccess);
  EXPECT_EQ(with(0, 8, turned), cudaErrorLaunchFailure);
  EXPECT_EQ(with(16, 0, sixteen), cudaSuccess);
  EXPECT_EQ(with(8, 0, sixteen), cudaErrorLaunchFailure);
  EXPECT_EQ(with(0, 7, eight), cudaSuccess);
  EXPECT_EQ(with(0, 3, eight), cudaErrorLaunchFailure);
}

TEST(EmulatedRuntime, ABlockHasTheSharedMemoryOfTheMachine) {
  constexpr size_t kKiB = 1024;
  const auto small = [] { MOE_CUDA_SHARED(uint8_t, eight, [8 * kKiB]); };
  const auto large = [] { MOE_CUDA_SHARED(uint8_t, forty, [40 * kKiB]); };
  const auto with = [&](const auto& f, size_t dynamic) {
    const cudaError_t error = run(1, 32, f, dynamic);
    emulator::clear_failure();
    return error;
  };
  emulator::Machine machine;
  machine.shared = 99 * kKiB;
  emulator::set_machine(machine);
  EXPECT_EQ(with(small, 91 * kKiB), cudaSuccess);
  EXPECT_EQ(with(small, 92 * kKiB), cudaErrorLaunchFailure);
  EXPECT_EQ(with(small, 100 * kKiB), cudaErrorInvalidConfiguration);
  EXPECT_EQ(with(large, 8 * kKiB), cudaSuccess);
  EXPECT_EQ(with(large, 9 * kKiB), cudaErrorLaunchFailure);  // the kernel's limit is not raised
  EXPECT_EQ(with(large, 17 * kKiB), cudaSuccess);
  emulator::set_machine(emulator::default_machine());
}

TEST(EmulatedRuntime, TheEnvironmentGivesTheOrder) {
  const char* order = getenv("MOE_EMULATED_ORDER");
  std::set<int> first_threads;  // of eight blocks
  for (int block = 0; block < 8; ++block) {
    const OnDevice<int> first(std::vector<int>{-1});
    ASSERT_EQ(run(1, 32,
                  [y = first.data] {
                    if (*y < 0) *y = static_cast<int>(threadIdx.x);
                  }),
              cudaSuccess);
    first_threads.insert(first.values()[0]);
  }
  if (order == nullptr || strcmp(order, "0") == 0) {
    EXPECT_EQ(first_threads, std::set<int>{0});
  } else if (strcmp(order, "1") == 0) {
    EXPECT_EQ(first_threads, std::set<int>{31});
  } else {
    EXPECT_GT(first_threads.size(), 1u);  // each block is shuffled anew
  }
}

TEST(EmulatedRuntime, AStreamBelongsToAGpu) {
  emulator::Machine machine = emulator::default_machine();
  machine.devices = 2;
  emulator::set_machine(machine);
  emulator::set_current_context(1);
  cudaStream_t stream;
  ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
  EXPECT_EQ(emulator::launch(stream, 1, 1, 0, [] {}), cudaSuccess);
  EXPECT_EQ(emulator::contexts(), 2u);
  emulator::set_current_context(-1);
  EXPECT_EQ(emulator::launch(stream, 1, 1, 0, [] {}), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(emulator::contexts(), 3u);
  EXPECT_EQ(emulator::current_context(), 0);
  emulator::set_current_context(1);
  cudaStreamDestroy(stream);
  emulator::set_current_context(-1);
  emulator::clear_failure();
  emulator::set_machine(emulator::default_machine());
}

TEST(EmulatedRuntime, StreamsAreLazyAndGraphsReplay) {
  int* pinned = nullptr;
  ASSERT_EQ(cudaMallocHost(&pinned, sizeof(int)), cudaSuccess);
  const OnDevice<int> value(1);
  int* y = value.data;
  cudaStream_t stream;
  ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
  ASSERT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), cudaSuccess);
  cudaMemcpyAsync(y, pinned, sizeof(int), cudaMemcpyHostToDevice, stream);
  emulator::launch(stream, 1, 1, 0, [=] { *y *= 2; });
  cudaGraph_t graph;
  ASSERT_EQ(cudaStreamEndCapture(stream, &graph), cudaSuccess);
  cudaGraphExec_t exec;
  ASSERT_EQ(cudaGraphInstantiate(&exec, graph), cudaSuccess);
  for (const int v : {4, 9}) {
    *pinned = -1;
    ASSERT_EQ(cudaGraphLaunch(exec, stream), cudaSuccess);
    *pinned = v;  // the copy, which runs later, reads this value
    ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
    EXPECT_EQ(value.values()[0], 2 * v);
  }
  cudaGraphExecDestroy(exec);
  cudaGraphDestroy(graph);
  cudaStreamDestroy(stream);
  cudaFreeHost(pinned);
}

TEST(EmulatedRuntime, MemoryIsCountedAndClosedToTheHost) {
  const size_t before = emulator::bytes_in_use();
  int* p = nullptr;
  ASSERT_EQ(cudaMalloc(&p, 1000), cudaSuccess);
  EXPECT_EQ(emulator::bytes_in_use(), before + 1000);
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(*p = 1, "");
  EXPECT_EQ(cudaFree(p), cudaSuccess);
  EXPECT_EQ(cudaFree(p), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMalloc(&p, size_t{1} << 40), cudaErrorMemoryAllocation);
  EXPECT_EQ(emulator::bytes_in_use(), before);
  emulator::clear_failure();
}

}  // namespace
