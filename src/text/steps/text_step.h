#pragma once
// What normalisers, pre-tokenizers and decoders share.

#include "src/base/string.h"
#include "src/text/characters/regex.h"
#include "src/text/spec.h"

namespace moe {

/// The largest that a text may become on its way to ids, in any case.
inline constexpr size_t kMaxGrownBytes = size_t{1} << 31;

/// After each step a text may be 64 times as long as at first, and 1 MiB: enough for every normal
/// form, and steps that feed each other are stopped.
inline Status check_growth(size_t n_bytes, size_t n_at_first) {
  if (n_bytes <= std::min((size_t{1} << 20) + 64 * n_at_first, kMaxGrownBytes)) return {};
  return Status::error(MOE_ERR_TEXT, "text: the tokenizer's steps make %zu bytes of %zu", n_bytes,
                       n_at_first);
}

/// What a step looks for: plain text or a pattern.
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

  /// `text` with every match replaced by `content`, appended to `out`.
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
