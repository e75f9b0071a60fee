// SPDX-License-Identifier: MIT
// Starts the reading threads, each with its own room for decompression; they take what the cache
// wants read next.
#include "src/model/expert_readers.h"

#include "src/base/checked.h"
#include "src/base/os/machine.h"
#include "src/model/expert_cache.h"

namespace moe {

uint64_t ExpertReaders::bytes(int32_t n, uint64_t scratch_bytes) {
  const uint64_t each = sizeof(Box<Reader>) + sizeof(Reader) + kStackBytes +
                        round_up(scratch_bytes, uint64_t{sizeof(Page)});
  return static_cast<uint64_t>(n) * each;
}

Status ExpertReaders::start(int32_t n, size_t scratch_bytes) {
  process_ = process_id();
  MOE_TRY(readers_.reserve(static_cast<size_t>(n)));
  for (int32_t i = 0; i < n; ++i) {
    MOE_ASSIGN(Box<Reader> reader, make_box<Reader>(allocator_, allocator_));
    if (!reader->scratch.reserve((scratch_bytes + sizeof(Page) - 1) / sizeof(Page)).ok()) {
      return out_of_memory("reading experts", scratch_bytes);
    }
    reader->all = this;
    const auto main = [](void* r) {
      auto& self = *static_cast<Reader*>(r);
      self.all->serve(self);
    };
    if (!reader->thread.start(main, reader.get())) break;
    MOE_TRY(readers_.push(std::move(reader)));
    ++n_;
  }
  return {};
}

void ExpertReaders::stop() {
  if (process_id() != process_) {
    n_ = 0;
    return;
  }
  {
    LockGuard guard(cache_.mutex);
    stopping_ = true;
    wake();
  }
  for (Box<Reader>& reader : readers_) reader->thread.join();
  readers_.clear();
  n_ = 0;
  stopping_ = false;
}

void ExpertReaders::serve(Reader& reader) {
  LockGuard guard(cache_.mutex);
  while (!stopping_) {
    CachedExpert* expert = cache_.next_read();
    if (expert == nullptr) {
      work_.wait(cache_.mutex);
      continue;
    }
    auto* const scratch = reinterpret_cast<uint8_t*>(reader.scratch.data());
    (void)cache_.read(*expert, nullptr, scratch);  // waiting threads get the status
  }
}

}  // namespace moe
