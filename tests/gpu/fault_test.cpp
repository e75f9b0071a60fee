// SPDX-License-Identifier: MIT
// Failures of a GPU, on the emulator.

#include <functional>
#include <string>
#include <vector>

#include "tests/gpu/gpu_machine.h"

namespace moe {
namespace {

// A limit of GPU memory under which experts are offloaded.
uint64_t room_for_few_experts(const MemorySink& bytes) {
  GpuMachine roomy(bytes);
  EXPECT_TRUE(roomy.status().ok()) << roomy.status().text();
  MemoryAccount account;
  EXPECT_TRUE(account_memory(roomy.model(), {}, &account).ok());
  return roomy.model().weight_bytes() + account.device_bytes - roomy.model().largest_expert_bytes();
}

// Each CUDA call fails in turn, once or permanently. The result is a status, and everything can be
// freed.
TEST(GpuFaults, EveryCallMayFail) {
  const auto bytes = build_tiny_kind(plain_kind());
  const size_t before = emulator::bytes_in_use();
  const Tokens tokens = random_tokens(4, 10);
  int failures = 0;
  bool ahead = false;
  for (int n = 0; !ahead; n += n < 40 ? 1 : 23) {
    for (const bool sticky : {false, true}) {
      emulator::fail_after(n, sticky ? cudaErrorIllegalAddress : cudaErrorMemoryAllocation, sticky);
      {
        GpuMachine gpu(*bytes);
        Status status = gpu.status();
        Box<Session> session;
        if (status.ok()) {
          auto made = gpu.try_session();
          status = made.status();
          if (made.ok()) session = std::move(made.value());
        }
        Floats logits(status.ok() ? static_cast<size_t>(gpu.vocab_size()) : 0);
        for (size_t i = 0; i < tokens.size() && status.ok(); ++i) {
          status = session->eval(span(tokens, i, 1), LogitRows::kLast, logits.data());
        }
        ahead = emulator::failure_ahead();
        if (!status.ok()) {
          ++failures;
          EXPECT_TRUE(status.code() == MOE_ERR_DEVICE || status.code() == MOE_ERR_MEMORY)
              << status.text();
        } else {
          EXPECT_FALSE(sticky && !ahead) << "call " << n << " failed unseen";
        }
        if (session && status.code() == MOE_ERR_DEVICE) {
          EXPECT_EQ(session->eval(span(tokens, 0, 1), LogitRows::kLast, logits.data()).code(),
                    MOE_ERR_STATE);
        }
      }
      emulator::clear_failure();
      ASSERT_EQ(emulator::bytes_in_use(), before) << "call " << n;
    }
  }
  EXPECT_GT(failures, 50);
}

// The first call of a step chooses the GPU, and may be the first to return an earlier error.
TEST(GpuFaults, AnEarlierErrorIsNamed) {
  const auto bytes = build_tiny_kind(plain_kind());
  {
    GpuMachine gpu(*bytes);
    const Box<Session> session = gpu.session();
    ASSERT_TRUE(session);
    emulator::fail_after(0, cudaErrorIllegalAddress, true);
    const Status status = session->eval(span({1}), LogitRows::kNone, nullptr);
    EXPECT_EQ(status.code(), MOE_ERR_DEVICE);
    EXPECT_NE(std::string(status.text()).find("cudaErrorIllegalAddress"), std::string::npos)
        << status.text();
  }
  emulator::clear_failure();
}

// Collects the log.
struct Log {
  std::vector<std::string> lines;
  Logger logger() {
    return {[](void* user, int, const char* text) {
              static_cast<Log*>(user)->lines.emplace_back(text);
            },
            this};
  }
};

struct StepsWithFailure {
  std::vector<Floats> logits;
  std::vector<int> calls;  // of each step
  std::vector<std::string> log;
};

// Decode steps of one session. The failure is planned after step `after`; step 1 is captured, later
// ones are replayed.
StepsWithFailure run_steps(const MemorySink& bytes, const std::function<void()>& plan,
                           int after = 0) {
  StepsWithFailure out;
  Log log;
  cuda::CudaOptions options;
  options.logger = log.logger();
  {
    GpuMachine gpu(bytes, options);
    const Box<Session> session = gpu.session();
    for (int step = 0; step < 5; ++step) {
      Floats logits(static_cast<size_t>(gpu.vocab_size()));
      const int before = emulator::calls_made();
      const Status status = session->eval(span({3 + step}), LogitRows::kLast, logits.data());
      EXPECT_TRUE(status.ok()) << "step " << step << ": " << status.text();
      out.calls.push_back(emulator::calls_made() - before);
      out.logits.push_back(logits);
      if (step == after) plan();
    }
  }
  emulator::clear_failure();
  out.log = log.lines;
  return out;
}

TEST(GpuFaults, AGraphThatFailsIsDoneWithout) {
  const auto bytes = build_tiny_kind(plain_kind());
  const StepsWithFailure good = run_steps(*bytes, [] {});
  EXPECT_TRUE(good.log.empty());
  EXPECT_LT(good.calls[4], good.calls[0] / 2);  // replays a graph
  const auto check = [&](const char* what, const StepsWithFailure& run) {
    EXPECT_EQ(run.logits, good.logits) << what;
    ASSERT_EQ(run.log.size(), 1u) << what;
    EXPECT_NE(run.log[0].find("without CUDA graphs"), std::string::npos) << run.log[0];
    EXPECT_NE(run.log[0].find("cudaErrorStreamCaptureInvalidated"), std::string::npos)
        << run.log[0];
    EXPECT_GT(run.calls[4], 2 * good.calls[4]) << what;
  };
  const cudaError_t error = cudaErrorStreamCaptureInvalidated;
  for (const char* call : {"cudaStreamBeginCapture", "cudaStreamEndCapture", "cudaGraphInstantiate",
                           "cudaGraphLaunch"}) {
    check(call, run_steps(*bytes, [&] { emulator::fail_next(call, error); }));
  }
  check("a replay", run_steps(
                        *bytes, [&] { emulator::fail_next("cudaGraphLaunch", error); }, 2));
  int n = 0;
  for (bool ahead = false; !ahead; n += 7) {
    const StepsWithFailure run = run_steps(*bytes, [&] { emulator::fail_in_capture(n, error); });
    ahead = run.log.empty();
    if (!ahead) check("a call in the capture", run);
  }
  EXPECT_GT(n, 21);
}

TEST(GpuFaults, AFaultInAGraphIsFinal) {
  const auto bytes = build_tiny_kind(plain_kind());
  {
    GpuMachine gpu(*bytes);
    const Box<Session> session = gpu.session();
    for (int step = 0; step < 3; ++step) {
      ASSERT_TRUE(session->eval(span({3}), LogitRows::kNone, nullptr).ok());
    }
    emulator::fail_after(2, cudaErrorIllegalAddress, true);
    const Status status = session->eval(span({3}), LogitRows::kNone, nullptr);
    EXPECT_EQ(status.code(), MOE_ERR_DEVICE) << status.text();
    EXPECT_EQ(session->eval(span({3}), LogitRows::kNone, nullptr).code(), MOE_ERR_STATE);
  }
  emulator::clear_failure();
}

TEST(GpuFaults, AGpuWithoutCodeIsNamed) {
  const size_t before = emulator::bytes_in_use();
  emulator::Machine machine = emulator::default_machine();
  machine.code = cudaErrorNoKernelImageForDevice;
  machine.major = 12;
  emulator::set_machine(machine);
  const Status status = cuda::open_cuda_device({}, system_allocator()).status();
  emulator::set_machine(emulator::default_machine());
  emulator::clear_failure();
  EXPECT_EQ(status.code(), MOE_ERR_DEVICE);
  const std::string text = status.text();
  EXPECT_NE(text.find("no code for compute capability 12.0, it is built for 8.0, 9.0"),
            std::string::npos)
      << text;
  EXPECT_EQ(emulator::bytes_in_use(), before);
}

// A thread finds its own CUDA context after every call, and none is made on other GPUs.
TEST(GpuFaults, TheCallersContextStays) {
  const auto bytes = build_tiny_kind(plain_kind());
  const uint64_t few = room_for_few_experts(*bytes);
  emulator::Machine machine = emulator::default_machine();
  machine.devices = 2;
  for (const int own : {-1, 0}) {
    emulator::set_machine(machine);
    emulator::set_current_context(own);
    cuda::CudaOptions options;
    options.index = 1;
    for (const uint64_t limit : {uint64_t{0}, few}) {
      options.memory_limit = limit;
      {
        GpuMachine gpu(*bytes, options);
        ASSERT_TRUE(gpu.status().ok()) << gpu.status().text();
        EXPECT_EQ(emulator::current_context(), own);
        Box<Session> session = gpu.session();
        ASSERT_TRUE(session);
        EXPECT_EQ(emulator::current_context(), own);
        const auto vocab = static_cast<size_t>(gpu.vocab_size());
        for (const size_t n : {1, 1, 1, 7}) {
          Floats logits(vocab);
          ASSERT_TRUE(
              session->eval(random_tokens(n, gpu.vocab_size()), LogitRows::kLast, logits.data())
                  .ok());
          EXPECT_EQ(emulator::current_context(), own);
        }
        EXPECT_EQ(gpu.model().experts_stay(), limit == 0);
        session = {};
        EXPECT_EQ(emulator::current_context(), own);
      }
      EXPECT_EQ(emulator::current_context(), own);
    }
    EXPECT_EQ(emulator::contexts(), own < 0 ? 2u : 3u);
  }
  emulator::set_current_context(-1);
  emulator::set_machine(emulator::default_machine());
}

// More shared memory than the GPU has is refused before a kernel is launched.
TEST(GpuFaults, WhatSharedMemoryCannotHoldIsNamed) {
  const Result<Device*> opened = cuda::open_cuda_device({}, system_allocator());
  ASSERT_TRUE(opened.ok()) << opened.status().text();
  Device& device = *opened.value();
  const auto refused = [&](const StreamShape& shape) {
    const Result<Stream*> stream = device.open_stream(shape);
    if (stream.ok()) device.close_stream(stream.value());
    return stream.status();
  };
  const auto shared = static_cast<int32_t>(emulator::default_machine().shared);
  StreamShape shape;
  shape.max_rows = 1;
  shape.d_model = 32;
  shape.max_d_in = shape.max_d_e = shared / 4;
  EXPECT_TRUE(refused(shape).ok());
  ++shape.max_d_e;
  EXPECT_EQ(refused(shape).code(), MOE_ERR_UNSUPPORTED);
  EXPECT_NE(std::string(refused(shape).text()).find("d_e: at most"), std::string::npos);

  const int32_t most = (shared - 128) / 12;
  shape.max_d_in = 32;
  shape.max_d_e = 0;
  shape.max_experts = shape.max_routed = most + 1;
  shape.max_own_routed = most;
  const Result<Stream*> stream = device.open_stream(shape);
  ASSERT_TRUE(stream.ok()) << stream.status().text();
  FfnOp op;  // an override that selects more
  op.n_rows = 1;
  op.n_experts = most + 1;
  op.router.k = most + 1;
  device.ffn(*stream.value(), op);
  const Status status = device.sync(*stream.value());
  EXPECT_EQ(status.code(), MOE_ERR_UNSUPPORTED);
  EXPECT_NE(std::string(status.text()).find("experts per token: at most"), std::string::npos)
      << status.text();
  device.close_stream(stream.value());
  ++shape.max_own_routed;
  EXPECT_EQ(refused(shape).code(), MOE_ERR_UNSUPPORTED);
  cuda::close_cuda_device(opened.value());
}

TEST(GpuFaults, MachinesThatCannotRun) {
  emulator::Machine machine = emulator::default_machine();
  machine.devices = 0;
  emulator::set_machine(machine);
  const Result<Device*> device = cuda::open_cuda_device({}, system_allocator());
  EXPECT_EQ(device.status().code(), MOE_ERR_DEVICE);
  machine.driver = cudaErrorInsufficientDriver;
  emulator::set_machine(machine);
  const Result<Device*> old = cuda::open_cuda_device({}, system_allocator());
  EXPECT_EQ(old.status().code(), MOE_ERR_DEVICE);
  EXPECT_NE(std::string(old.status().text()).find("driver"), std::string::npos);
  emulator::set_machine(emulator::default_machine());
  EXPECT_EQ(cuda::open_cuda_device({3, 0}, system_allocator()).status().code(), MOE_ERR_DEVICE);
}

}  // namespace
}  // namespace moe
