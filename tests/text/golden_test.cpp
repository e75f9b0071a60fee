// SPDX-License-Identifier: MIT
// Compares with stored results of the package `tokenizers` (compare_with_tokenizers.py --golden).
#include <gtest/gtest.h>

#include "src/text/stream_decoder.h"
#include "tests/text/tokenizer_support.h"

namespace moe {
namespace {

class Golden : public testing::TestWithParam<const char*> {};

std::string stream(const Tokenizer& tokenizer, const IdList& ids) {
  StreamDecoder decoder(tokenizer, false, system_allocator());
  std::string all;
  for (const int32_t id : ids) {
    String text;
    check(decoder.push(id, text));
    all += text.view();
  }
  String text;
  check(decoder.finish(text));
  return all + std::string(text.view());
}

TEST_P(Golden, SameIdsAndText) {
  const Json golden = read_json_file(std::string("tests/data/text/") + GetParam() + ".json");
  const auto loaded = load(parse_tokenizer(golden.at("tokenizer"), GetParam()));
  ASSERT_TRUE(loaded->status.ok()) << loaded->status.text();
  const Tokenizer& tokenizer = *loaded->tokenizer;
  size_t n_ids = 0;
  for (const Json& c : golden.at("cases")) {
    const auto line = c.at("line").get<std::string>();
    const auto ids = c.at("ids").get<IdList>();
    EXPECT_EQ(encode(tokenizer, line, true, true), ids) << line;
    EXPECT_EQ(encode(tokenizer, line, false, false), c.at("plain").get<IdList>()) << line;
    EXPECT_EQ(stream(tokenizer, ids), decode(tokenizer, ids)) << line;
    const auto full = c.at("full").get<std::string>();
    if (full.find("\xEF\xBF\xBD") ==
        std::string::npos) {  // invalid characters are decoded differently
      EXPECT_EQ(decode(tokenizer, ids), full);
      EXPECT_EQ(decode(tokenizer, ids, true), c.at("text").get<std::string>());
    }
    n_ids += ids.size();
  }
  EXPECT_GT(n_ids, 300u);
}

// Long texts use other code: a heap of merges, a cache of words, chunks.
TEST_P(Golden, LongTextIsItsLines) {
  const Json golden = read_json_file(std::string("tests/data/text/") + GetParam() + ".json");
  const auto loaded = load(parse_tokenizer(golden.at("tokenizer"), GetParam()));
  ASSERT_TRUE(loaded->status.ok()) << loaded->status.text();
  std::string text;
  for (int i = 0; i < 300; ++i) text += "word" + std::to_string(i % 40) + " is here. ";
  text.pop_back();  // BERT's tokenizer drops a space at the end
  const IdList once = encode(*loaded->tokenizer, text);
  const IdList twice = encode(*loaded->tokenizer, text + "\n" + text);
  ASSERT_GT(twice.size(), 2 * once.size() - 4);
  for (size_t i = 0; i + 2 < once.size(); ++i) ASSERT_EQ(twice[i], once[i]) << i;
  EXPECT_EQ(decode(*loaded->tokenizer, once).size(), text.size());
}

INSTANTIATE_TEST_SUITE_P(Styles, Golden,
                         testing::Values("gpt2", "llama3", "qwen2", "o200k", "llama2",
                                         "unigram_bytes", "added", "bert"),
                         [](const auto& c) { return std::string(c.param); });

}  // namespace
}  // namespace moe
