// SPDX-License-Identifier: MIT
// Tokenizers in GGUF files.

#include <gtest/gtest.h>

#include <set>

#include "formats/import/failure.h"
#include "src/convert/gguf/gguf_source.h"
#include "src/convert/tokenizer/tokenizer_json.h"
#include "src/text/characters/byte_level.h"
#include "src/text/characters/utf8.h"
#include "src/text/spec.h"
#include "tests/text/tokenizer_support.h"

namespace moe {
namespace {

// The metadata that llama.cpp's converter writes for a tokenizer.json.
Json as_gguf(const Json& tokenizer, const char* model, const char* pre) {
  const Json& vocab = tokenizer.at("model").at("vocab");
  size_t n = vocab.size();
  for (const Json& t : tokenizer.at("added_tokens"))
    n = std::max<size_t>(n, t.at("id").get<size_t>() + 1);
  Json tokens = Json::array(), types = Json::array(), merges = Json::array();
  for (size_t i = 0; i < n; ++i) {
    tokens.push_back("[PAD" + std::to_string(i) + "]");
    types.push_back(5);
  }
  for (const auto& [text, id] : vocab.items()) {
    tokens[id.get<size_t>()] = text;
    types[id.get<size_t>()] = text.starts_with("<0x") ? 6 : 1;
  }
  for (const Json& t : tokenizer.at("added_tokens")) {
    tokens[t.at("id").get<size_t>()] = t.at("content");
    types[t.at("id").get<size_t>()] = t.at("content") == "<unk>" ? 2 : 3;
  }
  for (const Json& m : tokenizer.at("model").at("merges")) {
    merges.push_back(m[0].get<std::string>() + " " + m[1].get<std::string>());
  }
  return {{"tokenizer.ggml.model", model},   {"tokenizer.ggml.pre", pre},
          {"tokenizer.ggml.tokens", tokens}, {"tokenizer.ggml.token_type", types},
          {"tokenizer.ggml.merges", merges}, {"tokenizer.ggml.bos_token_id", 1}};
}

TEST(GgufTokenizer, ByteLevelTokenizersEqualTheirSource) {
  for (const auto& [name, pre] : {std::pair{"gpt2", "gpt-2"},
                                  {"qwen2", "qwen2"},
                                  {"llama3", "llama-bpe"},
                                  {"llama3", "falcon3"},
                                  {"llama3", "pixtral"},
                                  {"llama3", "lfm2"},
                                  {"llama3", "falcon-h1"},
                                  {"o200k", "minimax-m2"},
                                  {"llama3", "glm4"}}) {
    const Json original =
        read_json_file("tests/data/text/" + std::string(name) + ".json").at("tokenizer");
    Json metadata = as_gguf(original, "gpt2", pre);
    metadata["tokenizer.ggml.add_bos_token"] = false;
    const TokenizerData found = parse_tokenizer(gguf_tokenizer(metadata), "found");
    const TokenizerData expected = parse_tokenizer(original, name);
    EXPECT_EQ(found.token_bytes, expected.token_bytes) << name;
    EXPECT_EQ(found.token_ends, expected.token_ends) << name;
    EXPECT_EQ(found.merges, expected.merges) << name;
    EXPECT_EQ(found.added_ids, expected.added_ids) << name;
    // A GGUF file does not say which added tokens are also in the vocabulary.
    ASSERT_EQ(found.added_flags.size(), expected.added_flags.size()) << name;
    for (size_t i = 0; i < found.added_flags.size(); ++i) {
      EXPECT_EQ(found.added_flags[i], expected.added_flags[i] | kAddedInModel) << name << " " << i;
    }
    EXPECT_EQ(found.ignore_merges, expected.ignore_merges) << name;
    ASSERT_EQ(found.pre_tokenizers.size(), expected.pre_tokenizers.size()) << name;
    for (size_t i = 0; i < found.pre_tokenizers.size(); ++i) {
      EXPECT_EQ(found.pre_tokenizers[i].kind, expected.pre_tokenizers[i].kind);
      EXPECT_EQ(found.pre_tokenizers[i].pattern, expected.pre_tokenizers[i].pattern);
    }
    EXPECT_EQ(found.normalizers.size(), expected.normalizers.size()) << name;
  }
}

// Splits off line ends, words, punctuation, trailing spaces and digits, in this order.
TEST(GgufTokenizer, CutsAsDeepseekDoes) {
  const Json metadata = {
      {"tokenizer.ggml.model", "gpt2"},
      {"tokenizer.ggml.pre", "deepseek-llm"},
      {"tokenizer.ggml.tokens",
       {"a", "b", "1", "2", "!", "Ġ", "Ċ", "ab", "12", "Ġa", "Ġ!", "a!", "ĠĠ", "Ċa", "!1"}},
      {"tokenizer.ggml.merges", {"a b", "1 2", "Ġ a", "Ġ !", "a !", "Ġ Ġ", "Ċ a", "! 1"}}};
  const auto loaded = load(parse_tokenizer(gguf_tokenizer(metadata), "deepseek"));
  ASSERT_TRUE(loaded->status.ok()) << loaded->status.text();
  EXPECT_EQ(encode(*loaded->tokenizer, "ab a!12 !\na  b  "),
            (IdList{7, 9, 4, 2, 3, 10, 6, 0, 5, 5, 1, 12}));
}

// The characters that stand for the bytes of a text in a byte-level vocabulary.
std::vector<std::string> byte_letters(std::string_view text) {
  std::vector<std::string> out;
  for (const char c : text) {
    char letter[4];
    out.emplace_back(letter, utf8_write(byte_to_character(static_cast<uint8_t>(c)), letter));
  }
  return out;
}

// A vocabulary with these words and merges that make each, letter by letter; before those, merges
// of the letters on both sides of every cut.
Json metadata_of(const char* pre, const std::vector<std::string>& words) {
  std::set<std::string> tokens;
  Json across = Json::array(), within = Json::array();
  std::string last;
  for (const std::string& word : words) {
    const std::vector<std::string> letters = byte_letters(word);
    tokens.insert(letters.begin(), letters.end());
    if (!last.empty() && tokens.insert(last + letters[0]).second) {
      across.push_back(last + " " + letters[0]);
    }
    last = letters.back();
  }
  for (const std::string& word : words) {
    std::string begin;
    for (const std::string& letter : byte_letters(word)) {
      const bool grows = !begin.empty() && tokens.insert(begin + letter).second;
      if (grows) within.push_back(begin + " " + letter);
      begin += letter;
    }
  }
  for (const Json& merge : within) across.push_back(merge);
  Json list = Json::array();
  for (const std::string& token : tokens) list.push_back(token);
  return {{"tokenizer.ggml.model", "gpt2"},
          {"tokenizer.ggml.pre", pre},
          {"tokenizer.ggml.tokens", list},
          {"tokenizer.ggml.merges", across}};
}

TEST(GgufTokenizer, CutsAsTheOriginalsDo) {
  const std::pair<const char*, std::vector<std::string>> cases[] = {
      {"tekken",
       {"Http", "By", " it", "'s", " ÉCOLE", " ", "1", "2", " /", "usr", "!\n", "你好ABc"}},
      {"deepseek-coder",
       {"HttpBy", " it", "'", "s", " ", "1", "2", " /", "usr", "!", "\n", "你好", "ABc"}},
      {"deepseek-v3", {"HttpBy", " it", "'s", " ", "123", "4", " /", "usr", "!\n", "你好", "ABc"}},
      {"qwen35", {"HttpBy", " it", "'s", " नमस्ते", " ", "1", "2", " /", "usr", "!\n", "你好ABc"}},
      {"kimi-k2", {"Http", "By", " it's", " ", "123", "4", " /", "usr", "!\n", "你好", "ABc"}}};
  for (const auto& [pre, words] : cases) {
    const auto loaded = load(parse_tokenizer(gguf_tokenizer(metadata_of(pre, words)), pre));
    ASSERT_TRUE(loaded->status.ok()) << loaded->status.text();
    std::string text;
    for (const std::string& word : words) text += word;
    std::vector<std::string> found;
    for (const int32_t id : encode(*loaded->tokenizer, text)) {
      found.push_back(decode(*loaded->tokenizer, {id}));
    }
    EXPECT_EQ(found, words) << pre;
  }
}

TEST(GgufTokenizer, AMissingPreTokenizerIsNamedWithItsFile) {
  Json metadata = metadata_of("tekken", {"ab"});
  metadata.erase("tokenizer.ggml.pre");
  const Status status = guarded([&] {
    gguf_tokenizer(
        metadata, [] {}, "m.gguf");
  });
  EXPECT_EQ(status.code(), MOE_ERR_UNSUPPORTED);
  const std::string text = status.text();
  EXPECT_TRUE(text.starts_with("m.gguf: tokenizer.ggml.pre is missing")) << text;
  for (const char* part : {"gguf-new-metadata --pre-tokenizer NAME", "llama-bpe", "smollm"}) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  }
}

TEST(GgufTokenizer, BosAndEosAroundAText) {
  const Json original = read_json_file("tests/data/text/llama3.json").at("tokenizer");
  const auto around = [&](const char* pre, const Json& keys) {
    Json metadata = as_gguf(original, "gpt2", pre);
    metadata["tokenizer.ggml.eos_token_id"] = 2;
    metadata.merge_patch(keys);
    const TokenizerData data = parse_tokenizer(gguf_tokenizer(metadata), "found");
    return std::pair(data.prefix, data.suffix);
  };
  const char* bos = "tokenizer.ggml.add_bos_token";
  const char* eos = "tokenizer.ggml.add_eos_token";
  using Ids = std::vector<uint32_t>;
  EXPECT_EQ(around("qwen2", Json::object()), (std::pair(Ids{}, Ids{})));
  EXPECT_EQ(around("llama-bpe", Json::object()), (std::pair(Ids{1}, Ids{})));
  EXPECT_EQ(around("llama-bpe", {{bos, false}}), (std::pair(Ids{}, Ids{})));
  EXPECT_EQ(around("qwen2", {{bos, true}, {eos, true}}), (std::pair(Ids{1}, Ids{2})));
  EXPECT_EQ(around("qwen2", {{eos, true}}), (std::pair(Ids{}, Ids{2})));
}

// Most files have a key only for the token that ends a text.
TEST(GgufTokenizer, StopsAtTheEndOfATurn) {
  const auto stops = [](const Json& tokens, const Json& keys) {
    Json metadata = {{"tokenizer.ggml.tokens", tokens}};
    metadata.merge_patch(keys);
    return gguf_stop_ids(JsonNode(metadata, "found"));
  };
  const char* eos = "tokenizer.ggml.eos_token_id";
  EXPECT_EQ(stops({"<eos>", "a", "<end_of_turn>", "</s>"}, {{eos, 0}}), (Json{0, 2}));
  EXPECT_EQ(stops({"<eos>", "<turn|>", "<tool_response|>", "<|tool_response>"}, {{eos, 0}}).size(),
            3U);
  EXPECT_EQ(stops({"<|im_end|>", "<|endoftext|>", "a"}, {{eos, 1}}), (Json{1, 0}));
  EXPECT_EQ(stops({"a", "<|end|>", "b"}, {{eos, 2}}), (Json{2, 1}));
  const char* eot = "tokenizer.ggml.eot_token_id";
  EXPECT_EQ(stops({"a", "<|eot_id|>", "b"}, {{eos, 2}, {eot, 1}}), (Json{2, 1}));
  EXPECT_EQ(stops({"a", "b"}, Json::object()), Json::array());
  // A message of gpt-oss ends here, but not its turn.
  EXPECT_EQ(stops({"<|end|>", "<|call|>", "<|return|>"}, {{eos, 2}}), (Json{2, 1}));
}

// The line end behind "<|user|>" belongs to it, as in Phi-3's own tokenizer.
TEST(GgufTokenizer, Phi3TokensTakeTheSpaceBehindThem) {
  Json metadata = {
      {"tokenizer.ggml.model", "gpt2"},
      {"tokenizer.ggml.pre", "gpt-2"},
      {"tokenizer.ggml.tokens", {"a", "Ċ", "<|user|>", "<|endoftext|>", "</s>", "<|x|>"}},
      {"tokenizer.ggml.token_type", {1, 1, 3, 3, 3, 4}},
      {"tokenizer.ggml.merges", Json::array()}};
  const auto ids = [&](const char* name) {
    metadata["general.name"] = name;
    const auto loaded = load(parse_tokenizer(gguf_tokenizer(metadata), name));
    EXPECT_TRUE(loaded->status.ok()) << loaded->status.text();
    return encode(*loaded->tokenizer, "<|user|>\na<|endoftext|>\n</s>\n<|x|>\na");
  };
  const IdList stripped = {2, 0, 3, 1, 4, 5, 0}, whole = {2, 1, 0, 3, 1, 4, 1, 5, 1, 0};
  EXPECT_EQ(ids("Phi3"), stripped);
  EXPECT_EQ(ids("microsoft Phi-3-mini"), stripped);
  EXPECT_EQ(ids("phi"), whole);
}

// SentencePiece tokens with scores: the order of the scores is the order of the merges.
TEST(GgufTokenizer, ScoresGiveTheMerges) {
  const Json original = read_json_file("tests/data/text/llama2.json").at("tokenizer");
  Json metadata = as_gguf(original, "llama", "default");
  Json scores = Json::array();
  for (size_t i = 0; i < metadata.at("tokenizer.ggml.tokens").size(); ++i)
    scores.push_back(-1000.0);
  const Json& merges = original.at("model").at("merges");
  for (size_t i = merges.size(); i-- > 0;) {
    const std::string joined = merges[i][0].get<std::string>() + merges[i][1].get<std::string>();
    scores[original.at("model").at("vocab").at(joined).get<size_t>()] = -static_cast<double>(i);
  }
  metadata["tokenizer.ggml.scores"] = scores;
  const TokenizerData found = parse_tokenizer(gguf_tokenizer(metadata), "found");
  const TokenizerData expected = parse_tokenizer(original, "llama2");
  EXPECT_EQ(found.token_bytes, expected.token_bytes);
  EXPECT_EQ(found.prefix, expected.prefix);
  EXPECT_EQ(found.unk_id, expected.unk_id);
  EXPECT_TRUE(found.byte_fallback);
  // Every trained merge is found, in order; other ways to split a token may come between them.
  size_t at = 0;
  for (size_t i = 0; i + 2 < expected.merges.size(); i += 3) {
    const auto* want = &expected.merges[i];
    while (at + 2 < found.merges.size() && !std::equal(want, want + 3, &found.merges[at])) at += 3;
    ASSERT_LT(at + 2, found.merges.size()) << "merge " << i / 3;
  }
  metadata["tokenizer.ggml.scores"] = Json(std::vector<double>(scores.size(), -1000.0));
  EXPECT_FALSE(guarded([&] { gguf_tokenizer(metadata); }).ok());
}

// Gemma 4's have scores that say nothing, and list their merges.
TEST(GgufTokenizer, Gemma4ListsItsMerges) {
  const Json original = read_json_file("tests/data/text/llama2.json").at("tokenizer");
  Json metadata = as_gguf(original, "gemma4", "gemma4");
  const size_t n = metadata.at("tokenizer.ggml.tokens").size();
  metadata["tokenizer.ggml.scores"] = Json(std::vector<double>(n, -1000.0));
  metadata["tokenizer.ggml.add_space_prefix"] = false;
  const TokenizerData found = parse_tokenizer(gguf_tokenizer(metadata), "found");
  const TokenizerData expected = parse_tokenizer(original, "llama2");
  EXPECT_EQ(found.token_bytes, expected.token_bytes);
  EXPECT_EQ(found.merges, expected.merges);
  EXPECT_TRUE(found.byte_fallback);
}

// A SentencePiece vocabulary of these tokens and "a" to "z".
Json scored(std::vector<std::string> tokens) {
  for (char c = 'a'; c <= 'z'; ++c) tokens.emplace_back(1, c);
  std::vector<double> scores;
  for (size_t i = 0; i < tokens.size(); ++i) scores.push_back(-static_cast<double>(i));
  return {{"tokenizer.ggml.model", "llama"},
          {"tokenizer.ggml.tokens", tokens},
          {"tokenizer.ggml.scores", scores}};
}

// The expected merges: every split of a token at a character into two other tokens.
TEST(GgufTokenizer, EveryWayToCutATokenIsAMerge) {
  std::vector<std::string> tokens = {"\u00e9\u00e8", "\u00e9", "\u00e8", "\xC3\xA9\xC3"};
  for (uint32_t i = 3; i < 2000; i += i % 7) {  // words of a and b
    std::string word;
    for (uint32_t bits = i; bits > 1; bits /= 2) word += bits % 2 == 0 ? "a" : "b";
    if (word.size() > 1) tokens.push_back(word);
  }
  const Json metadata = scored(tokens);
  const auto all = metadata.at("tokenizer.ggml.tokens").get<std::vector<std::string>>();
  const std::set<std::string> known(all.begin(), all.end());
  Json expected = Json::array();
  for (const std::string& token : all) {
    for (size_t cut = token.size(); cut-- > 1;) {
      const std::string left = token.substr(0, cut), right = token.substr(cut);
      if ((token[cut] & 0xC0) == 0x80 || !known.contains(left) || !known.contains(right)) continue;
      expected.push_back({left, right});
    }
  }
  EXPECT_GT(expected.size(), 100u);
  EXPECT_EQ(gguf_tokenizer(metadata).at("model").at("merges"), expected);
}

// If each split cost time in proportion to the length of its parts, 4 MB would take hours.
TEST(GgufTokenizer, LongTokensAreReadInBoundedTime) {
  const std::string a(4'000'000, 'a');
  const Json found = gguf_tokenizer(scored({a, a + "b", "aa", a + "bc"})).at("model").at("merges");
  ASSERT_EQ(found.size(), 3u);
  EXPECT_TRUE(found[0] == Json::array({a, "b"}));
  EXPECT_TRUE(found[1] == Json::array({"a", "a"}));
  EXPECT_TRUE(found[2] == Json::array({a + "b", "c"}));
}

TEST(GgufTokenizer, TokensWithTooManyMergesAreRefused) {
  std::vector<std::string> tokens;
  for (size_t n = 2; n < 1200; ++n) tokens.emplace_back(n, 'a');
  const Status status = guarded([&] { gguf_tokenizer(scored(tokens)); });
  EXPECT_EQ(status.code(), MOE_ERR_FORMAT);
  EXPECT_NE(std::string(status.text()).find("cut in two in more ways"), std::string::npos)
      << status.text();
}

std::string warnings_of(const Json& metadata, Json* out) {
  std::string warnings;
  *out = gguf_tokenizer(
      metadata, [] {}, "m.gguf", [&](const std::string& text) { warnings += text + "\n"; });
  return warnings;
}

// Byte-level: the first encodes, all decode.
TEST(GgufTokenizer, TheFirstOfEqualTextsEncodes) {
  const Json metadata = {{"tokenizer.ggml.model", "gpt2"},
                         {"tokenizer.ggml.pre", "gpt-2"},
                         {"tokenizer.ggml.tokens",
                          {"a", "b", "ab", "ab", "<p>", "<p>", "", "", "b", "<", "<q>", "<q>"}},
                         {"tokenizer.ggml.token_type", {1, 1, 1, 1, 3, 3, 1, 5, 1, 1, 1, 3}},
                         {"tokenizer.ggml.merges", {"a b"}}};
  Json json;
  const std::string warnings = warnings_of(metadata, &json);
  EXPECT_NE(warnings.find("m.gguf: tokenizer.ggml.tokens has 4 tokens with the text of another"),
            std::string::npos)
      << warnings;
  const auto loaded = load(parse_tokenizer(json, "found"));
  ASSERT_TRUE(loaded->status.ok()) << loaded->status.text();
  const Tokenizer& t = *loaded->tokenizer;
  EXPECT_EQ(encode(t, "abb<p>"), (IdList{2, 1, 4}));
  EXPECT_EQ(encode(t, "<q>"), (IdList{11})) << "the special one is found in a text";
  EXPECT_EQ(decode(t, {3, 8, 2, 10, 6, 7}), "abbab<q>");
  EXPECT_EQ(decode(t, {5, 4, 11}), "<p><p><q>");
  EXPECT_TRUE(t.is_special(5) && t.is_special(4) && !t.is_special(3));
  EXPECT_EQ(t.token_id("ab"), 2);
}

// SentencePiece: the one with the better score.
TEST(GgufTokenizer, TheBestScoreOfEqualTextsEncodes) {
  Json metadata = scored({"ab", "ab", "x", "ab"});
  metadata["tokenizer.ggml.scores"][0] = -100.0;
  metadata["tokenizer.ggml.scores"][1] = -3.0;
  metadata["tokenizer.ggml.add_space_prefix"] = false;
  Json json;
  EXPECT_NE(warnings_of(metadata, &json).find("3 tokens with the text"), std::string::npos);
  const auto loaded = load(parse_tokenizer(json, "found"));
  ASSERT_TRUE(loaded->status.ok()) << loaded->status.text();
  EXPECT_EQ(encode(*loaded->tokenizer, "abx"), (IdList{1, 2}))
      << "ids 0, 3 and the other x only decode";
  EXPECT_EQ(decode(*loaded->tokenizer, {0, 1, 3, 2}), "abababx");
}

// Every pair of types with one text loads and decodes. A user-defined token is found in a text
// whatever else has its text, then a special one, then the first.
TEST(GgufTokenizer, AnyTwoTypesMayHaveOneText) {
  const auto rank = [](int type) { return type == 4 ? 2 : type == 2 || type == 3 ? 1 : 0; };
  for (const char* model : {"gpt2", "llama"}) {
    for (int first = 1; first <= 6; ++first) {
      for (int second = 1; second <= 6; ++second) {
        const Json metadata = {{"tokenizer.ggml.model", model},
                               {"tokenizer.ggml.pre", "gpt-2"},
                               {"tokenizer.ggml.add_space_prefix", false},
                               {"tokenizer.ggml.tokens", {"a", "x", "x", "b"}},
                               {"tokenizer.ggml.token_type", {1, first, second, 1}},
                               {"tokenizer.ggml.scores", {0, 0, 0, 0}},
                               {"tokenizer.ggml.merges", Json::array()}};
        const std::string what =
            std::string(model) + " " + std::to_string(first) + " " + std::to_string(second);
        Json json;
        const Status status = guarded([&] { warnings_of(metadata, &json); });
        ASSERT_TRUE(status.ok()) << what << ": " << status.text();
        const auto loaded = load(parse_tokenizer(json, "found"));
        ASSERT_TRUE(loaded->status.ok()) << what << ": " << loaded->status.text();
        const Tokenizer& t = *loaded->tokenizer;
        if (first == 5 && second == 5) continue;
        const bool later = first == 5 || (second != 5 && rank(second) > rank(first));
        EXPECT_EQ(encode(t, "axb"), (IdList{0, later ? 2 : 1, 3})) << what;
        EXPECT_EQ(decode(t, {1}) + decode(t, {2}), first == 5 || second == 5 ? "x" : "xx") << what;
      }
    }
  }
}

TEST(GgufTokenizer, MergesWithoutTokensAreLeftOut) {
  const Json metadata = {{"tokenizer.ggml.model", "gpt2"},
                         {"tokenizer.ggml.pre", "gpt-2"},
                         {"tokenizer.ggml.tokens", {"a", "b", "ab"}},
                         {"tokenizer.ggml.merges", {"a a", "a b", "ab", "z a", ""}}};
  Json json;
  const std::string warnings = warnings_of(metadata, &json);
  EXPECT_EQ(warnings,
            "m.gguf: tokenizer.ggml.merges has 4 merges of texts that are no tokens; they are left "
            "out ([0], "
            "\"a a\")\n");
  EXPECT_EQ(json.at("model").at("merges"), (Json{"a b"}));
  EXPECT_EQ(encode(*load(parse_tokenizer(json, "found"))->tokenizer, "aab"), (IdList{0, 2}));
}

TEST(GgufTokenizer, OddTypesAreNormalOnes) {
  const Json metadata = {{"tokenizer.ggml.model", "gpt2"},
                         {"tokenizer.ggml.pre", "gpt-2"},
                         {"tokenizer.ggml.tokens", {"a", "b", "c"}},
                         {"tokenizer.ggml.token_type", {-1, 77, 0}},
                         {"tokenizer.ggml.merges", Json::array()}};
  Json json;
  EXPECT_NE(warnings_of(metadata, &json).find("2 values of tokenizer.ggml.token_type"),
            std::string::npos);
  EXPECT_EQ(json.at("model").at("vocab").size(), 3U);
}

TEST(GgufTokenizer, ErrorsNameTheKeyAndTheWayOut) {
  const Json good = {{"tokenizer.ggml.model", "gpt2"},
                     {"tokenizer.ggml.pre", "gpt-2"},
                     {"tokenizer.ggml.tokens", {"a", "b"}},
                     {"tokenizer.ggml.merges", Json::array()}};
  const std::pair<const char*, Json> cases[] = {
      {"tokenizer.ggml.token_type has 1 entries", {{"tokenizer.ggml.token_type", {1}}}},
      {"tokenizer.ggml.scores is missing",
       {{"tokenizer.ggml.model", "llama"}, {"tokenizer.ggml.merges", nullptr}}},
      {"tokenizer.ggml.model \"t5\"", {{"tokenizer.ggml.model", "t5"}}},
      {"tokenizer.ggml.pre \"new\" is not known", {{"tokenizer.ggml.pre", "new"}}}};
  for (const auto& [text, patch] : cases) {
    Json metadata = good;
    metadata.merge_patch(patch);
    const Status status = guarded([&] {
      gguf_tokenizer(
          metadata, [] {}, "m.gguf");
    });
    EXPECT_FALSE(status.ok()) << text;
    for (const char* part : {"m.gguf: ", text, "--ignore-key tokenizer.ggml.model"}) {
      EXPECT_NE(std::string(status.text()).find(part), std::string::npos) << status.text();
    }
  }
}

TEST(GgufTokenizer, ReadingCanBeCancelled) {
  int left = 2;
  const Status status = guarded([&] {
    gguf_tokenizer(scored({std::string(100, 'a')}), [&] {
      if (--left == 0) fail(MOE_ERR_CANCELLED, "cancelled");
    });
  });
  EXPECT_EQ(status.code(), MOE_ERR_CANCELLED);
}

}  // namespace
}  // namespace moe
