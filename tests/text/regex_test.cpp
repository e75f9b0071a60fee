// SPDX-License-Identifier: MIT
#include "src/text/characters/regex.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "formats/import/json.h"
#include "src/text/characters/regex_syntax.h"

namespace moe {
namespace {

std::string translate(const std::string& pattern) {
  Array<char> out;
  const auto is_script = [](void*, std::string_view name) { return name == "Han"; };
  const Status status = to_pcre2(pattern, is_script, nullptr, out);
  return status.ok() ? std::string(out.data(), out.size()) : status.text();
}

TEST(RegexSyntax, LeavesOrdinaryPatternsAlone) {
  for (const char* pattern :
       {"'(?i:[sdmt]|ll)", "[^\\x0d\\x0a\\p{L}\\p{N}]?+\\p{L}++", "a{2}b{1,3}c{1,3}?",
        "(?<!x)(?<=y)(?>z)", "(?<name>a)\\k<name>", "\\d+\\.\\d*", "[\\p{Alphabetic}\\-]", "\\[\\]",
        "(?=a)|(?!b)", "x{a}", "[a-z\\-9]", "[^\\D\\d]"}) {
    EXPECT_EQ(translate(pattern), std::string(pattern) == "x{a}" ? "x\\{a}" : pattern);
  }
}

TEST(RegexSyntax, RewritesWhatDiffers) {
  const std::string word = "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}";
  const std::string alone = word + "\\xb2\\xb3\\xb9\\xbc-\\xbe";
  EXPECT_EQ(translate("\\s\\S[^\\s\\S]"),
            "\\p{White_Space}\\P{White_Space}[^\\p{White_Space}\\P{White_Space}]");
  EXPECT_EQ(translate("\\w[\\w]\\W"), "[" + alone + "][" + word + "][^" + alone + "]");
  EXPECT_EQ(translate("\\h\\H[\\h]\\v"), "[0-9A-Fa-f][^0-9A-Fa-f][0-9A-Fa-f]\\x0b");
  EXPECT_EQ(translate("\\p{Han}\\P{Han}\\p{^Han}\\p{Lu}"),
            "\\p{sc:Han}\\P{sc:Han}\\P{sc:Han}\\p{Lu}");
  EXPECT_EQ(translate("a{,3}"), "a{0,3}");
  EXPECT_EQ(translate("ab{1,3}+"), "a(?:b{1,3})+");
  EXPECT_EQ(translate("(ab){2}?"), "(?:(ab){2})?");
  EXPECT_EQ(translate("[ab]{2}+c"), "(?:[ab]{2})+c");
  EXPECT_EQ(translate("[a&&b]{2}+c"), "(?:(?>(?=[a])[b]){2})+c");
  EXPECT_EQ(translate("\\u4e00"), "\xE4\xB8\x80");
  EXPECT_EQ(translate("(?mi:.)"), "(?si:.)");
  EXPECT_EQ(translate("a(?i)b|c"), "a(?i:b|c)");
  EXPECT_EQ(translate("(a(?i)b|c)|d"), "(a(?i:b|c))|d");
  EXPECT_EQ(translate("(?i:\\p{Lu})"), "(?i:(?-i:\\p{Lu}))");
  EXPECT_EQ(translate("[\\p{L}-z][a-\\d][a-]"), "[\\p{L}\\-z][a\\-\\d][a\\-]");
  EXPECT_EQ(translate("[]a]"), "[\\]a]");
  EXPECT_EQ(translate("\\Qa\\E"), "QaE");
  EXPECT_EQ(translate("[[:punct:][:^alpha:]]"), "[\\p{P}\\p{S}\\P{Alphabetic}]");
}

TEST(RegexSyntax, SetOperations) {
  EXPECT_EQ(translate("[a[bc]]"), "[abc]");
  EXPECT_EQ(translate("[a[^b]]"), "(?>[a]|[^b])");
  EXPECT_EQ(translate("[\\W]"), "[^\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}]");
  EXPECT_EQ(translate("[a-z&&[^b]]+"), "(?>(?=[a-z])[^b])+");
  EXPECT_EQ(translate("[^a-z&&[^b]]"), "(?>(?!(?=[a-z])[^b])(?s:.))");
  EXPECT_EQ(translate("[a&&]"), "(?>(?=[a])(?!))");
  EXPECT_EQ(translate("[^[^a]]"), "(?>(?![^a])(?s:.))");
}

TEST(RegexSyntax, RefusesWhatItCannotSay) {
  for (const char* pattern : {"(*LIMIT_MATCH=1)a", "(?R)", "(?P<n>a)", "(?s:.)", "(*ACCEPT)"}) {
    EXPECT_NE(translate(pattern).find("not supported"), std::string::npos) << pattern;
  }
  for (const char* pattern : {"a)", "[a", "\\", "\\p{L", "\\u12", "[b-a]", "[a[b]", "(?#a"}) {
    EXPECT_NE(translate(pattern).find("pattern:"), std::string::npos) << pattern;
  }
  EXPECT_NE(translate("[a--b]").find("write [A&&[^B]]"), std::string::npos) << translate("[a--b]");
  EXPECT_NE(translate("\\pL").find("write \\p{...}"), std::string::npos) << translate("\\pL");
  const std::string deep = std::string(1000, '[') + "a" + std::string(1000, ']');
  EXPECT_NE(translate(deep).find("nested this deep"), std::string::npos);
}

std::vector<std::string> find_all(const char* pattern, const std::string& text) {
  RegexLibrary library;
  EXPECT_TRUE(library.create(system_allocator()).ok());
  Regex regex;
  const Status made = regex.create(pattern, library, system_allocator());
  EXPECT_TRUE(made.ok()) << made.text();
  RegexSearch search;
  EXPECT_TRUE(search.create(library).ok());
  std::vector<std::string> out;
  search.start(text);
  while (true) {
    bool found = false;
    size_t begin = 0;
    size_t end = 0;
    const Status status = search.next(regex, &found, &begin, &end);
    EXPECT_TRUE(status.ok()) << status.text();
    if (!status.ok() || !found) return out;
    out.push_back(text.substr(begin, end - begin));
  }
}

using Strings = std::vector<std::string>;

bool compiles(const std::string& pattern) {
  RegexLibrary library;
  EXPECT_TRUE(library.create(system_allocator()).ok());
  Regex regex;
  return regex.create(pattern, library, system_allocator()).ok();
}

// With the matches of Oniguruma (tests/parity/patterns.py).
TEST(Regex, AsTokenizers) {
  const Json golden = read_json_file("tests/data/text/patterns.json");
  const auto text = golden.at("text").get<std::string>();
  for (const Json& c : golden.at("cases")) {
    const auto pattern = c.at("pattern").get<std::string>();
    if (c.at("matches").is_string()) {
      EXPECT_FALSE(compiles(pattern)) << pattern;
      continue;
    }
    Strings expected;
    for (const Json& match : c.at("matches")) expected.push_back(match.get<std::string>());
    Strings found = find_all(pattern.c_str(), text);
    std::erase(found, "");
    EXPECT_EQ(found, expected) << pattern;
  }
  EXPECT_GE(golden.at("cases").size(), 500U);
  for (const Json& pattern : golden.at("refused")) {
    EXPECT_FALSE(compiles(pattern.get<std::string>())) << pattern.text();
  }
}

TEST(Regex, FindsMatchesInOrder) {
  EXPECT_EQ(find_all("\\p{L}+|\\p{N}{1,3}", "ab 12345"), (Strings{"ab", "123", "45"}));
  EXPECT_EQ(find_all("^a|b$", "a\na b\nb"), (Strings{"a", "a", "b", "b"})) << "lines";
  EXPECT_EQ(find_all("x*", "axxb"), (Strings{"", "xx", ""})) << "not right after a match";
  EXPECT_EQ(find_all("a", ""), Strings());
  EXPECT_EQ(find_all("(?<=b)a", "ba aba"), (Strings{"a", "a"})) << "looks behind the last match";
  EXPECT_EQ(find_all("\\s+",
                     "a\xE1\xA0\x8E \xC2\x85"
                     "b"),
            (Strings{" \xC2\x85"}))
      << "U+180E is not white space, U+0085 is";
}

// Matches farther apart than the window of starting points that one call tries.
TEST(Regex, FindsFarApart) {
  std::string text;
  for (int i = 0; i < 50; ++i)
    text += std::string(static_cast<size_t>(i) * 7, 'x') +
            "\xC3\xA9"
            "1";
  EXPECT_EQ(find_all("\\d", text).size(), 50u);
  EXPECT_EQ(find_all("\xC3\xA9", text).size(), 50u);
  EXPECT_TRUE(find_all("2", text).empty());
}

// Matches do not depend on the position in the text or on the length of a run before them.
TEST(Regex, DistancesDoNotMatter) {
  const struct {
    const char* pattern;
    const char* core;
  } cases[] = {{"b+\\s+(?!\\S)|\\s+", "bb   b"},
               {"b+\\n^c", "b\nc"},
               {"b\\n+^", "b\n\n"},
               {"b$", "b\nb"},
               {"b(?=\xC3\xA9)", "b\xC3\xA9"},
               {"b\\b|\\Bb", "b b_b"},
               {"(b)c\\1", "bcb"},
               {"b++(?!c)", "bbb"},
               {"(?<=b)c|(?<!b)d", "bcbdd"}};
  for (const auto& c : cases) {
    const std::string core = c.core;
    const auto near = find_all(c.pattern, "--" + core + "--");
    const auto last = find_all(c.pattern, "--" + core);
    for (size_t n : {1, 50, 63, 64, 65, 180, 190, 250, 251, 252, 253, 254, 255, 256, 257, 258}) {
      const std::string gap(n, '-');
      EXPECT_EQ(find_all(c.pattern, gap + core + std::string(999, '-')), near) << c.pattern << n;
      EXPECT_EQ(find_all(c.pattern, gap + core), last) << c.pattern << n;
    }
    for (size_t n = 1; n < 300; ++n) {  // a run before the match
      const std::string run(n, 'b');
      const auto found = find_all(c.pattern, run + core + std::string(999, '-'));
      EXPECT_EQ(found, find_all(c.pattern, run + core + "--")) << c.pattern << n;
    }
  }
}

// Linear work on a long run is allowed.
TEST(Regex, LongRunsAreNoBlowUp) {
  const std::string spaces(300000, ' ');
  EXPECT_EQ(find_all("\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+", spaces + "a").size(), 2u);
  EXPECT_EQ(find_all("[A-Z]*[a-z]+|[A-Z]+[a-z]*", std::string(300000, 'A')).size(), 1u);
}

// Finds all matches, or an error; returns the work per byte.
double work_per_byte(const char* pattern, const std::string& text, Status* status) {
  RegexLibrary library;
  EXPECT_TRUE(library.create(system_allocator()).ok());
  Regex regex;
  EXPECT_TRUE(regex.create(pattern, library, system_allocator()).ok());
  RegexSearch search;
  EXPECT_TRUE(search.create(library).ok());
  search.start(text);
  bool found = true;
  for (size_t begin = 0, end = 0; found && status->ok();) {
    *status = search.next(regex, &found, &begin, &end);
  }
  return static_cast<double>(search.spent()) / static_cast<double>(text.size());
}

std::string repeated(const std::string& part, size_t n_bytes) {
  std::string out;
  while (out.size() < n_bytes) out += part;
  return out;
}

// A pattern that scans the same text repeatedly ends with an error, even if the scan from each
// starting point is short.
TEST(Regex, WorkIsBounded) {
  std::string alternatives = "z";
  for (char c = 'b'; c < 'z'; ++c) {
    for (char d = 'b'; d < 'f'; ++d) alternatives += std::string("|a*") + c + d;
  }
  const std::string runs = repeated(std::string(240, 'a') + "1", 20000);
  for (const char* pattern : {"(a+)+b", "(?:a|a)*b", "a*a*b", "a*a*a*b", alternatives.c_str()}) {
    Status status;
    (void)work_per_byte(pattern, runs, &status);
    EXPECT_EQ(status.code(), MOE_ERR_TEXT) << pattern;
    EXPECT_NE(std::string(status.text()).find("steps"), std::string::npos) << status.text();
  }
}

// The cost of trying a pattern grows with its size, even if it fails at once.
TEST(Regex, LargePatternsAreCharged) {
  std::string alternatives = "zz";
  for (int i = 0; i < 20; ++i) alternatives += "|a" + repeated("[bd]", 50) + "x";
  Status status;
  EXPECT_GT(work_per_byte(alternatives.c_str(), repeated("az", 20000), &status), 30.0);
  EXPECT_TRUE(status.ok()) << status.text();
  EXPECT_LT(work_per_byte("zz|ab", repeated("az", 20000), &status), 5.0);
}

// The patterns of real tokenizers stay far below the limit.
TEST(Regex, RealPatternsTakeFewSteps) {
  const char* const kPatterns[] = {
      "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+"
      "[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
      "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+"
      "(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+"
      "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\\p{N}{1,3}"
      "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
      "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"};
  const std::string kParts[] = {
      " ",
      "\n",
      " \n\t",
      "a",
      "A",
      "1",
      "!",
      "\xE4\xB8\xAD",
      "\xF0\x9F\x98\x80",
      "e\xCC\x81",
      std::string(61, ' ') + "a",
      std::string(300, ' ') + "1",
      std::string(1100, ' ') + "!",
      std::string(70, 'A') + " ",
      std::string(300, 'A') + "1",
      std::string(5000, 'A') + "\n",
      "Hello World's 12345 \xE4\xB8\xAD\xE6\x96\x87, foo_bar()\n  return x;\n\n"};
  for (const char* pattern : kPatterns) {
    for (const std::string& part : kParts) {
      Status status;
      EXPECT_LT(work_per_byte(pattern, repeated(part, 50000), &status), 25.0) << part;
      EXPECT_TRUE(status.ok()) << status.text() << part;
    }
  }
}

}  // namespace
}  // namespace moe
