// SPDX-License-Identifier: MIT
#include "arena.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <algorithm>
#include <iterator>

#if defined(MOE_SANITIZE_ADDRESS)
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(p, n) ((void)(p), (void)(n))
#define ASAN_UNPOISON_MEMORY_REGION(p, n) ((void)(p), (void)(n))
#endif

namespace emulator {
namespace {

constexpr size_t kArenaBytes = size_t{1} << 32;
constexpr size_t kHugePage = size_t{2} << 20;
constexpr size_t kRedZone = 256;

}  // namespace

Arena::Arena() {
  void* p = mmap(nullptr, kArenaBytes + kHugePage, PROT_NONE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) abort();
  base_ = static_cast<uint8_t*>(p) + (kHugePage - reinterpret_cast<uintptr_t>(p) % kHugePage);
  madvise(base_, kArenaBytes, MADV_HUGEPAGE);
  free_[0] = kArenaBytes;
}

void* Arena::take(size_t bytes) {
  const size_t size = (std::max<size_t>(bytes, 1) + kRedZone + 255) / 256 * 256;
  for (auto it = free_.begin(); it != free_.end(); ++it) {
    if (it->second < size) continue;
    const size_t at = it->first;
    const size_t rest = it->second - size;
    free_.erase(it);
    if (rest != 0) free_[at + size] = rest;
    used_[at] = {size, bytes};
    in_use_ += bytes;
    uint8_t* p = base_ + at;
    open();
    ASAN_UNPOISON_MEMORY_REGION(p, size);
    memset(p, 0xff, bytes);  // NaN or -1, so that code which relies on zeros fails
    ASAN_POISON_MEMORY_REGION(p + bytes, size - bytes);
    close();
    return p;
  }
  return nullptr;
}

bool Arena::give_back(void* memory) {
  const auto at = static_cast<size_t>(static_cast<uint8_t*>(memory) - base_);
  const auto it = used_.find(at);
  if (it == used_.end()) return false;
  auto [size, bytes] = it->second;
  used_.erase(it);
  in_use_ -= bytes;
  ASAN_POISON_MEMORY_REGION(base_ + at, size);
  size_t begin = at;
  auto next = free_.lower_bound(at);
  if (next != free_.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second == at) {
      begin = before->first;
      size += before->second;
      free_.erase(before);
    }
  }
  if (next != free_.end() && next->first == begin + size) {
    size += next->second;
    free_.erase(next);
  }
  free_[begin] = size;
  return true;
}

void Arena::open() {
  if (depth_++ == 0) protect(PROT_READ | PROT_WRITE);
}

void Arena::close() {
  if (--depth_ == 0) protect(PROT_NONE);
}

void Arena::protect(int access) const {
  if (mprotect(base_, kArenaBytes, access) != 0) abort();
}

}  // namespace emulator
