// SPDX-License-Identifier: MIT
#pragma once
// Text in the core: String (owned bytes, zero-terminated) and helpers for std::string_view.

#include <string_view>

#include "src/base/array.h"

namespace moe {

/// Owned UTF-8 bytes; c_str() is always terminated.
class String {
 public:
  explicit String(const Allocator& allocator = system_allocator()) : bytes_(allocator) {}

  Status assign(std::string_view text) {
    bytes_.clear();
    return append(text);
  }
  /// On failure the text is unchanged.
  Status append(std::string_view text) {
    const size_t n = size();
    size_t need = 0;
    if (!checked_add(n + 1, text.size(), &need)) return out_of_memory("text", ~0ULL);
    if (need > bytes_.capacity()) MOE_TRY(bytes_.reserve(std::max(need, n + n / 2)));
    bytes_.clear_to(n);
    (void)bytes_.append(text.data(), text.size());
    (void)bytes_.push('\0');
    return {};
  }
  void clear() { bytes_.clear(); }
  void remove_prefix(size_t n) {
    if (n == 0) return;
    std::copy(bytes_.begin() + n, bytes_.end(), bytes_.begin());
    bytes_.clear_to(bytes_.size() - n);
  }
  /// Replaces every `what`, from left to right, by a text that is not longer.
  void replace_by_shorter(std::string_view what, std::string_view with) {
    const size_t n = size();
    size_t to = 0;
    for (size_t from = 0; from < n; ++to) {
      const bool found = std::string_view(c_str() + from, n - from).starts_with(what);
      if (!found) {
        bytes_[to] = bytes_[from++];
        continue;
      }
      std::copy(with.begin(), with.end(), bytes_.data() + to);
      from += what.size();
      to += with.size() - 1;
    }
    if (n == 0) return;
    bytes_.clear_to(to + 1);
    bytes_[to] = '\0';
  }

  size_t size() const { return bytes_.empty() ? 0 : bytes_.size() - 1; }
  bool empty() const { return size() == 0; }
  const Allocator& allocator() const { return bytes_.allocator(); }
  const char* c_str() const { return bytes_.empty() ? "" : bytes_.data(); }
  std::string_view view() const { return {c_str(), size()}; }

 private:
  struct Bytes : Array<char> {
    using Array<char>::Array;
    void clear_to(size_t n) {
      while (size() > n) pop();
    }
  };
  Bytes bytes_;
};

/// text[from, from + n), clamped to the text: unlike string_view::substr it cannot throw.
inline std::string_view slice(std::string_view text, size_t from, size_t n = ~size_t{0}) {
  if (from > text.size()) from = text.size();
  return {text.data() + from, std::min(n, text.size() - from)};
}

/// Length of the longest suffix of `text` that `mark` could begin with; less than all of `mark`.
inline size_t begun(std::string_view text, std::string_view mark) {
  if (mark.empty()) return 0;
  for (size_t n = std::min(text.size(), mark.size() - 1); n > 0; --n) {
    if (mark.starts_with(slice(text, text.size() - n))) return n;
  }
  return 0;
}

}  // namespace moe
