// SPDX-License-Identifier: MIT
// Every block type of GGUF, compared with the values that the `gguf` package decodes from the same
// bytes (tests/parity/gguf_blocks.py).

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <random>

#include "formats/import/checkpoint.h"
#include "formats/import/failure.h"
#include "formats/import/safetensors.h"
#include "quant/formats.h"
#include "src/convert/convert.h"
#include "src/convert/weights/eight_bits.h"
#include "tests/convert/gguf_builder.h"
#include "tests/support/weight_blocks.h"

namespace moe {
namespace {

using test::GgufBuilder;

class GgufBlocksTest : public testing::Test {
 protected:
  GgufBlocksTest() : file_("tests/data/gguf_blocks.safetensors") {
    for (SourceTensor& t : read_safetensors_header(file_, 0)) golden_[t.name] = std::move(t);
  }
  std::string bytes_of(const SourceTensor& t) const {
    std::string bytes(source_bytes(t.type, t.n_elements), '\0');
    file_.read(t.offset, bytes.data(), bytes.size());
    return bytes;
  }
  // A Llama of one layer and width 256 whose matrices are all of this type and repeat `rows`. up:
  // of another type for the matrix of that name.
  std::string llama(const SourceTypeInfo& info, const std::string& rows, uint64_t n_inner = 256,
                    const SourceTypeInfo* up = nullptr) const {
    GgufBuilder b;
    b.string("general.architecture", "llama");
    for (const auto& [key, value] : {std::pair{"context_length", 64},
                                     {"embedding_length", 256},
                                     {"block_count", 1},
                                     {"feed_forward_length", static_cast<int>(n_inner)},
                                     {"attention.head_count", 2}}) {
      b.u32(std::string("llama.") + key, static_cast<uint32_t>(value));
    }
    b.f32("llama.attention.layer_norm_rms_epsilon", 1e-5f);
    b.f32("llama.rope.freq_base", 1e4f);
    b.f32_tensor("output_norm.weight", {256});
    b.f32_tensor("blk.0.attn_norm.weight", {256});
    b.f32_tensor("blk.0.ffn_norm.weight", {256});
    std::string bytes;
    while (bytes.size() < source_bytes(info.type, n_inner * 256)) bytes += rows;
    b.tensor("token_embd.weight", static_cast<uint32_t>(info.gguf), {16, 256},
             bytes.substr(0, source_bytes(info.type, 16 * 256)));
    const auto matrix = [&](const char* name, uint64_t n_rows, uint64_t n_cols) {
      b.tensor(std::string("blk.0.") + name + ".weight", static_cast<uint32_t>(info.gguf),
               {n_rows, n_cols}, bytes.substr(0, source_bytes(info.type, n_rows * n_cols)));
    };
    for (const char* name : {"attn_q", "attn_k", "attn_v", "attn_output"}) matrix(name, 256, 256);
    matrix("ffn_gate", n_inner, 256);
    if (up == nullptr) {
      matrix("ffn_up", n_inner, 256);
    } else {
      std::string other;
      for (uint64_t r = 0; r < n_inner; ++r) other += row_of(*up, r % 2);
      b.tensor("blk.0.ffn_up.weight", static_cast<uint32_t>(up->gguf), {n_inner, 256}, other);
    }
    matrix("ffn_down", 256, n_inner);
    return b.file();
  }
  Status convert_file(const std::string& bytes, ConvertReport* report) {
    folder_.write("m.gguf", bytes);
    ConvertOptions options;
    options.verify = true;
    options.weights = weights_;
    options.goal = goal_;
    matrices_.clear();
    options.on_matrix = [this](const MatrixReport& m) { matrices_[m.name] = m; };
    return convert(folder_.file("m.gguf"), folder_.file("m.moe"), options, report);
  }
  // Block `i` of the golden file, repeated to fill a row of 256.
  std::string row_of(const SourceTypeInfo& info, size_t i) const {
    const std::string blocks = bytes_of(golden_.at(info.name + std::string(".blocks")));
    std::string row;
    for (uint32_t n = 0; n < 256; n += info.block) row += blocks.substr(i * info.bytes, info.bytes);
    return row;
  }
  // 256 rows of blocks 0 and 1, whose scales are 1 and -1, in an aperiodic order.
  std::string mixed_rows(const SourceTypeInfo& info) const {
    const std::string blocks = bytes_of(golden_.at(info.name + std::string(".blocks")));
    std::string rows;
    for (unsigned n = 0; n < 256 * 256 / info.block; ++n) {
      rows += blocks.substr(static_cast<size_t>(std::popcount(n) % 2) * info.bytes, info.bytes);
    }
    return rows;
  }
  static std::vector<const SourceTypeInfo*> types() {
    std::vector<const SourceTypeInfo*> out;
    for (uint32_t number = 0; number < 256; ++number) {
      const SourceTypeInfo* info = find_gguf_type(number);
      const bool blocks = info != nullptr && info->read_block != nullptr;
      if (blocks && info->type != SourceType::kQ2_0)
        out.push_back(info);  // the gguf package does not have it
    }
    return out;
  }
  // Writes the blocks to a GGUF file and reads their values through a Checkpoint.
  std::vector<float> read(const SourceTypeInfo& info, const std::string& blocks) {
    const uint64_t n = blocks.size() / info.bytes;
    GgufBuilder b;
    b.tensor("t", static_cast<uint32_t>(info.gguf), {n, info.block}, blocks);
    folder_.write("m.gguf", b.file());
    const Checkpoint checkpoint(folder_.file("m.gguf"));
    std::vector<float> out(n * info.block);
    checkpoint.read(*checkpoint.find("t"), 0, out.size(), out.data());
    return out;
  }

  test::TempFolder folder_;
  std::string weights_ = "auto";
  SizeGoal goal_;
  std::map<std::string, MatrixReport> matrices_;
  InputFile file_;
  std::map<std::string, SourceTensor> golden_;
};

TEST_F(GgufBlocksTest, SameBitsAsGguf) {
  EXPECT_EQ(types().size(), 25u);
  for (const SourceTypeInfo* info : types()) {
    ASSERT_TRUE(golden_.contains(info->name + std::string(".blocks"))) << info->name;
    const std::string blocks = bytes_of(golden_.at(info->name + std::string(".blocks")));
    const std::string expected = bytes_of(golden_.at(info->name + std::string(".values")));
    const std::vector<float> found = read(*info, blocks);
    ASSERT_EQ(found.size() * sizeof(float), expected.size()) << info->name;
    for (size_t i = 0; i < found.size(); ++i) {
      float wanted = 0;
      std::memcpy(&wanted, expected.data() + i * sizeof wanted, sizeof wanted);
      if (std::isnan(wanted) && std::isnan(found[i])) continue;
      ASSERT_EQ(std::bit_cast<uint32_t>(found[i]), std::bit_cast<uint32_t>(wanted))
          << info->name << " element " << i << ": " << found[i] << " instead of " << wanted;
    }
  }
}

// Every index of every codebook, and every sign.
TEST_F(GgufBlocksTest, EveryEntryOfCodebooksAsInGguf) {
  int n = 0;
  for (const SourceTypeInfo* info : types()) {
    const auto found = golden_.find(info->name + std::string(".every.blocks"));
    if (found == golden_.end()) continue;
    ++n;
    const std::vector<float> values = read(*info, bytes_of(found->second));
    const std::string codes = bytes_of(golden_.at(info->name + std::string(".every.codes")));
    ASSERT_EQ(values.size(), codes.size()) << info->name;
    for (size_t i = 0; i < values.size(); ++i) {
      ASSERT_EQ(values[i], static_cast<float>(static_cast<int8_t>(codes[i])))
          << info->name << " element " << i;
    }
  }
  EXPECT_EQ(n, 7);
}

// The formats that the layers' matrices are stored in: four-bit codes are kept.
struct Kept {
  SourceType type;
  FormatId format;
  double error;  // at most; 0: without loss
};
constexpr double kInt8Error = 0.01;
constexpr double kHalfUnit =
    1.0 / 2048;  // relative rounding error of scales and minimums in float16
constexpr Kept kKept[] = {{SourceType::kQ4_0, FormatId::kInt4, 0},
                          {SourceType::kQ4_1, FormatId::kInt4Min, 0},
                          {SourceType::kIq4Nl, FormatId::kNl4, 0},
                          {SourceType::kBlockMxfp4, FormatId::kFp4, 0},
                          {SourceType::kIq4Xs, FormatId::kNl4, kHalfUnit},
                          {SourceType::kQ4K, FormatId::kInt4K, 0},
                          {SourceType::kQ6K, FormatId::kInt6K, 0},
                          {SourceType::kQ2K, FormatId::kInt2K, 0},
                          {SourceType::kQ3K, FormatId::kInt3K, 0},
                          {SourceType::kIq2Xxs, FormatId::kIq2Xxs, 0},
                          {SourceType::kIq2Xs, FormatId::kIq2Xs, 0},
                          {SourceType::kIq2S, FormatId::kIq2S, 0},
                          {SourceType::kIq3Xxs, FormatId::kIq3Xxs, 0},
                          {SourceType::kIq3S, FormatId::kIq3S, 0},
                          {SourceType::kIq1S, FormatId::kIq1S, 0},
                          {SourceType::kIq1M, FormatId::kIq1M, 0},
                          // not TQ2_0 and PQ2_0, whose random blocks use all four codes
                          {SourceType::kTq1_0, FormatId::kTernary2, 0},
                          {SourceType::kPtq1_0, FormatId::kTernary2, 0},
                          {SourceType::kQ1_0, FormatId::kTernary2, 0}};

TEST_F(GgufBlocksTest, EveryTypeKeepsWhatItCan) {
  constexpr size_t kOne = 0, kZero = 2, kRandom = 9;  // scales of the golden blocks
  for (const SourceTypeInfo* info : types()) {
    Kept expected = {info->type, FormatId::kInt8, kInt8Error};
    for (const Kept& kept : kKept) expected = kept.type == info->type ? kept : expected;
    for (const size_t i : {kOne, kRandom}) {
      if (i == kRandom && info->type == SourceType::kBlockMxfp4) continue;
      ConvertReport report;
      const Status status =
          convert_file(llama(*info, i == kOne ? mixed_rows(*info) : row_of(*info, i)), &report);
      ASSERT_TRUE(status.ok()) << info->name << ": " << status.text();
      int n = 0;
      for (const auto& [name, m] : matrices_) {
        if (!name.starts_with("layers.")) continue;
        ++n;
        const bool attention = name.find(".attention.") != std::string::npos;
        const bool group = expected.format == FormatId::kInt8 && attention;
        const bool either = has_int8_blocks(info->type) && m.format == FormatId::kInt8Group;
        EXPECT_TRUE(either || m.format == (group ? FormatId::kInt8Group : expected.format))
            << info->name << " " << name;
        EXPECT_LE(m.relative_error, expected.error) << info->name << " " << name;
        EXPECT_TRUE(m.lossless || expected.error > 0) << info->name << " " << name;
      }
      EXPECT_EQ(n, 7) << info->name;
    }
    ConvertReport report;
    const Status zeros = convert_file(llama(*info, row_of(*info, kZero)), &report);
    EXPECT_TRUE(zeros.ok()) << info->name << ": " << zeros.text();
  }
}

// The blocks of a matrix, with random codes other than -128 and scales from 2^-7 to 2^-6.
std::string random_blocks(const SourceTypeInfo& info) {
  std::mt19937 random(5);
  std::string out;
  for (unsigned n = 0; n < 256 * 256 / info.block; ++n) {
    std::string block;
    for (uint32_t i = 0; i < info.bytes; ++i) {
      const auto byte = static_cast<uint8_t>(random());
      block += static_cast<char>(byte == 0x80 ? 0 : byte);
    }
    const bool last = info.type == SourceType::kQ6K;
    const bool minimum = info.type == SourceType::kQ5_1 || info.type == SourceType::kQ5K;
    for (uint32_t at = last ? info.bytes - 2 : 0; at < (last      ? info.bytes
                                                        : minimum ? 4u
                                                                  : 2u);
         at += 2) {
      block[at + 1] = static_cast<char>(0x20 | (random() & 3));
    }
    out += block;
  }
  return out;
}

// The eight-bit format with the smaller error is chosen, unless --weights names one. Q6_K has a
// format of its own.
TEST_F(GgufBlocksTest, Int8ByRowOrByGroup) {
  constexpr size_t kRandom = 9;
  for (const SourceTypeInfo* info : types()) {
    if (!has_int8_blocks(info->type)) continue;
    for (const std::string& rows : {random_blocks(*info), row_of(*info, kRandom)}) {
      std::map<std::string, std::map<std::string, MatrixReport>> reports;
      for (const char* weights : {"auto", "int8", "int8_group"}) {
        weights_ = weights;
        ConvertReport report;
        const Status status = convert_file(llama(*info, rows), &report);
        ASSERT_TRUE(status.ok()) << info->name << ": " << status.text();
        reports[weights] = matrices_;
      }
      for (const auto& [name, m] : reports["auto"]) {
        const MatrixReport& by_row = reports["int8"][name];
        const MatrixReport& by_group = reports["int8_group"][name];
        EXPECT_EQ(by_row.format, FormatId::kInt8);
        if (info->type == SourceType::kQ6K) {
          EXPECT_EQ(m.format, FormatId::kInt6K);
          EXPECT_TRUE(m.lossless);
          const bool linear = name.starts_with("layers.");  // --weights is for these
          EXPECT_EQ(by_group.format, linear ? FormatId::kInt8Group : FormatId::kInt6K);
          continue;
        }
        EXPECT_EQ(by_group.format, FormatId::kInt8Group);
        const bool group = by_group.relative_error < by_row.relative_error;
        EXPECT_EQ(m.format, group ? FormatId::kInt8Group : FormatId::kInt8) << info->name;
        EXPECT_EQ(m.relative_error, std::min(by_group.relative_error, by_row.relative_error));
      }
    }
  }
}

// Matrices that every token uses keep their six bits if four are requested.
TEST_F(GgufBlocksTest, SixBitsStayBesideFour) {
  const SourceTypeInfo& info = source_type_info(SourceType::kQ6K);
  weights_ = "int4";
  ConvertReport report;
  const Status status = convert_file(llama(info, random_blocks(info)), &report);
  ASSERT_TRUE(status.ok()) << status.text();
  EXPECT_EQ(matrices_["layers.0.ffn.up"].format, FormatId::kInt4);
  EXPECT_EQ(matrices_["layers.0.attention.q"].format, FormatId::kInt6K);
  EXPECT_TRUE(matrices_["layers.0.attention.q"].lossless);
}

// The errors are estimated from every second tile of 512 rows. If a weight in another tile is too
// large for int8_group, the matrix is stored as int8.
TEST_F(GgufBlocksTest, EveryRowMustFitIntoGroups) {
  constexpr uint64_t kInner = 512;
  constexpr size_t kUnseen = 16;  // the first row of a tile that the estimate skips
  const SourceTypeInfo& info = source_type_info(SourceType::kQ8_0);
  std::string rows = random_blocks(info) + random_blocks(info);
  const auto stored = [&](const char* name) {
    ConvertReport report;
    const Status status = convert_file(llama(info, rows, kInner), &report);
    EXPECT_TRUE(status.ok()) << status.text();
    return matrices_[name].format;
  };
  EXPECT_EQ(stored("layers.0.ffn.up"), FormatId::kInt8Group);
  // -128 times the largest float16; int8_group can hold at most 127 times that.
  rows.replace(kUnseen * source_bytes(info.type, 256), 3, "\xFF\x7B\x80");
  EXPECT_EQ(stored("layers.0.ffn.up"), FormatId::kInt8);
  weights_ = "int8_group";
  ConvertReport report;
  const Status asked = convert_file(llama(info, rows, kInner), &report);
  EXPECT_EQ(asked.code(), MOE_ERR_RANGE);
  EXPECT_NE(std::string(asked.text()).find("row 16: weight 0: expected at most 8.31901e+06"),
            std::string::npos)
      << asked.text();
}

// Types with one float16 scale per 32 codes are stored without loss.
TEST_F(GgufBlocksTest, Q8_0AndQ5_0AreKept) {
  for (const SourceType type : {SourceType::kQ8_0, SourceType::kQ5_0}) {
    const SourceTypeInfo& info = source_type_info(type);
    ConvertReport report;
    ASSERT_TRUE(convert_file(llama(info, random_blocks(info)), &report).ok());
    for (const auto& [name, m] : matrices_) {
      if (!name.starts_with("layers.")) continue;
      EXPECT_EQ(m.format, FormatId::kInt8Group) << info.name;
      EXPECT_TRUE(m.lossless) << info.name << " " << name << " " << m.relative_error;
    }
  }
}

// Whatever the factors and the float16 in front of them, also those below the normal range, and
// minimums beside which a scale vanishes.
TEST_F(GgufBlocksTest, EveryBlockOfTwoAndThreeBitsIsKept) {
  std::mt19937 random(7);
  for (const SourceType type : {SourceType::kQ2K, SourceType::kQ3K}) {
    const SourceTypeInfo& info = source_type_info(type);
    std::string blocks;
    for (int n = 0; n < 256; ++n) {
      std::string block;
      for (uint32_t i = 0; i < info.bytes; ++i) block += static_cast<char>(random());
      for (uint32_t at = type == SourceType::kQ2K ? 80 : 108; at < info.bytes; at += 2) {
        const auto half = static_cast<uint16_t>(random() % 0x7C00 | (random() % 2) << 15);
        std::memcpy(&block[at], &half, sizeof half);
      }
      blocks += block;
    }
    ConvertReport report;
    const Status status = convert_file(llama(info, blocks), &report);
    ASSERT_TRUE(status.ok()) << info.name << ": " << status.text();
    for (const auto& [name, m] : matrices_) {
      EXPECT_EQ(m.format, type == SourceType::kQ2K ? FormatId::kInt2K : FormatId::kInt3K) << name;
      EXPECT_TRUE(m.lossless) << info.name << " " << name << " " << m.relative_error;
    }
  }
}

// Blocks of codebooks are copied, whatever they hold, also to rows in another order: queries and
// keys of a GGUF file are. Asking for another format rounds their values, and none is rounded to
// theirs.
TEST_F(GgufBlocksTest, CodebooksAreCopied) {
  std::mt19937 random(11);
  for (const Kept& kept : kKept) {
    const SourceTypeInfo& info = source_type_info(kept.type);
    if (!format_info(kept.format).only_blocks()) continue;
    const std::vector<uint8_t> bytes =
        random_blocks(format_info(kept.format), 256, 256, 0.1f, random);
    const std::string file = llama(info, std::string(bytes.begin(), bytes.end()));
    weights_ = "auto";
    ConvertReport report;
    const Status status = convert_file(file, &report);
    ASSERT_TRUE(status.ok()) << info.name << ": " << status.text();
    EXPECT_EQ(matrices_.size(), 8u);
    for (const auto& [name, m] : matrices_) {
      EXPECT_EQ(m.format, kept.format) << info.name << " " << name;
      EXPECT_TRUE(m.lossless) << info.name << " " << name;
    }
    weights_ = "int4";
    ASSERT_TRUE(convert_file(file, &report).ok()) << info.name;
    EXPECT_EQ(matrices_.at("layers.0.ffn.down").format, FormatId::kInt4) << info.name;
    EXPECT_GT(matrices_.at("layers.0.ffn.down").relative_error, 0.01) << info.name;
    weights_ = format_info(kept.format).name;
    const Status refused = convert_file(file, &report);
    EXPECT_EQ(refused.code(), MOE_ERR_ARGUMENT) << info.name;
    EXPECT_EQ(std::string(refused.text()).find(weights_ + ": weights are not rounded to this"), 0u)
        << refused.text();
  }
}

// A size that has room for them keeps blocks, also where a gate and its up differ in their type.
TEST_F(GgufBlocksTest, ASizeKeepsBlocks) {
  struct Case {
    SourceType all;
    SourceType up;
    const char* format_of_up;
    double bits;
  };
  for (const Case& c : {Case{SourceType::kIq2Xs, SourceType::kIq2Xs, "iq2_xs", 2.4},
                        Case{SourceType::kIq2Xs, SourceType::kIq3S, "iq3_s", 2.6},
                        Case{SourceType::kIq2Xs, SourceType::kIq3S, "iq3_s", 32},
                        Case{SourceType::kQ3K, SourceType::kQ6K, "int6_k", 4.5}}) {
    const SourceTypeInfo& info = source_type_info(c.all);
    goal_.most_bits = c.bits;
    ConvertReport report;
    const Status status =
        convert_file(llama(info, mixed_rows(info), 256, &source_type_info(c.up)), &report);
    ASSERT_TRUE(status.ok()) << info.name << ": " << status.text();
    for (const auto& [name, m] : matrices_) EXPECT_TRUE(m.lossless) << info.name << " " << name;
    EXPECT_STREQ(format_info(matrices_.at("layers.0.ffn.up").format).name, c.format_of_up);
    EXPECT_NE(matrices_.at("layers.0.ffn.gate").bytes, 0u);
    EXPECT_LE(report.size->bits, c.bits);
  }
}

// The product of a block's float16 scale and an integer does not fit in a float16: int4_k has both.
TEST_F(GgufBlocksTest, ScalesOfScalesAreRoundedExceptInInt4K) {
  const auto converted = [&](SourceType type, const char* weights) {
    std::string row = row_of(source_type_info(type), 0);
    row[0] = '\x57';
    row[1] = '\x1A';
    weights_ = weights;
    ConvertReport report;
    EXPECT_TRUE(convert_file(llama(source_type_info(type), row), &report).ok());
    return matrices_.at("layers.0.ffn.down");
  };
  weights_ = "auto";
  ConvertReport two_segments;
  const SourceTypeInfo& q4_k = source_type_info(SourceType::kQ4K);
  ASSERT_TRUE(convert_file(llama(q4_k, mixed_rows(q4_k), 512), &two_segments).ok());
  EXPECT_TRUE(matrices_.at("layers.0.ffn.down").lossless);
  EXPECT_EQ(matrices_.at("layers.0.ffn.down").format, FormatId::kInt4K);
  const MatrixReport whole = converted(SourceType::kQ4K, "auto");
  EXPECT_TRUE(whole.lossless);
  EXPECT_EQ(whole.format, FormatId::kInt4K);
  for (const MatrixReport& m :
       {converted(SourceType::kQ4K, "int4_min"), converted(SourceType::kIq4Xs, "auto")}) {
    EXPECT_FALSE(m.lossless);
    EXPECT_LE(m.relative_error, kHalfUnit);
  }
}

// Asking for the format of the source's codes keeps them; any other format quantises again.
TEST_F(GgufBlocksTest, AFormatThatIsAskedFor) {
  const SourceTypeInfo& info = source_type_info(SourceType::kQ4_0);
  for (const char* weights : {"int4", "nl4", "int8"}) {
    weights_ = weights;
    ConvertReport report;
    ASSERT_TRUE(convert_file(llama(info, row_of(info, 0)), &report).ok());
    const MatrixReport& m = matrices_.at("layers.0.ffn.down");
    EXPECT_EQ(m.format, find_weight_format(weights)->id);
    EXPECT_EQ(m.lossless, std::string(weights) == "int4");
  }
}

// Products beyond float16 fit int4_k; asking for int4_min is an error.
TEST_F(GgufBlocksTest, ScalesThatFloat16CannotHoldAreNamed) {
  const SourceTypeInfo& info = source_type_info(SourceType::kQ4K);
  ConvertReport report;
  const std::string file = llama(info, row_of(info, 6));  // scale 65504
  ASSERT_TRUE(convert_file(file, &report).ok());
  EXPECT_EQ(matrices_.at("layers.0.ffn.down").format, FormatId::kInt4K);
  EXPECT_TRUE(matrices_.at("layers.0.ffn.down").lossless);
  weights_ = "int4_min";
  const Status status = convert_file(file, &report);
  EXPECT_EQ(status.code(), MOE_ERR_RANGE) << status.text();
  EXPECT_NE(std::string(status.text()).find("that int4_min cannot hold; --weights int8 can"),
            std::string::npos)
      << status.text();
}

TEST_F(GgufBlocksTest, ScalesThatAreNoNumbersAreNamed) {
  constexpr size_t kInfinite = 7, kNan = 8;
  for (const SourceTypeInfo* info : types()) {
    for (const size_t i : {kInfinite, kNan}) {
      std::string row = row_of(*info, i);
      if (info->type == SourceType::kBlockMxfp4) row[0] = '\xFF';
      ConvertReport report;
      const Status status = convert_file(llama(*info, row), &report);
      EXPECT_EQ(status.code(), MOE_ERR_NON_FINITE) << info->name << ": " << status.text();
      EXPECT_NE(std::string(status.text()).find("tensor token_embd.weight: "), std::string::npos)
          << status.text();
    }
  }
}

}  // namespace
}  // namespace moe
