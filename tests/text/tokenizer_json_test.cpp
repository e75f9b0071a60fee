// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <sstream>

#include "tests/text/tokenizer_support.h"

namespace moe {
namespace {

std::string error_of(const Json& document) {
  const Status status = guarded([&] { (void)parse_tokenizer(document, "t.json"); });
  EXPECT_FALSE(status.ok());
  return status.text();
}

TEST(TokenizerJson, ReadsAndRuns) {
  const TokenizerData data = parse_tokenizer(bpe(), "t.json");
  EXPECT_EQ(data.prefix, std::vector<uint32_t>{4});
  EXPECT_EQ(data.unk_id, 3);
  check_tokenizer(data, 5);
  const auto loaded = load(data);
  EXPECT_EQ(encode(*loaded->tokenizer, "abz", true), (IdList{4, 2, 3}));
}

TEST(TokenizerJson, MergesAsLinesAndTwice) {
  Json d = bpe();
  d["model"]["merges"] = {"#version: 0.2", "a b"};
  EXPECT_EQ(parse_tokenizer(d, "t").merges, (std::vector<uint32_t>{0, 1, 2}));
  d["model"]["vocab"]["ba"] = 5;
  d["added_tokens"] = Json::array();
  d["post_processor"] = nullptr;
  d["model"]["merges"] = {"a b", "b a", "a b"};
  EXPECT_EQ(parse_tokenizer(d, "t").merges, (std::vector<uint32_t>{1, 0, 5, 0, 1, 2}))
      << "the last of two equal merges counts";
}

// Oddities that `tokenizers` accepts: the second of two equal added tokens is ignored, no text has
// an empty token.
TEST(TokenizerJson, RepeatedAndEmptyTokens) {
  Json d = bpe();
  d["added_tokens"][0]["id"] = 5;
  const Json first = d.at("added_tokens")[0];
  d["added_tokens"].push_back(first);
  d["model"]["vocab"][""] = 4;
  const TokenizerData data = parse_tokenizer(d, "t.json");
  ASSERT_EQ(data.warnings.size(), 1U);
  EXPECT_NE(data.warnings[0].find("is there twice"), std::string::npos) << data.warnings[0];
  const auto loaded = load(data);
  ASSERT_TRUE(loaded->status.ok()) << loaded->status.text();
  EXPECT_EQ(encode(*loaded->tokenizer, "ab" + first.at("content").get<std::string>()),
            (IdList{2, 5}));
  EXPECT_EQ(decode(*loaded->tokenizer, {2, 4}).substr(0, 2), "ab");
}

// The last of equal texts encodes, with its score; all decode.
TEST(TokenizerJson, UnigramTokensOfTheSameText) {
  const auto ids = [](double first, double last) {
    const Json d = {{"version", "1.0"},
                    {"model",
                     {{"type", "Unigram"},
                      {"unk_id", 0},
                      {"vocab", Json::array({Json::array({"<u>", 0.0}), Json::array({"a", -1.0}),
                                             Json::array({"b", -1.0}), Json::array({"ab", first}),
                                             Json::array({"ab", last}), Json::array({"", -2.0}),
                                             Json::array({"c", -1.0})})}}}};
    const TokenizerData data = parse_tokenizer(d, "t.json");
    EXPECT_EQ(data.warnings.size(), 1U);
    const auto loaded = load(data);
    EXPECT_TRUE(loaded->status.ok()) << loaded->status.text();
    EXPECT_EQ(decode(*loaded->tokenizer, {3, 4}), "ab ab");
    return encode(*loaded->tokenizer, "abc");
  };
  EXPECT_EQ(ids(-1.5, -9.0), (IdList{1, 2, 6}));
  EXPECT_EQ(ids(-9.0, -1.5), (IdList{4, 6}));
}

TEST(TokenizerJson, NamesWhatIsWrong) {
  const auto with = [](const char* pointer, const Json& value) {
    Json d = bpe();
    Json* at = &d;
    std::string key;
    for (std::istringstream path(pointer); std::getline(path, key, '/');) {
      at = at->is_array() ? &(*at)[std::stoul(key)] : &(*at)[key];
    }
    *at = value;
    return error_of(d);
  };
  const auto expect = [](const std::string& error, const char* part) {
    EXPECT_NE(error.find(part), std::string::npos) << error;
    EXPECT_EQ(error.find("t.json"), 0u) << error;
  };
  expect(with("model/type", "WordLevel"), "WordLevel");
  expect(with("model/vocab/b", 0), "same id 0");
  expect(with("model/vocab/b", -1), "expected an integer");
  expect(with("model/vocab/b", 1e9), "expected an integer");
  expect(with("model/vocab", Json::array()), "expected an object");
  expect(with("model/merges/0", "ab"), "merges[0]: expected two tokens");
  expect(with("model/merges/0", {"a", "z"}), "\"z\" is not in the vocabulary");
  expect(with("model/merges/0", {"b", "a"}), "\"ba\" is not in the vocabulary");
  expect(with("model/dropout", 0.1), "dropout");
  expect(with("added_tokens/0/id", 7), "its place in the vocabulary is 4");
  expect(with("added_tokens/0/special", 1), "special");
  expect(with("normalizer", {{"type", "Other"}}), "Other");
  expect(with("pre_tokenizer", {{"type", "UnicodeScripts"}}), "UnicodeScripts");
  expect(with("decoder", {{"type", "CTC"}}), "CTC");
  expect(with("post_processor/type", "Other"), "Other");
  expect(with("post_processor/single", Json::array()), "0 times");
  expect(with("post_processor/special_tokens", Json::object()), "\"<s>\" is missing");
  expect(with("version", "2.0"), "2.0");
  expect(error_of(Json::object()), "\"model\" is missing");
  Json nested = {{"type", "NFC"}};
  for (int i = 0; i < 40; ++i) nested = {{"type", "Sequence"}, {"normalizers", {nested}}};
  expect(with("normalizer", nested), "nested");
}

// The ids between two texts follow from the template for pairs, as does the second one's type.
TEST(TokenizerJson, PairsOfTexts) {
  Json d = bpe();
  Json& post = d["post_processor"];
  const auto token = [](int type) {
    return Json{{"SpecialToken", {{"id", "<s>"}, {"type_id", type}}}};
  };
  const auto text = [](const char* id, int type) {
    return Json{{"Sequence", {{"id", id}, {"type_id", type}}}};
  };
  const uint32_t id = parse_tokenizer(d, "t").prefix.at(0);
  const std::vector<uint32_t> one = {id}, two = {id, id}, none;
  post["single"] = {token(0), text("A", 0), token(0)};
  const auto check_pair = [&](const Json& pair, const std::vector<uint32_t>& between, bool second) {
    post["pair"] = pair;
    const TokenizerData data = parse_tokenizer(d, "t");
    EXPECT_EQ(data.between, between) << pair.dump();
    EXPECT_EQ(data.second_type, second) << pair.dump();
  };
  check_pair({token(0), text("A", 0), token(0), text("B", 1), token(1)}, one, true);
  check_pair({token(0), text("A", 0), token(0), token(0), text("B", 0), token(0)}, two, false);
  // Not as around one text, another order, other types.
  check_pair({text("A", 0), token(0), text("B", 1), token(1)}, none, false);
  check_pair({token(0), text("B", 0), token(0), text("A", 1), token(1)}, none, false);
  check_pair({token(0), text("A", 0), token(1), text("B", 1), token(1)}, none, false);
  check_pair({token(0), text("A", 0), token(0), text("B", 1), token(0)}, none, false);
  check_pair({token(0), text("A", 0), token(0), text("B", 2), token(2)}, none, false);
  post = {{"type", "BertProcessing"}, {"cls", {"<s>", id}}, {"sep", {"<s>", id}}};
  EXPECT_EQ(parse_tokenizer(d, "t").between, one);
  EXPECT_TRUE(parse_tokenizer(d, "t").second_type);
  post["type"] = "RobertaProcessing";
  const TokenizerData roberta = parse_tokenizer(d, "t");
  EXPECT_EQ(roberta.between, two);
  EXPECT_FALSE(roberta.second_type);
  const auto loaded = load(roberta);
  ASSERT_TRUE(loaded->status.ok()) << loaded->status.text();
  Array<int32_t> ids;
  TokenPair pair;
  ASSERT_TRUE(loaded->tokenizer->encode_pair("ab", "", false, 0, ids, &pair).ok());
  EXPECT_EQ(ids.size(), 5u);
  EXPECT_EQ(pair.second, 0u);
}

// Texts without tokens need room for the ids around them too, and give no second type.
TEST(TokenizerJson, PairsOfEmptyTexts) {
  Json d = bpe();
  const Json token = {{"SpecialToken", {{"id", "<s>"}, {"type_id", 0}}}};
  const Json a = {{"Sequence", {{"id", "A"}, {"type_id", 0}}}};
  const Json b = {{"Sequence", {{"id", "B"}, {"type_id", 1}}}};
  d["post_processor"]["single"] = {token, a};
  d["post_processor"]["pair"] = {token, a, token, b};
  const auto loaded = load(parse_tokenizer(d, "t"));
  ASSERT_TRUE(loaded->status.ok()) << loaded->status.text();
  const Tokenizer& tokenizer = *loaded->tokenizer;
  Array<int32_t> ids;
  TokenPair pair;
  EXPECT_EQ(tokenizer.encode_pair("", "", false, 1, ids, &pair).code(), MOE_ERR_TOO_LONG);
  EXPECT_EQ(ids.size(), 0u);
  ASSERT_TRUE(tokenizer.encode_pair("", "", false, 2, ids, &pair).ok());
  EXPECT_EQ(ids.size(), 2u);
  EXPECT_EQ(pair.second, 0u);
  EXPECT_EQ(pair.n_cut, 0u);
  ASSERT_TRUE(ids.resize(0).ok());
  ASSERT_TRUE(tokenizer.encode_pair("", "a", false, 3, ids, &pair).ok());
  EXPECT_EQ(ids.size(), 3u);
  EXPECT_EQ(pair.second, 2u);
}

// A short JSON can describe many ids.
TEST(TokenizerJson, IdsAroundATextAreBounded) {
  Json d = bpe();
  Json& post = d["post_processor"];
  post["special_tokens"]["<s>"]["ids"] = std::vector<int>(40, 4);
  EXPECT_EQ(parse_tokenizer(d, "t").prefix.size(), 40u);
  const Json piece = post["single"][0];
  for (int i = 0; i < 1000; ++i) post["single"].push_back(piece);
  EXPECT_NE(error_of(d).find("more than 64 ids"), std::string::npos);
  const Json pair = {{"type", "BertProcessing"}, {"cls", {"<s>", 4}}, {"sep", {"<s>", 4}}};
  post = {{"type", "Sequence"}, {"processors", std::vector<Json>(100, pair)}};
  EXPECT_NE(error_of(d).find("more than 64 ids"), std::string::npos);
}

// Tiny scores are digits divided by a power of ten, in two steps if the power is too large for one.
TEST(TokenizerJson, TinyScores) {
  const Json d = parse_json(
      R"({"version": "1.0", "model": {"type": "Unigram", "vocab": [["a", -1.25], ["b", -5e-324],
          ["c", 1.2345678901234567e-300], ["d", 0]]}})",
      "t");
  const TokenizerData data = parse_tokenizer(d, "t");
  EXPECT_EQ(data.scores[0], -1.25);
  EXPECT_EQ(data.scores[1], -5e-324);
  EXPECT_NEAR(data.scores[2] / 1.2345678901234567e-300, 1, 1e-15);
  EXPECT_EQ(data.scores[3], 0);
}

TEST(TokenizerJson, BadBase64) {
  Json d = bpe();
  d["normalizer"] = {{"type", "Precompiled"}, {"precompiled_charsmap", "AA*A"}};
  EXPECT_NE(error_of(d).find("base64"), std::string::npos);
}

TEST(TokenizerJson, CheckFindsWhatLoadingWould) {
  TokenizerData data = parse_tokenizer(bpe(), "t.json");
  EXPECT_NE(std::string(guarded([&] { check_tokenizer(data, 4); }).text()).find("5 tokens"),
            std::string::npos);
  data.pre_tokenizers.push_back(step("split"));
  EXPECT_FALSE(guarded([&] { check_tokenizer(data, 5); }).ok());
}

}  // namespace
}  // namespace moe
