// SPDX-License-Identifier: MIT
// Untrusted frames.

#include <gtest/gtest.h>
#include <zdict.h>
#include <zstd.h>

#include <string>
#include <vector>

#include "formats/moe/zstd_frame.h"

namespace moe {
namespace {

std::vector<uint8_t> content(size_t n) {
  std::vector<uint8_t> bytes(n);
  for (size_t i = 0; i < n; ++i) bytes[i] = static_cast<uint8_t>(i * i >> 3);
  return bytes;
}

struct Settings {
  bool state_size = true;
  const std::vector<uint8_t>* dictionary = nullptr;
};

std::vector<uint8_t> frame(const std::vector<uint8_t>& raw, const Settings& settings = {}) {
  ZSTD_CCtx* c = ZSTD_createCCtx();
  ZSTD_CCtx_setParameter(c, ZSTD_c_contentSizeFlag, settings.state_size);
  if (settings.dictionary != nullptr) {
    ZSTD_CCtx_loadDictionary(c, settings.dictionary->data(), settings.dictionary->size());
  }
  std::vector<uint8_t> out(ZSTD_compressBound(raw.size()) + 64);
  ZSTD_inBuffer in = {raw.data(), raw.size(), 0};
  ZSTD_outBuffer to = {out.data(), out.size(), 0};
  EXPECT_EQ(ZSTD_compressStream2(c, &to, &in, ZSTD_e_end), 0u);
  ZSTD_freeCCtx(c);
  out.resize(to.pos);
  return out;
}

Status decompress(const std::vector<uint8_t>& bytes, size_t raw) {
  std::vector<uint8_t> out(raw);
  std::vector<uint8_t> state(zstd_state_bytes());
  return zstd_decompress(bytes.data(), bytes.size(), out.data(), raw, state.data());
}

TEST(Zstd, AnOrdinaryFrame) {
  const auto raw = content(100000);
  const auto bytes = frame(raw);
  std::vector<uint8_t> out(raw.size());
  std::vector<uint8_t> state(zstd_state_bytes());
  ASSERT_TRUE(
      zstd_decompress(bytes.data(), bytes.size(), out.data(), out.size(), state.data()).ok());
  EXPECT_EQ(out, raw);
}

TEST(Zstd, TheStatedSizeMustBeTheExpected) {
  const auto bytes = frame(content(5000));
  EXPECT_EQ(decompress(bytes, 4999).code(), MOE_ERR_CORRUPT);
  EXPECT_EQ(decompress(bytes, 5001).code(), MOE_ERR_CORRUPT);
  Settings unknown;
  unknown.state_size = false;
  EXPECT_EQ(decompress(frame(content(5000), unknown), 5000).code(), MOE_ERR_CORRUPT);
}

TEST(Zstd, OneFrameAndNothingElse) {
  const auto bytes = frame(content(5000));
  auto twice = bytes;
  twice.insert(twice.end(), bytes.begin(), bytes.end());
  EXPECT_EQ(decompress(twice, 5000).code(), MOE_ERR_CORRUPT);
  EXPECT_EQ(decompress(twice, 10000).code(), MOE_ERR_CORRUPT);
  auto junk = bytes;
  junk.push_back(0);
  EXPECT_EQ(decompress(junk, 5000).code(), MOE_ERR_CORRUPT);
  std::vector<uint8_t> skippable = {0x50, 0x2A, 0x4D, 0x18, 4, 0, 0, 0, 1, 2, 3, 4};
  EXPECT_EQ(decompress(skippable, 5000).code(), MOE_ERR_CORRUPT);
  skippable.insert(skippable.end(), bytes.begin(), bytes.end());
  EXPECT_EQ(decompress(skippable, 5000).code(), MOE_ERR_CORRUPT);
  const std::vector<uint8_t> legacy = {0x27, 0xB5, 0x2F, 0xFD, 0, 0, 0, 0, 0};
  EXPECT_EQ(decompress(legacy, 5000).code(), MOE_ERR_CORRUPT);
  EXPECT_EQ(decompress({}, 5000).code(), MOE_ERR_CORRUPT);
}

TEST(Zstd, CutAnywhere) {
  const auto bytes = frame(content(3000));
  for (size_t n = 0; n < bytes.size(); ++n) {
    EXPECT_EQ(
        decompress({bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(n)}, 3000).code(),
        MOE_ERR_CORRUPT);
  }
}

TEST(Zstd, FlippedAnywhereItNeverCrashes) {
  const auto bytes = frame(content(3000));
  size_t refused = 0;
  for (size_t i = 0; i < bytes.size(); ++i) {
    for (const uint8_t flip : {uint8_t{1}, uint8_t{0x80}, uint8_t{0xFF}}) {
      auto bad = bytes;
      bad[i] ^= flip;
      refused += !decompress(bad, 3000).ok();
    }
  }
  EXPECT_GT(refused, 0u);
}

TEST(Zstd, ADictionaryIsRefused) {
  std::vector<uint8_t> samples;
  std::vector<size_t> sizes;
  for (int i = 0; i < 200; ++i) {
    const std::string text =
        "layer " + std::to_string(i * 7919) + " of the sample number " + std::to_string(i * i);
    samples.insert(samples.end(), text.begin(), text.end());
    sizes.push_back(text.size());
  }
  std::vector<uint8_t> dictionary(4096);
  const size_t n = ZDICT_trainFromBuffer(dictionary.data(), dictionary.size(), samples.data(),
                                         sizes.data(), 200);
  ASSERT_FALSE(ZDICT_isError(n)) << ZDICT_getErrorName(n);
  dictionary.resize(n);
  Settings settings;
  settings.dictionary = &dictionary;
  const Status status = decompress(frame(samples, settings), samples.size());
  EXPECT_EQ(status.code(), MOE_ERR_CORRUPT);
  EXPECT_NE(std::string(status.text()).find("dictionary"), std::string::npos) << status.text();
}

TEST(Zstd, AnOversizedWindowIsRefused) {
  // A frame header with a window descriptor instead of the single-segment flag: 2^27 bytes.
  const std::vector<uint8_t> header = {0x28,    0xB5, 0x2F, 0xFD, 0x80,
                                       17 << 3, 0xE0, 0x93, 0x04, 0x00};
  std::vector<uint8_t> wide(header);
  wide.insert(wide.end(), {0x01, 0x00, 0x00});  // last block, raw, empty
  const Status status = decompress(wide, 300000);
  EXPECT_EQ(status.code(), MOE_ERR_CORRUPT);
  EXPECT_NE(std::string(status.text()).find("window"), std::string::npos) << status.text();
}

TEST(Zstd, ABombIsStoppedByItsSize) {
  const auto bytes = frame(std::vector<uint8_t>(10000000));
  EXPECT_LT(bytes.size(), 2000u);
  EXPECT_EQ(decompress(bytes, 4096).code(), MOE_ERR_CORRUPT);
}

TEST(Zstd, GrowthIsBounded) {
  EXPECT_TRUE(zstd_size_fits(10, 11));
  EXPECT_FALSE(zstd_size_fits(10, 10));
  EXPECT_TRUE(zstd_size_fits(10, 2560));
  EXPECT_FALSE(zstd_size_fits(10, 2561));
  EXPECT_FALSE(zstd_size_fits(0, 64));
  EXPECT_FALSE(zstd_size_fits(uint64_t{1} << 55, ~uint64_t{0}));
  EXPECT_TRUE(zstd_size_fits(uint64_t{1} << 56, ~uint64_t{0}));
}

}  // namespace
}  // namespace moe
