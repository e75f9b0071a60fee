// SPDX-License-Identifier: MIT
#pragma once
// A grammar for the texts of one tokenizer, and a text that follows it.

#include "src/grammar/machine.h"
#include "src/grammar/token_trie.h"
#include "src/grammar/tool_calls.h"

namespace moe::grammar {

inline constexpr size_t kMaxTextBytes = size_t{16} << 20;  // of a grammar

enum class Kind : uint8_t { kJsonSchema = 1, kGbnf = 2, kRegex = 3 };

/// Immutable after create(): any thread.
class Grammar final {
 public:
  Grammar(const TokenTrie& tokens, const Allocator& allocator)
      : network_(allocator), tokens_(tokens), allocator_(allocator) {}
  /// Errors name the place in `text`. MOE_ERR_RANGE if no text satisfies the grammar,
  /// MOE_ERR_UNSUPPORTED if the tokenizer can write none of them.
  Status create(Kind kind, std::string_view text);

  /// Replies that call tools (tool_calls.h), in the texts of this tokenizer.
  Status create_calls(const ToolFormat& format, std::string_view tools, const CallChoice& choice,
                      const Tokenizer& tokenizer);

  const Network& network() const { return network_; }
  const TokenTrie& tokens() const { return tokens_; }
  const Allocator& allocator() const { return allocator_; }

 private:
  Network network_;
  const TokenTrie& tokens_;
  const Allocator& allocator_;
};

/// Where a text stands that is being written. One thread; the grammar must outlive it.
class Matcher final {
 public:
  explicit Matcher(const Grammar& grammar);
  /// Begins a text.
  Status init();

  /// A place in the text, valid until tidy().
  using Place = uint32_t;
  Place place() const { return place_; }
  void go_to(Place place) { place_ = place; }

  /// The tokens that may follow; valid until the next call. Empty only if the text must end.
  Status allowed(const TokenSet** out);
  /// Takes a token. *fits: false if it may not follow; then the place is unchanged.
  Status accept(int32_t token, bool* fits) {
    return accept_text(grammar_.tokens().text(token), fits);
  }
  Status accept_text(std::string_view text, bool* fits);
  bool may_end() const { return machine_.may_end(place_); }
  bool must_end() const { return may_end() && machine_.must_end(place_); }
  /// Appends the bytes that every text goes on with, at most `most`.
  Status forced(size_t most, Array<char>& bytes);
  /// Tokens that spell the forced bytes, the longest ones first; returns how many, at most `room`.
  Status draft(size_t room, int32_t* tokens, size_t* n);
  /// Between tokens, keeps memory bounded.
  Status tidy();
  uint64_t n_bytes() const;

 private:
  struct Mask {
    explicit Mask(const Allocator& a) : tokens(a) {}
    Place place = Machine::kDead;
    TokenSet tokens;
  };
  static constexpr size_t kMasks = 32;

  Status fill(Place place, TokenSet& to);
  void walk(std::span<const TokenTrie::Node> nodes, Place place, TokenSet& to);
  struct Bytes {
    uint32_t low;
    uint32_t high;
  };
  bool add_easy(Place place, TokenSet& to);
  bool add_all_but(Place place, TokenSet& to);
  bool easy_step(Place at, Place* to);
  template <class F>
  bool each_step(Place at, Bytes range, F&& f);
  bool all_lead_to(Place at, Bytes range, uint32_t n_more, Place to);

  const Grammar& grammar_;
  Machine machine_;
  Place place_ = 0;
  Array<Place> path_;  // of walk()
  Array<Mask> masks_;
  size_t next_mask_ = 0;
};

}  // namespace moe::grammar
