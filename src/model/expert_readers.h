// SPDX-License-Identifier: MIT
#pragma once
// Threads that read experts during computation.

#include "src/base/array.h"
#include "src/base/mutex.h"

namespace moe {

class ExpertCache;

/// Scratch memory of one reader: see SegmentRoom.
class ReadScratch {
 public:
  ReadScratch() = default;
  ReadScratch(const ReadScratch&) = delete;
  ReadScratch& operator=(const ReadScratch&) = delete;
  ~ReadScratch();
  Status open(const Allocator& allocator, size_t bytes);
  uint8_t* data() const { return memory_; }

 private:
  const Allocator* allocator_ = nullptr;
  uint8_t* memory_ = nullptr;
  size_t bytes_ = 0;
};

class ExpertReaders {
 public:
  /// A thread's memory besides its scratch: its stack.
  static constexpr uint64_t kThreadBytes = 64 << 10;

  ExpertReaders(ExpertCache& cache, const Allocator& allocator)
      : cache_(cache), allocator_(allocator), readers_(allocator) {}
  ExpertReaders(const ExpertReaders&) = delete;
  ExpertReaders& operator=(const ExpertReaders&) = delete;
  ~ExpertReaders() { stop(); }

  /// Continues with fewer readers, or none, if threads cannot be started.
  Status start(int32_t n, size_t scratch_bytes);
  /// Stops the readers after their current reads. In a forked child, which has no readers, it only
  /// drops them.
  void stop();
  int32_t count() const { return n_; }
  /// Signals new reads or free memory. The caller holds the cache's mutex.
  void wake() { work_.notify_all(); }

 private:
  struct Reader {
    ExpertReaders* all = nullptr;
    Thread thread;
    ReadScratch scratch;
  };
  void serve(Reader& reader);

  ExpertCache& cache_;
  const Allocator& allocator_;
  Array<Box<Reader>> readers_;
  int32_t n_ = 0;
  int process_ = 0;
  bool stopping_ = false;
  Condition work_;
};

}  // namespace moe
