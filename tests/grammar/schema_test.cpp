// SPDX-License-Identifier: MIT
// JSON schemas as grammars: each keyword, and their combinations.
#include "src/text/pieces/vocabulary.h"
#include "tests/grammar/support.h"

namespace moe::grammar {
namespace {

constexpr Kind kSchema = Kind::kJsonSchema;

std::string quoted(const std::string& text) { return '"' + text + '"'; }

// `n` labels of a host name, each of `length` letters.
std::string dotted(int n, size_t length) {
  std::string text;
  for (int i = 0; i < n; ++i) text += (i == 0 ? "" : ".") + std::string(length, 'a');
  return text;
}

TEST(Schema, Types) {
  check(kSchema,
        {
            {"{}",
             {"1", "-0.5e+3", "\"a\"", "[1, {\"a\":null}]", "{}", "true", " null"},
             {"", "01", "tru", "[1,]", "{\"a\" :1}", "\"\n\"", "\"\\ud800\"", "1.", "[1 ]x"}},
            {"true", {"[]"}, {}},
            {R"({"type":["integer","null"]})", {"0", "-12", "null"}, {"1.5", "-0", "1e3", "\"\""}},
            {R"({"type":"boolean"})", {"true", "false"}, {"null"}},
            // Keywords of one type leave the others free.
            {R"({"minLength":2})", {"\"ab\"", "1", "[]"}, {"\"a\""}},
            {R"({"type":"string"})",
             {"\"\\u00e9\\n\\/é\\ud83d\\ude00\"", "\"\""},
             {"\"\\u0041\"", "\"\\x\""}},
        });
}

TEST(Schema, WhiteSpace) {
  check(kSchema, {{R"({"type":"object"})",
                   {"{}", "{ }", "{\n}", "{\"a\": 1, \"b\":2 }", "{\n  \"a\": 1,\n\t\"b\": 2\n}"},
                   {"{  }", "{\"a\" :1}", "{\"a\":1 ,\"b\":2}", "{\n\n}", "{} "}}});
}

TEST(Schema, Values) {
  check(
      kSchema,
      {
          {R"({"enum":["a",1,null,{"x":[1,2]},"é\""]})",
           {"\"a\"", "1", "null", "{\"x\": [1, 2]}", "\"é\\\"\"", "\"\\u00e9\\\"\""},
           {"\"b\"", "2", "{\"x\":[1]}"}},
          {R"({"const":false})", {"false"}, {"true"}},
          {R"({"type":"string","enum":["a",1]})", {"\"a\""}, {"1"}},
          {R"({"enum":["a","bb","ccc"],"minLength":2,"pattern":"b|c"})",
           {"\"bb\"", "\"ccc\""},
           {"\"a\""}},
          {R"({"enum":[1,5,2.5],"type":"integer","maximum":4})", {"1"}, {"5", "2.5"}},
          {R"({"enum":[2.0,10.5,30]})", {"2", "2.0", "10.5"}, {"2.", "10", "3", "30.0"}},
          {R"({"type":"integer","enum":[2.0,1e2,2.5]})", {"2", "2.0", "1e2"}, {"2.5"}},
          {R"({"$schema":"http://json-schema.org/draft-04/schema#","type":"integer","enum":[2.0,3]})",
           {"3"},
           {"2.0"}},
      });
}

TEST(Schema, Numbers) {
  check(
      kSchema,
      {
          {R"({"type":"integer","minimum":-5,"maximum":120})",
           {"-5", "0", "99", "120"},
           {"-6", "121", "-0", "00", "1000"}},
          {R"({"type":"integer","exclusiveMinimum":9,"exclusiveMaximum":12})",
           {"10", "11"},
           {"9", "12", "1"}},
          {R"({"type":"integer","minimum":100})", {"100", "100000000000000000000"}, {"99", "-100"}},
          {R"({"type":"integer","maximum":-3})", {"-3", "-1000"}, {"-2", "0", "3"}},
          {R"({"type":"integer","minimum":1.5,"maximum":3.5})", {"2", "3"}, {"1", "4"}},
          {R"({"type":"number","exclusiveMinimum":0.5,"maximum":3})",
           {"0.51", "3", "3.0", "2.5"},
           {"0.5", "0.50", "3.01", "10", "-1"}},
          {R"({"type":"number","minimum":-0.25,"maximum":0.25})",
           {"0", "-0.25", "0.1"},
           {"-0.26", "0.3", "-0", "-0.0"}},
          {R"({"type":"number","minimum":1e2,"exclusiveMaximum":1.5E+2})",
           {"100", "149.9"},
           {"99.9", "150"}},
          {R"({"type":"integer","multipleOf":7,"minimum":0,"maximum":30})",
           {"0", "7", "14", "28"},
           {"1", "35", "17"}},
          {R"({"type":"number","minimum":3,"exclusiveMinimum":true})", {"3.1"}, {"3"}},
          // Beside a bound with many digits stand numbers with few of them.
          {R"({"type":"number","exclusiveMaximum":12345678901234567890})",
           {"1.5", "-2.25", "12345678901234567889"},
           {"12345678901234567890", "12345678901234567889.5", "99999999999999999999"}},
      });
}

TEST(Schema, Strings) {
  check(
      kSchema,
      {
          {R"({"type":"string","minLength":1,"maxLength":3})",
           {"\"a\"", "\"é😀x\"", "\"\\n\\\"\\ud83d\\ude00\""},
           {"\"\"", "\"abcd\""}},
          {R"({"type":"string","pattern":"^a+$","minLength":2})", {"\"aa\""}, {"\"a\"", "\"ab\""}},
          {R"({"type":"string","pattern":"b","maxLength":3})",
           {"\"abc\"", "\"b\""},
           {"\"ac\"", "\"abcd\""}},
          {R"({"type":"string","pattern":"\"\\\\"})", {R"("x\"\\")"}, {R"("\\\"")"}},
          {R"({"type":"string","pattern":"^(a|b)$|^c"})",
           {"\"a\"", "\"cd\""},
           {"\"ab\"", "\"dc\""}},
          {R"({"allOf":[{"type":"string","pattern":"a"},{"pattern":"b"}]})",
           {"\"ab\"", "\"ba\""},
           {"\"a\"", "\"b\""}},
          {R"({"type":"string","format":"date"})",
           {"\"2024-02-29\"", "\"1999-12-31\""},
           {"\"2023-02-29\"", "\"1900-02-29\"", "\"2024-04-31\"", "\"0000-01-01\""}},
          {R"({"type":"string","format":"date-time"})",
           {"\"2024-01-02T03:04:05Z\"", "\"2024-01-02T03:04:05.25+01:30\""},
           {"\"2024-01-02 03:04:05Z\"", "\"2024-01-02T24:00:00Z\""}},
          {R"({"type":"string","format":"ipv4"})",
           {"\"255.0.10.1\""},
           {"\"256.0.0.1\"", "\"1.2.3\"", "\"01.2.3.4\""}},
          {R"({"type":"string","format":"ipv6"})",
           {"\"::1\"", "\"1:2:3:4:5:6:7:8\"", "\"fe80::1:2\""},
           {"\"1::2::3\"", "\"1:2\""}},
          {R"({"type":"string","format":"uuid"})",
           {"\"123e4567-e89b-12d3-a456-426614174000\""},
           {"\"123e4567\""}},
          {R"({"type":"string","format":"email"})",
           {"\"a.b@example.org\"", quoted(std::string(64, 'a') + "@b")},
           {"\"a@@b\"", "\"a\"", "\".a@b\"", "\"a.@b\"", "\"a..b@c\"",
            quoted(std::string(65, 'a') + "@b"), quoted(dotted(40, 1) + "@b")}},
          {R"({"type":"string","format":"email","maxLength":255})",
           {"\"a.b@example.org\"", quoted(std::string(64, 'a') + "@" + std::string(63, 'b'))},
           {quoted(std::string(65, 'a') + "@b")}},
          {R"({"type":"string","format":"email","maxLength":100,"minLength":6})",
           {"\"a.b@example.org\"", quoted(std::string(63, 'a') + "@b"),
            quoted("a@" + std::string(63, 'b'))},
           {"\"a@b.c\"", quoted(std::string(65, 'a') + "@b"), quoted("a@" + std::string(64, 'b')),
            quoted("a@" + dotted(2, 63))}},
          {R"({"type":"string","format":"email","minLength":5,"maxLength":254})",
           {"\"a@b.c\"", "\"first.last@mail.example.org\""},
           {"\"a@b\""}},
          // Listed values: one that is written beside no length, one beside a small one.
          {R"({"format":"email","maxLength":200,"enum":[")" + dotted(30, 1) + "@" + dotted(2, 40) +
               R"(",")" + std::string(31, 'a') + R"(.b@c","a@b","@"]})",
           {quoted(dotted(30, 1) + "@" + dotted(2, 40)), quoted(std::string(31, 'a') + ".b@c"),
            "\"a@b\""},
           {"\"@\"", "\"b@a\""}},
          {R"({"allOf":[{"format":"email","maxLength":8},{"pattern":"^.{4}"}],"type":"string"})",
           {"\"ab@c.def\"", "\"ab@c\""},
           {"\"ab@cd.efg\"", "\"a@b\"", "\"abcd\""}},
          {R"({"type":"string","format":"date","maxLength":10})", {"\"2024-02-29\""}, {"\"\""}},
          {R"({"type":"string","format":"hostname","maxLength":64})",
           {quoted(dotted(32, 1)), quoted(std::string(63, 'a'))},
           {quoted(std::string(64, 'a')), quoted(dotted(33, 1)), "\"\""}},
          {R"({"type":"string","format":"hostname","maxLength":253})",
           {quoted(dotted(3, 63))},
           {quoted(dotted(4, 63))}},
          {R"({"type":"string","format":"email","pattern":"^.{3,100}$"})",
           {"\"a@b\"", "\"first.middle.lastname.of.a.person.with.names@example.org\""},
           {"\"ab\""}},
          {R"({"type":"string","format":"hostname","pattern":"\\.org$","maxLength":100})",
           {"\"a.org\""},
           {"\"a.com\"", "\".org\""}},
          {R"({"format":"hostname","enum":[")" + dotted(36, 1) + R"(.ip6.arpa","a..b"]})",
           {quoted(dotted(36, 1) + ".ip6.arpa")},
           {"\"a..b\""}},
          // At most 64 characters before the @.
          {R"({"format":"email","enum":[")" + std::string(64, 'a') + R"(@b.c","d@)" +
               dotted(3, 63) + R"("]})",
           {quoted(std::string(64, 'a') + "@b.c"), quoted("d@" + dotted(3, 63))},
           {"\"a@b.c\""}},
          // Names in other alphabets are written with "xn--".
          {R"({"type":"string","format":"idn-hostname"})",
           {"\"a-b.c-d-1\"", quoted(dotted(3, 32)), quoted(dotted(11, 11))},
           {"\"a--b\"", "\"xn--a\"", "\"-a\"", quoted(dotted(12, 11))}},
          {R"({"type":"string","format":"hostname"})",
           {quoted(dotted(34, 1)), quoted("a.b.c." + std::string(63, 'd') + ".com")},
           {quoted(dotted(128, 1))}},
          // 253 characters at most.
          {R"({"type":"string","format":"hostname"})",
           {"\"a\"", "\"a-1.example.org\"", quoted(dotted(3, 63)), quoted(dotted(9, 22))},
           {"\"\"", "\"a.\"", "\"-a\"", "\"a-.b\"", quoted(dotted(1, 64)), quoted(dotted(4, 63)),
            quoted(dotted(127, 1) + ".a")}},
          {R"({"type":"string","format":"uri-reference"})",
           {"\"\"", "\"/a/b?c#d\"", "\"a.json\"", "\"http://x/\"", "\"#\""},
           {"\"//[\"", "\"a b\"", "\"1:2\"", "\"%zz\""}},
          {R"({"type":"string","format":"json-pointer"})",
           {"\"\"", "\"/a~1b/0/\""},
           {"\"a\"", "\"/~2\"", "\"/~\""}},
          {R"({"type":"string","format":"relative-json-pointer"})",
           {"\"0#\"", "\"12/a\""},
           {"\"/a\"", "\"01\""}},
          {R"({"type":"string","format":"uri-template"})",
           {"\"http://x/{id}{?q,r*}\""},
           {"\"{\"", "\"{a b}\""}},
      });
}

TEST(Schema, Objects) {
  check(
      kSchema,
      {
          {R"({"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"string"}},"required":["b"]})",
           {R"({"a":1,"b":""})", R"({"b":"x","c":[1]})"},
           {R"({"a":1})", R"({"b":"","a":1})", R"({"a":1,"b":"","a":2})", R"({"b":"","b":1})"}},
          {R"({"type":"object","properties":{"a":{},"ab":{}},"additionalProperties":false})",
           {"{}", R"({"a":1})", R"({"ab":1})", R"({"a":1,"ab":2})"},
           {R"({"b":1})", R"({"abc":1})", R"({"":1})"}},
          {R"({"type":"object","properties":{"a":false},"additionalProperties":{"type":"integer"}})",
           {"{}", R"({"b":1})", R"({"aa":1,"":2})"},
           {R"({"a":1})", R"({"b":""})"}},
          {R"({"type":"object","required":["z"],"additionalProperties":{"type":"integer"}})",
           {R"({"z":1,"y":2})"},
           {"{}", R"({"z":""})"}},
          {R"({"type":"object","patternProperties":{"^x":{"type":"integer"},"y$":{"minimum":3}},"additionalProperties":false})",
           {R"({"x":1})", R"({"xy":3,"y":4})", R"({"y":"s"})"},
           {R"({"xy":2})", R"({"z":1})", R"({"x":"s"})"}},
          {R"({"type":"object","properties":{"x1":{"maximum":5}},"patternProperties":{"^x":{"type":"integer"}}})",
           {R"({"x1":5,"x2":9,"z":""})"},
           {R"({"x1":6})", R"({"x1":"s"})", R"({"x2":""})"}},
          {R"({"type":"object","propertyNames":{"pattern":"^[a-c]+$","maxLength":2}})",
           {R"({"ab":1,"c":2})"},
           {R"({"abc":1})", R"({"d":1})"}},
          {R"({"type":"object","minProperties":1})", {R"({"a":1})"}, {"{}"}},
          {R"({"type":"object","properties":{"a":{},"b":{},"c":{}},"minProperties":2,"maxProperties":2,"additionalProperties":false})",
           {R"({"a":1,"b":2})", R"({"b":1,"c":2})"},
           {R"({"a":1})", R"({"a":1,"b":2,"c":3})", "{}"}},
          {R"({"type":"object","maxProperties":1})", {"{}", R"({"a":1})"}, {R"({"a":1,"b":2})"}},
          {R"({"type":"object","properties":{"é\"":{"type":"null"}},"required":["é\""],"additionalProperties":false})",
           {R"({"é\"":null})", R"({"\u00e9\"":null})"},
           {R"({"é":null})"}},
      });
}

TEST(Schema, Arrays) {
  check(
      kSchema,
      {
          {R"({"type":"array","items":{"type":"integer"},"minItems":2,"maxItems":4})",
           {"[1,2]", "[1, 2, 3, 4]"},
           {"[1]", "[1,2,3,4,5]", "[]", "[1,\"\"]"}},
          {R"({"type":"array","prefixItems":[{"type":"integer"},{"type":"string"}],"items":false,"minItems":1})",
           {"[1]", "[1,\"a\"]"},
           {"[]", "[\"a\"]", "[1,\"a\",2]"}},
          {R"({"type":"array","items":[{"type":"integer"}],"additionalItems":{"type":"null"}})",
           {"[]", "[1]", "[1,null,null]"},
           {"[null]", "[1,2]"}},
          {R"({"type":"array","maxItems":0})", {"[]", "[ ]"}, {"[1]"}},
          {R"({"type":"array","items":false})", {"[]"}, {"[1]"}},
          {R"({"type":"array","uniqueItems":true,"maxItems":1})", {"[]", "[1]"}, {"[1,1]"}},
          {R"({"type":"array","prefixItems":[{},{},{}],"maxItems":2})",
           {"[1,2]", "[]"},
           {"[1,2,3]"}},
      });
}

TEST(Schema, Combinations) {
  check(
      kSchema,
      {
          {R"({"anyOf":[{"type":"string"},{"type":"integer","minimum":3}],"maximum":5})",
           {"\"\"", "4"},
           {"2", "6", "null"}},
          {R"({"oneOf":[{"type":"string"},{"type":"integer"},{"type":"object","properties":{"k":{"const":"x"}},"required":["k"]},{"type":"object","properties":{"k":{"const":"y"}},"required":["k"]}]})",
           {"\"\"", "1", R"({"k":"x"})", R"({"k":"y"})"},
           {"1.5", R"({"k":"z"})", "{}"}},
          {R"({"allOf":[{"properties":{"a":{"minimum":3}}},{"type":"object","properties":{"a":{"type":"integer"},"b":{}},"required":["a"]}],"required":["b"]})",
           {R"({"a":3,"b":1})"},
           {R"({"a":2,"b":1})", R"({"a":3})"}},
          {R"({"$ref":"#/$defs/t","$defs":{"t":{"type":"array","items":{"$ref":"#/$defs/t"}}}})",
           {"[]", "[[],[[]]]"},
           {"[1]"}},
          {R"({"$ref":"#node","$defs":{"n":{"$anchor":"node","type":"null"}}})", {"null"}, {"1"}},
          {R"({"$id":"http://x/y","$ref":"http://x/y#/$defs/a~1b","$defs":{"a/b":{"type":"null"}}})",
           {"null"},
           {"1"}},
          // References count from the schema with an $id that they stand in.
          {R"({"$ref":"#/$defs/a","$defs":{"a":{"$id":"http://x/a","$ref":"#/$defs/b","$defs":{"b":{"type":"string"}}},"b":{"type":"null"}}})",
           {"\"\""},
           {"null"}},
          {R"({"$ref":"http://x/a","$defs":{"c":{"$anchor":"b","type":"null"},"a":{"$id":"http://x/a","$ref":"#b","$defs":{"b":{"$anchor":"b","type":"string"}}}}})",
           {"\"\""},
           {"null"}},
          {R"({"$schema":"http://json-schema.org/draft-07/schema#","$ref":"#/definitions/a","definitions":{"a":{"$id":"http://x/a","$ref":"#/definitions/b"},"b":{"type":"null"}}})",
           {"null"},
           {"1"}},
          // An $id that names no place of its own.
          {R"({"$defs":{"a":{"type":"null"}},"properties":{"a":{"$id":"/properties/a","$ref":"#/$defs/a"}}})",
           {R"({"a":null})"},
           {R"({"a":1})"}},
          {R"({"$defs":{"a":{"type":"integer"}},"$ref":"#/$defs/a","minimum":3})", {"3"}, {"2"}},
          {R"({"$schema":"http://json-schema.org/draft-07/schema#","definitions":{"a":{"type":"integer"}},"properties":{"x":{"$ref":"#/definitions/a","minimum":3}}})",
           {R"({"x":1})"},
           {R"({"x":""})"}},
          {R"({"type":"object","properties":{"next":{"anyOf":[{"$ref":"#"},{"type":"null"}]}},"required":["next"],"additionalProperties":false})",
           {R"({"next":null})", R"({"next":{"next":null}})"},
           {"{}", R"({"next":{}})"}},
          // A property whose value cannot end is left out.
          {R"({"type":"object","properties":{"a":{"$ref":"#/$defs/never"},"b":{}},"additionalProperties":false,"$defs":{"never":{"type":"array","items":{"$ref":"#/$defs/never"},"minItems":1}}})",
           {"{}", R"({"b":1})"},
           {R"({"a":[]})"}},
          {R"({"title":"t","description":"d","default":1,"examples":[],"x-own":3,"comment":"not a keyword","type":"null"})",
           {"null"},
           {"1"}},
      });
}

TEST(Schema, Negations) {
  check(
      kSchema,
      {
          {R"({"not":{"type":["string","object"]}})", {"1", "null", "[]"}, {"\"\"", "{}"}},
          {R"({"type":"string","not":{"enum":["a","bb",1]}})",
           {"\"\"", "\"b\"", "\"aa\""},
           {"\"a\"", "\"bb\"", "1"}},
          {R"({"type":"number","not":{"const":2.50}})",
           {"2", "2.51", "-2.5", "25"},
           {"2.5", "2.50", "2.500"}},
          {R"({"type":["integer","boolean","null"],"not":{"enum":[0,true,null]}})",
           {"1", "-3", "false"},
           {"0", "true", "null"}},
          {R"({"type":"integer","not":{"minimum":3}})", {"2", "-9"}, {"3", "4"}},
          {R"({"type":"number","not":{"exclusiveMaximum":3}})", {"3", "3.5"}, {"2.9", "-4"}},
          {R"({"type":"integer","not":{"multipleOf":5}})", {"3", "-4"}, {"0", "5", "-10", "0.5"}},
          {R"({"type":"number","not":{"multipleOf":5},"maximum":9})",
           {"3", "-4", "0.5", "-7.25", "5.5"},
           {"0", "5", "5.0", "5.00", "-10", "0.0", "11", "9.5"}},
          {R"({"oneOf":[{"type":"number"},{"multipleOf":2}]})", {"3", "1.5", "\"\""}, {"4", "4.0"}},
          {R"({"type":"number","not":{"type":"integer"}})", {"1.5", "-0.25"}, {"1", "1.0", "-0"}},
          {R"({"type":"string","not":{"pattern":"^a"}})", {"\"\"", "\"ba\""}, {"\"ab\""}},
          {R"({"type":"string","not":{"minLength":3,"maxLength":5}})",
           {"\"ab\"", "\"abcdef\""},
           {"\"abc\"", "\"abcde\""}},
          {R"({"type":"object","not":{"required":["a"]}})",
           {"{}", R"({"b":1})"},
           {R"({"a":1})", R"({"b":1,"a":2})"}},
          {R"({"type":"object","properties":{"a":{},"b":{}},"not":{"required":["a","b"]}})",
           {"{}", R"({"a":1})", R"({"b":1,"c":2})"},
           {R"({"a":1,"b":2})"}},
          {R"({"type":"object","properties":{"a":{},"b":{}},"not":{"anyOf":[{"required":["a"]},{"required":["b"]}]}})",
           {"{}", R"({"c":2})"},
           {R"({"a":1})", R"({"b":2})"}},
          {R"({"properties":{"a":{"type":["integer","string"]}},"type":"object","not":{"properties":{"a":{"type":"string"}}}})",
           {R"({"a":1})"},
           {R"({"a":""})", "{}", R"({"b":1})"}},
          {R"({"type":"array","items":{"type":["integer","string"]},"not":{"items":{"type":"integer"}}})",
           {R"([""])", R"([1,"",2])"},
           {"[]", "[1,2]"}},
          {R"({"type":"array","not":{"maxItems":2}})", {"[1,2,3]"}, {"[]", "[1,2]"}},
          {R"({"not":{"not":{"type":"null"}}})", {"null"}, {"1"}},
          {R"({"type":"string","not":{"format":"date"},"maxLength":10})",
           {"\"2024-13-01\"", "\"\""},
           {"\"2024-12-01\""}},
          // Not all that has the format is known.
          {R"({"type":"string","not":{"format":"email"}})", {"\"a\""}, {"\"a@b\"", "\"ü@b\""}},
          {R"({"not":{"allOf":[{"type":"integer"},{"minimum":3}]}})", {"2", "\"\""}, {"3"}},
          {R"({"type":"integer","not":{"oneOf":[{"minimum":3},{"maximum":5}]}})",
           {"3", "4", "5"},
           {"2", "6"}},
          {R"({"$defs":{"s":{"type":"object","required":["x"]}},"not":{"$ref":"#/$defs/s"}})",
           {"1", "{}"},
           {R"({"x":1})"}},
      });
  check_refused(kSchema, {{R"({"not":{}})", MOE_ERR_RANGE, "no text satisfies it"},
                          {R"({"type":"string","not":{"format":"hostname"}})", MOE_ERR_UNSUPPORTED,
                           "#/not/format: a negation of a format"},
                          {R"({"type":"array","not":{"uniqueItems":true}})", MOE_ERR_UNSUPPORTED,
                           "#/not/uniqueItems: a negation"},
                          {R"({"type":"object","not":{"patternProperties":{"a":false}}})",
                           MOE_ERR_UNSUPPORTED, "#/not/patternProperties"},
                          {R"({"not":{"enum":[[1]]}})", MOE_ERR_UNSUPPORTED, "#/not/enum"}});
}

TEST(Schema, Conditions) {
  check(
      kSchema,
      {
          {R"({"type":"object","properties":{"kind":{"enum":["a","b"]},"n":{"type":"integer"}},"required":["kind"],"additionalProperties":false,"if":{"properties":{"kind":{"const":"a"}}},"then":{"required":["n"]},"else":{"properties":{"n":{"maximum":0}}}})",
           {R"({"kind":"a","n":5})", R"({"kind":"b"})", R"({"kind":"b","n":-1})"},
           {R"({"kind":"a"})", R"({"kind":"b","n":1})"}},
          {R"({"type":"integer","if":{"minimum":10},"then":{"multipleOf":10}})",
           {"3", "20"},
           {"15"}},
          {R"({"if":{"type":"string"},"else":{"type":"null"}})", {"\"\"", "null"}, {"1"}},
          {R"({"type":"null","then":false,"else":false})", {"null"}, {}},
          {R"({"$schema":"http://json-schema.org/draft-07/schema#","definitions":{"x":{}},"if":{"$ref":"#/definitions/x","type":"string"},"then":{"type":"integer"}})",
           {"3"},
           {"\"\"", "null"}},
          {R"({"type":"object","properties":{"a":{},"b":{},"c":{}},"dependentRequired":{"a":["b","c"]}})",
           {"{}", R"({"b":1})", R"({"a":1,"b":2,"c":3})"},
           {R"({"a":1})", R"({"a":1,"b":2})"}},
          {R"({"type":"object","properties":{"a":{},"b":{}},"dependencies":{"a":["b"],"b":["a"]}})",
           {"{}", R"({"a":1,"b":2})"},
           {R"({"a":1})", R"({"b":2})"}},
          {R"({"type":"object","properties":{"a":{},"b":{}},"dependentSchemas":{"a":{"properties":{"b":{"const":1}},"required":["b"]}}})",
           {"{}", R"({"b":2})", R"({"a":0,"b":1})"},
           {R"({"a":1})", R"({"a":0,"b":2})"}},
          {R"({"type":"array","contains":{"type":"null"}})",
           {"[null]", "[1,null,2,null]"},
           {"[]", "[1]"}},
          {R"({"type":"array","items":{"type":["null","integer"]},"contains":{"type":"null"},"minItems":2,"maxItems":3})",
           {"[null,1]", "[1,2,null]"},
           {"[null]", "[1,2]", "[1,2,3,null]"}},
          {R"({"type":"array","not":{"contains":{"type":"null"}}})", {"[]", "[1]"}, {"[1,null]"}},
      });
}

TEST(Schema, OneOfOptionsThatOverlap) {
  check(
      kSchema,
      {
          {R"({"oneOf":[{"type":"number"},{"type":"integer"}]})", {"1.5"}, {"1", "1.0", "\"\""}},
          {R"({"type":"object","properties":{"a":{},"b":{}},"oneOf":[{"required":["a"]},{"required":["b"]}]})",
           {R"({"a":1})", R"({"b":1,"c":2})"},
           {"{}", R"({"a":1,"b":2})"}},
          {R"({"oneOf":[{"type":"object","properties":{"a":{"type":"integer"}},"additionalProperties":false},{"type":"object","properties":{"b":{"type":"integer"}},"additionalProperties":false}]})",
           {R"({"a":1})", R"({"b":1})"},
           {"{}", R"({"a":1,"b":1})"}},
          {R"({"type":"integer","oneOf":[{"multipleOf":2},{"multipleOf":3},{"minimum":100}]})",
           {"2", "9", "101"},
           {"6", "102", "5"}},
      });
}

TEST(Schema, ValuesThatAreSchemas) {
  check(
      kSchema,
      {
          {R"({"enum":[{"a":1},{"a":"x"},{},[1,2],[1]],"properties":{"a":{"type":"integer"}},"required":["a"],"minItems":2})",
           {R"({"a":1})", "[1,2]"},
           {R"({"a":"x"})", "{}", "[1]"}},
          {R"({"allOf":[{"enum":[{"foo":1},{"bar":2},3]},{"not":{"properties":{"foo":{"type":"string"}}}}]})",
           {R"({"foo":1})"},
           {R"({"bar":2})", "3"}},
          {R"({"enum":[[1,1.0],[1,2],["a"]],"uniqueItems":true,"contains":{"const":1}})",
           {"[1,2]"},
           {"[1,1.0]", R"(["a"])"}},
          {R"({"enum":[2,2.0,5],"not":{"const":2}})", {"5"}, {"2", "2.0"}},
          {R"({"enum":["a","b",1],"oneOf":[{"type":"string"},{"const":"a"}],"if":{"const":1},"then":false})",
           {"\"b\""},
           {"\"a\"", "1"}},
          {R"({"enum":[{"a":1},{"a":1,"b":2}],"dependentRequired":{"a":["b"]},"propertyNames":{"maxLength":1}})",
           {R"({"a":1,"b":2})"},
           {R"({"a":1})"}},
      });
  check_refused(kSchema, {{R"({"enum":["\u00fc@x"],"not":{"format":"email"}})", MOE_ERR_UNSUPPORTED,
                           "#/not: cannot tell"}});
}

// The order of properties is that of the text, line by line.
TEST(Schema, OrderOfProperties) {
  const std::string defs = R"("$defs":{"x":{"properties":{"x":{}}},"y":{"properties":{"y":{}}}})";
  check(
      kSchema,
      {
          {R"({"allOf":[{"$ref":"#/$defs/x"},{"$ref":"#/$defs/y"}],"properties":{"own":{}},)" +
               defs + "}",
           {R"({"x":1,"y":1,"own":1})"},
           {R"({"own":1,"x":1})", R"({"y":1,"x":1})"}},
          {R"({"properties":{"own":{}},"$ref":"#/$defs/x","required":["z"],)" + defs + "}",
           {R"({"own":1,"x":1,"z":1})"},
           {R"({"x":1,"own":1,"z":1})", R"({"own":1,"z":1,"x":1})"}},
          {R"({"allOf":[{"$ref":"#/$defs/y"}],"anyOf":[{"$ref":"#/$defs/x"}],"properties":{"own":{}},)" +
               defs + "}",
           {R"({"y":1,"x":1,"own":1})"},
           {R"({"x":1,"y":1})", R"({"own":1,"x":1})"}},
      });
}

TEST(Schema, RefusalsNameThePath) {
  check_refused(
      kSchema,
      {
          {"", MOE_ERR_FORMAT, "JSON schema: JSON, byte 0"},
          {"{\"a\":1,\"a\":2}", MOE_ERR_FORMAT, "the name \"a\" twice"},
          {"[1]", MOE_ERR_FORMAT, "#: expected a schema"},
          {R"({"properties":{"a/b":{"unevaluatedProperties":{}}}})", MOE_ERR_UNSUPPORTED,
           "#/properties/a~1b/unevaluatedProperties: this keyword is not supported"},
          {R"({"allOf":[{},{"$dynamicRef":"#a"}]})", MOE_ERR_UNSUPPORTED,
           "#/allOf/1/$dynamicRef: this keyword"},
          {R"({"items":{"minContains":2}})", MOE_ERR_UNSUPPORTED, "#/items/minContains"},
          {R"({"type":"array","uniqueItems":true})", MOE_ERR_UNSUPPORTED, "#/uniqueItems"},
          {R"({"type":"string","maxlength":3})", MOE_ERR_UNSUPPORTED,
           "#/maxlength: not a keyword of JSON Schema; \"maxLength\" is"},
          {R"({"requred":[]})", MOE_ERR_UNSUPPORTED, "\"required\" is"},
          {R"({"type":"strin"})", MOE_ERR_FORMAT, "#/type: expected the name of a type"},
          {R"({"pattern":"a("})", MOE_ERR_FORMAT, "#/pattern: regular expression, byte 1"},
          {R"x({"pattern":"(?=a)"})x", MOE_ERR_UNSUPPORTED, "#/pattern"},
          {R"({"format":"colour"})", MOE_ERR_UNSUPPORTED, "#/format: an unknown format"},
          // Found first where two options are compared.
          {R"({"oneOf":[{"const":1},{"if":{"contains":{},"minContains":2},"then":{"type":"array"},"else":{"type":"string"}}]})",
           MOE_ERR_UNSUPPORTED, "#/oneOf/1/if/minContains: this keyword"},
          {R"({"$ref":"#/$defs/no"})", MOE_ERR_NOT_FOUND, "#/$ref: there is no such schema"},
          {R"({"$ref":"http://elsewhere/x.json"})", MOE_ERR_UNSUPPORTED,
           "#/$ref: a schema outside"},
          {R"({"minLength":-1})", MOE_ERR_FORMAT, "#/minLength"},
          {R"({"type":"number","multipleOf":0.1})", MOE_ERR_UNSUPPORTED, "#/multipleOf"},
          {R"({"oneOf":[{"format":"hostname"},{"maxLength":9}]})", MOE_ERR_UNSUPPORTED,
           "#/oneOf/0/format: a negation"},
          {R"({"properties":{"a":{"type":"string","nullable":true}}})", MOE_ERR_UNSUPPORTED,
           "#/properties/a/nullable"},
      });
}

TEST(Schema, SaysWhenNoTextSatisfies) {
  for (const char* schema :
       {"false", R"({"type":"integer","minimum":3,"maximum":2})",
        R"({"allOf":[{"type":"string"},{"type":"null"}]})",
        R"({"type":"object","properties":{"a":false},"required":["a"]})", R"({"enum":[]})",
        R"({"type":"string","minLength":3,"maxLength":2})",
        R"({"type":"array","minItems":2,"maxItems":1})",
        R"({"type":"object","properties":{"a":{"$ref":"#"}},"required":["a"]})",
        R"({"type":"string","pattern":"^a$","minLength":2})",
        R"({"type":"integer","exclusiveMinimum":1,"exclusiveMaximum":2})"}) {
    check_refused(kSchema, {{schema, MOE_ERR_RANGE, "no text satisfies it"}});
  }
}

TEST(Schema, HostileOnesEndSoon) {
  std::string deep;
  for (int i = 0; i < 255; ++i) deep += R"({"items":)";
  const Compiled ok(kSchema, deep.substr(0, 9 * 200) + "true" + std::string(200, '}'));
  EXPECT_TRUE(ok.status.ok()) << ok.status.text();
  check_refused(
      kSchema,
      {
          {std::string(100000, '['), MOE_ERR_FORMAT, "256 lists inside each other"},
          {std::string(20 << 20, ' '), MOE_ERR_TOO_LONG, "at most 16777216 bytes"},
          {R"({"pattern":")" + std::string(5 << 20, 'a') + "\"}", MOE_ERR_TOO_LONG,
           "#/pattern: grammar: more than 4194304 characters"},
          {R"({"type":"string","pattern":"(a?){1,1000}b(a?){1,1000}c|(x+x+)+y$","maxLength":1000})",
           MOE_ERR_UNSUPPORTED, "states"},
          {R"({"type":"string","pattern":"[ab]*a[ab]{30}","maxLength":99})", MOE_ERR_UNSUPPORTED,
           "states"},
      });
  // A choice of 2^20 combinations.
  std::string all = R"({"allOf":[)";
  for (int i = 0; i < 20; ++i) {
    const std::string n = std::to_string(i);
    all += (i > 0 ? "," : "") + std::string(R"({"anyOf":[{"required":["a)") + n +
           R"("]},{"required":["b)" + n + R"("]}]})";
  }
  check_refused(kSchema, {{all + "]}", MOE_ERR_TOO_LONG, ""}});
  // A cycle of references, each to the next.
  std::string defs;
  for (int i = 0; i < 2000; ++i) {
    defs += (i > 0 ? ",\"" : "\"") + std::to_string(i) + R"(":{"$ref":"#/$defs/)" +
            std::to_string((i + 1) % 90) + "\"}";
  }
  check_refused(kSchema, {{R"({"$ref":"#/$defs/0","$defs":{)" + defs + "}}", MOE_ERR_FORMAT,
                           "#/$defs/0: it leads back to itself"}});
}

// jsonschema recurses for ever.
TEST(Schema, ThatLeadBackToThemselves) {
  const std::string words = "it leads back to itself by $ref";
  for (const char* schema :
       {R"({"not":{"$ref":"#"}})", R"({"anyOf":[{"type":"string"},{"$ref":"#"}]})",
        R"({"if":{"$ref":"#"},"then":false})", R"({"allOf":[{"oneOf":[{"$ref":"#"}]}]})",
        R"({"dependentSchemas":{"a":{"$ref":"#"}}})"}) {
    check_refused(kSchema, {{schema, MOE_ERR_FORMAT, "#: " + words}});
  }
  check_refused(
      kSchema,
      {{R"({"items":{"$ref":"#/$defs/a"},"$defs":{"a":{"not":{"$ref":"#/$defs/b"}},"b":{"not":{"$ref":"#/$defs/a"}}}})",
        MOE_ERR_FORMAT, "#/$defs/a: " + words}});
  check(kSchema,
        {{R"({"type":"array","items":{"not":{"$ref":"#"}}})", {"[]", "[1]", "[[[]]]"}, {"[[]]"}}});
}

TEST(Schema, NamesChosenToCollide) {
  std::string members = R"({"type":"null","properties":{"x":true)";
  std::string rules = "root ::= \"a\"\n";
  for (int i = 0, n = 0; n < 600; ++i) {
    const std::string name = "n" + std::to_string(i);
    if ((hash_bytes(name) & 4095) != 0) continue;
    ++n;
    members += ",\"" + name + "\":true";
    rules += name + " ::= \"b\"\n";
  }
  check_refused(kSchema, {{members + "}}", MOE_ERR_TOO_LONG, "the same hash value"}});
  check_refused(Kind::kGbnf, {{rules, MOE_ERR_TOO_LONG, "the same hash value"}});
}

// The last of as many as are allowed is found.
TEST(Schema, ManyNamesThatCollide) {
  std::string members;
  std::string last;
  int n = 0;
  for (int i = 0; n < 498; ++i) {
    last = "n" + std::to_string(i);
    if ((hash_bytes(last) & 4095) != 0) continue;
    ++n;
    members += "\"" + last + "\":true,";
  }
  int n_refused = 0;
  for (int i = 0; n < 504; ++i) {
    const std::string name = "m" + std::to_string(i);
    if ((hash_bytes(name) & 4095) != 0) continue;
    ++n;
    const std::string schema = R"({"type":"object","properties":{)" + members + "\"" + name +
                               R"(":true},"additionalProperties":false,"required":[")" + name +
                               "\"]}";
    const Compiled compiled(kSchema, schema);
    n_refused += compiled.status.code() == MOE_ERR_TOO_LONG ? 1 : 0;
    if (compiled.status.code() != MOE_ERR_TOO_LONG) {
      check(kSchema, {{schema, {"{\"" + name + "\":1}"}, {"{}", R"({"z":1})"}}});
    }
    members += "\"" + name + "\":true,";
  }
  EXPECT_GT(n_refused, 0);
  EXPECT_LT(n_refused, 6);
}

// An $id or $anchor within data names nothing.
TEST(Schema, NamesThatAreData) {
  check(
      kSchema,
      {
          {R"({"default":{"$id":"http://x/a","const":5},"$ref":"http://x/a","$defs":{"a":{"$id":"http://x/a","const":7}}})",
           {"7"},
           {"5"}},
          {R"({"$ref":"#a","$defs":{"e":{"enum":[{"$anchor":"a","const":5}]},"a":{"$anchor":"a","const":7}}})",
           {"7"},
           {"5"}},
          {R"({"$ref":"#a","$defs":{"properties":{"$anchor":"a","const":7}},"properties":{"$anchor":{"const":"a"}}})",
           {"7"},
           {"5"}},
          // Draft 4 says id.
          {R"({"$schema":"http://json-schema.org/draft-04/schema#","$ref":"http://x/a","definitions":{"a":{"id":"http://x/a","allOf":[{"$ref":"#/definitions/b"}],"definitions":{"b":{"enum":[7]}}},"b":{"type":"null"}}})",
           {"7"},
           {"null"}},
          // Without if, then and else say nothing.
          {R"({"type":"null","then":{"$ref":"#"},"else":{"$ref":"#"}})", {"null"}, {"1"}},
      });
}

TEST(Schema, SmallOnesThatTakeLong) {
  const std::string old = R"({"$schema":"http://json-schema.org/draft-07/schema#",)";
  const auto pair = old + R"("$ref":"#/definitions/a","definitions":{)" +
                    R"("a":{"$ref":"#/definitions/b"},"b":{"$ref":"#/definitions/a"}}})";
  const auto options = [](const std::string& one, int n) {
    std::string list = R"({"anyOf":[)" + one;
    for (int i = 1; i < n; ++i) list += "," + one;
    return list + "]}";
  };
  std::string choices = R"({"$defs":{"d1":)" + options(R"({"type":"string"})", 300);
  for (const char* next : {"2", "3", "4"}) {
    const std::string before(1, static_cast<char>(next[0] - 1));
    choices +=
        std::string(",\"d") + next + "\":" + options(R"({"$ref":"#/$defs/d)" + before + "\"}", 300);
  }
  choices += R"(},"oneOf":[{"$ref":"#/$defs/d4"},{"type":"integer"}]})";
  check_refused(
      kSchema,
      {
          {pair, MOE_ERR_FORMAT, "it leads back to itself"},
          {old + R"("$ref":"#"})", MOE_ERR_FORMAT, "it leads back to itself"},
          {choices, MOE_ERR_TOO_LONG, "too long to compile"},
          {R"({"type":"string","minLength":1,"pattern":"(((){1048576}){1048576}){1048576}"})",
           MOE_ERR_UNSUPPORTED, "states"},
      });
  // Values against values, and the items of a list one after the other.
  const auto numbers = [](int from, int n) {
    std::string list = "[" + std::to_string(from);
    for (int i = 1; i < n; ++i) list += "," + std::to_string(from + i);
    return list + "]";
  };
  std::string lists = R"({"type":"array","prefixItems":[true)";
  for (int i = 1; i < 10000; ++i) lists += ",true";
  lists += "],\"anyOf\":[{}";
  for (int i = 1; i < 100; ++i) lists += ",{\"minItems\":" + std::to_string(i) + "}";
  check_refused(kSchema, {
                             {R"({"allOf":[{"enum":)" + numbers(0, 100000) + R"(},{"enum":)" +
                                  numbers(50000, 100000) + "}]}",
                              MOE_ERR_TOO_LONG, "too long to compile"},
                             {R"({"type":"number","not":{"enum":)" + numbers(1000000, 4000) + "}}",
                              MOE_ERR_TOO_LONG, "too long to compile"},
                             {lists + "]}", MOE_ERR_TOO_LONG, "too long to compile"},
                         });
  // A long reference, which is followed for each value.
  const std::string place(1 << 20, 'a');
  check_refused(kSchema, {{R"({"allOf":[{"$ref":"#/)" + place + R"("}],"enum":)" +
                               numbers(0, 20000) + ",\"" + place + "\":{}}",
                           MOE_ERR_TOO_LONG, "too long to compile"}});
  // The values of one keyword need no comparison with themselves.
  const Compiled many(kSchema, R"({"type":"integer","enum":)" + numbers(0, 20000) + "}");
  EXPECT_TRUE(many.status.ok()) << many.status.text();
}

}  // namespace
}  // namespace moe::grammar
