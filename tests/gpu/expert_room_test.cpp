// SPDX-License-Identifier: MIT
// The memory for experts on the GPU: waiting, cancellation and eviction.

#include <chrono>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <thread>

#include "kernels/cuda/experts/expert_copies.h"
#include "src/model/offloaded_experts.h"
#include "tests/gpu/gpu_machine.h"

namespace moe {
namespace {

void a_moment() { std::this_thread::sleep_for(std::chrono::milliseconds(30)); }

// Whether `holds` becomes true, within a generous time limit.
template <class F>
bool eventually(const F& holds) {
  for (int i = 0; i < 300 && !holds(); ++i) a_moment();
  return holds();
}

/// A file in which reads at one offset block while the gate is closed.
class GatedFile {
 public:
  explicit GatedFile(const MemorySink& bytes) : bytes_(bytes) {}
  FileSource source() { return FileSource::from_callbacks({bytes_.size(), read, this}); }
  void close(uint64_t offset) {
    const std::lock_guard<std::mutex> lock(mutex_);
    closed_ = offset;
  }
  void open() {
    close(0);
    changed_.notify_all();
  }
  bool somebody_waits() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return n_waiting_ > 0;
  }

 private:
  static bool read(void* user, uint64_t offset, void* buffer, size_t n) {
    auto& file = *static_cast<GatedFile*>(user);
    std::unique_lock<std::mutex> lock(file.mutex_);
    ++file.n_waiting_;
    file.changed_.wait(lock, [&] { return file.closed_ == 0 || file.closed_ != offset; });
    --file.n_waiting_;
    std::memcpy(buffer, file.bytes_.data() + offset, n);
    return true;
  }

  const MemorySink& bytes_;
  std::mutex mutex_;
  std::condition_variable changed_;
  uint64_t closed_ = 0;
  int n_waiting_ = 0;
};

/// A thread that acquires an expert and releases it at once.
class Acquirer {
 public:
  Acquirer(OffloadedExperts& store, int32_t expert)
      : thread_([this, &store, expert] {
          Expert out;
          status_ = store.acquire(expert, {ExpertWait::kRoom, &cancelled_}, &out);
          done_ = true;
          if (status_.ok()) store.release(expert);
        }) {
    a_moment();  // the thread is queued by now
  }
  ~Acquirer() { thread_.join(); }
  void cancel() { cancelled_ = true; }
  bool returns() {
    return eventually([this] { return done_.load(); });
  }
  moe_status code() const { return status_.code(); }

 private:
  std::atomic<bool> cancelled_{false};
  std::atomic<bool> done_{false};
  Status status_;
  std::thread thread_;
};

/// The experts of one layer, and memory for some of them.
class ExpertRoom : public testing::Test {
 protected:
  ExpertRoom() : bytes_(build_tiny_kind(plain_kind())), gate_(*bytes_) {}
  ~ExpertRoom() override {
    store_.reset();
    cache_.reset();
    cuda::close_cuda_device(device_);
  }

  void open(uint64_t room) {
    auto file = MoeFile::open(gate_.source(), allocator_);
    ASSERT_TRUE(file.ok()) << file.status().text();
    file_ = std::move(file.value());
    int32_t layer = 0;
    while (file_->find(Part::kExperts, layer, 0) == nullptr) ++layer;
    size_ = segment(layer, 0).raw;
    auto device = cuda::open_cuda_device({0, room * size_}, allocator_);
    ASSERT_TRUE(device.ok()) << device.status().text();
    device_ = device.value();
    while (file_->find(Part::kExperts, layer, n_experts_) != nullptr) {
      at_.push_back(segment(layer, n_experts_++).offset);
    }
    ASSERT_GE(n_experts_, 4);
    loader_ =
        std::make_unique<BlobLoader>(BlobLoader{*file_, *device_, allocator_, true, n_experts_});
    cache_ = std::make_unique<ExpertCache>(*device_->expert_memory(), allocator_);
    store_ = std::make_unique<OffloadedExperts>(allocator_);
    ASSERT_TRUE(store_->open(*loader_, *cache_, layer, 0, {}).ok());
  }
  const FileSegment& segment(int32_t layer, int32_t expert) const {
    return *file_->find(Part::kExperts, layer, expert);
  }
  void acquire(int32_t expert) {
    Expert out;
    const Status s = store_->acquire(expert, {}, &out);
    ASSERT_TRUE(s.ok()) << s.text();
  }
  void use(int32_t expert) {
    acquire(expert);
    store_->release(expert);
  }
  std::vector<int32_t> at_hand() {
    std::vector<int32_t> found;
    for (int32_t e = 0; e < n_experts_; ++e) {
      if (store_->at_hand(e)) found.push_back(e);
    }
    return found;
  }

  const Allocator& allocator_ = system_allocator();
  std::unique_ptr<MemorySink> bytes_;
  GatedFile gate_;
  Box<MoeFile> file_;
  Device* device_ = nullptr;
  uint64_t size_ = 0;  // bytes of an expert
  int32_t n_experts_ = 0;
  std::vector<uint64_t> at_;  // offsets of the experts in the file
  std::unique_ptr<BlobLoader> loader_;
  std::unique_ptr<ExpertCache> cache_;
  std::unique_ptr<OffloadedExperts> store_;
};

TEST_F(ExpertRoom, EvictsTheLeastRecentlyUsed) {
  open(3);
  for (const int32_t e : {0, 1, 2, 0, 3}) use(e);
  EXPECT_EQ(at_hand(), (std::vector<int32_t>{0, 2, 3}));
  acquire(2);  // in use, so the next least recently used expert is evicted
  use(1);
  EXPECT_EQ(at_hand(), (std::vector<int32_t>{1, 2, 3}));
  acquire(2);
  store_->release(2);
  use(0);
  EXPECT_EQ(at_hand(), (std::vector<int32_t>{0, 1, 2}));  // expert 2 is still acquired once
  store_->release(2);
  for (const int32_t e : {1, 0, 3}) use(e);
  EXPECT_EQ(at_hand(), (std::vector<int32_t>{0, 1, 3}));
}

TEST_F(ExpertRoom, WhetherAllFitIsKnownBeforehand) {
  open(4);
  const uint64_t all = static_cast<uint64_t>(n_experts_) * size_;
  EXPECT_TRUE(store_->fit_in(all, 0));
  EXPECT_FALSE(store_->fit_in(all - 1, 0));
  for (const int32_t e : {0, 1, 2}) acquire(e);
  store_->release(1);
  EXPECT_TRUE(store_->fit_in(all - 3 * size_, 0));
  EXPECT_FALSE(store_->fit_in(all - 3 * size_ - 1, 0));
  CachedExpert other;  // an expert of another layer needs memory too
  for (const FileSegment& s : file_->segments()) {
    if (s.part == Part::kExperts) other.segment = &s;
  }
  cache_->add(other);
  EXPECT_FALSE(store_->fit_in(all - 3 * size_, 0));
  EXPECT_TRUE(store_->fit_in(all - 2 * size_, 0));
  EXPECT_FALSE(store_->fit_in(all - 2 * size_, 1));  // with memory for a table of experts
  store_->release(0);
  store_->release(2);
}

TEST_F(ExpertRoom, WaitingForRoomCanBeCancelled) {
  open(1);
  acquire(0);
  Acquirer first(*store_, 1);
  Acquirer second(*store_, 2);
  second.cancel();
  EXPECT_TRUE(second.returns());
  EXPECT_EQ(second.code(), MOE_ERR_CANCELLED);
  first.cancel();
  EXPECT_TRUE(first.returns());
  EXPECT_EQ(first.code(), MOE_ERR_CANCELLED);
  store_->release(0);
  use(3);  // the queue is empty
}

TEST_F(ExpertRoom, WaitingForAnotherThreadsReadCanBeCancelled) {
  open(3);
  gate_.close(at_[0]);
  Acquirer reader(*store_, 0);
  EXPECT_TRUE(eventually([this] { return gate_.somebody_waits(); }));
  Acquirer other(*store_, 0);
  other.cancel();
  EXPECT_TRUE(other.returns());
  EXPECT_EQ(other.code(), MOE_ERR_CANCELLED);
  gate_.open();
  EXPECT_TRUE(reader.returns());
  EXPECT_EQ(reader.code(), MOE_OK);
}

// A thread that waits for a read does not block the threads queued behind it.
TEST_F(ExpertRoom, AReadDoesNotBlockTheQueue) {
  open(2);
  acquire(0);
  acquire(1);
  gate_.close(at_[2]);
  Acquirer reader(*store_, 2);
  Acquirer same(*store_, 2);
  Acquirer other(*store_, 3);
  store_->release(0);
  EXPECT_TRUE(eventually([this] { return gate_.somebody_waits(); }));
  store_->release(1);
  EXPECT_TRUE(other.returns());
  gate_.open();
  for (Acquirer* b : {&reader, &same, &other}) {
    EXPECT_TRUE(b->returns());
    EXPECT_EQ(b->code(), MOE_OK);
  }
}

class PinnedBuffers : public testing::Test {
 protected:
  PinnedBuffers() : rates_(cuda::MissingExperts::kOnGpu), copies_(rates_) {}
  void SetUp() override { ASSERT_TRUE(copies_.open().ok()); }

  void* lend(size_t bytes) {
    void* memory = nullptr;
    const Status s = copies_.lend(bytes, nullptr, &memory);
    EXPECT_TRUE(s.ok()) << s.text();
    return memory;
  }
#if defined(MOE_CUDA_EMULATOR)
  void TearDown() override { emulator::set_machine({}); }
  bool can_lend(size_t bytes) {
    void* memory = lend(bytes);
    copies_.take_back(memory);
    return memory != nullptr;
  }
  void no_more_memory() {
    emulator::Machine machine;
    machine.pinned = emulator::pinned_bytes();
    emulator::set_machine(machine);
  }
#endif

  cuda::ExpertRates rates_;
  cuda::ExpertCopies copies_;
};

#if defined(MOE_CUDA_EMULATOR)
TEST_F(PinnedBuffers, OneThatCannotGrowServesWhatFits) {
  EXPECT_TRUE(can_lend(1000) && can_lend(1000));
  const size_t before = emulator::pinned_bytes();
  no_more_memory();
  EXPECT_FALSE(can_lend(2000));
  EXPECT_EQ(emulator::pinned_bytes(), before);
  EXPECT_TRUE(can_lend(1000));
}

TEST_F(PinnedBuffers, AFailedAllocationIsRetriedLater) {
  no_more_memory();
  EXPECT_FALSE(can_lend(1000));
  emulator::set_machine({});
  int refused = 0;
  while (refused < 1000 && !can_lend(1000)) ++refused;
  EXPECT_GT(refused, 10);  // a refused allocation is not retried at once
  EXPECT_LT(refused, 1000);
}
#endif

TEST_F(PinnedBuffers, WaitingForABufferCanBeCancelled) {
  void* first = lend(1000);
  void* second = lend(1000);
  std::atomic<bool> cancelled{false};
  std::atomic<bool> done{false};
  Status status;
  std::thread other([&] {
    void* third = nullptr;
    status = copies_.lend(1000, &cancelled, &third);
    done = true;
    copies_.take_back(third);
  });
  a_moment();
  cancelled = true;
  EXPECT_TRUE(eventually([&] { return done.load(); }));
  copies_.take_back(first);
  copies_.take_back(second);
  other.join();
  EXPECT_EQ(status.code(), MOE_ERR_CANCELLED);
}

}  // namespace
}  // namespace moe
