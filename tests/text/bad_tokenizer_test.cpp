// SPDX-License-Identifier: MIT
// Damaged and hostile tokenizers give clear errors.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "src/text/pieces/vocabulary.h"
#include "tests/support/failing_allocator.h"
#include "tests/text/tokenizer_support.h"

namespace moe {
namespace {

struct BadCase {
  const char* name;
  moe_status code;
  const char* text;  // part of the message
  std::function<void(TokenizerData&)> damage;
  uint32_t model_vocab = 0;
};

class BadTokenizer : public testing::TestWithParam<BadCase> {};

TEST_P(BadTokenizer, IsRefused) {
  TokenizerData data = small_bpe();
  ASSERT_TRUE(load(data)->status.ok());
  GetParam().damage(data);
  const Status status = load(data, GetParam().model_vocab)->status;
  EXPECT_EQ(status.code(), GetParam().code) << status.text();
  EXPECT_NE(std::string(status.text()).find(GetParam().text), std::string::npos) << status.text();
}

void add_split(TokenizerData& d, const char* pattern) {
  d.pre_tokenizers.push_back(step("split"));
  d.pre_tokenizers.back().regex = true;
  d.pre_tokenizers.back().pattern = pattern;
  d.pre_tokenizers.back().behavior = "isolated";
}

void make_unigram(TokenizerData& d, double score) {
  d.kind = "unigram";
  d.merges.clear();
  d.scores.assign(6, score);
}

const BadCase kBadCases[] = {
    {"kind", MOE_ERR_UNSUPPORTED, "wordlevel", [](auto& d) { d.kind = "wordlevel"; }},
    {"no_tokens", MOE_ERR_FORMAT, "found 0",
     [](auto& d) {
       d.token_bytes.clear();
       d.token_ends.clear();
     }},
    {"ends_fall", MOE_ERR_FORMAT, "token 2", [](auto& d) { d.token_ends[2] = 1; }},
    {"end_beyond", MOE_ERR_FORMAT, "token 5", [](auto& d) { d.token_ends[5] = 1000000; }},
    {"no_terminator", MOE_ERR_FORMAT, "token 0", [](auto& d) { d.token_bytes[1] = 'x'; }},
    {"bytes_left", MOE_ERR_FORMAT, "end at byte", [](auto& d) { d.token_bytes.push_back(0); }},
    {"duplicate", MOE_ERR_FORMAT, "tokens 0 and 1 are the same",
     [](auto& d) { d.token_bytes[2] = 'a'; }},
    {"not_utf8", MOE_ERR_FORMAT, "token 1 is not UTF-8", [](auto& d) { d.token_bytes[2] = 0xFF; }},
    {"vocabulary", MOE_ERR_FORMAT, "has 6 tokens, the model's vocabulary only 5", [](auto&) {}, 5},
    {"merge_range", MOE_ERR_FORMAT, "merge 1", [](auto& d) { d.merges[4] = 6; }},
    {"merge_huge", MOE_ERR_FORMAT, "merge 0", [](auto& d) { d.merges[2] = 0xFFFFFFFF; }},
    {"merge_text", MOE_ERR_FORMAT, "not 0 followed by 2", [](auto& d) { d.merges[1] = 2; }},
    {"merge_twice", MOE_ERR_FORMAT, "merges 0 and 2 are the same",
     [](auto& d) {
       d.merges.insert(d.merges.end(), {0, 1, 3});
     }},
    {"merge_cut", MOE_ERR_FORMAT, "no table of merges", [](auto& d) { d.merges.pop_back(); }},
    {"added_range", MOE_ERR_FORMAT, "id 9", [](auto& d) { d.added_ids[0] = 9; }},
    {"added_twice", MOE_ERR_FORMAT, "added twice",
     [](auto& d) {
       d.added_ids.push_back(5);
       d.added_flags.push_back(0);
     }},
    {"added_flags", MOE_ERR_FORMAT, "flags for 2", [](auto& d) { d.added_flags.push_back(0); }},
    {"added_bits", MOE_ERR_FORMAT, "bad flags", [](auto& d) { d.added_flags[0] = 64 | 2; }},
    {"added_empty", MOE_ERR_FORMAT, "found 0",
     [](auto& d) {
       set_pieces(d, {"a", "b", "c", "ab", "abc", ""});
     }},
    {"added_long", MOE_ERR_FORMAT, "1 to 1024 bytes",
     [](auto& d) {
       set_pieces(d, {"a", "b", "c", "ab", "abc", std::string(1025, 'x')});
     }},
    {"added_vanishes", MOE_ERR_FORMAT, "empty when normalised",
     [](auto& d) {
       d.added_flags[0] = kAddedNormalized;
       d.normalizers.push_back(step("replace"));
       d.normalizers.back().pattern = "<x>";
     }},
    {"unk", MOE_ERR_FORMAT, "unk_id is 6", [](auto& d) { d.unk_id = 6; }},
    {"bos", MOE_ERR_FORMAT, "bos_id is -2", [](auto& d) { d.bos_id = -2; }},
    {"prefix", MOE_ERR_FORMAT, "prefix", [](auto& d) { d.prefix = {7}; }},
    {"between", MOE_ERR_FORMAT, "between", [](auto& d) { d.between = {7}; }},
    {"suffix_long", MOE_ERR_FORMAT, "suffix of 65 ids", [](auto& d) { d.suffix.assign(65, 0); }},
    {"affix", MOE_ERR_FORMAT, "longer than", [](auto& d) { d.end_suffix.assign(65, 'w'); }},
    {"scores_missing", MOE_ERR_FORMAT, "0 scores",
     [](auto& d) {
       make_unigram(d, 0);
       d.scores.clear();
     }},
    {"scores_nan", MOE_ERR_FORMAT, "not finite", [](auto& d) { make_unigram(d, std::nan("")); }},
    {"scores_inf", MOE_ERR_FORMAT, "not finite", [](auto& d) { make_unigram(d, HUGE_VAL); }},
    {"unigram_long", MOE_ERR_FORMAT, "token 4 is longer than 1024 bytes",
     [](auto& d) {
       make_unigram(d, 0);
       set_pieces(d, {"a", "b", "c", "ab", std::string(1025, 'a'), "<x>"});
     }},
    {"wordpiece_long", MOE_ERR_FORMAT, "token 4 is longer than 1024 bytes",
     [](auto& d) {
       d.kind = "wordpiece";
       set_pieces(d, {"a", "b", "c", "ab", std::string(1025, 'a'), "<x>"});
     }},
    {"wordpiece_prefix", MOE_ERR_FORMAT, "prefix: expected at most 64 bytes",
     [](auto& d) {
       d.kind = "wordpiece";
       d.continuing_prefix.assign(65, '#');
     }},
    {"normalizer", MOE_ERR_UNSUPPORTED, "normalizer nfz",
     [](auto& d) { d.normalizers.push_back(step("nfz")); }},
    {"pre_tokenizer", MOE_ERR_UNSUPPORTED, "pre-tokenizer cut",
     [](auto& d) { d.pre_tokenizers.push_back(step("cut")); }},
    {"decoder", MOE_ERR_UNSUPPORTED, "decoder ctc",
     [](auto& d) { d.decoders.insert(d.decoders.begin(), step("ctc")); }},
    {"decoder_place", MOE_ERR_UNSUPPORTED, "not at place 1",
     [](auto& d) { d.decoders.push_back(step("byte_level")); }},
    {"decoder_twice", MOE_ERR_UNSUPPORTED, "byte_fallback",
     [](auto& d) { d.decoders.assign(2, step("byte_fallback")); }},
    {"behavior", MOE_ERR_UNSUPPORTED, "behavior",
     [](auto& d) {
       add_split(d, "a");
       d.pre_tokenizers.back().behavior = "deleted";
     }},
    {"metaspace", MOE_ERR_FORMAT, "one character",
     [](auto& d) {
       d.pre_tokenizers.push_back(step("metaspace"));
       d.pre_tokenizers.back().scheme = "first";
       d.pre_tokenizers.back().content = "ab";
     }},
    {"many_steps", MOE_ERR_FORMAT, "at most 32",
     [](auto& d) { d.normalizers.assign(33, step("nfc")); }},
    {"content_long", MOE_ERR_FORMAT, "at most 64",
     [](auto& d) {
       d.normalizers.push_back(step("prepend"));
       d.normalizers.back().content.assign(65, 'x');
     }},
    {"pattern_empty", MOE_ERR_FORMAT, "pattern", [](auto& d) { add_split(d, ""); }},
    {"pattern_bad", MOE_ERR_FORMAT, "pre-tokenizer split: pattern",
     [](auto& d) { add_split(d, "(a"); }},
    {"pattern_class", MOE_ERR_FORMAT, "a class", [](auto& d) { add_split(d, "[a"); }},
    {"pattern_property", MOE_ERR_FORMAT, "pattern", [](auto& d) { add_split(d, "\\p{Nope}"); }},
    {"pattern_set", MOE_ERR_UNSUPPORTED, "-- or ~~ in a class",
     [](auto& d) { add_split(d, "[a-z--b]"); }},
    {"pattern_deep", MOE_ERR_UNSUPPORTED, "deep",
     [](auto& d) { add_split(d, std::string(1000, '(').c_str()); }},
    {"pattern_huge", MOE_ERR_FORMAT, "too large",
     [](auto& d) { add_split(d, "(((\\p{L}{900}){900}){900})"); }},
    {"pattern_utf8", MOE_ERR_FORMAT, "not UTF-8", [](auto& d) { add_split(d, "\xFF"); }},
    {"charsmap_short", MOE_ERR_FORMAT, "charsmap",
     [](auto& d) {
       d.normalizers.push_back(step("precompiled"));
       d.normalizers.back().data = {1, 2, 3};
     }},
    {"charsmap_size", MOE_ERR_FORMAT, "charsmap",
     [](auto& d) {
       d.normalizers.push_back(step("precompiled"));
       d.normalizers.back().data = {255, 255, 255, 255, 0, 0, 0, 0};
     }},
};

INSTANTIATE_TEST_SUITE_P(All, BadTokenizer, testing::ValuesIn(kBadCases),
                         [](const auto& c) { return std::string(c.param.name); });

// Patterns that would need exponential time match or end with an error quickly.
TEST(Limits, PatternsThatBacktrackExponentially) {
  for (const char* pattern : {"(a+)+$", "(a|aa)+$", "(?:a*)*b", "^(([a-z])+.)+[A-Z]([a-z])+$"}) {
    TokenizerData data = small_bpe();
    add_split(data, pattern);
    const auto loaded = load(data);
    ASSERT_TRUE(loaded->status.ok()) << loaded->status.text();
    Array<int32_t> ids;
    (void)ids.push(77);
    const Status status = loaded->tokenizer->encode(std::string(5000, 'a') + "!", true, true, ids);
    if (!status.ok()) {
      EXPECT_EQ(status.code(), MOE_ERR_TEXT) << status.text();
      EXPECT_EQ(ids.size(), 1u) << "ids must not change";
    }
  }
}

// Replacements that grow the text repeatedly end with an error at a limit.
TEST(Limits, TextThatGrows) {
  TokenizerData data = small_bpe();
  for (int i = 0; i < 6; ++i) {
    data.normalizers.push_back(step("replace"));
    data.normalizers.back().pattern = "a";
    data.normalizers.back().content = std::string(60, 'a');
  }
  const auto loaded = load(data);
  ASSERT_TRUE(loaded->status.ok());
  Array<int32_t> ids;
  EXPECT_EQ(loaded->tokenizer->encode("a", false, false, ids).code(), MOE_ERR_TEXT);
}

// So do the replacements of a decoder.
TEST(Limits, TokensThatGrow) {
  TokenizerData data = small_bpe();
  data.decoders.clear();
  for (int i = 0; i < 8; ++i) {
    data.decoders.push_back(step("replace"));
    data.decoders.back().pattern = "a";
    data.decoders.back().content = std::string(60, 'a');
  }
  const auto loaded = load(data);
  ASSERT_TRUE(loaded->status.ok()) << loaded->status.text();
  const int32_t id = 0;
  String text;
  EXPECT_EQ(loaded->tokenizer->decode({&id, 1}, false, text).code(), MOE_ERR_TEXT);
  EXPECT_EQ(loaded->tokenizer->token_bytes(0, text).code(), MOE_ERR_TEXT);
  EXPECT_TRUE(text.empty());
}

// A pattern may scan the rest of the text from one starting point, but not from every one.
TEST(Limits, PatternsThatScanTheRestFromEveryPosition) {
  const std::string text(1'000'000, 'a');
  for (const char* pattern : {"a++[bc]", "(?=a++[bc])a", "a(?=[^x]*+x)"}) {
    TokenizerData data = small_bpe();
    add_split(data, pattern);
    const auto loaded = load(data);
    ASSERT_TRUE(loaded->status.ok()) << loaded->status.text();
    Array<int32_t> ids;
    EXPECT_EQ(loaded->tokenizer->encode(text, true, true, ids).code(), MOE_ERR_TEXT) << pattern;
  }
  for (const char* pattern : {"[0-9]", "b", "\\p{N}{1,3}", "[^\\S]", "a++"}) {
    TokenizerData data = small_bpe();
    add_split(data, pattern);
    EXPECT_EQ(encode(*load(data)->tokenizer, text).size(), text.size()) << pattern;
  }
}

// Pieces chosen to fill one half of the hash table without a gap.
TEST(Limits, PiecesThatCollideInTheHashTable) {
  constexpr size_t kPieces = 1 << 18;  // of 1 << 19 slots
  std::vector<std::string> pieces(kPieces);
  size_t n_left = kPieces;
  for (uint64_t i = 0; n_left > 0; ++i) {
    const std::string piece = "x" + std::to_string(i);
    std::string& slot = pieces[hash_bytes(piece) % (2 * kPieces) % kPieces];
    if (hash_bytes(piece) % (2 * kPieces) >= kPieces || !slot.empty()) continue;
    slot = piece;
    --n_left;
  }
  TokenizerData data;
  data.kind = "bpe";
  set_pieces(data, pieces);
  const auto loaded = load(data);
  ASSERT_TRUE(loaded->status.ok()) << loaded->status.text();
  for (int i = 0; i < 100'000; ++i) {
    ASSERT_EQ(loaded->tokenizer->token_id("y" + std::to_string(i)), -1);
  }
  EXPECT_EQ(loaded->tokenizer->token_id(pieces[777]), 777);
}

// A FlatBuffer may contain a misaligned array of scores, which is refused.
TEST(Limits, MisalignedScores) {
  const uint8_t bytes[] = {'a', 0};
  const uint32_t end = 2;
  alignas(8) const uint8_t memory[24] = {};
  TokenizerSpec spec;
  spec.kind = "unigram";
  spec.token_bytes = {bytes, 2};
  spec.token_ends = {&end, 1};
  for (const size_t at : {size_t{0}, size_t{4}}) {
    spec.scores = {reinterpret_cast<const double*>(memory + at), 1};
    EXPECT_EQ(Tokenizer::create(spec, system_allocator()).ok(), at == 0);
  }
}

// Stripping white space around tokens must not take quadratic time.
TEST(Limits, LongWhiteSpaceAroundTokens) {
  TokenizerData data = small_bpe();
  set_pieces(data, {"a", "b", "c", "ab", "abc", "  "});
  data.added_flags = {kAddedRstrip | kAddedLstrip};
  const auto loaded = load(data);
  ASSERT_TRUE(loaded->status.ok());
  EXPECT_EQ(encode(*loaded->tokenizer, "a" + std::string(400000, ' ') + "b").size(), 200002u);
}

// A replacement in a charsmap without its terminating zero is not used.
TEST(Limits, CharsmapWithoutEnds) {
  TokenizerData data = small_bpe();
  data.normalizers.push_back(step("precompiled"));
  // A double array of 1 KiB in which 'a' leads to a leaf with offset 0.
  std::vector<uint8_t>& map = data.normalizers.back().data;
  std::vector<uint32_t> units(256, 0);
  units[0] = 0;
  units['a'] = 'a' | 1U << 8 | 2U << 10;
  units['a' ^ 2] = 1U << 31;
  map = {0, 4, 0, 0};
  for (const uint32_t u : units) {
    for (int i = 0; i < 4; ++i) map.push_back(static_cast<uint8_t>(u >> (8 * i)));
  }
  map.insert(map.end(), {'b', 0});
  EXPECT_EQ(encode(*load(data)->tokenizer, "ac"), (IdList{1, 2}));
  map.pop_back();
  map.insert(map.end(), 1 << 20, 'b');
  EXPECT_EQ(encode(*load(data)->tokenizer, "ac"), (IdList{0, 2}))
      << "an unterminated replacement must not be used";
}

TEST(Limits, UnigramWithoutUnknownToken) {
  TokenizerData data = small_bpe();
  make_unigram(data, -1);
  const auto loaded = load(data);
  ASSERT_TRUE(loaded->status.ok()) << loaded->status.text();
  EXPECT_EQ(encode(*loaded->tokenizer, "abc"), (IdList{4}));
  Array<int32_t> ids;
  const Status status = loaded->tokenizer->encode("abz", false, false, ids);
  EXPECT_EQ(status.code(), MOE_ERR_TEXT);
  EXPECT_NE(std::string(status.text()).find("\"z\""), std::string::npos) << status.text();
}

TEST(Memory, EveryAllocationOfLoadMayFail) {
  const Json golden = read_json_file("tests/data/text/added.json");
  const TokenizerData data = parse_tokenizer(golden.at("tokenizer"), "added");
  for (size_t n = 0;; ++n) {
    FailingAllocator allocator(n);
    const auto loaded = load(data, 0, allocator.get());
    if (loaded->status.ok()) {
      EXPECT_FALSE(allocator.failed());
      EXPECT_GT(n, 20u);
      break;
    }
    ASSERT_EQ(loaded->status.code(), MOE_ERR_MEMORY) << n << ": " << loaded->status.text();
  }
}

TEST(Memory, EveryAllocationOfUseMayFail) {
  for (const char* name : {"added", "unigram_bytes"}) {
    const Json golden = read_json_file(std::string("tests/data/text/") + name + ".json");
    const TokenizerData data = parse_tokenizer(golden.at("tokenizer"), name);
    const std::string text =
        "na\xC3\xAFve e\xCC\x81 [L]  the people\n\xFF 12" + std::string(400, 'x');
    size_t n_load = 0;
    {
      FailingAllocator counter;
      ASSERT_TRUE(load(data, 0, counter.get())->status.ok());
      n_load = counter.n_allocations();
    }
    for (size_t n = n_load;; ++n) {
      FailingAllocator allocator(n);
      const auto loaded = load(data, 0, allocator.get());
      ASSERT_TRUE(loaded->status.ok());
      Array<int32_t> ids(allocator.get());
      Status status = loaded->tokenizer->encode(text, true, true, ids);
      if (!status.ok()) {
        EXPECT_EQ(ids.size(), 0u);
      }
      String decoded(allocator.get());
      if (status.ok()) status = loaded->tokenizer->decode(ids.span(), false, decoded);
      if (status.ok()) {
        EXPECT_FALSE(allocator.failed());
        EXPECT_GT(n, n_load + 10);
        break;
      }
      ASSERT_EQ(status.code(), MOE_ERR_MEMORY) << n << ": " << status.text();
    }
  }
}

}  // namespace
}  // namespace moe
