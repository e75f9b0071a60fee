// SPDX-License-Identifier: MIT
// Experts that do not all fit in GPU memory.

#include <algorithm>
#include <cstring>
#include <functional>
#include <thread>

#include "kernels/cuda/experts/expert_rates.h"
#include "tests/gpu/gpu_machine.h"

namespace moe {
namespace {

// A file whose reads call a function, which can make them fail.
struct WatchedFile {
  const MemorySink& bytes;
  std::function<int(uint64_t offset)> before;  // 0: no error

  static bool read(void* user, uint64_t offset, void* buffer, size_t n) {
    auto& file = *static_cast<WatchedFile*>(user);
    if (file.before) {
      if (file.before(offset) != 0) return false;
    }
    std::memcpy(buffer, file.bytes.data() + offset, n);
    return true;
  }
  FileSource source() { return FileSource::from_callbacks({bytes.size(), read, this}); }
};

SessionOptions small() {
  SessionOptions options;
  options.chunk = 16;
  options.context = 64;
  return options;
}

// A model with experts in both layers.
TinyKind two_layers() {
  return {"two layers", [](ModelConfig& c, TinyOptions& o) {
            c.layers[0].ffn = c.layers[1].ffn;
            o.weights = FormatId::kTernary2;
            o.act = ActPrecision::kA8;
          }};
}

class GpuExperts : public testing::Test {
 protected:
  GpuExperts() : bytes_(build_tiny_kind(two_layers())), file_{*bytes_, {}} {}

  void SetUp() override {
    GpuMachine roomy(*bytes_);
    ASSERT_TRUE(roomy.status().ok()) << roomy.status().text();
    const Box<Session> session = roomy.session(small());
    ASSERT_TRUE(session);
    prompt_ = random_tokens(20, roomy.vocab_size());
    steps_ = random_tokens(4, roomy.vocab_size(), 9);
    expected_ = eval_all(*session, prompt_);
    expected_steps_ = decode(*session, steps_);
    MemoryAccount account;
    ASSERT_TRUE(account_memory(roomy.model(), small(), &account).ok());
    session_bytes_ = account.device_bytes;
    rest_ = roomy.model().weight_bytes();
    for (const FileSegment& s : roomy.model().file().segments()) {
      if (s.part != Part::kExperts) continue;
      expert_bytes_ = std::max(expert_bytes_, s.raw);
      rest_ -= s.raw;
      if (s.layer == 1) experts_at_.push_back(s.offset);
    }
  }
#if defined(MOE_CUDA_EMULATOR)
  void TearDown() override { emulator::set_machine({}); }
#endif

  /// A memory limit with room for `experts` experts and `sessions` sessions.
  uint64_t limit(uint64_t experts, uint64_t sessions = 1) const {
    return rest_ + sessions * session_bytes_ + experts * expert_bytes_;
  }
  cuda::CudaOptions options(uint64_t experts, uint64_t sessions = 1) const {
    cuda::CudaOptions o;
    o.memory_limit = limit(experts, sessions);
    return o;
  }
  bool is_expert(uint64_t offset) const {
    return std::find(experts_at_.begin(), experts_at_.end(), offset) != experts_at_.end();
  }
  void expect_the_answer(Session& session) const {
    ASSERT_TRUE(session.reset().ok());
    EXPECT_EQ(eval_all(session, prompt_), expected_);
    EXPECT_EQ(decode(session, steps_), expected_steps_);
  }

  std::unique_ptr<MemorySink> bytes_;
  WatchedFile file_;
  Tokens prompt_, steps_;
  Floats expected_, expected_steps_;
  uint64_t rest_ = 0;  // weights that are not experts
  uint64_t session_bytes_ = 0;
  uint64_t expert_bytes_ = 0;
  std::vector<uint64_t> experts_at_;  // of layer 1
};

TEST_F(GpuExperts, AnyRoomGivesTheSameAnswer) {
  for (const uint64_t experts : {1, 2, 5, 11}) {
    SCOPED_TRACE(testing::Message() << "room for " << experts);
    GpuMachine gpu(*bytes_, limit(experts));
    const Box<Session> session = gpu.session(small());
    ASSERT_TRUE(session);
    ASSERT_FALSE(gpu.model().experts_stay());
    expect_the_answer(*session);
  }
}

#if defined(MOE_CUDA_EMULATOR)
TEST_F(GpuExperts, WithoutPinnedMemoryItIsTheSame) {
  for (const size_t buffers : {0, 1}) {
    GpuMachine gpu(*bytes_, limit(3));
    const Box<Session> session = gpu.session(small());
    ASSERT_TRUE(session);
    emulator::Machine machine;
    machine.pinned = emulator::pinned_bytes() + buffers * expert_bytes_;
    emulator::set_machine(machine);
    expect_the_answer(*session);
    emulator::set_machine({});
  }
}
#endif

/// A CPU device that counts its operations.
class Helper {
 public:
  Helper() : pool_(system_allocator()) {
    EXPECT_TRUE(pool_.start(1).ok());
    auto device = open_cpu_device(nullptr, pool_, system_allocator());
    EXPECT_TRUE(device.ok());
    cpu_ = device.value();
    hook_ = std::make_unique<HookDevice>(*cpu_);
  }
  ~Helper() { close_cpu_device(cpu_); }
  HookDevice& device() { return *hook_; }

 private:
  ThreadPool pool_;
  Device* cpu_ = nullptr;
  std::unique_ptr<HookDevice> hook_;
};

TEST_F(GpuExperts, TheCpuGivesTheSameAnswer) {
  for (const auto missing : {cuda::MissingExperts::kOnGpu, cuda::MissingExperts::kOnCpu,
                             cuda::MissingExperts::kInTurn, cuda::MissingExperts::kMeasured}) {
    for (const uint64_t experts : {1, 5}) {
      SCOPED_TRACE(testing::Message() << static_cast<int>(missing) << ", room for " << experts);
      Helper cpu;
      cuda::CudaOptions o = options(experts);
      o.cpu = &cpu.device();
      o.missing = missing;
      GpuMachine mapped(*bytes_, o);
      GpuMachine read(file_.source(), o);
      for (GpuMachine* gpu : {&mapped, &read}) {
        const Box<Session> session = gpu->session(small());
        ASSERT_TRUE(session);
        const int before = cpu.device().n_ops();
        expect_the_answer(*session);
        const int computed = cpu.device().n_ops() - before;
        if (missing == cuda::MissingExperts::kOnGpu) {
          EXPECT_EQ(computed, 0);
        } else {
          EXPECT_GT(computed, 0);
        }
      }
    }
  }
}

// Other kinds of networks: biases, int8, group scales, activation blocks. The CPU does not compute
// float weights, whose sums it adds in another order, nor stacks.
TEST_F(GpuExperts, ExpertsComputedOnTheCpuGiveTheSameBits) {
  struct Case {
    TinyKind kind;
    bool same;
  };
  const Case cases[] = {
      {{"biases and blocks",
        [](ModelConfig& c, TinyOptions& o) {
          c.layers[1].ffn.sub_norm = true;
          o.weights = FormatId::kTernary2;
          o.scale = ScaleKind::kGroup;
          o.act = ActPrecision::kA8Block;
          o.biases = true;
        }},
       true},
      {{"int8, no gate",
        [](ModelConfig& c, TinyOptions& o) {
          c.layers[1].ffn.gated = false;
          o.weights = FormatId::kInt8;
          o.scale = ScaleKind::kRow;
        }},
       true},
      {{"minimums and groups",
        [](ModelConfig&, TinyOptions& o) {
          o.weights = FormatId::kInt4Min;
          o.scale = ScaleKind::kGroup;
          o.act = ActPrecision::kA8Group;
        }},
       true},
      {{"six-bit scales and minimums",
        [](ModelConfig&, TinyOptions& o) {
          o.weights = FormatId::kInt4K;
          o.scale = ScaleKind::kGroup;
          o.act = ActPrecision::kA8Group;
        }},
       true},
      {{"int8 groups, blocks of inputs, no gate",
        [](ModelConfig& c, TinyOptions& o) {
          c.layers[1].ffn.gated = false;
          o.weights = FormatId::kInt8Group;
          o.scale = ScaleKind::kGroup;
          o.act = ActPrecision::kA8Block;
        }},
       true},
      {{"a threshold that could take 40 experts and takes few",
        [](ModelConfig& c, TinyOptions& o) {
          c.layers[1].ffn.moe.n_experts = 40;
          c.layers[1].ffn.moe.router = {};
          c.layers[1].ffn.moe.router.kind = RouterKind::kThreshold;
          c.layers[1].ffn.moe.router.threshold = 0.3f;
          o.weights = FormatId::kTernary2;
          o.act = ActPrecision::kA8;
        }},
       true},
      {{"stacks",
        [](ModelConfig& c, TinyOptions& o) {
          c.layers[1].ffn.moe.n_sublayers = 2;
          o.weights = FormatId::kTernary2;
        }},
       false},
      {{"floats", [](ModelConfig&, TinyOptions&) {}}, false},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.kind.name);
    const auto bytes = build_tiny_kind(c.kind);
    GpuMachine roomy(*bytes);
    const Box<Session> all = roomy.session(small());
    ASSERT_TRUE(all);
    MemoryAccount account;
    ASSERT_TRUE(account_memory(roomy.model(), small(), &account).ok());
    Helper cpu;
    cuda::CudaOptions o;
    const Model& model = roomy.model();
    o.memory_limit = model.weight_bytes() + account.device_bytes - 5 * model.largest_expert_bytes();
    o.cpu = &cpu.device();
    o.missing = cuda::MissingExperts::kOnCpu;
    GpuMachine gpu(*bytes, o);
    const Box<Session> session = gpu.session(small());
    ASSERT_TRUE(session);
    EXPECT_EQ(decode(*session, steps_), decode(*all, steps_));
    EXPECT_EQ(cpu.device().n_ops() > 0, c.same);
  }
}

TEST_F(GpuExperts, ExpertsComputedOnTheCpuAreCounted) {
  Helper cpu;
  cuda::CudaOptions o = options(2);
  o.cpu = &cpu.device();
  o.missing = cuda::MissingExperts::kInTurn;
  GpuMachine mixed(*bytes_, o);
  GpuMachine roomy(*bytes_);
  const Box<Session> found = mixed.session(small());
  const Box<Session> expected = roomy.session(small());
  ASSERT_TRUE(found && expected);
  ASSERT_TRUE(found->count_routing(true).ok() && expected->count_routing(true).ok());
  EXPECT_EQ(decode(*found, steps_), decode(*expected, steps_));
  EXPECT_GT(cpu.device().n_ops(), 0);
  for (int32_t l = 0; l < 2; ++l) {
    const RoutingStats& f = *found->routing_stats(l);
    const RoutingStats& e = *expected->routing_stats(l);
    EXPECT_EQ(f.n_positive, e.n_positive);
    EXPECT_EQ(f.n_activations, e.n_activations);
  }
}

TEST(GpuExpertRates, AnExpertUsedOftenIsUploaded) {
  cuda::ExpertRates rates(cuda::MissingExperts::kMeasured);
  EXPECT_FALSE(rates.on_cpu(0));  // nothing is measured yet: loading comes first
  rates.add_upload(100, 9);
  EXPECT_TRUE(rates.on_cpu(0));
  rates.add_cpu(100, 2);
  EXPECT_TRUE(rates.on_cpu(0));
  EXPECT_TRUE(rates.on_cpu(3));
  EXPECT_FALSE(rates.on_cpu(4));  // ten seconds on the CPU, nine to load
  for (int i = 0; i < 100; ++i) rates.add_cpu(50, 10);
  int on_cpu = 0;
  for (int i = 0; i < 1000; ++i) on_cpu += rates.on_cpu(0) ? 1 : 0;
  EXPECT_GT(on_cpu, 1);  // occasionally, to measure again
  EXPECT_LT(on_cpu, 10);
}

// Two sessions need more memory than there is: neither is refused, and there is no deadlock.
TEST_F(GpuExperts, SessionsOnTwoThreadsShareTheRoom) {
  Helper cpu;
  for (const uint64_t experts : {1, 3}) {
    cuda::CudaOptions o = options(experts, 2);
    o.memory_limit += 4096;
    if (experts == 3) o.cpu = &cpu.device();
    GpuMachine gpu(*bytes_, o);
    const Box<Session> sessions[] = {gpu.session(small()), gpu.session(small())};
    ASSERT_TRUE(sessions[0] && sessions[1]);
    std::thread other([&] { expect_the_answer(*sessions[1]); });
    expect_the_answer(*sessions[0]);
    other.join();
  }
}

TEST_F(GpuExperts, ChecksumsAreComparedWheneverAFileIsReadAgain) {
  GpuMachine gpu(file_.source(), options(2));
  ASSERT_TRUE(gpu.status().ok()) << gpu.status().text();
  std::vector<uint64_t> read;
  file_.before = [&](uint64_t offset) {
    if (is_expert(offset)) read.push_back(offset);
    return 0;
  };
  const Box<Session> session = gpu.session(small());
  ASSERT_TRUE(session);
  expect_the_answer(*session);
  ASSERT_GT(read.size(), experts_at_.size());  // experts were loaded again
  const uint64_t known = read.front();
  uint8_t& byte = bytes_->data()[known];  // changing a code invalidates the checksum
  byte = static_cast<uint8_t>(byte ^ 0x11);
  ASSERT_TRUE(session->reset().ok());
  EXPECT_EQ(session->eval(span(prompt_), LogitRows::kNone, nullptr).code(), MOE_ERR_CORRUPT);
  byte = static_cast<uint8_t>(byte ^ 0x11);
  ASSERT_TRUE(session->reset().ok());
  expect_the_answer(*session);
  byte = static_cast<uint8_t>(byte ^ 0x11);
  GpuMachine fresh(file_.source(), options(2));
  const Box<Session> first = fresh.session(small());
  ASSERT_TRUE(first);
  EXPECT_EQ(first->eval(span(prompt_), LogitRows::kNone, nullptr).code(), MOE_ERR_CORRUPT);
}

// An expert that cannot be read makes that step fail and no other.
TEST_F(GpuExperts, UnreadableOnesFailTheStep) {
  GpuMachine gpu(file_.source(), options(2));
  ASSERT_TRUE(gpu.status().ok()) << gpu.status().text();
  const Box<Session> session = gpu.session(small());
  ASSERT_TRUE(session);
  for (int n = 0; n < 9; n += 2) {
    int left = n;
    file_.before = [&](uint64_t) { return left-- == 0 ? 5 : 0; };
    ASSERT_TRUE(session->reset().ok());
    EXPECT_EQ(session->eval(span(prompt_), LogitRows::kNone, nullptr).code(), MOE_ERR_IO);
    file_.before = nullptr;
  }
  expect_the_answer(*session);
}

TEST_F(GpuExperts, AStepCanBeCancelledBetweenThem) {
  GpuMachine gpu(file_.source(), options(2));
  const Box<Session> session = gpu.session(small());
  ASSERT_TRUE(session);
  int reads = 0;
  file_.before = [&](uint64_t) {
    if (++reads == 3) session->cancel();
    return 0;
  };
  EXPECT_EQ(session->eval(span(prompt_), LogitRows::kNone, nullptr).code(), MOE_ERR_CANCELLED);
  EXPECT_EQ(reads, 3);
  file_.before = nullptr;
  expect_the_answer(*session);
}

#if defined(MOE_CUDA_EMULATOR)
// Like GpuFaults.EveryCallMayFail, with offloaded experts.
TEST_F(GpuExperts, EveryCallMayFail) {
  const size_t before = emulator::bytes_in_use();
  int failures = 0;
  bool ahead = false;
  for (int n = 0; !ahead; n += 13) {
    const bool sticky = n % 2 == 0;
    {
      Helper cpu;
      cuda::CudaOptions o = options(3);
      o.cpu = &cpu.device();
      o.missing = cuda::MissingExperts::kInTurn;
      GpuMachine gpu(*bytes_, o);
      const Box<Session> session = gpu.session(small());
      ASSERT_TRUE(session);
      emulator::fail_after(n, sticky ? cudaErrorIllegalAddress : cudaErrorMemoryAllocation, sticky);
      Floats logits(static_cast<size_t>(gpu.vocab_size()));
      const Status status = session->eval(span(prompt_, 0, 3), LogitRows::kLast, logits.data());
      ahead = emulator::failure_ahead();
      if (!status.ok()) ++failures;
      EXPECT_TRUE(status.ok() || status.code() == MOE_ERR_DEVICE || status.code() == MOE_ERR_MEMORY)
          << status.text();
      EXPECT_FALSE(status.ok() && sticky && !ahead) << "call " << n << " failed unseen";
      if (!sticky) {
        emulator::clear_failure();
        expect_the_answer(*session);
      }
    }
    emulator::clear_failure();
    ASSERT_EQ(emulator::bytes_in_use(), before) << "call " << n;
  }
  EXPECT_GT(failures, 4);
}
#endif

// A refused session has no lasting effect: with a smaller session all experts stay resident.
TEST_F(GpuExperts, ARefusedSessionDoesNotEvictExperts) {
  GpuMachine gpu(*bytes_, limit(18) + 16384);
  SessionOptions large = small();
  large.chunk = 64;
  large.context = 0;
  MemoryAccount account;
  ASSERT_TRUE(account_memory(gpu.model(), large, &account).ok());
  ASSERT_GT(account.device_bytes, session_bytes_ + 18 * expert_bytes_ + 16384);
  EXPECT_EQ(gpu.try_session(large).status().code(), MOE_ERR_BUDGET);
  const Box<Session> session = gpu.session(small());
  ASSERT_TRUE(session);
  EXPECT_TRUE(gpu.model().experts_stay());
}

// When memory that other allocations took is free again, all experts become resident again and
// steps are replayed.
TEST_F(GpuExperts, ExpertsBecomeResidentAgain) {
  cuda::CudaOptions o = options(2 * experts_at_.size());
  const uint64_t slack = 200'000;  // for a captured step and tables
  o.memory_limit += slack;
  GpuMachine gpu(file_.source(), o);
  const Box<Session> session = gpu.session(small());
  ASSERT_TRUE(session);
  EXPECT_TRUE(gpu.model().experts_stay());
  const size_t taken = 3 * expert_bytes_ + slack;
  void* memory = nullptr;
  ASSERT_TRUE(gpu.device().alloc(taken, &memory).ok());
  int reads = 0;
  file_.before = [&](uint64_t) { return ++reads, 0; };
  expect_the_answer(*session);
  expect_the_answer(*session);
  EXPECT_GT(reads, static_cast<int>(2 * experts_at_.size()));
  gpu.device().free(memory, taken);
  expect_the_answer(*session);
  reads = 0;
  expect_the_answer(*session);
  EXPECT_EQ(reads, 0);
  GpuMachine roomy(*bytes_);
  const Box<Session> other = roomy.session(small());
  ASSERT_TRUE(other);
  expect_the_answer(*other);
#if defined(MOE_CUDA_EMULATOR)
  const auto calls = [&](Session& s) {
    const int before = emulator::calls_made();
    decode(s, steps_);
    return emulator::calls_made() - before;
  };
  EXPECT_EQ(calls(*session), calls(*other));
#endif
}

#if defined(MOE_CUDA_EMULATOR)
// The bytes sent to the GPU beside the experts depend on the number of experts used, not on their
// total.
TEST_F(GpuExperts, BytesSentDoNotDependOnUnusedExperts) {
  size_t sent[2];
  const int32_t n_experts[] = {16, 128};
  for (int i = 0; i < 2; ++i) {
    const auto bytes = build_tiny_kind({"many", [&](ModelConfig& c, TinyOptions& o) {
                                          c.layers[1].ffn.moe.n_experts = n_experts[i];
                                          c.layers[1].ffn.sub_norm = true;
                                          o.weights = FormatId::kTernary2;
                                          o.act = ActPrecision::kA8;
                                        }});
    GpuMachine roomy(*bytes);
    const Box<Session> any = roomy.session(small());
    ASSERT_TRUE(any);
    MemoryAccount account;
    ASSERT_TRUE(account_memory(roomy.model(), small(), &account).ok());
    // Memory for all experts, but not for a table of them.
    GpuMachine gpu(*bytes, roomy.model().weight_bytes() + account.device_bytes);
    const Box<Session> session = gpu.session(small());
    ASSERT_TRUE(session);
    EXPECT_FALSE(gpu.model().experts_stay());
    for (int n = 0; n < 3; ++n) {
      ASSERT_TRUE(session->rewind(0).ok());
      const size_t before = emulator::bytes_sent();
      const Floats found = decode(*session, steps_);
      sent[i] = emulator::bytes_sent() - before;
      ASSERT_TRUE(any->rewind(0).ok());
      EXPECT_EQ(found, decode(*any, steps_));
    }
  }
  EXPECT_LE(sent[1], sent[0] + steps_.size() * 16 * 128);
}
#endif

}  // namespace
}  // namespace moe
