// SPDX-License-Identifier: MIT
#pragma once
// Regular expressions (PCRE2) with bounded time and memory.

#include <string_view>

#include "src/base/array.h"

// PCRE2's own types, to avoid including its header.
struct pcre2_real_general_context_8;
struct pcre2_real_compile_context_8;
struct pcre2_real_code_8;
struct pcre2_real_match_context_8;
struct pcre2_real_match_data_8;
struct pcre2_callout_block_8;

namespace moe {

/// PCRE2's memory, from our allocator. Must outlive all objects created with it.
class RegexLibrary final {
 public:
  RegexLibrary() = default;
  RegexLibrary(const RegexLibrary&) = delete;
  RegexLibrary& operator=(const RegexLibrary&) = delete;
  ~RegexLibrary();
  Status create(const Allocator& allocator);

  pcre2_real_general_context_8* general() const { return general_; }
  pcre2_real_compile_context_8* compile() const { return compile_; }

 private:
  pcre2_real_general_context_8* general_ = nullptr;
  pcre2_real_compile_context_8* compile_ = nullptr;
};

/// A compiled pattern. Immutable after create(): any thread.
class Regex final {
 public:
  Regex() = default;
  Regex(Regex&& other) noexcept { *this = std::move(other); }
  Regex& operator=(Regex&& other) noexcept {
    std::swap(code_, other.code_);
    std::swap(counted_, other.counted_);
    std::swap(looks_far_, other.looks_far_);
    std::swap(per_start_, other.per_start_);
    return *this;
  }
  ~Regex();
  /// `pattern` is in Oniguruma's syntax. MOE_ERR_FORMAT or MOE_ERR_UNSUPPORTED name the place.
  Status create(std::string_view pattern, const RegexLibrary& library, const Allocator& allocator);
  bool empty() const { return code_ == nullptr; }

 private:
  friend class RegexSearch;
  pcre2_real_code_8* code_ = nullptr;
  pcre2_real_code_8* counted_ = nullptr;  // calls back at each item
  bool looks_far_ = false;                // an item may scan far before the next one
  size_t per_start_ = 0;                  // work per starting point
};

/// Scratch memory for searches; one thread. Counts the work over all searched texts, and fails with
/// MOE_ERR_TEXT if a pattern explodes.
class RegexSearch final {
 public:
  RegexSearch() = default;
  RegexSearch(const RegexSearch&) = delete;
  RegexSearch& operator=(const RegexSearch&) = delete;
  ~RegexSearch();
  Status create(const RegexLibrary& library);

  /// Starts at the beginning of `text` (valid UTF-8, must outlive the search).
  void start(std::string_view text);
  /// Work so far beyond the free steps.
  uint64_t spent() const { return spent_; }
  /// The next match; an empty match only where the previous match did not end.
  Status next(const Regex& regex, bool* found, size_t* begin, size_t* end);

 private:
  // Starting points tried per call; after a slow one the next are tried one by one.
  static constexpr size_t kWindow = 64;

  static int count(pcre2_callout_block_8* block, void* user);
  Status match(const Regex& regex, size_t at, size_t n_starts, int* code);

  pcre2_real_match_context_8* context_ = nullptr;
  pcre2_real_match_data_8* data_ = nullptr;
  std::string_view text_;
  size_t from_ = 0;
  size_t last_end_ = ~size_t{0};
  size_t last_ = 0;  // where the latest item was tried
  size_t per_item_ = 1;
  size_t window_ = kWindow;
  uint64_t spent_ = 0;
  uint64_t allowed_ = 0;
};

}  // namespace moe
