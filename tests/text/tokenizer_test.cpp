// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include "src/text/stream_decoder.h"
#include "tests/support/failing_allocator.h"
#include "tests/text/tokenizer_support.h"

namespace moe {
namespace {

constexpr char kBad[] = "\xEF\xBF\xBD";

std::string bytes_of(const Tokenizer& tokenizer, int32_t id) {
  String out;
  check(tokenizer.token_bytes(id, out));
  return std::string(out.view());
}

TEST(Bytes, EncodesAndDecodesAnyBytes) {
  const auto loaded = load(TokenizerData());
  ASSERT_TRUE(loaded->status.ok()) << loaded->status.text();
  const Tokenizer& t = *loaded->tokenizer;
  EXPECT_EQ(t.n_vocab(), 256);
  EXPECT_EQ(encode(t, std::string("a\0\xFF\xC3", 4)), (IdList{97, 0, 255, 195}));
  EXPECT_EQ(encode(t, ""), IdList());
  EXPECT_EQ(decode(t, {104, 0xC3, 0xA9, 0x21}), "h\xC3\xA9!");
  EXPECT_EQ(decode(t, {0xC3, 0x41, 0xF0, 0x9F}), std::string(kBad) + "A" + kBad);
  EXPECT_EQ(bytes_of(t, 0xC3), "\xC3");
  EXPECT_EQ(t.token_id("a"), 97);
  EXPECT_EQ(t.piece(0), std::string_view("\0", 1));
}

TEST(Bytes, WithSpecialTokens) {
  TokenizerData data;
  std::vector<std::string> pieces;
  for (int b = 0; b < 256; ++b) pieces.emplace_back(1, static_cast<char>(b));
  pieces.insert(pieces.end(), {"<s>", "<e>"});
  set_pieces(data, pieces);
  data.added_ids = {256, 257};
  data.added_flags = {kAddedSpecial, kAddedSpecial};
  data.prefix = {256};
  data.bos_id = 256;
  data.eos_id = 257;
  const auto loaded = load(data, 300);
  ASSERT_TRUE(loaded->status.ok()) << loaded->status.text();
  const Tokenizer& t = *loaded->tokenizer;
  EXPECT_EQ(encode(t, "a<e>", true, true), (IdList{256, 97, 257}));
  EXPECT_EQ(encode(t, "<e>", true, false), (IdList{256, '<', 'e', '>'})) << "text cannot forge it";
  EXPECT_EQ(decode(t, {256, 97, 257}, false), "<s>a<e>");
  EXPECT_EQ(decode(t, {256, 97, 257}, true), "a");
  EXPECT_TRUE(t.is_special(256));
  EXPECT_FALSE(t.is_special(97));
  EXPECT_FALSE(t.is_special(-1));
  EXPECT_EQ(t.bos_id(), 256);
  EXPECT_EQ(t.eos_id(), 257);
  EXPECT_EQ(t.unk_id(), -1);
  EXPECT_EQ(t.pad_id(), -1);
  EXPECT_EQ(decode(t, {299, 97}), "a") << "an id of the model that the tokenizer does not have";
  String text;
  const int32_t bad[] = {97, 300};
  EXPECT_EQ(t.decode({bad, 2}, false, text).code(), MOE_ERR_RANGE);
  EXPECT_TRUE(text.empty());
}

TEST(Bpe, MergesInOrder) {
  const auto loaded = load(small_bpe());
  const Tokenizer& t = *loaded->tokenizer;
  EXPECT_EQ(encode(t, "abcab"), (IdList{4, 3}));
  EXPECT_EQ(encode(t, "cba"), (IdList{2, 1, 0}));
  EXPECT_EQ(encode(t, "c?c"), (IdList{2, 2}))
      << "a character without a token is dropped if there is no unknown token";
  EXPECT_EQ(encode(t, "a<x>b"), (IdList{0, 5, 1}));
  EXPECT_EQ(t.token_id("abc"), 4);
  EXPECT_EQ(t.token_id("abcd"), -1);
  EXPECT_EQ(t.token_id(""), -1);
  EXPECT_STREQ(t.piece(3).data(), "ab");
  EXPECT_EQ(t.piece(6), "");
  EXPECT_EQ(t.piece(-1), "");
}

// More symbols than are merged by scanning all of them.
TEST(Bpe, LongPiecesAsShortOnes) {
  const auto loaded = load(small_bpe());
  std::string text;
  IdList expected;
  for (int i = 0; i < 200; ++i) {  // cc and ba never merge, so the parts stay separate
    text += "abccba";
    expected.insert(expected.end(), {4, 2, 1, 0});
    text += "cab";
    expected.insert(expected.end(), {2, 3});
  }
  EXPECT_EQ(encode(*loaded->tokenizer, text), expected);
}

// Words are encoded separately only if no merge joins a mark to the text before it.
TEST(Bpe, MergesAcrossWordsAreKept) {
  const std::string mark = "\u2581";
  TokenizerData data;
  data.kind = "bpe";
  set_pieces(data, {mark, "a", "b", mark + "a", mark + mark, "b" + mark, mark + "ab"});
  data.merges = {0, 1, 3, 3, 2, 6, 0, 0, 4};
  const std::string text = mark + "ab" + mark + mark + mark + "ab" + mark + "aa";
  const auto words = load(data);
  ASSERT_TRUE(words->status.ok()) << words->status.text();
  EXPECT_EQ(encode(*words->tokenizer, text), (IdList{6, 4, 6, 3, 1}));
  data.merges.insert(data.merges.begin(), {2, 0, 5});  // the best merge crosses a word boundary
  const auto across = load(data);
  ASSERT_TRUE(across->status.ok()) << across->status.text();
  EXPECT_EQ(encode(*across->tokenizer, text), (IdList{3, 5, 0, 3, 5, 1, 1}));
  // A long text is encoded word by word, with the cache of words.
  std::string many;
  IdList expected;
  for (int i = 0; i < 1000; ++i) {
    many += text;
    expected.insert(expected.end(), {6, 4, 6, 3, 1});
  }
  EXPECT_EQ(encode(*words->tokenizer, many), expected);
}

TEST(Encode, InvalidUtf8IsReplaced) {
  TokenizerData data = small_bpe();
  set_pieces(data, {"a", "b", "c", "ab", "abc", "<x>", kBad});
  const auto loaded = load(data);
  const Tokenizer& t = *loaded->tokenizer;
  EXPECT_EQ(encode(t,
                   "a\xFF"
                   "b"),
            (IdList{0, 6, 1}));
  EXPECT_EQ(encode(t, "\xF0\x9F\x98"), (IdList{6})) << "one replacement for a truncated character";
  EXPECT_EQ(encode(t, "\xE2\x28\xA1"), (IdList{6, 6}));
  EXPECT_EQ(encode(t, "\xED\xA0\x80"), (IdList{6, 6, 6})) << "a surrogate, as in Python";
  EXPECT_EQ(encode(t, "\xC0\xAF"), (IdList{6, 6}));
}

TEST(Encode, AppendsToWhatIsThere) {
  TokenizerData data = small_bpe();
  data.prefix = {5};
  data.suffix = {2, 5};
  const auto loaded = load(data);
  Array<int32_t> ids;
  (void)ids.push(9);
  ASSERT_TRUE(loaded->tokenizer->encode("", true, false, ids).ok());
  EXPECT_EQ(IdList(ids.begin(), ids.end()), (IdList{9, 5, 2, 5}));
}

// The model's BOS is put in front once, whatever the tokenizer's own prefix is.
TEST(Encode, TheModelsBosIsFirst) {
  const auto prefix = [](std::vector<uint32_t> own, int32_t begin_id) {
    TokenizerData data = small_bpe();
    data.prefix = std::move(own);
    return encode(*load(data, 300, system_allocator(), begin_id)->tokenizer, "", true);
  };
  EXPECT_EQ(prefix({}, -1), (IdList{}));
  EXPECT_EQ(prefix({}, 5), (IdList{5}));
  EXPECT_EQ(prefix({5}, 5), (IdList{5}));
  EXPECT_EQ(prefix({5, 2}, 5), (IdList{5, 2}));
  EXPECT_EQ(prefix({2}, 5), (IdList{5, 2}));
  EXPECT_EQ(prefix({}, 299), (IdList{299})) << "an id that only the model has";
  EXPECT_EQ(encode(*load(small_bpe(), 300, system_allocator(), 5)->tokenizer, ""), (IdList{}));
}

TEST(Decode, WithoutDecoderTokensAreJoinedWithSpaces) {
  TokenizerData data = small_bpe();
  data.decoders.clear();
  const auto loaded = load(data);
  EXPECT_EQ(decode(*loaded->tokenizer, {0, 3, 2}), "a ab c");
}

// Replace, ByteFallback, Fuse, Strip, as in Llama 2.
TokenizerData byte_fallback() {
  TokenizerData data;
  data.kind = "bpe";
  data.byte_fallback = true;
  std::vector<std::string> pieces = {"<unk>", "\xE2\x96\x81", "a"};
  for (int b = 0; b < 256; ++b) {
    char name[8];
    (void)std::snprintf(name, sizeof name, "<0x%02X>", b);
    pieces.emplace_back(name);
  }
  set_pieces(data, pieces);
  data.decoders = {step("replace"), step("byte_fallback"), step("fuse"), step("strip")};
  data.decoders[0].pattern = "\xE2\x96\x81";
  data.decoders[0].content = " ";
  data.decoders[3].content = " ";
  data.decoders[3].start = 1;
  return data;
}

TEST(Decode, ByteTokensBecomeCharacters) {
  const auto loaded = load(byte_fallback());
  ASSERT_TRUE(loaded->status.ok()) << loaded->status.text();
  const Tokenizer& t = *loaded->tokenizer;
  EXPECT_EQ(encode(t, "a\xC3\xA9"), (IdList{2, 3 + 0xC3, 3 + 0xA9}));
  EXPECT_EQ(decode(t, {1, 2, 3 + 0xC3, 3 + 0xA9, 1}), "a\xC3\xA9 ");
  EXPECT_EQ(decode(t, {1, 1, 2}), " a") << "one space is stripped, no more";
  EXPECT_EQ(decode(t, {3 + 0xC3, 2}), std::string(kBad) + "a");
  EXPECT_EQ(decode(t, {3 + 0xE2, 3 + 0x82}), std::string(kBad) + kBad);
  EXPECT_EQ(decode(t, {3 + 0xE2, 3 + 0xC3, 3 + 0xA9}), std::string(kBad) + "\xC3\xA9");
  EXPECT_EQ(bytes_of(t, 3 + 0xC3), "\xC3");
  EXPECT_EQ(bytes_of(t, 1), " ");
}

TEST(Decode, StripAtBothEnds) {
  TokenizerData data = byte_fallback();
  data.decoders[3].stop = 2;
  const auto loaded = load(data);
  const Tokenizer& t = *loaded->tokenizer;
  EXPECT_EQ(decode(t, {1, 2, 1, 1, 2, 1, 1, 1}), "a  a ");
  EXPECT_EQ(decode(t, {1, 2, 1}), "a");
}

TEST(Stream, HoldsBackUntilACharacterIsWhole) {
  const auto loaded = load(TokenizerData());
  StreamDecoder decoder(*loaded->tokenizer, false, system_allocator());
  String text;
  for (const int32_t id : {0xF0, 0x9F, 0x98}) {
    ASSERT_TRUE(decoder.push(id, text).ok());
    EXPECT_TRUE(text.empty());
  }
  ASSERT_TRUE(decoder.push(0x80, text).ok());
  EXPECT_EQ(text.view(), "\xF0\x9F\x98\x80");
  ASSERT_TRUE(decoder.push(0xC3, text).ok());
  text.clear();
  ASSERT_TRUE(decoder.finish(text).ok());
  EXPECT_EQ(text.view(), kBad);
  text.clear();
  ASSERT_TRUE(decoder.push(0xC3, text).ok());
  decoder.reset();
  ASSERT_TRUE(decoder.push('a', text).ok());
  EXPECT_EQ(text.view(), "a");
  EXPECT_EQ(decoder.push(256, text).code(), MOE_ERR_RANGE);
  EXPECT_EQ(decoder.push(-1, text).code(), MOE_ERR_RANGE);
}

TEST(Stream, AllocatesNothingOnceWarm) {
  const auto loaded = load(byte_fallback());
  FailingAllocator allocator;
  {
    StreamDecoder decoder(*loaded->tokenizer, false, allocator.get());
    String text;
    ASSERT_TRUE(text.append("a text with room for what comes").ok());
    const auto round = [&] {
      text.clear();
      for (const int32_t id : {1, 2, 3 + 0xC3, 3 + 0xA9, 1, 2}) {
        ASSERT_TRUE(decoder.push(id, text).ok());
      }
      ASSERT_TRUE(decoder.finish(text).ok());
    };
    round();
    const size_t n = allocator.n_allocations();
    for (int i = 0; i < 100; ++i) round();
    EXPECT_EQ(allocator.n_allocations(), n);
  }
}

TEST(Stream, AnyBytesAsDecode) {
  for (const TokenizerData& data : {TokenizerData(), byte_fallback()}) {
    const auto loaded = load(data);
    const Tokenizer& t = *loaded->tokenizer;
    uint32_t random = 1;
    for (int round = 0; round < 200; ++round) {
      IdList ids;
      for (int i = 0; i < 40; ++i) {
        random = random * 1664525U + 1013904223U;
        ids.push_back(static_cast<int32_t>((random >> 8) % static_cast<uint32_t>(t.n_vocab())));
      }
      StreamDecoder decoder(t, false, system_allocator());
      String text;
      for (const int32_t id : ids) ASSERT_TRUE(decoder.push(id, text).ok());
      ASSERT_TRUE(decoder.finish(text).ok());
      EXPECT_EQ(std::string(text.view()), decode(t, ids));
    }
  }
}

// The steps of a decoder alternate between two buffers; a step without effect must not switch them.
TEST(TokenBytes, StepsAfterAStepWithoutEffect) {
  TokenizerData data = small_bpe();
  data.decoders.clear();
  const auto replace = [&](const char* what, const std::string& with) {
    data.decoders.push_back(step("replace"));
    data.decoders.back().pattern = what;
    data.decoders.back().content = with;
  };
  replace("a", "x");
  data.decoders.push_back(step("byte_fallback"));
  replace("x", std::string(64, 'z'));
  const auto loaded = load(data);
  ASSERT_TRUE(loaded->status.ok()) << loaded->status.text();
  String bytes;
  ASSERT_TRUE(loaded->tokenizer->token_bytes(4, bytes).ok());
  EXPECT_EQ(std::string(bytes.view()), std::string(64, 'z') + "bc");
  EXPECT_EQ(decode(*loaded->tokenizer, {4}), std::string(64, 'z') + "bc");
}

}  // namespace
}  // namespace moe
