// SPDX-License-Identifier: MIT
// Grammars of calls: whatever they let through is found as calls by the reader of replies, with
// arguments that satisfy the tools' schemas, in every format.

#include <gtest/gtest.h>

#include <map>

#include "formats/import/json.h"
#include "src/grammar/grammar.h"
#include "tests/grammar/support.h"
#include "tests/run/reply_calls.h"

namespace moe {
namespace {

using grammar::CallChoice;

constexpr const char* kWeather = R"({"type": "object", "properties": {
  "city": {"type": "string", "minLength": 1, "maxLength": 6}, "days": {"type": "integer", "minimum": -2, "maximum": 14},
  "unit": {"enum": ["c", "f", "5", 7]}, "deep": {"type": "object", "properties": {"a": {"type": "array",
  "items": {"type": ["string", "null"], "maxLength": 3}, "maxItems": 2}}, "additionalProperties": false}},
  "required": ["city"], "additionalProperties": false})";
constexpr const char* kStore = R"({"type": "object", "properties": {
  "any": {"anyOf": [{"type": "string", "maxLength": 4}, {"type": "integer", "minimum": 3, "maximum": 40}, {"type": "null"}]},
  "flag": {"type": "boolean"}, "word": {"$ref": "#/$defs/word"}},
  "required": ["any", "word"], "additionalProperties": false,
  "$defs": {"word": {"type": "string", "pattern": "^[0-9a-f<]{1,4}$"}}})";

std::string tool(const std::string& name, const std::string& schema, const std::string& strict) {
  return R"({"type": "function", "function": {"name": ")" + name + R"(", "parameters": )" + schema +
         (strict.empty() ? "" : ", \"strict\": " + strict) + "}}";
}

std::string tools() {
  return "[" + tool("weather", kWeather, "true") + ", " + tool("store", kStore, "true") + ", " +
         R"({"type": "function", "function": {"name": "now", "strict": true}}])";
}

/// A model's vocabulary: the characters of ASCII, those of the marks, and special tokens.
struct Vocabulary {
  explicit Vocabulary(const std::vector<std::string>& specials) : trie(system_allocator()) {
    TokenizerData data;
    data.kind = "bpe";
    data.decoders.emplace_back().kind = "byte_fallback";
    data.decoders.emplace_back().kind = "fuse";
    std::vector<std::string> pieces = {"a"};
    pieces.insert(pieces.end(), specials.begin(), specials.end());
    for (char c = '\t'; c < 0x7F; ++c) {
      if (c != 'a' && (c >= ' ' || c == '\n' || c == '\t')) pieces.emplace_back(1, c);
    }
    for (int b = 0x80; b < 0x100; ++b) {
      char piece[8];
      std::snprintf(piece, sizeof piece, "<0x%02X>", static_cast<unsigned>(b));
      pieces.emplace_back(piece);
    }
    for (const char* more : {"<tool", "\": \"", "{\"", "</", "\n</", "true"}) {
      pieces.emplace_back(more);
    }
    set_pieces(data, pieces);
    for (size_t i = 0; i < specials.size(); ++i) {
      data.added_ids.push_back(static_cast<int32_t>(i) + 1);
      data.added_flags.push_back(kAddedSpecial);
    }
    loaded = load(data);
    check(loaded->status);
    check(trie.create(*loaded->tokenizer));
  }

  std::unique_ptr<LoadedTokenizer> loaded;
  grammar::TokenTrie trie;
};

struct CallGrammar {
  CallGrammar(const std::string& format, const std::string& tools, const CallChoice& choice,
              const std::vector<std::string>& specials)
      : vocabulary(specials), grammar(vocabulary.trie, system_allocator()) {
    status = grammar.create_calls(*tool_format(templates().at(format)), tools, choice,
                                  *vocabulary.loaded->tokenizer);
  }

  /// A reply of random tokens behind `begin`, special ones spelled out; "" if it would take too
  /// many.
  std::string reply(uint64_t seed, const GivenReply& begin) {
    std::mt19937_64 random(seed);
    grammar::Matcher matcher(grammar);
    check(matcher.init());
    const Tokenizer& tokenizer = *vocabulary.loaded->tokenizer;
    std::string text = begin.text;
    take(begin, matcher);
    for (int n = 0; n < 3000; ++n) {
      if (matcher.must_end() || (matcher.may_end() && random() % 3 == 0)) return text;
      const grammar::TokenSet* allowed = nullptr;
      check(matcher.allowed(&allowed));
      std::vector<int32_t> tokens;
      std::vector<int32_t> halves;
      for (int32_t i = 0; i < tokenizer.n_vocab(); ++i) {
        if (!allowed->has(static_cast<size_t>(i))) continue;
        const std::string_view piece = tokenizer.piece(i);
        // The ends of parts are likelier, so that replies end.
        const bool likely = piece == "\"" || piece == "}" || piece == "]" || piece == "<" ||
                            tokenizer.is_special(i);
        const bool half = piece.starts_with("<0x") && piece.size() > 4;  // a character
        tokens.insert(tokens.end(), half ? 0 : likely ? 12 : 1, i);
        if (half) halves.push_back(i);
      }
      if (tokens.empty()) tokens = halves;
      if (tokens.empty()) {
        ADD_FAILURE() << "no token may follow " << text;
        return "";
      }
      const int32_t token = tokens[random() % tokens.size()];
      bool fits = false;
      check(matcher.accept(token, &fits));
      EXPECT_TRUE(fits);
      check(matcher.tidy());
      text += tokenizer.is_special(token) ? tokenizer.piece(token) : vocabulary.trie.text(token);
    }
    return "";
  }

  /// Takes a text whose special tokens are spelled out. False if it does not fit.
  static bool take(const GivenReply& reply, grammar::Matcher& matcher) {
    for (const ReplyToken& token : cut_reply(reply, 0, 3)) {
      bool fits = false;
      if (token.text.empty()) check(matcher.accept(token.id, &fits));
      if (!token.text.empty()) check(matcher.accept_text(token.text, &fits));
      if (!fits) return false;
    }
    return true;
  }

  /// Whether a reply is one of the grammar.
  bool accepts(const GivenReply& reply) {
    grammar::Matcher matcher(grammar);
    check(matcher.init());
    return take(reply, matcher) && matcher.may_end();
  }

  Vocabulary vocabulary;
  grammar::Grammar grammar;
  Status status;
};

std::vector<std::string> specials_of(const std::string& format) {
  if (format == "gpt-oss") {
    return {"<|start|>", "<|end|>",       "<|channel|>", "<|message|>",
            "<|call|>",  "<|constrain|>", "<|refusal|>"};
  }
  std::vector<std::string> specials = {"<|eos|>"};
  for (const std::string_view mark : tool_format(templates().at(format))->marks) {
    if (!mark.empty() && std::count(specials.begin(), specials.end(), mark) == 0) {
      specials.emplace_back(mark);
    }
  }
  return specials;
}

void check_arguments(const std::string& call, const std::string& where) {
  static const std::map<std::string, std::string> schemas = {
      {"weather", kWeather},
      {"store", kStore},
      {"now", R"({"type": "object", "maxProperties": 0})"}};
  static std::map<std::string, std::unique_ptr<grammar::Compiled>> compiled;
  const std::string name = parse_json(call, "call").at("name").get<std::string>();
  ASSERT_EQ(schemas.count(name), 1U) << where;
  auto& made = compiled[name];
  if (!made) {
    made = std::make_unique<grammar::Compiled>(grammar::Kind::kJsonSchema, schemas.at(name));
    ASSERT_TRUE(made->status.ok()) << made->status.text();
  }
  const size_t at = call.find("\"arguments\": ");
  const std::string arguments = call.substr(at + 13, call.size() - at - 14);
  EXPECT_TRUE(grammar::is_whole(made->grammar, arguments)) << arguments << "\nin " << where;
}

struct Counts {
  int replies = 0;
  int calls = 0;
};

// Random replies of a grammar, read as a reply is.
Counts check_replies(const std::string& format, const CallChoice& choice,
                     const std::vector<std::string>& specials, int n,
                     const std::string& begin = "") {
  Counts counts;
  CallGrammar made(format, tools(), choice, specials);
  EXPECT_TRUE(made.status.ok()) << format << ": " << made.status.text();
  if (!made.status.ok()) return counts;
  for (int seed = 0; seed < n; ++seed) {
    GivenReply given = {.chat_template = templates().at(format),
                        .tools = tools(),
                        .specials = specials,
                        .text = begin};
    const std::string text = made.reply(static_cast<uint64_t>(seed), given);
    if (text.empty()) continue;
    given.text = text;
    const FoundReply found = find_calls(given, static_cast<uint64_t>(seed), seed % 7 + 1);
    EXPECT_TRUE(found == find_calls(given, 0, 1 << 20)) << text;
    ++counts.replies;
    counts.calls += static_cast<int>(found.calls.size());
    if (choice.required) {
      EXPECT_EQ(found.content, "") << format << ": " << text;
      EXPECT_GE(found.calls.size(), 1U) << format << ": " << text;
    }
    if (choice.one) {
      EXPECT_EQ(found.calls.size(), 1U) << format << ": " << text;
    }
    for (const std::string& call : found.calls) {
      check_arguments(call, format + ": " + text);
      if (!choice.only.empty()) {
        EXPECT_EQ(parse_json(call, "call").at("name").get<std::string>(), choice.only) << text;
      }
    }
    if (testing::Test::HasFailure()) return counts;
  }
  return counts;
}

TEST(CallGrammar, RequiredCallsAreFoundAndSatisfyTheirSchemas) {
  for (const auto& [format, text] : templates()) {
    for (const bool special : {true, false}) {
      if (!special && format == "gpt-oss") continue;  // channels are told by tokens
      const auto specials = special ? specials_of(format) : std::vector<std::string>{"<|eos|>"};
      const Counts counts = check_replies(format, {.required = true}, specials, 30);
      EXPECT_GE(counts.replies, 20) << format;
      const Counts one =
          check_replies(format, {.required = true, .one = true, .only = "store"}, specials, 30);
      EXPECT_GE(one.calls, 20) << format;
    }
  }
}

TEST(CallGrammar, TextIsFreeAndCallsInItSatisfyTheirSchemas) {
  for (const auto& [format, text] : templates()) {
    std::string begin = "Well < " + std::string(tool_format(text)->marks[ToolFormat::kOpen]);
    if (format == "gpt-oss") begin = "<|channel|>commentary to=functions.";
    for (const bool special : {true, false}) {
      if (!special && format == "gpt-oss") continue;
      const auto specials = special ? specials_of(format) : std::vector<std::string>{"<|eos|>"};
      const Counts counts = check_replies(format, {}, specials, 30, begin);
      EXPECT_GE(counts.replies, 20) << format;
      EXPECT_GE(counts.calls, 15) << format;
    }
  }
}

// The reader joins the text around special tokens that mean nothing to it.
TEST(CallGrammar, SpecialTokensInsideHeaders) {
  const auto specials = specials_of("gpt-oss");
  CallGrammar made("gpt-oss", tools(), {}, specials);
  ASSERT_TRUE(made.status.ok()) << made.status.text();
  for (const std::string header :
       {"<|channel|>commentary to=func<|constrain|>tions.", "<|start|>t<|refusal|>o=functions.",
        "<|constrain|>to=functions.", "<|channel|><|end|>x to=functions<|call|>."}) {
    const std::string name = header + "weather<|channel|>commentary<|message|>";
    GivenReply reply = {.chat_template = templates().at("gpt-oss"),
                        .tools = tools(),
                        .specials = specials,
                        .text = name + "{\"city\": \"x\"}"};
    EXPECT_TRUE(made.accepts(reply)) << header;
    EXPECT_EQ(find_calls(reply, 0, 1 << 20).calls.size(), 1U) << header;
    reply.text = name + "{\"bad\": 1}";
    EXPECT_FALSE(made.accepts(reply)) << header;
    EXPECT_EQ(find_calls(reply, 0, 1 << 20).calls.size(), 1U) << header;  // it would be one
  }
  // Behind a message's mark there is no header that has begun before the reply.
  const GivenReply text = {
      .chat_template = templates().at("gpt-oss"),
      .tools = tools(),
      .specials = specials,
      .text = "<|message|>to=functions.weather<|channel|>commentary<|message|>{\"bad\": 1}"};
  EXPECT_TRUE(made.accepts(text));
  EXPECT_EQ(find_calls(text, 0, 1 << 20).calls.size(), 0U);
  const Counts counts = check_replies("gpt-oss", {}, specials, 200, "<|channel|>");
  EXPECT_GE(counts.replies, 150);
  EXPECT_GE(check_replies("gpt-oss", {}, specials, 30, "<|channel|>to=func<|refusal|>tions.").calls,
            15);
}

void refuses(const std::string& format, const std::string& tools, moe_status code,
             const std::string& why) {
  const CallGrammar made(format, tools, {}, specials_of(format));
  EXPECT_EQ(made.status.code(), code) << format;
  EXPECT_NE(std::string(made.status.text()).find(why), std::string::npos) << made.status.text();
}

// One strict tool holds the calls of all: more would be too many ways to go on.
TEST(CallGrammar, ManyTools) {
  const auto many = [](size_t n) {
    std::string list = "[" + tool("f0", kWeather, "true");
    for (size_t i = 1; i < n; ++i) list += ", " + tool("f" + std::to_string(i), "{}", "");
    return list + "]";
  };
  const std::pair<const char*, std::string> calls[] = {
      {"hermes", R"(<tool_call>{"arguments": {}, "name": "f1023"}</tool_call>)"},
      {"llama3", R"({"name": "f1023", "parameters": {}})"},
      {"qwen3-coder", "<tool_call>\n<function=f1023>\n</function>\n</tool_call>"},
      {"gpt-oss", "<|channel|>commentary to=functions.f1023<|message|>{}"}};
  for (const auto& [format, text] : calls) {
    refuses(format, many(1025), MOE_ERR_UNSUPPORTED,
            "tools[1024].function.name: expected at most 1024 tools");
    const auto specials = format == std::string("gpt-oss") ? specials_of(format)
                                                           : std::vector<std::string>{"<|eos|>"};
    CallGrammar made(format, many(1024), {}, specials);
    ASSERT_TRUE(made.status.ok()) << made.status.text();
    EXPECT_TRUE(made.accepts(
        {.chat_template = templates().at(format), .tools = {}, .specials = specials, .text = text}))
        << text;
  }
}

// Each of the schemas compiles; the time of all together is bounded.
TEST(CallGrammar, SchemasShareABound) {
  std::string schema = R"({"properties": {)";
  for (int i = 0; i < 100; ++i) schema += "\"p" + std::to_string(i) + R"(": {"$ref": "#a"}, )";
  schema += R"("q": true}, "examples": [0)";
  for (int i = 0; i < 100000; ++i) schema += ",0";
  schema += R"(], "$defs": {"a": {"$anchor": "a", "type": "null"}}})";  // each search goes to here
  const auto several = [&](int n) {
    std::string list;
    for (int i = 0; i < n; ++i) {
      list += (i == 0 ? "[" : ", ") + tool("f" + std::to_string(i), schema, "true");
    }
    return list + "]";
  };
  EXPECT_TRUE(CallGrammar("hermes", several(2), {}, {"<|eos|>"}).status.ok());
  refuses("hermes", several(40), MOE_ERR_TOO_LONG, "takes too long to compile");
}

// A header is kept up to 256 bytes.
TEST(CallGrammar, LongNamesInChannels) {
  const auto named = [](size_t n) { return "[" + tool(std::string(n, 'f'), "{}", "true") + "]"; };
  refuses("gpt-oss", named(129), MOE_ERR_UNSUPPORTED, "expected at most 128 bytes");
  const auto specials = specials_of("gpt-oss");
  CallGrammar made("gpt-oss", named(128), {}, specials);
  ASSERT_TRUE(made.status.ok()) << made.status.text();
  const GivenReply reply = {
      .chat_template = templates().at("gpt-oss"),
      .tools = named(128),
      .specials = specials,
      .text = "<|channel|>commentary to=functions." + std::string(128, 'f') + "<|message|>{}"};
  EXPECT_TRUE(made.accepts(reply));
  EXPECT_EQ(find_calls(reply, 0, 3).calls.size(), 1U);
}

// Numbers that no double holds would make a text of the call.
TEST(CallGrammar, NumbersAreFinite) {
  const std::string list =
      "[" +
      tool("f", R"({"type": "object", "properties": {"a": {}, "b": {"type": "integer"}}})",
           "true") +
      "]";
  const std::vector<std::pair<std::string, bool>> cases = {
      {"\"a\": 1e99", true},   {"\"a\": -2.5E+99", true},
      {"\"a\": 1e-400", true}, {"\"a\": " + std::string(200, '9') + "e99", true},
      {"\"a\": 1e400", false}, {"\"a\": " + std::string(400, '9'), false},
      {"\"b\": -7", true},     {"\"b\": " + std::string(400, '9'), false}};
  CallGrammar made("hermes", list, {.required = true}, specials_of("hermes"));
  ASSERT_TRUE(made.status.ok()) << made.status.text();
  for (const auto& [member, allowed] : cases) {
    const GivenReply reply = {
        .chat_template = templates().at("hermes"),
        .tools = list,
        .specials = specials_of("hermes"),
        .text = "<tool_call>{\"name\": \"f\", \"arguments\": {" + member + "}}</tool_call>"};
    EXPECT_EQ(made.accepts(reply), allowed) << member;
    EXPECT_EQ(find_calls(reply, 0, 3).calls.size(), allowed ? 1U : 0U) << member;
  }
}

// Names as the templates write them, in their order; what a mark cannot hold is not written.
TEST(CallGrammar, GemmasNotation) {
  const std::string schema = R"({"type": "object", "properties": {
    "b:c": {"type": "null"}, "B": {"enum": ["x", "<|\"|>", 5, {"k": ["y"]}]}, "a b": {"type": "array",
    "items": {"type": "string", "maxLength": 3}}}, "required": ["b:c"], "minProperties": 1,
    "additionalProperties": {"type": "boolean"}, "propertyNames": {"maxLength": 4}})";
  const auto list = [](const std::string& parameters) {
    return "[" + tool("f", parameters, "true") + "]";
  };
  const std::vector<std::pair<std::string, bool>> cases = {
      {R"({"b:c":null})", true},
      {R"({"b:c":None})", true},
      {R"({a b:["x"],B:"x","b:c":None})", true},
      {R"({a b:["","é,]"],"b:c":None,zz:true})", true},
      {R"({B:{"k":["y"]},"b:c":None})", false},
      {R"({B:{k:["y"]},"b:c":None})", true},
      {R"({B:5,"b:c":None})", true},
      {R"({B:"""x"","b:c":None})", false},
      {R"({B:x,"b:c":None})", false},
      {R"({"b:c":None,B:"x"})", false},
      {R"({ "b:c":None})", false},
      {R"({"b:c": None})", false},
      {R"({a b:["1234"],"b:c":None})", false},
      {R"({b:c:None})", false},
      {R"({"b:c":None,zz:1})", false},
      {R"({"b:c":None,zz:true,a b:["x"]})", false},
      {R"({"b:c":None,z<:true})", false},
      {R"({"b:c":None, z:true})", false},
      {R"({"b:c":None,zzzzz:true})", false}};
  for (const char* format : {"gemma4", "functiongemma"}) {
    const auto& marks = tool_format(templates().at(format))->marks;
    const std::string quote(marks[ToolFormat::kKeyOpen]);
    for (const bool special : {true, false}) {
      const auto specials = special ? specials_of(format) : std::vector<std::string>{"<|eos|>"};
      CallGrammar made(format, list(schema), {.required = true}, specials);
      ASSERT_TRUE(made.status.ok()) << made.status.text();
      for (const auto& [arguments, allowed] : cases) {
        GivenReply reply = {.chat_template = templates().at(format),
                            .tools = list(schema),
                            .specials = specials,
                            .text = std::string(marks[ToolFormat::kOpen]) + "call:f"};
        for (const char c : arguments) reply.text += c == '"' ? quote : std::string(1, c);
        reply.text += marks[ToolFormat::kClose];
        EXPECT_EQ(made.accepts(reply), allowed) << reply.text;
        if (allowed) {
          EXPECT_EQ(find_calls(reply, 0, 3).calls.size(), 1U) << reply.text;
        }
      }
    }
  }
  const std::string never =
      R"({"properties": {"<|\"|>": {}}, "required": ["<|\"|>"]})";  // a name that is a mark
  CallGrammar made("gemma4", list(never), {}, specials_of("gemma4"));
  EXPECT_EQ(made.status.code(), MOE_ERR_RANGE) << made.status.text();
}

// Properties in the order of their names' characters, as the reader of JSON's schemas expects them.
constexpr const char* kHostile[] = {
    R"({"type": "object", "properties": {"": {"type": "boolean"}, "a": {"type": "array",
      "items": {"type": "array", "items": {"type": "string"}, "maxItems": 2}, "maxItems": 2},
      "b,c": {"type": "object", "additionalProperties": {"type": "null"}}, "d": {"type": "integer"}},
      "required": ["", "a", "b,c", "d"], "additionalProperties": false})",
    R"({"type": "object", "properties": {"a": {"const": {"é": [1, null, "x\ny", {"": "}"}],
      "q\"": true}}, "z": {"type": "null"}, "é\n": {"enum": ["<|\"|", "<escape", "<tool_call|>", "",
      -0.5e-3, [], {}]}, "日": {"type": "null"}}, "required": ["a", "é\n"],
      "additionalProperties": {"type": "integer"}, "maxProperties": 4})",
    R"({"type": "object", "patternProperties": {"^x": {"type": "string", "format": "date"},
      "y$": {"type": "string", "pattern": "^[<|\">esc\\\\]*$", "maxLength": 9}},
      "additionalProperties": false, "minProperties": 1, "maxProperties": 3})",
    R"({"type": "object", "properties": {"k": {"$ref": "#/$defs/t"}}, "required": ["k"],
      "additionalProperties": false, "$defs": {"t": {"anyOf": [{"type": "null"}, {"type": "object",
      "properties": {"v": {"type": ["string", "integer"], "minLength": 2}, "w": {"$ref": "#/$defs/t"}},
      "required": ["v"], "additionalProperties": false}]}}})"};

// The reader finds arguments that satisfy the schema in what the grammar writes, wherever it is
// cut.
TEST(CallGrammar, GemmasNotationIsReadBack) {
  for (const char* format : {"gemma4", "functiongemma"}) {
    for (const bool special : {true, false}) {
      const auto specials = special ? specials_of(format) : std::vector<std::string>{"<|eos|>"};
      for (const char* schema : kHostile) {
        GivenReply given = {.chat_template = templates().at(format),
                            .tools = "[" + tool("f", schema, "true") + "]",
                            .specials = specials,
                            .text = ""};
        CallGrammar made(format, given.tools, {.required = true, .one = true}, specials);
        ASSERT_TRUE(made.status.ok()) << made.status.text();
        const grammar::Compiled json(grammar::Kind::kJsonSchema, schema);
        ASSERT_TRUE(json.status.ok()) << json.status.text();
        int n = 0;
        for (int seed = 0; seed < 8; ++seed) {
          given.text.clear();
          given.text = made.reply(static_cast<uint64_t>(seed), given);
          if (given.text.empty()) continue;
          ++n;
          const FoundReply found = find_calls(given, 0, seed % 7 + 1);
          ASSERT_EQ(found.calls.size(), 1U) << given.text;
          EXPECT_TRUE(found == find_calls(given, 0, 1 << 20)) << given.text;
          const std::string& call = found.calls[0];
          const size_t at = call.find("\"arguments\": ") + 13;
          const std::string arguments = call.substr(at, call.size() - at - 1);
          EXPECT_TRUE(grammar::is_whole(json.grammar, arguments)) << arguments << "\n"
                                                                  << given.text;
        }
        EXPECT_GE(n, 1) << schema;
      }
    }
  }
}

// As Jinja's dictsort does, names that differ in case alone stay in the order of the schema.
TEST(CallGrammar, GemmasNotationSortsNames) {
  GivenReply reply = {
      .chat_template = templates().at("gemma4"),
      .tools = "[" +
               tool("f", R"({"properties": {"é": {}, "b": {}, "C": {}, "B": {}, "a": {}},
        "required": ["a", "b", "B", "C", "é"], "additionalProperties": false})",
                    "true") +
               "]",
      .specials = specials_of("gemma4"),
      .text = ""};
  CallGrammar made("gemma4", reply.tools, {.required = true}, reply.specials);
  ASSERT_TRUE(made.status.ok()) << made.status.text();
  for (const auto& [arguments, allowed] :
       {std::pair("a:1,b:2,B:3,C:4,é:5", true), std::pair("a:1,B:3,b:2,C:4,é:5", false),
        std::pair("é:5,a:1,b:2,B:3,C:4", false)}) {
    reply.text = std::string("<|tool_call>call:f{") + arguments + "}<tool_call|>";
    EXPECT_EQ(made.accepts(reply), allowed) << arguments;
  }
}

// The calls that templates of real models write are allowed.
TEST(CallGrammar, AsTemplatesWriteCalls) {
  const Json golden = read_json_file("tests/data/chat/tool_calls.json");
  std::string tools = golden.at("tools").get<std::string>();
  for (size_t at = 0; (at = tools.find("\"parameters\"", at)) != std::string::npos;) {
    tools.insert(at, "\"strict\": true, ");
    at += 30;
  }
  // Some of the calls lack arguments that the tools require.
  for (size_t at = 0; (at = tools.find("\"required\": [", at)) != std::string::npos; ++at) {
    tools.replace(at, tools.find(']', at) + 1 - at, "\"required\": []");
  }
  std::map<std::string, int> seen;
  for (const Json& c : golden.at("cases")) {
    const auto format = c.at("format").get<std::string>();
    GivenReply reply = {.chat_template = templates().at(format),
                        .tools = tools,
                        .specials = {"<|eos|>"},
                        .text = c.at("text").get<std::string>()};
    for (const Json& special : c.at("specials"))
      reply.specials.push_back(special.get<std::string>());
    CallGrammar made(format, tools, {}, reply.specials);
    ASSERT_TRUE(made.status.ok()) << format << ": " << made.status.text();
    EXPECT_TRUE(made.accepts(reply)) << format << ": " << reply.text;
    ++seen[format];
  }
  EXPECT_GE(seen.size(), 11U);
}

}  // namespace
}  // namespace moe
