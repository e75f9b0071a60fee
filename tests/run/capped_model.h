// SPDX-License-Identifier: MIT
#pragma once
// Models under a memory cap, read from a file whose reads call a function and can fail.

#include <condition_variable>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>

#include "tests/run/tiny_run.h"
#include "tests/support/failing_allocator.h"

namespace moe {

/// A file read through callbacks, from any thread.
struct WatchedFile {
  const MemorySink& bytes;
  /// Called before each read; a result other than 0 makes the read fail.
  std::function<int(uint64_t offset, size_t n)> before;

  static bool read(void* user, uint64_t offset, void* buffer, size_t n) {
    auto& file = *static_cast<WatchedFile*>(user);
    if (file.before) {
      if (file.before(offset, n) != 0) return false;
    }
    std::memcpy(buffer, file.bytes.data() + offset, n);
    return true;
  }
  FileSource source() { return FileSource::from_callbacks({bytes.size(), read, this}); }
};

/// The same kind with experts in both layers.
inline TinyKind two_moe_layers(const TinyKind& kind) {
  return {kind.name, [kind](ModelConfig& c, TinyOptions& o) {
            c.layers[0].ffn = c.layers[1].ffn;
            kind.change(c, o);
            for (LayerConfig& layer : c.layers) {  // only a dense FFN may have them
              if (layer.ffn.kind == FfnKind::kMoe) layer.ffn.in_norms = false;
            }
          }};
}

struct CapOptions {
  uint64_t cap = 1;
  int32_t n_readers = kExpertReaders;
  int threads = 1;
  bool fill = false;
};

/// Like Machine, under a cap.
class CappedModel : public OneModel {
 public:
  CappedModel(WatchedFile& file, const CapOptions& options,
              const Allocator& allocator = system_allocator())
      : OneModel(allocator), pool_(allocator) {
    status_ = open(file, options);
  }
  ~CappedModel() {
    model_.reset();
    close_cpu_device(device_);
  }

  MemoryAccount account(const SessionOptions& options = {}, int32_t n_sessions = 1) {
    MemoryAccount account;
    EXPECT_TRUE(account_memory(*model_, options, {.n_sessions = n_sessions}, &account).ok());
    return account;
  }

  struct Stats : ExpertCacheUse, Budget::Usage {};
  Stats memory_stats() { return {model_->cache_use(), model_->budget().usage()}; }

 private:
  Status open(WatchedFile& file, const CapOptions& options) {
    MOE_TRY(pool_.start(options.threads));
    MOE_ASSIGN(device_, open_cpu_device(nullptr, pool_, allocator_, 1));
    MOE_ASSIGN(Box<MoeFile> opened, MoeFile::open(file.source(), allocator_));
    ModelOptions o;
    o.memory_bytes = options.cap;
    o.n_readers = options.n_readers;
    o.fill_cache = options.fill;
    MOE_ASSIGN(model_, Model::open(std::move(opened), o, *device_, Logger(), allocator_));
    return {};
  }

  ThreadPool pool_;
  Device* device_ = nullptr;
};

/// The least cap under which a session with these options runs, and the size of a slot of its
/// expert cache.
struct LeastCap {
  uint64_t bytes = 0;
  uint64_t slot = 0;
  uint64_t session = 0;  // the bytes of the session itself
  /// The cap that has `slots` slots for experts.
  uint64_t with(uint64_t slots) const { return bytes + (slots - 1) * slot; }
};

inline LeastCap least_cap(const MemorySink& bytes, const SessionOptions& options = {},
                          const CapOptions& how = {}) {
  WatchedFile file{bytes, {}};
  CappedModel model(file, {1, how.n_readers, how.threads});
  EXPECT_TRUE(model.status().ok()) << model.status().text();
  const MemoryAccount account = model.account(options);
  return {account.total, model.model().cache_shape().slot_bytes, account.session_bytes};
}

/// Blocks reads of experts until it is opened.
class Gate {
 public:
  int pass() {
    std::unique_lock<std::mutex> lock(mutex_);
    ++n_waiting_;
    changed_.notify_all();
    changed_.wait(lock, [this] { return open_; });
    --n_waiting_;
    return 0;
  }
  void open() {
    const std::lock_guard<std::mutex> lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }
  void await_somebody() {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [this] { return n_waiting_ > 0; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = false;
  int n_waiting_ = 0;
};

/// Experts in both layers, with ternary weights.
inline TinyKind ternary(bool compress = false) {
  return two_moe_layers({"ternary", [compress](ModelConfig&, TinyOptions& o) {
                           o.weights = FormatId::kTernary2;
                           o.compress = compress;
                         }});
}

inline SessionOptions chunks_of(int32_t chunk) {
  SessionOptions options;
  options.chunk = chunk;
  return options;
}

/// A model in a file, a text and its logits.
class CappedTest : public testing::Test {
 protected:
  CappedTest() : bytes_(build_tiny_kind(ternary())), file_{*bytes_, {}} {
    Machine machine(*bytes_);
    text_ = random_tokens(40, machine.vocab_size());
    expected_ = eval_all(*machine.session(), text_);
    for (const FileSegment& s : machine.model().file().segments()) {
      if (s.part == Part::kExperts) experts_[s.offset] = s.stored;
    }
  }
  bool is_expert(uint64_t offset) const { return experts_.count(offset) != 0; }
  Status eval(Session& session) { return session.eval(span(text_), LogitRows::kNone, nullptr); }
  void expect_the_answer(Session& session) {
    ASSERT_TRUE(session.reset().ok());
    EXPECT_TRUE(eval_all(session, text_) == expected_);
  }

  std::unique_ptr<MemorySink> bytes_;
  WatchedFile file_;
  Tokens text_;
  Floats expected_;
  std::map<uint64_t, uint64_t> experts_;  // offset in the file: bytes
};

}  // namespace moe
