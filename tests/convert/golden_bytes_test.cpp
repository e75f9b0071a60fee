// SPDX-License-Identifier: MIT
// The stored bytes of every block type of GGUF and of every format, with any number of threads,
// against hashes taken before the converter had threads and vector code; of int2_k and int3_k
// after.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <string_view>

#include "formats/moe/checksum.h"
#include "quant/formats.h"
#include "tests/convert/converted_model.h"
#include "tests/convert/gguf_builder.h"
#include "tests/convert/tiny_checkpoint.h"

namespace moe {
namespace {

struct Golden {
  const char* what;
  uint64_t hash;
};

// Hashes the weights alone: metadata has no say in how they are stored.
uint64_t hash_of(const std::string& path) {
  const test::ConvertedModel model(path);
  std::vector<uint64_t> hashes;
  for (const FileSegment& segment : model.file().segments()) hashes.push_back(segment.xxh64);
  return xxh64(hashes.data(), hashes.size() * sizeof(uint64_t));
}

// Whole numbers and products alone: the same on every machine.
float bell(std::mt19937& random) {
  uint64_t sum = 0;
  for (int i = 0; i < 4; ++i) sum += random() >> 12;
  return (static_cast<float>(sum) - 0x1p21f) * 0x1p-23f;
}

class GoldenBytesTest : public testing::Test {
 protected:
  void expect(const Golden& golden) {
    SCOPED_TRACE(golden.what);
    std::string alone, together;
    options_.n_threads = 1;
    expect_once(golden, &alone);
    options_.n_threads = 3;
    expect_once(golden, &together);
    EXPECT_EQ(together, alone);
  }
  void expect_once(const Golden& golden, std::string* reports) {
    options_.on_matrix = [reports](const MatrixReport& r) { *reports += to_json(r); };
    ConvertReport report;
    const Status status = convert(source_, target_.file("m.moe"), options_, &report);
    ASSERT_TRUE(status.ok()) << status.text();
    EXPECT_EQ(hash_of(target_.file("m.moe")), golden.hash)
        << std::hex << hash_of(target_.file("m.moe"));
  }
  // Random blocks whose values are finite and not too large; of floats, values around 0.
  std::string blocks(const SourceTypeInfo& info, uint64_t n) {
    std::string out;
    float values[256];
    while (out.size() < source_bytes(info.type, n)) {
      std::string block(info.bytes, '\0');
      if (info.read_block == nullptr) {
        const float v = bell(random_);
        const uint32_t bits = f32_to_bits(v);
        const uint16_t half = info.type == SourceType::kF16 ? f32_to_f16(v) : f32_to_bf16(v);
        block =
            info.bytes == 4 ? test::as_bytes(std::vector{bits}) : test::as_bytes(std::vector{half});
      } else {
        for (char& c : block) c = static_cast<char>(random_() & 255);
        info.read_block(reinterpret_cast<const uint8_t*>(block.data()), values);
        bool good = true;
        for (uint32_t i = 0; i < info.block; ++i) good &= std::fabs(values[i]) < 100;
        if (!good) continue;
      }
      out += block;
    }
    return out;
  }
  void write_llama(const SourceTypeInfo& info, uint64_t n_inner) {
    test::GgufBuilder b;
    b.string("general.architecture", "llama");
    for (const auto& [key, value] : {std::pair<const char*, uint64_t>{"context_length", 64},
                                     {"embedding_length", 256},
                                     {"block_count", 1},
                                     {"feed_forward_length", n_inner},
                                     {"attention.head_count", 2}}) {
      b.u32(std::string("llama.") + key, static_cast<uint32_t>(value));
    }
    b.f32("llama.attention.layer_norm_rms_epsilon", 1e-5f);
    b.f32("llama.rope.freq_base", 1e4f);
    for (const char* name : {"output_norm", "blk.0.attn_norm", "blk.0.ffn_norm"}) {
      b.f32_tensor(std::string(name) + ".weight", {256});
    }
    const auto matrix = [&](const char* name, uint64_t n_rows, uint64_t n_cols) {
      b.tensor(std::string(name) + ".weight", static_cast<uint32_t>(info.gguf), {n_rows, n_cols},
               blocks(info, n_rows * n_cols));
    };
    matrix("token_embd", 40, 256);
    for (const char* name : {"blk.0.attn_q", "blk.0.attn_k", "blk.0.attn_v", "blk.0.attn_output"}) {
      matrix(name, 256, 256);
    }
    for (const char* name : {"blk.0.ffn_gate", "blk.0.ffn_up"}) matrix(name, n_inner, 256);
    matrix("blk.0.ffn_down", 256, n_inner);
    folder_.write("m.gguf", b.file());
    source_ = folder_.file("m.gguf");
  }

  // A checkpoint of the research layout, and a text.
  void write_calibrated(const char* sizes) {
    const std::string config = test::patched(
        sizes, test::patched(R"({"tokenizer": "bytes", "vocab_size": 256, "add_bos": false,
                                 "context_length": 64})")
                   .c_str());
    test::RawTensors tensors = test::random_tensors(config);
    for (auto& [name, tensor] : tensors) {
      std::vector<float> values(tensor.bytes.size() / sizeof(float));
      for (float& v : values) v = name.find("norm") != name.npos ? 1.0f : bell(random_);
      tensor = test::f32_tensor(tensor.shape, values);
    }
    test::write_checkpoint(folder_, config, tensors);
    source_ = folder_.path();
    options_.calibration = "Sphinx of black quartz, judge my vow. Sphinx of black quartz.";
  }

  test::TempFolder folder_, target_;
  std::string source_;
  std::mt19937 random_{11};
  ConvertOptions options_;
};

constexpr Golden kGoldenTypes[] = {
    {"F32", 0x491bf1dd24e38a8au},    {"F16", 0xb682c365884ffbf7u},
    {"Q4_0", 0xc370dbee7221d3d9u},   {"Q4_1", 0xe0e12479d8791cb1u},
    {"Q5_0", 0x3de8bc8126058c4cu},   {"Q5_1", 0x3910bf895f6b37d3u},
    {"Q8_0", 0xc0e3cd146377adbeu},   {"Q2_K", 0x029a4e67cb71fc3du},
    {"Q3_K", 0x0a356e332929596du},   {"Q4_K", 0xe4af569f7105ce41u},
    {"Q5_K", 0x8d12ab05d038815au},   {"Q6_K", 0x6ae74ff78938a011u},
    {"IQ4_NL", 0x975d911838fb60aeu}, {"IQ4_XS", 0xf494910abbba4712u},
    {"BF16", 0x31e020106c5059cfu},   {"TQ1_0", 0x6fd19e5eaeb68747u},
    {"TQ2_0", 0xe1005f191d130688u},  {"MXFP4", 0x944c57d3fca3b5a2u},
    {"Q1_0", 0x6315217b8633c997u},   {"PQ2_0", 0xe5b8307ecdd39159u},
    {"PTQ1_0", 0x82643b01b1948339u}, {"IQ2_XXS", 0x09fba92fdb4d03e7u},
    {"IQ2_XS", 0x51c81fce57832239u}, {"IQ3_XXS", 0x6947b18dc718c6f4u},
    {"IQ1_S", 0x13155c100294c38fu},  {"IQ3_S", 0xec0ecd04eb6b0289u},
    {"IQ2_S", 0xf502519459c40f8eu},  {"IQ1_M", 0xa1056fba04d8e6e2u},
};

TEST_F(GoldenBytesTest, EveryTypeOfGguf) {
  size_t n = 0;
  for (const bool codebooks : {false, true}) {  // these came later, and each type draws on
    for (uint32_t number = 0; number < 256; ++number) {
      const SourceTypeInfo* info = find_gguf_type(number);
      if (info == nullptr || !info->floating || info->block == 64) continue;
      if (info->type == SourceType::kF64) continue;
      if ((info->type >= SourceType::kIq2Xxs && info->type <= SourceType::kIq1M) != codebooks) {
        continue;
      }
      write_llama(*info, 1280);
      ASSERT_LT(n, std::size(kGoldenTypes));
      ASSERT_STREQ(kGoldenTypes[n].what, info->name);
      expect(kGoldenTypes[n++]);
    }
  }
  EXPECT_EQ(n, std::size(kGoldenTypes));
}

constexpr Golden kGoldenFormats[] = {
    {"auto", 0x499454a47e98ac80u},       {"source", 0x435235461ffc8d15u},
    {"mixed4", 0x4bef1d580f442b79u},     {"ternary2", 0xf7577be8f2b162d0u},
    {"ternary3", 0x9bf705d955a135e4u},   {"int8", 0x4634fc48f9598425u},
    {"int8_group", 0x05692919b46b8d51u}, {"int4", 0x6d2d1e33cdbef550u},
    {"int4_min", 0xce64a34feebc6eb1u},   {"int4_k", 0x6fb3d168ec02d2beu},
    {"int6_k", 0xb2e709d3263d9cd7u},     {"int2_k", 0x2bf352414380156du},
    {"int3_k", 0x461c8f498338b9adu},     {"tcq2", 0x5a5588ccba6e7afcu},
    {"tcq3", 0x97ff3ff2de2ac4e9u},       {"nl4", 0x78860949218d3365u},
    {"nf4", 0x099c6eb2af2c8825u},        {"fp4", 0x9af18fee2cd786c0u},
    {"f32", 0x435235461ffc8d15u},        {"f16", 0x972b40529da7959du},
    {"bf16", 0xd6c0e82be603644eu},
};

// Rows whose length is no multiple of a group.
TEST_F(GoldenBytesTest, EveryFormat) {
  write_llama(source_type_info(SourceType::kF32), 1300);
  for (const WeightFormat& format : kWeightFormats) {
    const auto is_of = [&](const Golden& golden) {
      return std::string_view(golden.what) == format.name;
    };
    EXPECT_TRUE(format.table || format.only_blocks() ||
                std::any_of(std::begin(kGoldenFormats), std::end(kGoldenFormats), is_of))
        << format.name;
  }
  for (const Golden& golden : kGoldenFormats) {
    options_.weights = golden.what;
    options_.overrides.clear();
    if (find_weight_format(golden.what) != nullptr) {
      options_.overrides = {std::string("*.attention.*=") + golden.what};
    }
    expect(golden);
  }
}

constexpr Golden kGoldenCalibrated[] = {
    {"ternary2", 0x44f3ce9f231ac98du},   {"int8", 0xd9341c03015246d4u},
    {"int8_group", 0x7623f570ec53f26bu}, {"int4", 0xff8193a1666bb6ddu},
    {"int4_min", 0x165ea63e0db5d745u},   {"int4_k", 0xe838f017c81c63d2u},
    {"int6_k", 0x37b3dbe684effad0u},     {"int2_k", 0x17768e015e2988e9u},
    {"int3_k", 0xa11b1d908dd7adafu},     {"tcq2", 0x2f7a3e4c067936a7u},
    {"tcq3", 0xe666398f122dfa86u},       {"nl4", 0x6f6df420987c59d8u},
};

TEST_F(GoldenBytesTest, Calibrated) {
  write_calibrated(R"({"d_model": 312, "layer_defaults": {"ffn": {"d_ff": 300}}})");
  for (const Golden& golden : kGoldenCalibrated) {
    options_.weights = golden.what;
    options_.overrides = {std::string("*.attention.*=") + golden.what};
    expect(golden);
  }
}

// ThreadSanitizer has time for one layer, whose matrices have two parts each.
TEST_F(GoldenBytesTest, ThreadsShareStatistics) {
  write_calibrated(R"({"d_model": 312, "n_layers": 1, "layers": [],
                       "layer_defaults": {"ffn": {"d_ff": 300}}})");
  options_.weights = "int8";
  expect({"int8", 0xab9c555094831e3cu});
}

}  // namespace
}  // namespace moe
