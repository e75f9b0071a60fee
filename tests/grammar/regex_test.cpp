// SPDX-License-Identifier: MIT
// Regular expressions as grammars.
#include "tests/grammar/support.h"

namespace moe::grammar {
namespace {

TEST(GrammarRegex, MatchesWholeTexts) {
  const std::string x1000(1000, 'x');
  check(Kind::kRegex, {
                          {"", {""}, {"a"}},
                          {"a(b|c)*d", {"ad", "abcd"}, {"a", "abd ", "xad"}},
                          {"[a-c]{2,3}", {"aa", "abc"}, {"a", "abcd", "ad"}},
                          {"^ab$|^c", {"ab", "c"}, {"abc", "cd"}},
                          {"(?:a|b)+?c?", {"a", "ab", "bc"}, {"", "c", "cc"}},
                          {"(?<year>\\d{4})-\\d\\d", {"2024-01"}, {"024-01", "2024-1"}},
                          {"[^a-z\\d]", {"A", "é", "\n", "😀"}, {"a", "7", ""}},
                          {".", {"a", "é", "😀"}, {"\n", "\r", "\xE2\x80\xA8", "\xFF", "\xC3"}},
                          {"\\u00e9\\xE9\\u{1F600}\\uD83D\\uDE00", {"éé😀😀"}, {"é"}},
                          {"[\\w-]+", {"a-b_9"}, {"a b", "é"}},
                          {"\\s\\S", {"\u00A0x", "\tx"}, {"x ", "  "}},
                          {"[\\]\\-^]", {"]", "-", "^"}, {"a"}},
                          {"x{3,1000}", {"xxx", x1000}, {"xx", x1000 + "x"}},
                          {"(x{2}){2,}", {"xxxx", "xxxxxx"}, {"xx", "xxxxx"}},
                          {"(a?){3}b", {"b", "aaab"}, {"aaaab"}},
                          {"(^a|b)c", {"ac", "bc"}, {"aac"}},
                          {"a\\cJ\\0\\/\\.", {std::string("a\n\0/.", 5)}, {"a"}},
                      });
}

TEST(GrammarRegex, BoundedRepetitionsStaySmall) {
  const Compiled made(Kind::kRegex, "(([a-z]{1,1000000}){1,1000000}){1,1000000}");
  ASSERT_TRUE(made.status.ok()) << made.status.text();
  EXPECT_LT(made.grammar.network().n_bytes(), 2000u);
  EXPECT_TRUE(is_whole(made.grammar, std::string(50, 'a')));
}

TEST(GrammarRegex, ErrorsNameThePlace) {
  check_refused(
      Kind::kRegex,
      {
          {"a(b", MOE_ERR_FORMAT, "byte 1: a \"(\" without \")\""},
          {"a)", MOE_ERR_FORMAT, "byte 1: an unmatched"},
          {"*a", MOE_ERR_FORMAT, "byte 0: a quantifier with nothing before it"},
          {"a**", MOE_ERR_FORMAT, "byte 2: a quantifier after"},
          {"a{2}{3}", MOE_ERR_FORMAT, "byte 4: a quantifier after"},
          {"a+?{2}", MOE_ERR_FORMAT, "byte 3: a quantifier after"},
          {"[b-a]", MOE_ERR_FORMAT, "from a larger to a smaller"},
          {"[a", MOE_ERR_FORMAT, "byte 0: a \"[\" without"},
          {"a{3,2}", MOE_ERR_RANGE, "byte 1: expected counts"},
          {"a{2000000}", MOE_ERR_RANGE, "expected counts up to 1048576"},
          {"a\\", MOE_ERR_FORMAT, "a backslash at the end"},
          {"\\q", MOE_ERR_FORMAT, "byte 0: an unknown escape"},
          {"a(?=b)", MOE_ERR_UNSUPPORTED, "byte 1: an assertion"},
          {"(a)\\1", MOE_ERR_UNSUPPORTED, "byte 3: a reference"},
          {"\\bword", MOE_ERR_UNSUPPORTED, "byte 0: a word boundary"},
          {"\\p{L}", MOE_ERR_UNSUPPORTED, "a property of Unicode"},
          {"\xFF", MOE_ERR_FORMAT, "not UTF-8 at byte 0"},
          {"[]", MOE_ERR_RANGE, "no text satisfies it"},
          {"a$b", MOE_ERR_RANGE, "no text satisfies it"},
          {std::string(300, '(') + std::string(300, ')'), MOE_ERR_UNSUPPORTED, "groups inside"},
      });
}

}  // namespace
}  // namespace moe::grammar
