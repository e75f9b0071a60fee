// SPDX-License-Identifier: MIT
#pragma once
// Fewer of many like cases under AddressSanitizer, where each takes several times as long; other
// builds run them all.

namespace moe::test {

/// take() is true at every nth call, the first included; at every call where there is no
/// AddressSanitizer.
class EveryNth {
 public:
#if defined(MOE_SANITIZE_ADDRESS)
  static constexpr bool kLeavesOut = true;
#else
  static constexpr bool kLeavesOut = false;
#endif
  explicit EveryNth(int n) : n_(kLeavesOut ? n : 1) {}
  bool take() { return n_calls_++ % n_ == 0; }

 private:
  int n_;
  int n_calls_ = 0;
};

}  // namespace moe::test
