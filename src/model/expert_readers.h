// SPDX-License-Identifier: MIT
#pragma once
// Threads that read experts during computation.

#include "formats/moe/layout.h"
#include "src/base/array.h"
#include "src/base/mutex.h"

namespace moe {

class ExpertCache;

class ExpertReaders {
 public:
  ExpertReaders(ExpertCache& cache, const Allocator& allocator)
      : cache_(cache), allocator_(allocator), readers_(allocator) {}
  ExpertReaders(const ExpertReaders&) = delete;
  ExpertReaders& operator=(const ExpertReaders&) = delete;
  ~ExpertReaders() { stop(); }

  /// Continues with fewer readers, or none, if threads cannot be started.
  Status start(int32_t n, size_t scratch_bytes);
  /// The memory that start() allocates, with the threads' stacks.
  static uint64_t bytes(int32_t n, uint64_t scratch_bytes);
  /// Bytes of a stack that are used.
  static constexpr uint64_t kStackBytes = 64 << 10;
  /// Stops the readers after their current reads. In a forked child, which has no readers, it only
  /// drops them.
  void stop();
  int32_t count() const { return n_; }
  /// Signals new reads or free memory. The caller holds the cache's mutex.
  void wake() { work_.notify_all(); }

 private:
  /// A unit of direct reads.
  struct alignas(kSegmentAlign) Page {
    uint8_t bytes[kSegmentAlign];
  };
  struct Reader {
    explicit Reader(const Allocator& allocator) : scratch(allocator) {}
    ExpertReaders* all = nullptr;
    Thread thread;
    Array<Page> scratch;  // never resized: only its room is used, see SegmentRoom
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
