// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <map>

#include "tests/support/failing_allocator.h"
#include "tests/text/chat_support.h"
#include "tests/text/tokenizer_support.h"

namespace moe {
namespace {

std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

ChatCase one(const std::string& content) {
  ChatCase c;
  c.messages = {{"user", content}};
  return c;
}

// Compares with the output of jinja2 (tests/parity/chat_templates.py --write).
TEST(ChatTemplate, AsJinja2) {
  std::map<std::string, std::string> sources;
  size_t n_errors = 0;
  const Json golden = read_json_file("tests/data/chat/golden.json");
  for (const Json& c : golden) {
    const auto file = c.at("file").get<std::string>();
    std::string& source = sources[file];
    if (source.empty()) source = read_file("tests/data/chat/" + file);
    const auto expected = c.at("text").get<std::string>();
    std::string found = rendered(source, read_chat_case(c));
    if (expected == "error") {
      EXPECT_EQ(found.find("error: "), 0U) << file << ": " << c.at("name").text();
      EXPECT_EQ(found.find("not known"), std::string::npos) << found;
      ++n_errors;
    } else {
      EXPECT_EQ(found, expected) << file << ": " << c.at("name").text();
    }
  }
  EXPECT_GE(golden.size(), 80U);
  EXPECT_LT(n_errors, golden.size() / 2);
}

// Each construct alone (tests/parity/chat_snippets.py).
TEST(ChatTemplate, SnippetsAsJinja2) {
  ChatCase c = one("Hi \xC3\xA9 <x>");
  c.bos = "<s>";
  c.eos = "</s>";
  c.date = "2025-03-09";
  const Json snippets = read_json_file("tests/data/chat/snippets.json");
  for (const Json& snippet : snippets) {
    const auto source = snippet.at("template").get<std::string>();
    const auto expected = snippet.at("text").get<std::string>();
    const std::string found = rendered(source, c);
    if (expected == "error") {
      EXPECT_EQ(found.find("error: "), 0U) << source;
    } else {
      EXPECT_EQ(found, expected) << source;
    }
  }
  EXPECT_GE(snippets.size(), 300U);
}

TEST(ChatTemplate, ErrorsNameTheConstructAndItsLine) {
  const std::pair<const char*, std::vector<const char*>> kCases[] = {
      {"a\n{% call x %}{% endcall %}", {"line 2", "call"}},
      {"{% include 'x' %}", {"include"}},
      {"{% import 'os' as os %}", {"import"}},
      {"{{ a | shuffle }}", {"filter", "shuffle"}},
      {"{{ 'a' is wonderful }}", {"test", "wonderful"}},
      {"{{ 'a'.__class__() }}", {"method", "__class__"}},
      {"{{ lipsum() }}", {"function", "lipsum"}},
      {"{{ strftime_now('%Y') }}", {"function", "strftime_now"}},
      {"{{ 2 ** 0.5 }}", {"exponent"}},
      {"{{ 1 / 0 }}", {"zero"}},
      {"{{ 12345678901234567890 }}", {"18 digits"}},
      {"{{ 0x12345678901234567890 }}", {"18 digits"}},
      {"{{ 0.12345678901234567890123456789012345678901 }}", {"40 digits"}},
      {"{{ '12345678901234567890' | int }}", {"filter 'int'", "digits"}},
      {"{{ 1.1 ** 100 }}", {"exponent"}},
      {"{{ 3.3 ** -2 }}", {"exponent"}},
      {"{{ 'a' | upper(1) }}", {"filter 'upper'", "at most 0", "found 1"}},
      {"{{ 'a' | trim(nosuch=1) }}", {"filter 'trim'", "does not take", "'nosuch'"}},
      {"{{ 'a' | default('b', default_value=1) }}", {"twice", "'default_value'"}},
      {"{{ 'a'.find('a', 1, 2, 3) }}", {"method 'find'", "at most 3", "found 4"}},
      {"{{ range(stop=3) }}", {"function 'range'", "'stop'"}},
      {"{{ 007 }}", {"expected a number", "007"}},
      {"a\n{% nosuch x %}", {"line 2", "{% nosuch %}"}},
      {"{% endif %}", {"block that this tag belongs to"}},
      {"{% raw %}", {"{% raw %} without"}},
      {"{% macro f() %}{% endmacro %}{% call f() %}{% endcall %}", {"'caller'"}},
      {"{% macro f() %}{% endmacro %}{{ f(1) }}", {"0 parameters", "1 arguments"}},
      {"{% for x in [1] %}{{ loop([]) }}{% endfor %}", {"recursive"}},
      {"\n\n{{ 'a' + 1 }}", {"line 3", "operator +"}},
      {"{{ nothing.at_all }}", {"'nothing' is undefined"}},
      {"{{ raise_exception('roles must alternate') }}", {"refuses", "roles must alternate"}},
      {"{% if a %}", {"end of the block", "end of the template"}},
      {"{{ 'a }}", {"string without an end"}},
      {"{{ a", {"tag without an end"}},
      {"{# a", {"comment without an end"}},
      {"{% for x in 3 %}{% endfor %}", {"loop", "integer"}},
      {"{% for a, b in [1] %}{% endfor %}", {"apart"}},
      {"{% set x.y = 1 %}", {"attribute"}},
      {"{% break %}", {"loop"}},
      {"{{ [1, 2 }}", {"without an end"}},
      {"{{ (1 2) }}", {"expected", "found '2'"}},
      {"{{ 1 // 0 }}", {"zero"}},
      {"{{ [] }}", {"writing"}},
      {"\xFF", {"UTF-8"}},
      {"{{ 'a' if }}", {"expected a value"}}};
  for (const auto& [source, words] : kCases) {
    const std::string found = rendered(source, one("x"));
    EXPECT_EQ(found.find("error: chat template"), 0U) << source << ": " << found;
    for (const char* word : words) EXPECT_NE(found.find(word), std::string::npos) << found;
  }
}

TEST(ChatTemplate, LimitsHold) {
  const std::string deep = std::string(5000, '(') + '1' + std::string(5000, ')');
  EXPECT_NE(rendered("{{ " + deep + " }}", one("")).find("levels"), std::string::npos);
  std::string chain = "{{ 1";
  for (int i = 0; i < 5000; ++i) chain += " + 1";
  EXPECT_NE(rendered(chain + " }}", one("")).find("levels"), std::string::npos);
  const char* const kBombs[] = {
      "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
      "{% set x = 'ab' %}{% for i in range(100) %}{% set x = x + x %}{{ x }}{% endfor %}"
      "{% set ns = namespace(x='ab') %}{% for i in range(100) %}{% set ns.x = ns.x + ns.x %}"
      "{% endfor %}",
      "{% for i in range(9999) %}{% for j in range(9999) %}{% for k in range(9999) %}"
      "{% endfor %}{% endfor %}{% endfor %}",
      "{% macro f() %}{% call f() %}{{ caller() }}{% endcall %}{% endmacro %}{{ f() }}",
      "{% macro f() %}{{ caller() }}{% endmacro %}{% macro g() %}{% call f() %}{{ g() }}{% endcall "
      "%}"
      "{% endmacro %}{{ g() }}",
      "{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}",
      "{{ 'ab' * 100000000000 }}",
      "{{ ([1] * 100000000000) | length }}",
      "{{ 'x' | indent(100000000000, true) }}",
      "{{ range(99999, 0, -1) | sort | length }}",
      "{{ range(99999) | unique | length }}",
      "{% for i in range(99999) %}{% set x = 1e308 % 1e-308 %}{% set x = 1e308 // 3.0 %}{% endfor "
      "%}",
      "{% set ns = namespace(l=[1]) %}{% for i in range(64) %}{% set ns.l = ns.l + ns.l %}"
      "{% endfor %}"};
  for (const char* source : kBombs) {
    const auto bomb = ChatTemplate::create(source, system_allocator());
    ASSERT_TRUE(bomb.ok()) << source << bomb.status().text();
    ChatText out(system_allocator());
    jinja::Limits limits;
    limits.max_steps = 2'000'000;
    const Status status = render_case(*bomb.value(), one(""), out, limits);
    EXPECT_TRUE(status.code() == MOE_ERR_TOO_LONG || status.code() == MOE_ERR_UNSUPPORTED)
        << source << status.text();
  }
  const auto chat = ChatTemplate::create("{{ messages[0].content }}", system_allocator());
  ASSERT_TRUE(chat.ok());
  jinja::Limits limits;
  limits.max_text = 100;
  ChatText out(system_allocator());
  const Status status = render_case(*chat.value(), one(std::string(200, 'x')), out, limits);
  EXPECT_EQ(status.code(), MOE_ERR_TOO_LONG);
  EXPECT_EQ(out.size(), 0U);
}

TEST(ChatTemplate, ACancelIsSeenSoon) {
  const char* const kLong =
      "{% for i in range(9999) %}{% for j in range(999) %}{% endfor %}{% endfor %}";
  const auto chat = ChatTemplate::create(kLong, system_allocator());
  ASSERT_TRUE(chat.ok());
  int looks = 0;
  jinja::Limits limits;
  limits.user = &looks;
  limits.cancelled = [](const void* n) { return ++*static_cast<int*>(const_cast<void*>(n)) == 3; };
  ChatText out(system_allocator());
  EXPECT_EQ(render_case(*chat.value(), one(""), out, limits).code(), MOE_ERR_CANCELLED);
  EXPECT_EQ(looks, 3);  // rendering stops at once
}

// The largest and smallest integers as indices stay in bounds; other results beyond them are
// errors.
TEST(ChatTemplate, NumbersDoNotOverflow) {
  const std::string n = "{% set n = 1000000000 * 1000000000 * 9 + 223372036854775807 %}";
  for (const auto& [expression, expected] : {std::pair{"[1, 2, 3][1::n]|join(',')", "2"},
                                             {"[1, 2, 3][2::-n]|join(',')", "3"},
                                             {"[1, 2, 3][n::-n-1]|join(',')", "3"},
                                             {"'abc'[1::n]", "b"},
                                             {"'abc'[1::-n-1]", "b"},
                                             {"'abc'[-n-1:n]", "abc"},
                                             {"'abc'[n] is defined", "False"},
                                             {"-n", "-9223372036854775807"}}) {
    EXPECT_EQ(rendered(n + "{{ " + expression + " }}", one("")), expected) << expression;
  }
  for (const char* expression : {"n + 1", "-(-n-1)", "(-n-1)|abs", "(-n-1) // -1", "n * 2"}) {
    EXPECT_NE(rendered(n + "{{ " + expression + " }}", one("")).find("too large"),
              std::string::npos)
        << expression;
  }
}

// An operation on a text, a list or a mapping takes steps in proportion to what it reads: here 200
// kB or 20000 elements, 100 times, while the limit of 100000 steps is 6.4 MB.
TEST(ChatTemplate, StepsCountWhatIsRead) {
  const char* const kExpressions[] = {"x.startswith(y)",
                                      "x.endswith(y)",
                                      "x.startswith([y])",
                                      "x == y",
                                      "x != y",
                                      "x < y",
                                      "x >= y",
                                      "x in [y]",
                                      "x is eq(y)",
                                      "{x: 1} == {y: 1}",
                                      "{x: 1}[y]",
                                      "y in {x: 1}",
                                      "{x: 1}.get(y)",
                                      "'b' in x",
                                      "'xxxxxxxxb' in x",
                                      "x.find('b')",
                                      "x|length",
                                      "x.strip('x')",
                                      "x.lstrip('abcx')",
                                      "x|trim('x')",
                                      "s.strip()",
                                      "s|trim",
                                      "s.split()",
                                      "x.split('b')",
                                      "x.replace('b', 'c')",
                                      "x|upper",
                                      "x|capitalize",
                                      "x[7]",
                                      "x[-1]",
                                      "x|last",
                                      "x[5:]",
                                      "x[::-100000]",
                                      "x[-3:]",
                                      "x|tojson",
                                      "m(x)",
                                      "x ~ y",
                                      "[x, y]|join",
                                      "1 in l",
                                      "l == k",
                                      "l|selectattr('a')",
                                      "l|selectattr('a', 'defined')",
                                      "l|rejectattr('a')",
                                      "l|map(attribute='a')",
                                      "l + k",
                                      "l[1:]",
                                      "l|join",
                                      "messages|selectattr('content', 'in', y)",
                                      "messages|selectattr('content', 'eq', y)"};
  ChatCase c;
  c.messages = {{"a", std::string(200000, 'x')},
                {"b", std::string(200000, 'x')},
                {"c", std::string(200000, ' ')}};
  jinja::Limits limits;
  limits.max_steps = 100'000;
  for (const std::string expression : kExpressions) {
    const auto chat = ChatTemplate::create(
        "{% macro m(a) %}{{ a }}{% endmacro %}{% set x, y, s = messages|map(attribute='content') %}"
        "{% set l = range(-20000, 0) %}{% set k = range(-20000, 0) %}"
        "{% for i in range(100) %}{% if " +
            expression + " %}{% endif %}{% endfor %}",
        system_allocator());
    ASSERT_TRUE(chat.ok()) << chat.status().text();
    ChatText out(system_allocator());
    const Status status = render_case(*chat.value(), c, out, limits);
    EXPECT_EQ(status.code(), MOE_ERR_TOO_LONG) << expression << ": " << status.text();
  }
}

// Steps do not overcount: 20000 matches do not each count the whole text.
TEST(ChatTemplate, LongTextsAreNotRefused) {
  std::string text;
  for (int i = 0; i < 20000; ++i)
    text += "The line number " + std::to_string(i) + " of a long text.\n";
  std::string expected = text;
  std::replace(expected.begin(), expected.end(), '\n', '|');
  const char* const kExpressions[] = {"replace('\\n', '|')", "split('\\n')|join('|')"};
  for (const std::string expression : kExpressions) {
    EXPECT_TRUE(rendered("{{ messages[0].content." + expression + " }}", one(text)) == expected)
        << expression;
  }
}

// Marks follow the user's bytes through all operations of a template.
TEST(ChatTemplate, MarksWhatTheUserWrote) {
  const auto chat = ChatTemplate::create(
      "<{% set c = messages[0].content.strip().replace('b', 'B-') %}{{ c[1:] + '|' + c.upper() }}"
      "{{ [c, 'x'] | join(',') }}{% macro m(y) %}({{ y }}){% endmacro %}{{ m(c) }}{{ c | tojson }}",
      system_allocator());
  ASSERT_TRUE(chat.ok()) << chat.status().text();
  ChatText out(system_allocator());
  ASSERT_TRUE(render_case(*chat.value(), one("  abc "), out).ok());
  EXPECT_EQ(out.view(), "<B-c|AB-CaB-c,x(aB-c)\"aB-c\"");
  std::string marks;
  for (const uint8_t m : out.marks) marks += m != 0 ? 'u' : '.';
  EXPECT_EQ(marks,
            "...u.u..uu..u..."
            "u..u."
            ".u..u.");
}

// <x> is a special token. A user cannot produce it, not even in parts; other text is encoded across
// the boundary.
TEST(ChatTemplate, SpecialTokensComeFromTheTemplateAlone) {
  const auto loaded = load(small_bpe());
  ASSERT_TRUE(loaded->status.ok());
  const auto ids = [&](const char* source, const char* said) {
    const auto chat = ChatTemplate::create(source, system_allocator());
    ChatText text(system_allocator());
    check(render_case(*chat.value(), one(said), text));
    Array<int32_t> out;
    check(loaded->tokenizer->encode_marked(text.view(), text.marks.span(), out));
    return IdList(out.begin(), out.end());
  };
  const IdList plain = ids("{{ messages[0].content }}", "<x>");
  EXPECT_EQ(std::count(plain.begin(), plain.end(), 5), 0);
  EXPECT_EQ(ids("<x>", ""), IdList{5});
  EXPECT_EQ(ids("<x>{{ messages[0].content }}c<x>", "ab"), (IdList{5, 4, 5}));
  for (const char* source : {"{{ messages[0].content }}>", "{{ messages[0].content }}x>",
                             "{{ messages[0].content + 'x' }}>", "<{{ messages[0].content }}",
                             "{{ messages[0].content | trim | replace('_', '<x>'[1:]) }}"}) {
    for (const char* said : {"<", "<x", "<x>", "x>", "<_"}) {
      const IdList found = ids(source, said);
      EXPECT_EQ(std::count(found.begin(), found.end(), 5), 0) << source << said;
    }
  }
  EXPECT_EQ(ids("{{ messages[0].content }}<x>", "<").back(), 5);
  Array<int32_t> out;
  const uint8_t mark = 1;
  EXPECT_FALSE(loaded->tokenizer->encode_marked("ab", {&mark, 1}, out).ok());
}

TEST(ChatTemplate, EveryAllocationMayFail) {
  const std::string source =
      read_file("tests/data/chat/language.jinja") + read_file("tests/data/chat/blocks.jinja");
  ChatCase c = one("Hello there");
  c.messages.push_back({"assistant", "a\nb"});
  bool done = false;
  for (size_t n = 0; n < 4000 && !done; ++n) {
    FailingAllocator failing(n);
    auto chat = ChatTemplate::create(source, failing.get());
    if (!chat.ok()) {
      EXPECT_EQ(chat.status().code(), MOE_ERR_MEMORY);
      continue;
    }
    ChatText out(failing.get());
    const Status status = render_case(*chat.value(), c, out);
    EXPECT_TRUE(status.ok() || status.code() == MOE_ERR_MEMORY) << status.text();
    done = status.ok();
  }
  EXPECT_TRUE(done);
}

TEST(ChatTemplate, BuiltIns) {
  for (const char* name : {"chatml", "llama3", "mistral", "plain"}) {
    ChatCase c = one("question");
    c.messages.insert(c.messages.begin(), {"system", "system text"});
    c.messages.push_back({"assistant", "answer"});
    c.messages.push_back({"user", "more"});
    c.add_generation_prompt = true;
    const std::string text = rendered(builtin_chat_template(name), c);
    EXPECT_NE(text.find("error"), 0U) << text;
    for (const char* word : {"system text", "question", "answer", "more"}) {
      EXPECT_NE(text.find(word), std::string::npos) << text;
    }
  }
  EXPECT_TRUE(builtin_chat_template("no-such").empty());
}

}  // namespace
}  // namespace moe
