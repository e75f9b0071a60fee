// SPDX-License-Identifier: MIT
#pragma once
// Grammars over a small vocabulary.

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "src/grammar/grammar.h"

namespace moe::grammar {

/// The 256 bytes, and then some longer tokens.
inline std::vector<std::string> vocabulary(const std::vector<std::string>& more = {}) {
  std::vector<std::string> texts;
  for (int i = 0; i < 256; ++i) texts.emplace_back(1, static_cast<char>(i));
  texts.insert(texts.end(), more.begin(), more.end());
  return texts;
}

/// A grammar with its vocabulary.
struct Compiled {
  Compiled(Kind kind, const std::string& text, const std::vector<std::string>& texts = vocabulary(),
           const Allocator& a = system_allocator())
      : tokens(a), grammar(tokens, a) {
    const std::vector<std::string_view> views(texts.begin(), texts.end());
    status = tokens.create(std::span(views));
    if (status.ok()) status = grammar.create(kind, text);
  }

  TokenTrie tokens;
  Grammar grammar;
  Status status;
};

inline bool is_whole(const Grammar& grammar, const std::string& text) {
  Matcher matcher(grammar);
  EXPECT_TRUE(matcher.init().ok());
  bool fits = true;
  for (size_t i = 0; i < text.size() && fits; ++i) {
    const Status status = matcher.accept_text(std::string_view(text).substr(i, 1), &fits);
    EXPECT_TRUE(status.ok()) << status.text();
  }
  return fits && matcher.may_end();
}

struct Cases {
  std::string grammar;
  std::vector<std::string> good;
  std::vector<std::string> bad;
};

inline void check(Kind kind, const std::vector<Cases>& all) {
  for (const Cases& c : all) {
    const Compiled made(kind, c.grammar);
    ASSERT_TRUE(made.status.ok()) << c.grammar << ": " << made.status.text();
    for (const std::string& text : c.good) {
      EXPECT_TRUE(is_whole(made.grammar, text)) << c.grammar << "\nshould match " << text;
    }
    for (const std::string& text : c.bad) {
      EXPECT_FALSE(is_whole(made.grammar, text)) << c.grammar << "\nshould not match " << text;
    }
  }
}

struct Refused {
  std::string grammar;
  moe_status code;
  std::string words;
};

inline void check_refused(Kind kind, const std::vector<Refused>& all) {
  for (const Refused& r : all) {
    const Compiled made(kind, r.grammar);
    const std::string shown = r.grammar.substr(0, 200);
    EXPECT_EQ(made.status.code(), r.code) << shown << ": " << made.status.text();
    EXPECT_NE(std::string(made.status.text()).find(r.words), std::string::npos)
        << shown << ": " << made.status.text();
  }
}

}  // namespace moe::grammar
