// SPDX-License-Identifier: MIT
// Whole models under a limit of GPU memory.

#include "kernels/cuda/memory.h"
#include "tests/gpu/gpu_machine.h"

namespace moe {
namespace {

TEST(GpuMemoryLimit, ExpertsAreOffloadedWhenTheirMemoryWasTaken) {
  const auto bytes = build_tiny_kind(plain_kind());
  SessionOptions options;
  options.chunk = 16;
  options.context = 64;
  GpuMachine roomy(*bytes);
  ASSERT_TRUE(roomy.status().ok()) << roomy.status().text();
  const Tokens tokens = random_tokens(40, roomy.vocab_size());
  const Box<Session> all = roomy.session(options);
  ASSERT_TRUE(all);
  const Floats expected = eval_all(*all, tokens);
  const Floats expected_steps = decode(*all, random_tokens(4, roomy.vocab_size(), 9));
  MemoryAccount account;
  ASSERT_TRUE(account_memory(roomy.model(), options, &account).ok());

  const uint64_t weights = roomy.model().weight_bytes();
  GpuMachine gpu(*bytes, weights + account.device_bytes + (1 << 20));
  ASSERT_TRUE(gpu.status().ok()) << gpu.status().text();
  const Box<Session> session = gpu.session(options);
  ASSERT_TRUE(session);
  ASSERT_TRUE(gpu.model().experts_stay());
  void* taken[2] = {};
  const size_t sizes[] = {1 << 20, static_cast<size_t>(weights) / 4};
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(gpu.device().alloc(sizes[i], &taken[i]).ok());
  EXPECT_EQ(eval_all(*session, tokens), expected);
  EXPECT_EQ(decode(*session, random_tokens(4, gpu.vocab_size(), 9)), expected_steps);
  for (int i = 0; i < 2; ++i) gpu.device().free(taken[i], sizes[i]);
}

TEST(GpuMemoryLimit, LargeBlocksTakeWholePages) {
  constexpr size_t kMiB = 1 << 20;
  cuda::GpuMemory memory;
  memory.set_limit(6 * kMiB);
  void* blocks[4] = {};
  ASSERT_TRUE(memory.alloc(kMiB, &blocks[0]).ok());
  EXPECT_EQ(memory.free_bytes(), 5 * kMiB);
  for (int i = 1; i < 3; ++i) ASSERT_TRUE(memory.alloc(kMiB + 1, &blocks[i]).ok());
  EXPECT_EQ(memory.free_bytes(), kMiB);
  EXPECT_EQ(memory.alloc(kMiB + 1, &blocks[3]).code(), MOE_ERR_BUDGET);
  memory.free(blocks[1], kMiB + 1);
  EXPECT_EQ(memory.free_bytes(), 3 * kMiB);
  ASSERT_TRUE(memory.alloc(2 * kMiB, &blocks[1]).ok());  // the cached block of another size goes
  EXPECT_EQ(memory.free_bytes(), kMiB);
  memory.free(blocks[0], kMiB);
  memory.free(blocks[1], 2 * kMiB);
  memory.free(blocks[2], kMiB + 1);
  EXPECT_EQ(memory.free_bytes(), 6 * kMiB);
}

// CUDA itself needs the rest.
TEST(GpuMemoryLimit, AGivenLimitLeavesAReserve) {
  size_t free = 0;
  size_t total = 0;
  ASSERT_EQ(cudaMemGetInfo(&free, &total), cudaSuccess);
  const uint64_t most = free - free / 16;
  const auto limit_of = [](uint64_t given, int* n_lines) {
    cuda::CudaOptions options;
    options.memory_limit = given;
    options.logger = {[](void* user, int, const char* text) {
                        ++*static_cast<int*>(user);
                        EXPECT_NE(std::string(text).find("is lowered to"), std::string::npos);
                      },
                      n_lines};
    const Result<Device*> device = cuda::open_cuda_device(options, system_allocator());
    EXPECT_TRUE(device.ok()) << device.status().text();
    const uint64_t limit = device.ok() ? device.value()->memory_limit() : 0;
    if (device.ok()) cuda::close_cuda_device(device.value());
    return limit;
  };
  int n_lines = 0;
  // A context may have taken memory since: the bound is below, by less than a half.
  const uint64_t unlimited = limit_of(0, &n_lines);
  EXPECT_LE(unlimited, most);
  EXPECT_GT(unlimited, most / 2);
  EXPECT_EQ(limit_of(most / 4, &n_lines), most / 4);
  EXPECT_EQ(n_lines, 0);
  EXPECT_LE(limit_of(free, &n_lines), most);
  EXPECT_EQ(n_lines, 1);
  EXPECT_LE(limit_of(uint64_t{1} << 50, &n_lines), most);
  EXPECT_EQ(n_lines, 2);
}

TEST(GpuMemoryLimit, LargeExpertsTakeWholePages) {
  const auto bytes = build_tiny_kind({"large experts", [](ModelConfig& c, TinyOptions& o) {
                                        c.layers[1].ffn.d_ff = 12'000;
                                        c.layers[1].ffn.moe.n_experts = 3;
                                        o.weights = FormatId::kInt8;
                                        o.scale = ScaleKind::kRow;
                                      }});
  SessionOptions options;
  options.chunk = 1;
  GpuMachine roomy(*bytes);
  ASSERT_TRUE(roomy.status().ok()) << roomy.status().text();
  MemoryAccount account;
  ASSERT_TRUE(account_memory(roomy.model(), options, &account).ok());
  const uint64_t expert = roomy.model().largest_expert_bytes();
  const uint64_t page = cuda::GpuMemory::taken_by(expert);
  ASSERT_GT(page, expert);
  const uint64_t tables = 3 * 512;
  const uint64_t sum = roomy.model().weight_bytes() + account.device_bytes + tables;
  for (const bool fits : {false, true}) {
    GpuMachine gpu(*bytes, sum + 3 * (page - expert) - (fits ? 0 : 1));
    ASSERT_TRUE(gpu.status().ok()) << gpu.status().text();
    const Box<Session> session = gpu.session(options);
    ASSERT_TRUE(session);
    EXPECT_EQ(gpu.model().experts_stay(), fits);
  }
}

TEST(GpuMemoryLimit, TheDefaultChunkLeavesRoom) {
  const auto bytes =
      build_tiny_kind({"long", [](ModelConfig& c, TinyOptions&) { c.context_length = 2048; }});
  GpuMachine roomy(*bytes);
  ASSERT_TRUE(roomy.status().ok()) << roomy.status().text();
  EXPECT_EQ(resolve_options(roomy.model(), {}).value().chunk, 1024);
  MemoryAccount account;
  ASSERT_TRUE(account_memory(roomy.model(), {}, &account).ok());

  GpuMachine tight(*bytes, roomy.model().weight_bytes() + 3 * account.device_bytes);
  ASSERT_TRUE(tight.status().ok()) << tight.status().text();
  EXPECT_EQ(resolve_options(tight.model(), {}).value().chunk, 256);
  EXPECT_TRUE(tight.session({}));
}

// Cached experts are evicted to make room for another session.
TEST(GpuMemoryLimit, ExpertsMakeRoomForAnotherSession) {
  const auto bytes = build_tiny_kind(
      {"wide experts", [](ModelConfig& c, TinyOptions&) { c.layers[1].ffn.d_ff = 3072; }});
  SessionOptions options;
  options.chunk = 4;
  GpuMachine roomy(*bytes);
  ASSERT_TRUE(roomy.status().ok()) << roomy.status().text();
  const Tokens tokens = random_tokens(6, roomy.vocab_size());
  const Box<Session> all = roomy.session(options);
  ASSERT_TRUE(all);
  const Floats expected = eval_all(*all, tokens);
  MemoryAccount account;
  ASSERT_TRUE(account_memory(roomy.model(), options, &account).ok());

  GpuMachine tight(*bytes, roomy.model().weight_bytes() + account.device_bytes - 1000);
  ASSERT_TRUE(tight.status().ok()) << tight.status().text();
  const Box<Session> first = tight.session(options);
  ASSERT_TRUE(first);
  ASSERT_FALSE(tight.model().experts_stay());
  EXPECT_EQ(eval_all(*first, tokens), expected);
  const Box<Session> second = tight.session(options);
  ASSERT_TRUE(second);
  EXPECT_EQ(eval_all(*second, tokens), expected);
}

TEST(GpuMemoryLimit, OffloadedExpertsGiveTheSameAnswer) {
  const auto bytes = build_tiny_kind(plain_kind());
  GpuMachine roomy(*bytes);
  ASSERT_TRUE(roomy.status().ok()) << roomy.status().text();
  const Tokens tokens = random_tokens(40, roomy.vocab_size());
  SessionOptions options;
  options.chunk = 16;
  options.context = 64;
  const Box<Session> all = roomy.session(options);
  ASSERT_TRUE(all);
  const Floats expected = eval_all(*all, tokens);
  const Floats expected_steps = decode(*all, random_tokens(4, roomy.vocab_size(), 9));

  MemoryAccount account;
  ASSERT_TRUE(account_memory(roomy.model(), options, &account).ok());
  const uint64_t weights = roomy.model().weight_bytes();
  bool refused = false;
  int scarce = 0;
  for (uint64_t limit = weights + account.device_bytes; !refused; limit -= weights / 24) {
    GpuMachine tight(*bytes, limit);
    ASSERT_TRUE(tight.status().ok()) << tight.status().text();
    auto session = tight.try_session(options);
    if (!session.ok()) {
      refused = true;
      EXPECT_EQ(session.status().code(), MOE_ERR_BUDGET);
      EXPECT_NE(std::string(session.status().text()).find("MB needed, the limit is"),
                std::string::npos)
          << session.status().text();
      continue;
    }
    ASSERT_FALSE(tight.model().experts_stay());
    ++scarce;
    EXPECT_EQ(eval_all(**session, tokens), expected) << "limit " << limit;
    EXPECT_EQ(decode(**session, random_tokens(4, tight.vocab_size(), 9)), expected_steps);
  }
  EXPECT_GT(scarce, 1);
}

}  // namespace
}  // namespace moe
