// SPDX-License-Identifier: MIT
#pragma once
// XXH64 of bytes in pieces.

#include <cstddef>
#include <cstdint>
#include <memory>

namespace moe {

class StreamHash {
 public:
  StreamHash();
  ~StreamHash();
  StreamHash(const StreamHash&) = delete;
  StreamHash& operator=(const StreamHash&) = delete;

  /// Begins again.
  void reset();
  void add(const void* bytes, size_t n);
  uint64_t value() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace moe
