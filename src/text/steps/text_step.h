// SPDX-License-Identifier: MIT
#pragma once
// Shared by normalisers, pre-tokenizers and decoders.

#include "src/base/string.h"
#include "src/text/characters/regex.h"
#include "src/text/spec.h"

namespace moe {

/// Limit of a text's size while it is encoded.
inline constexpr size_t kMaxGrownBytes = size_t{1} << 31;

/// Each step may grow a text to 64 times its original size plus 1 MiB: enough for every normal
/// form, and it stops steps that feed each other.
inline Status check_growth(size_t n_bytes, size_t n_at_first) {
  if (n_bytes <= std::min((size_t{1} << 20) + 64 * n_at_first, kMaxGrownBytes)) return {};
  return Status::error(MOE_ERR_TEXT, "text: the tokenizer's steps make %zu bytes of %zu", n_bytes,
                       n_at_first);
}

/// Searches plain text or a pattern.
class Finder final {
 public:
  Status create(const TextStepSpec& spec, const RegexLibrary& library, const Allocator& allocator);

  /// Calls f(begin, end) for each match in order; f returns a Status.
  template <class F>
  Status for_each(std::string_view text, RegexSearch& search, F&& f) const {
    if (regex_.empty()) {
      for (size_t i = 0; (i = text.find(literal_, i)) != std::string_view::npos;) {
        MOE_TRY(f(i, i + literal_.size()));
        i += literal_.size();
      }
      return {};
    }
    search.start(text);
    while (true) {
      bool found = false;
      size_t begin = 0;
      size_t end = 0;
      MOE_TRY(search.next(regex_, &found, &begin, &end));
      if (!found) return {};
      MOE_TRY(f(begin, end));
    }
  }

  /// Appends `text` to `out` with every match replaced by `content`.
  Status replace(std::string_view text, std::string_view content, RegexSearch& search,
                 Array<char>& out) const;

 private:
  std::string_view literal_;
  Regex regex_;
};

inline Status append(Array<char>& out, std::string_view text) {
  if (out.size() + text.size() > kMaxGrownBytes) {
    return Status::error(MOE_ERR_TEXT, "text: grows beyond %zu bytes", kMaxGrownBytes);
  }
  return out.append(text.data(), text.size());
}

}  // namespace moe
