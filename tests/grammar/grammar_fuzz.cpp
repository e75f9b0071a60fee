// SPDX-License-Identifier: MIT
// The input is a kind of grammar (a byte), its text, a zero byte and bytes that choose tokens. A
// grammar that compiles never reaches a dead end: each set of tokens has one, or the text may end.

#include "src/grammar/grammar.h"

namespace {

void require(bool condition) {
  if (!condition) __builtin_trap();
}

moe::grammar::TokenTrie& trie() {
  static moe::grammar::TokenTrie made(moe::system_allocator());
  static const bool done = [] {
    static char bytes[256];
    std::string_view texts[256 + 6];
    for (int i = 0; i < 256; ++i) {
      bytes[i] = static_cast<char>(i);
      texts[i] = {bytes + i, 1};
    }
    const std::string_view more[] = {"{\"", "\":", "abc", "\", \"", "é", "\\u"};
    std::copy(std::begin(more), std::end(more), texts + 256);
    return made.create(std::span<const std::string_view>(texts)).ok();
  }();
  require(done);
  return made;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace moe;
  if (size == 0) return 0;
  const std::string_view all(reinterpret_cast<const char*>(data + 1), size - 1);
  const std::string_view text = slice(all, 0, std::min(all.find('\0'), all.size()));
  const std::string_view choices = slice(all, text.size() + 1);
  grammar::Grammar made(trie(), system_allocator());
  if (!made.create(static_cast<grammar::Kind>(1 + data[0] % 3), text).ok()) return 0;
  grammar::Matcher matcher(made);
  require(matcher.init().ok());
  for (const char choice : choices) {
    if (matcher.must_end()) return 0;
    const grammar::TokenSet* set = nullptr;
    if (!matcher.allowed(&set).ok()) return 0;  // too ambiguous
    uint32_t n = 0;
    for (uint32_t i = 0; i < trie().n_tokens(); ++i) n += set->has(i) ? 1 : 0;
    require(n > 0 || matcher.may_end());
    if (n == 0) return 0;
    uint32_t left = static_cast<uint8_t>(choice) % n;
    uint32_t token = 0;
    while (!set->has(token) || left-- > 0) ++token;
    bool fits = false;
    require(matcher.accept(static_cast<int32_t>(token), &fits).ok() && fits);
    if (!matcher.tidy().ok()) return 0;
  }
  return 0;
}
