#pragma once
// Threads that read experts while others compute.

#include <sys/types.h>

#include "src/base/array.h"
#include "src/base/mutex.h"
#include "src/base/thread.h"

namespace moe {

class ExpertCache;

/// What a reader lends to its reads: see SegmentRoom.
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
  /// What a thread takes besides its scratch memory: its stack.
  static constexpr uint64_t kThreadBytes = 64 << 10;

  ExpertReaders(ExpertCache& cache, const Allocator& allocator)
      : cache_(cache), allocator_(allocator), readers_(allocator) {}
  ExpertReaders(const ExpertReaders&) = delete;
  ExpertReaders& operator=(const ExpertReaders&) = delete;
  ~ExpertReaders() { stop(); }

  /// Where no thread can be started there is none, and that is no fault.
  Status start(int32_t n, size_t scratch_bytes);
  /// Ends them after the reads that they are at. In a forked child, where there are none, it
  /// forgets them.
  void stop();
  int32_t count() const { return n_; }
  /// There is something to read, or room. The caller holds the cache's mutex.
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
  pid_t process_ = 0;
  bool stopping_ = false;
  Condition work_;
};

}  // namespace moe
