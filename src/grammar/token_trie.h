// SPDX-License-Identifier: MIT
#pragma once
// The texts of a vocabulary's tokens as a trie, so that what tokens share is read once.

#include "src/grammar/network.h"
#include "src/text/tokenizer.h"

namespace moe::grammar {

/// A network reads a special token, which has no text, as bytes that occur in no text: this one,
/// and kTokenDigit and more for eight digits of its number.
inline constexpr uint8_t kTokenByte = 0xF5;
inline constexpr uint8_t kTokenDigit = 0xF8;
inline constexpr int kTokenDigits = 8;
/// A digit of a token's number, from 0 to 7; `i` from the left.
inline uint32_t token_digit(int32_t token, int i) {
  return static_cast<uint32_t>(token) >> (3 * (kTokenDigits - 1 - i)) & 7;
}
/// A node that reads a special token.
uint32_t read_token(Network& network, int32_t token, uint32_t next);

/// A set of tokens.
class TokenSet final {
 public:
  explicit TokenSet(const Allocator& a) : words_(a) {}
  Status resize(size_t n_tokens) { return words_.resize((n_tokens + 63) / 64); }
  void clear() { std::fill(words_.begin(), words_.end(), 0); }
  void add(uint32_t token) { words_[token / 64] |= uint64_t{1} << (token % 64); }
  void remove(uint32_t token) { words_[token / 64] &= ~(uint64_t{1} << (token % 64)); }
  /// False for a token behind those that the set has room for.
  bool has(size_t token) const {
    return token / 64 < words_.size() && (words_[token / 64] >> (token % 64) & 1) != 0;
  }
  void add(const TokenSet& other) {
    for (size_t i = 0; i < words_.size(); ++i) words_[i] |= other.words_[i];
  }
  std::span<const uint64_t> words() const { return words_.span(); }

 private:
  Array<uint64_t> words_;
};

/// Immutable after create(): any thread. Tokens without text are in no trie, unless they are
/// special; nor are those with bytes that no UTF-8 has.
///
/// Nodes are in the order of a walk that goes down first. Two tries share the tokens: the tokens
/// that are up to kLengths whole characters which a string of JSON holds as they are ("easy" ones),
/// by far the most, and the others. Inside a string, where all characters lead to the same place,
/// the easy ones need no walk: those of at most so many characters are allowed.
class TokenTrie final {
 public:
  struct Node {
    uint32_t skip;   // to the next node that is not below this one
    int32_t token;   // that ends here, -1: none; tokens with the same text: see next_same()
    uint16_t depth;  // from 0
    uint8_t byte;
  };
  static constexpr uint32_t kLengths = 16;

  explicit TokenTrie(const Allocator& a);
  /// MOE_ERR_UNSUPPORTED for a tokenizer whose tokens' texts depend on their neighbours.
  Status create(const Tokenizer& tokenizer);
  /// The same for tokens with these texts, empty where a token has none.
  Status create(std::span<const std::string_view> texts);

  std::span<const Node> easy() const { return easy_.span(); }
  std::span<const Node> others() const { return others_.span(); }
  /// The easy tokens of at most `length` characters, 1 to kLengths.
  const TokenSet& easy_up_to(uint32_t length) const { return up_to_[length - 1]; }
  uint32_t n_tokens() const { return n_tokens_; }
  uint32_t max_depth() const { return max_depth_; }
  /// Bytes that are a token.
  const ByteSet& writable() const { return writable_; }
  /// Another token with the same text; -1: none.
  int32_t next_same(int32_t token) const { return next_same_[static_cast<size_t>(token)]; }
  /// The text of a token; empty if no grammar allows it.
  std::string_view text(int32_t token) const {
    const auto i = static_cast<size_t>(token);
    return {texts_.data() + begins_[i], begins_[i + 1] - begins_[i]};
  }
  /// The token with the longest text that `bytes` begin with; -1: none.
  int32_t longest(std::string_view bytes) const;
  /// Removes the tokens of the node and of all below it.
  void remove(std::span<const Node> nodes, size_t i, TokenSet& from) const {
    for (const Node& n : nodes.subspan(i, nodes[i].skip)) {
      for (int32_t t = n.token; t >= 0; t = next_same(t)) from.remove(static_cast<uint32_t>(t));
    }
  }
  void add(const Node& node, TokenSet& to) const {
    for (int32_t t = node.token; t >= 0; t = next_same(t)) to.add(static_cast<uint32_t>(t));
  }

 private:
  Status add_text(std::string_view text);
  Status sort_tokens();
  Status build(std::span<const int32_t> sorted, Array<Node>& to);

  Array<Node> easy_;
  Array<Node> others_;
  Array<int32_t> next_same_;
  Array<char> texts_;
  Array<uint32_t> begins_;  // of each token's text, and the end
  Array<TokenSet> up_to_;
  uint32_t n_tokens_ = 0;
  uint32_t max_depth_ = 0;
  ByteSet writable_ = {};
};

}  // namespace moe::grammar
