// SPDX-License-Identifier: MIT
// Compiles patterns with PCRE2 and searches with them; patterns that could run long are counted and
// stopped.
#include "src/text/characters/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "src/base/number.h"
#include "src/base/string.h"
#include "src/text/characters/regex_syntax.h"
#include "src/text/characters/utf8.h"

namespace moe {
namespace {

// PCRE2 frees without a size, so the size is stored before the block.
constexpr size_t kHeader = 16;

void* pcre_allocate(size_t bytes, void* user) {
  size_t total = 0;
  if (!checked_add(bytes, kHeader, &total)) return nullptr;
  char* p = static_cast<char*>(allocate(*static_cast<const Allocator*>(user), total, kHeader));
  if (p == nullptr) return nullptr;
  std::memcpy(p, &total, sizeof total);
  return p + kHeader;
}

void pcre_free(void* pointer, void* user) {
  if (pointer == nullptr) return;
  char* p = static_cast<char*>(pointer) - kHeader;
  size_t total = 0;
  std::memcpy(&total, p, sizeof total);
  deallocate(*static_cast<const Allocator*>(user), p, total);
}

constexpr size_t kMaxPatternBytes = 1 << 13;  // PCRE2 can compile it even with callouts
constexpr uint32_t kHeapKib = 64 * 1024;

// PCRE2 may take this many steps per starting point without being charged; a step can look at as
// much text. Ordinary patterns rarely need more. Otherwise a second copy of the pattern calls back
// at each item and counts the work, which bounds it without stopping ordinary patterns.
constexpr uint32_t kFreeSteps = 64;
constexpr size_t kView = 256;
constexpr size_t kViewGrowth = 4;
constexpr size_t kQuick = 16;  // bytes scanned in the time of one item
constexpr uint64_t kBudget = 5'000'000;
constexpr uint64_t kBudgetPerByte = 100;
constexpr size_t kStartBytes = 64;  // bytes of a compiled pattern tried in the time of one item

uint32_t compile_options() {
  return PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_ALT_CIRCUMFLEX | PCRE2_NEVER_BACKSLASH_C |
         PCRE2_USE_OFFSET_LIMIT;
}

// PCRE2 10.42 takes some of these, next to each other, for sets without a common character, as in
// "\\P{N}+\\P{L}", and then does not give back what the first has matched.
bool confuses_possession(std::string_view pattern) {
  for (size_t i = 0; i + 1 < pattern.size(); ++i) {
    if (pattern[i] != '\\') continue;
    const std::string_view rest = slice(pattern, ++i);
    if (std::string_view("PDNR").find(rest[0]) != std::string_view::npos) return true;
    if (rest.starts_with("p{^")) return true;
  }
  return false;
}

bool is_too_much(int code) { return code == PCRE2_ERROR_MATCHLIMIT || code == PCRE2_ERROR_PARTIAL; }

// "{100}" and the like: many characters between two items.
bool has_long_count(std::string_view pattern) {
  const auto digit = [&](size_t i) { return is_digit(pattern[i]); };
  for (size_t i = 0; i + 3 < pattern.size(); ++i) {
    if (pattern[i] == '{' && digit(i + 1) && digit(i + 2) && digit(i + 3)) return true;
  }
  return false;
}

struct ScriptTest {
  const RegexLibrary* library;
};

bool is_script(void* user, std::string_view name) {
  char pattern[64];
  if (name.size() > 40) return false;
  size_t n = 0;
  for (const char c : std::string_view("\\p{sc:")) pattern[n++] = c;
  for (const char c : name) pattern[n++] = c;
  pattern[n++] = '}';
  int code = 0;
  PCRE2_SIZE offset = 0;
  pcre2_code* compiled =
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern), n, compile_options(), &code, &offset,
                    static_cast<ScriptTest*>(user)->library->compile());
  pcre2_code_free(compiled);
  return compiled != nullptr;
}

}  // namespace

RegexLibrary::~RegexLibrary() {
  pcre2_compile_context_free(compile_);
  pcre2_general_context_free(general_);
}

Status RegexLibrary::create(const Allocator& allocator) {
  general_ =
      pcre2_general_context_create(pcre_allocate, pcre_free, const_cast<Allocator*>(&allocator));
  if (general_ == nullptr) return out_of_memory("regular expressions", sizeof(void*));
  compile_ = pcre2_compile_context_create(general_);
  if (compile_ == nullptr) return out_of_memory("regular expressions", sizeof(void*));
  pcre2_set_newline(compile_, PCRE2_NEWLINE_LF);
  pcre2_set_max_pattern_length(compile_, 4 * kMaxPatternBytes);
  return {};
}

Regex::~Regex() {
  pcre2_code_free(code_);
  pcre2_code_free(counted_);
}

Status Regex::create(std::string_view pattern, const RegexLibrary& library,
                     const Allocator& allocator) {
  if (pattern.empty() || pattern.size() > kMaxPatternBytes) {
    return Status::error(MOE_ERR_FORMAT, "pattern: expected 1 to %zu bytes, found %zu",
                         kMaxPatternBytes, pattern.size());
  }
  Array<char> text(allocator);
  ScriptTest test{&library};
  MOE_TRY(to_pcre2(pattern, is_script, &test, text));
  int code = 0;
  PCRE2_SIZE offset = 0;
  const uint32_t options =
      compile_options() | (confuses_possession(pattern) ? PCRE2_NO_AUTO_POSSESS : 0U);
  code_ = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), options, &code,
                        &offset, library.compile());
  if (code_ != nullptr) {
    counted_ = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(),
                             options | PCRE2_AUTO_CALLOUT, &code, &offset, library.compile());
    uint32_t n_references = 0;
    (void)pcre2_pattern_info(code_, PCRE2_INFO_BACKREFMAX, &n_references);
    size_t compiled_bytes = 0;
    (void)pcre2_pattern_info(code_, PCRE2_INFO_SIZE, &compiled_bytes);
    per_start_ = compiled_bytes / kStartBytes;
    looks_far_ = n_references != 0 || has_long_count({text.data(), text.size()});
  }
  if (counted_ != nullptr) return {};
  if (code == PCRE2_ERROR_NOMEMORY || code == 121) {  // 121: no memory while compiling
    return out_of_memory("pattern", text.size());
  }
  PCRE2_UCHAR message[120] = {};
  pcre2_get_error_message(code, message, sizeof message);
  return Status::error(MOE_ERR_FORMAT, "pattern \"%.*s\": %s (at %zu)",
                       static_cast<int>(std::min<size_t>(pattern.size(), 100)), pattern.data(),
                       reinterpret_cast<const char*>(message), static_cast<size_t>(offset));
}

RegexSearch::~RegexSearch() {
  pcre2_match_data_free(data_);
  pcre2_match_context_free(context_);
}

Status RegexSearch::create(const RegexLibrary& library) {
  allowed_ = kBudget;
  context_ = pcre2_match_context_create(library.general());
  data_ = pcre2_match_data_create(1, library.general());
  if (context_ == nullptr || data_ == nullptr) return out_of_memory("matching", sizeof(void*));
  pcre2_set_heap_limit(context_, kHeapKib);
  pcre2_set_callout(context_, count, this);
  return {};
}

void RegexSearch::start(std::string_view text) {
  text_ = text;
  from_ = 0;
  window_ = kWindow;
  last_end_ = ~size_t{0};
  allowed_ += kBudgetPerByte * text.size();
}

// Called before each item of a counted pattern: charges one for the item and the distance to its
// position.
int RegexSearch::count(pcre2_callout_block_8* block, void* user) {
  auto* search = static_cast<RegexSearch*>(user);
  const size_t at = block->current_position;
  const size_t way = at > search->last_ ? at - search->last_ : search->last_ - at;
  search->last_ = at;
  search->spent_ += search->per_item_ + way / kQuick;
  return search->spent_ > search->allowed_ ? PCRE2_ERROR_CALLOUT : 0;
}

// Searches for a match that begins in [at, at + n_starts); *code is PCRE2's result, also if the
// free steps do not suffice for several starting points.
Status RegexSearch::match(const Regex& regex, size_t at, size_t n_starts, int* code) {
  size_t view = kView;
  const pcre2_code* pattern = regex.code_;
  pcre2_set_offset_limit(context_, at + n_starts - 1);
  do {
    const bool counted = pattern == regex.counted_;
    size_t end = at + std::min(view, text_.size() - at);
    while (end < text_.size() && (static_cast<uint8_t>(text_[end]) & 0xC0) == 0x80) --end;
    const uint32_t partial = end < text_.size() ? PCRE2_PARTIAL_HARD : 0;
    pcre2_set_match_limit(context_, counted ? ~0U : kFreeSteps);
    last_ = at;
    per_item_ = 1 + (regex.looks_far_ ? view / kQuick : 0);
    *code = pcre2_match(pattern, reinterpret_cast<PCRE2_SPTR>(text_.data()), end, at,
                        PCRE2_NO_UTF_CHECK | partial, data_, context_);
    if (*code == PCRE2_ERROR_NOMEMORY) return out_of_memory("matching", text_.size());
    const size_t tried = *code >= 0 ? pcre2_get_ovector_pointer(data_)[0] - at : n_starts - 1;
    if (!counted) spent_ += regex.per_start_ * (std::min(tried, n_starts - 1) + 1);
    if (*code >= 0 || *code == PCRE2_ERROR_NOMATCH) return {};
    if (!is_too_much(*code)) break;
    if (n_starts > 1) return {};
    if (*code == PCRE2_ERROR_PARTIAL) {
      view = std::min(view * kViewGrowth, text_.size() - at);
      spent_ += view;
    } else {
      pattern = regex.counted_;
    }
  } while (spent_ <= allowed_);
  return Status::error(MOE_ERR_TEXT,
                       "a pattern of the tokenizer needs more than %llu steps for a text (%d)",
                       static_cast<unsigned long long>(allowed_), *code);
}

Status RegexSearch::next(const Regex& regex, bool* found, size_t* begin, size_t* end) {
  *found = false;
  size_t at = from_;
  while (at <= text_.size()) {
    size_t n_starts = window_;
    int code = 0;
    MOE_TRY(match(regex, at, n_starts, &code));
    window_ = std::min(2 * window_, kWindow);
    if (is_too_much(code)) MOE_TRY(match(regex, at, window_ = n_starts = 1, &code));
    if (code == PCRE2_ERROR_NOMATCH) {
      at += n_starts;
      while (at < text_.size() && (static_cast<uint8_t>(text_[at]) & 0xC0) == 0x80) ++at;
      continue;
    }
    const PCRE2_SIZE* offsets = pcre2_get_ovector_pointer(data_);
    const size_t b = offsets[0];
    const size_t e = offsets[1];
    if (b < from_ || b > e) {  // possible with \K in a lookaround
      return Status::error(MOE_ERR_TEXT, "a pattern of the tokenizer matches backwards");
    }
    if (b == e && e == last_end_) {  // an empty match right after a match: try one further
      at = from_ += from_ < text_.size() ? utf8_next(text_.data() + from_).length : 1;
      continue;
    }
    from_ = last_end_ = e;
    *found = true;
    *begin = b;
    *end = e;
    return {};
  }
  from_ = text_.size() + 1;
  return {};
}

}  // namespace moe
