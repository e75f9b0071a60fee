// SPDX-License-Identifier: MIT
#pragma once
// Expressions over characters: what regular expressions and rules of GBNF are parsed into.

#include "src/base/string.h"
#include "src/grammar/char_set.h"

namespace moe::grammar {

struct Expr {
  enum Kind : uint8_t {
    kSet,       // one character: n ranges from `first` on
    kSequence,  // n children from `first` on
    kChoice,    // the same
    kRepeat,    // the child `first`, min to max times
    kRule,      // a rule of the network
    kBegin,     // the anchor ^
    kFinish,    // the anchor $
  };
  Kind kind = kSequence;
  uint32_t first = 0;
  uint32_t n = 0;
  uint32_t min = 0;
  uint32_t max = 0;
};

/// Expressions that belong to each other; one is named by its number.
class Expressions final {
 public:
  explicit Expressions(const Allocator& a) : exprs_(a), children_(a), ranges_(a) {}

  Status add_set(const CharSet& set, uint32_t* out);
  Status add_char(uint32_t c, uint32_t* out);
  /// kind: kSequence or kChoice.
  Status add_list(Expr::Kind kind, std::span<const uint32_t> children, uint32_t* out);
  Status add(const Expr& expr, uint32_t* out);

  const Expr& operator[](uint32_t i) const { return exprs_[i]; }
  std::span<const uint32_t> children(const Expr& e) const {
    return {children_.data() + e.first, e.n};
  }
  std::span<const CharRange> ranges(const Expr& e) const { return {ranges_.data() + e.first, e.n}; }
  const Allocator& allocator() const { return exprs_.allocator(); }

  /// A node that reads the expression, which has no anchors.
  uint32_t build(Network& network, uint32_t expr, Spelling spelling, uint32_t next) const;
  bool has_anchor(uint32_t expr) const;

 private:
  Array<Expr> exprs_;
  Array<uint32_t> children_;
  Array<CharRange> ranges_;
};

/// How a regular expression is applied to a text.
enum class Match : uint8_t { kWhole, kAnywhere };

/// The rules are in docs/structured.md. Errors name the byte.
Status parse_regex(std::string_view text, Expressions& to, uint32_t* expr);

/// Appends a regular expression that only `text` matches.
Status regex_of(std::string_view text, String& to);

/// Adds the rules of a text of GBNF; *root: the rule `root`.
Status parse_gbnf(std::string_view text, Network& network, uint32_t* root);

}  // namespace moe::grammar
