// SPDX-License-Identifier: MIT
// The tokens that may follow a text, and what bounds a matcher.
#include <random>

#include "tests/grammar/support.h"
#include "tests/support/failing_allocator.h"

namespace moe::grammar {
namespace {

// Tokens that cross all kinds of borders: quotes, escapes, characters, white space.
std::vector<std::string> many_tokens() {
  std::vector<std::string> more = {
      "true", "false",  "null", "{\"",      "\":",        "\": \"", "\",",   "\", \"", "\"}",
      "\"]",  "[[",     "]]",   "}}",       ",\n",        "\n  ",   "    ",  " the",   "the",
      "name", "\"name", "nam",  "\\\"",     "\\n",        "\\u",    "\\u00", "é",      "é\"",
      "\xC3", "\xA9x",  "😀",    "\xF0\x9F", "\x98\x80\"", "12",     "-1",    "0.",     ".5",
      "e+",   "abc",    "ab\"", "a\nb",     "the",        "   a"};
  std::mt19937 random(7);
  const std::string letters = "abcdefgh \"\\,:{}[]0123456789.-\n";
  for (int i = 0; i < 400; ++i) {
    std::string t;
    for (size_t n = 1 + random() % 20; n > 0; --n)
      t += letters[random() % (random() % 4 == 0 ? letters.size() : 9)];
    more.push_back(t);
  }
  return vocabulary(more);
}

const char* const kSchemas[] = {
    "{}",
    R"({"type":"object","properties":{"name":{"type":"string"},"age":{"type":"integer","minimum":0,"maximum":120}},"required":["name"]})",
    R"({"type":"object","properties":{"abc":{"type":"string","maxLength":7},"abd":{"type":"array","items":{"type":"string","pattern":"^[a-e]{2,9}$"}}},"additionalProperties":{"type":"boolean"}})",
    R"({"type":"array","items":{"enum":["the","then","é"]},"maxItems":3})",
    R"({"type":"string","minLength":3,"maxLength":20})",
    R"({"type":"string","pattern":"é.*b"})",
    R"({"type":"object","properties":{"é":{},"the":{},"a":{}},"propertyNames":{"pattern":"^[^b]*$"}})",
    R"({"type":"string","not":{"enum":["abc","😀","é","ab","d"]}})",
    R"({"type":"string","not":{"pattern":"^a|[b-d]"}})"};

// Each mask against every token alone, along random texts.
TEST(Matcher, MasksAreThoseOfEveryTokenAlone) {
  const std::vector<std::string> texts = many_tokens();
  std::mt19937 random(3);
  for (const char* schema : kSchemas) {
    const Compiled made(Kind::kJsonSchema, schema, texts);
    ASSERT_TRUE(made.status.ok()) << made.status.text();
    for (int run = 0; run < 8; ++run) {
      Matcher matcher(made.grammar);
      ASSERT_TRUE(matcher.init().ok());
      for (int step = 0; step < 40 && !matcher.must_end(); ++step) {
        const TokenSet* set = nullptr;
        ASSERT_TRUE(matcher.allowed(&set).ok());
        const Matcher::Place place = matcher.place();
        std::vector<int32_t> allowed;
        for (uint32_t i = 0; i < texts.size(); ++i) {
          bool fits = false;
          ASSERT_TRUE(matcher.accept(static_cast<int32_t>(i), &fits).ok());
          matcher.go_to(place);
          ASSERT_EQ(fits, set->has(i)) << schema << " token " << texts[i];
          if (fits) allowed.push_back(static_cast<int32_t>(i));
        }
        ASSERT_FALSE(allowed.empty());
        bool fits = false;
        ASSERT_TRUE(matcher.accept(allowed[random() % allowed.size()], &fits).ok());
        ASSERT_TRUE(fits);
        ASSERT_TRUE(matcher.tidy().ok());
      }
    }
  }
}

TEST(Matcher, DraftsWhatIsForced) {
  const std::vector<std::string> texts = many_tokens();
  const Compiled made(Kind::kGbnf, "root ::= \"{\\\"name\\\": \" [0-9]", texts);
  Matcher matcher(made.grammar);
  ASSERT_TRUE(matcher.init().ok());
  int32_t tokens[8];
  size_t n = 0;
  ASSERT_TRUE(matcher.draft(8, tokens, &n).ok());
  std::string drafted;
  for (size_t i = 0; i < n; ++i) drafted += texts[static_cast<size_t>(tokens[i])];
  EXPECT_EQ(drafted, "{\"name\": ");
  EXPECT_LE(n, 4u);
  ASSERT_TRUE(matcher.draft(2, tokens, &n).ok());
  EXPECT_EQ(n, 2u);
}

TEST(Matcher, ForgettingChangesNothing) {
  const Compiled made(
      Kind::kJsonSchema,
      R"({"type":"array","items":{"type":"string","minLength":1,"maxLength":100000}})");
  Matcher matcher(made.grammar);
  ASSERT_TRUE(matcher.init().ok());
  bool fits = false;
  ASSERT_TRUE(matcher.accept_text("[\"", &fits).ok());
  for (int i = 0; i < 100000; ++i) {  // each count is a state
    ASSERT_TRUE(matcher.accept_text("x", &fits).ok());
    ASSERT_TRUE(fits) << i;
    ASSERT_TRUE(matcher.tidy().ok());
    ASSERT_LT(matcher.n_bytes(), uint64_t{9} << 20);
  }
  ASSERT_TRUE(matcher.accept_text("x", &fits).ok());
  EXPECT_FALSE(fits);
  ASSERT_TRUE(matcher.accept_text("\",\"y\"]", &fits).ok());
  EXPECT_TRUE(fits);
  EXPECT_TRUE(matcher.must_end());
}

TEST(Matcher, RefusesWhatIsTooAmbiguous) {
  const Compiled made(Kind::kRegex, "(([a-z]{1,1000000}){1,1000000}){1,1000000}");
  ASSERT_TRUE(made.status.ok());
  Matcher matcher(made.grammar);
  ASSERT_TRUE(matcher.init().ok());
  Status status;
  for (int i = 0; i < 3000 && status.ok(); ++i) {
    bool fits = false;
    status = matcher.accept_text("a", &fits);
  }
  EXPECT_EQ(status.code(), MOE_ERR_UNSUPPORTED);
  EXPECT_NE(std::string(status.text()).find("too ambiguous"), std::string::npos) << status.text();
}

TEST(Grammar, NamesBytesThatTheTokenizerLacks) {
  std::vector<std::string> texts;
  for (char c = 'a'; c <= 'z'; ++c) texts.emplace_back(1, c);
  texts.push_back("{\"a\":1}");
  const Compiled object(Kind::kJsonSchema, R"({"type":"object"})", texts);
  EXPECT_EQ(object.status.code(), MOE_ERR_UNSUPPORTED);
  EXPECT_NE(std::string(object.status.text()).find("no token for the byte 0x7B ('{')"),
            std::string::npos)
      << object.status.text();
  const Compiled word(Kind::kRegex, "[a-z]+|[0-9]+", texts);
  EXPECT_TRUE(word.status.ok());
  EXPECT_FALSE(is_whole(word.grammar, "12"));
  EXPECT_TRUE(is_whole(word.grammar, "ab"));
}

// Compiles and matches with less and less memory; how often it was tried.
size_t run_out_of_memory(Kind kind, const std::string& grammar, const std::string& text) {
  size_t n_tried = 0;
  for (size_t fail_at = 0;; fail_at += 1 + fail_at / 20) {
    FailingAllocator memory(fail_at, true);
    bool reached = false;
    {
      const Compiled made(kind, grammar, vocabulary({"ab", "{\""}), memory.get());
      Status status = made.status;
      if (status.ok()) {
        Matcher matcher(made.grammar);
        status = matcher.init();
        const TokenSet* set = nullptr;
        bool fits = false;
        if (status.ok()) status = matcher.accept_text(text, &fits);
        if (status.ok()) status = matcher.allowed(&set);
      }
      reached = memory.failed();
      EXPECT_EQ(status.code(), reached ? MOE_ERR_MEMORY : MOE_OK) << grammar << status.text();
    }
    ++n_tried;
    if (!reached) return n_tried;
  }
}

TEST(Grammar, RunsOutOfMemoryCleanly) {
  for (
      const char* schema :
      {R"({"type":"object","properties":{"a":{"type":"string","pattern":"a.b","maxLength":9},"b":{"type":"number","minimum":0.5}},"required":["a"],"patternProperties":{"^x":{"enum":[1,"é"]}}})",
       R"({"type":"object","properties":{"a":{"oneOf":[{"const":"abc"},{"maxLength":9},{"enum":[2.0,"q"]}]},"b":{"not":{"multipleOf":3}}},"if":{"required":["b"]},"then":{"properties":{"a":{"not":{"pattern":"b$"}}}}})",
       R"({"type":"object","properties":{"a":{"$ref":"#/$defs/s"},"b":{"enum":[[1,2],[3]],"contains":{"const":3}},"c":{"type":"array","contains":{"$ref":"#x"},"maxItems":3}},"dependentRequired":{"a":["b"]},"$defs":{"s":{"format":"uri","minLength":9},"x":{"$anchor":"x","type":"null"}}})"}) {
    EXPECT_GT(run_out_of_memory(Kind::kJsonSchema, schema, "{\"a\":\"a"), 30u);
  }
  EXPECT_GT(
      run_out_of_memory(Kind::kGbnf, "root ::= root \"b\" | x{2,9}\nx ::= [a-c] | \"é\"?", "abab"),
      30u);
}

}  // namespace
}  // namespace moe::grammar
