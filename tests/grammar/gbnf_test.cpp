// SPDX-License-Identifier: MIT
// Grammars of llama.cpp's format.
#include "tests/grammar/support.h"

namespace moe::grammar {
namespace {

TEST(Gbnf, MatchesTexts) {
  check(Kind::kGbnf,
        {
            {"root ::= \"yes\" | \"no\"", {"yes", "no"}, {"", "y", "yesno"}},
            {"# first\nroot ::= item+ # more\nitem ::= \"- \" [^\\r\\n]+ \"\\n\"\n",
             {"- a\n", "- a\n- é 😀\n"},
             {"- \n", "a\n"}},
            {"root ::=\n  \"a\"\n  | \"b\" |\n  \"c\"", {"a", "b", "c"}, {"ab"}},
            {"root ::= (\"a\"\n  \"b\" | \"c\")* \"!\"?", {"", "ab", "cab!", "!"}, {"a", "!!"}},
            {"root ::= x{2,3} \"y\"{1,}\nx ::= [a-c]", {"aby", "abcyyy"}, {"ay", "abcay", "ab"}},
            {"root ::= \"\\x41\\u00e9\\U0001F600\\n\\t\\\\\\\"\"", {"Aé😀\n\t\\\""}, {}},
            {"root ::= . .", {"é\n"}, {"a", "abc"}},
            // Left recursion, ambiguity, empty rules.
            {"root ::= e\ne ::= e \"+\" t | t\nt ::= t \"*\" f | f\nf ::= \"(\" e \")\" | [0-9]+",
             {"1", "1+2*3", "((1+2)*3)+4"},
             {"1+", "(1", "1**2"}},
            {"root ::= root root | \"a\" | \"\"", {"", "a", "aaaaaaaa"}, {"b"}},
            {"root ::= \"a\" root \"b\" | \"\"", {"", "ab", "aaabbb"}, {"aab", "abb"}},
            {"root ::= n root \"x\" | \"y\"\nn ::= \"\"", {"y", "yx", "yxxx"}, {"x", "xy"}},
            {"root ::= a\na ::= b\nb ::= a | \"z\"", {"z"}, {"", "zz"}},
        });
}

TEST(Gbnf, LongTextsOfRecursiveRulesNeedBoundedMemory) {
  const Compiled made(Kind::kGbnf, "root ::= \"a\" root \"b\" | \"c\" root | \"\"");
  ASSERT_TRUE(made.status.ok());
  Matcher matcher(made.grammar);
  ASSERT_TRUE(matcher.init().ok());
  bool fits = true;
  for (int i = 0; i < 20000; ++i) {
    ASSERT_TRUE(matcher.accept_text(i < 5000 ? "a" : i < 15000 ? "c" : "b", &fits).ok());
    ASSERT_TRUE(fits) << i;
    ASSERT_TRUE(matcher.tidy().ok());
    ASSERT_LT(matcher.n_bytes(), uint64_t{9} << 20);
  }
  EXPECT_TRUE(matcher.must_end());
}

TEST(Gbnf, ErrorsNameThePlace) {
  check_refused(Kind::kGbnf,
                {
                    {"", MOE_ERR_FORMAT, "expected a rule named \"root\""},
                    {"a ::= \"x\"", MOE_ERR_FORMAT, "expected a rule named \"root\""},
                    {"root ::= other", MOE_ERR_FORMAT, "byte 9: there is no rule named \"other\""},
                    {"root ::= \"a\"\nroot ::= \"b\"", MOE_ERR_FORMAT, "byte 13: a second rule"},
                    {"root \"a\"", MOE_ERR_FORMAT, "byte 5: expected ::="},
                    {"root ::= \"a", MOE_ERR_FORMAT, "byte 9: a quote that is not closed"},
                    {"root ::= [a-", MOE_ERR_FORMAT, "byte 9: a \"[\" without"},
                    {"root ::= (\"a\"", MOE_ERR_FORMAT, "expected \")\""},
                    {"root ::= \"a\" )", MOE_ERR_FORMAT, "byte 13: expected the end of the rule"},
                    {"root ::= \"\\q\"", MOE_ERR_FORMAT, "an unknown escape"},
                    {"root ::= \"a\"{3,2}", MOE_ERR_RANGE, "expected counts"},
                    {"root ::= <think>", MOE_ERR_UNSUPPORTED, "byte 9: a token by its name"},
                    {"root ::= root", MOE_ERR_RANGE, "no text satisfies it"},
                    {"root ::= \"a\" root", MOE_ERR_RANGE, "no text satisfies it"},
                    {"root ::= " + std::string(200, '(') + "\"a\"" + std::string(200, ')'),
                     MOE_ERR_UNSUPPORTED, "groups inside each other"},
                });
}

}  // namespace
}  // namespace moe::grammar
