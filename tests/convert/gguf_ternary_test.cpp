// SPDX-License-Identifier: MIT
// GGUF files of ternary models as bitnet.cpp writes them.

#include <gtest/gtest.h>

#include <cmath>

#include "formats/import/failure.h"
#include "src/convert/gguf/gguf_source.h"
#include "src/convert/packed/bitnet.h"
#include "tests/convert/converted_model.h"
#include "tests/convert/gguf_builder.h"

namespace moe {
namespace {

using test::GgufBuilder;

constexpr uint32_t kF16 = 1, kI2S = 36, kChannels = 128, kNumHeads = 4, kKvWidth = 64,
                   kFfnWidth = 256;

// -1, 0 and 1 in no order that a block has.
int weight_at(uint64_t i) { return static_cast<int>(i * i / 7 % 5 * 2 % 3) - 1; }

// Written from the layout that bitnet.cpp documents: a block of 4 n weights has n bytes; byte i
// holds weights i, i + n, i + 2 n and i + 3 n, the first in its highest bits.
std::string i2_s(uint64_t n_weights, uint64_t n, float scale) {
  std::string out(n_weights / 4, '\0');
  for (uint64_t w = 0; w < n_weights; ++w) {
    const uint64_t place = w % (4 * n);
    const int bits = 6 - 2 * static_cast<int>(place / n);
    char& byte = out[w / (4 * n) * n + place % n];
    byte = static_cast<char>(byte | (weight_at(w) + 1) << bits);
  }
  return out + GgufBuilder::raw(scale) + std::string(28, '\0');
}

class GgufTernary : public testing::Test {
 protected:
  // A decoder of one layer; `n` bytes a block.
  static GgufBuilder model(const std::string& arch, uint64_t n = 32) {
    GgufBuilder b;
    b.string("general.architecture", arch);
    for (const auto& [key, value] : {std::pair{"context_length", 64u},
                                     {"embedding_length", kChannels},
                                     {"block_count", 1u},
                                     {"feed_forward_length", kFfnWidth},
                                     {"attention.head_count", kNumHeads},
                                     {"attention.head_count_kv", 2u},
                                     {"rope.dimension_count", kChannels / kNumHeads},
                                     {"vocab_size", 16u}}) {
      b.u32(arch + "." + key, value);
    }
    b.f32(arch + ".attention.layer_norm_rms_epsilon", 1e-5f);
    b.f32(arch + ".rope.freq_base", 5e5f);
    b.tensor("token_embd.weight", kF16, {16, kChannels}, std::string(16 * kChannels * 2, '\x2c'));
    b.f32_tensor("output_norm.weight", {kChannels});
    const bool norms = arch.starts_with("bitnet");
    for (const char* name : {"attn_norm", "ffn_norm", "attn_sub_norm", "ffn_sub_norm"}) {
      const bool inner = std::string(name) == "ffn_sub_norm";
      if (!norms && std::string(name).find("sub") != std::string::npos) continue;
      b.f32_tensor(std::string("blk.0.") + name + ".weight", {inner ? kFfnWidth : kChannels});
    }
    const auto matrix = [&](const char* name, uint64_t rows, uint64_t cols) {
      b.tensor(std::string("blk.0.") + name + ".weight", kI2S, {rows, cols},
               i2_s(rows * cols, n, 0.75f));
    };
    matrix("attn_q", kChannels, kChannels);
    matrix("attn_k", kKvWidth, kChannels);
    matrix("attn_v", kKvWidth, kChannels);
    matrix("attn_output", kChannels, kChannels);
    matrix("ffn_gate", kFfnWidth, kChannels);
    matrix("ffn_up", kFfnWidth, kChannels);
    matrix("ffn_down", kChannels, kFfnWidth);
    return b;
  }
  Status run(const GgufBuilder& b) {
    folder_.write("m.gguf", b.file());
    ConvertReport report;
    matrices_.clear();
    options_.verify = true;
    options_.on_matrix = [this](const MatrixReport& m) { matrices_[m.name] = m; };
    return convert(folder_.file("m.gguf"), folder_.file("m.moe"), options_, &report);
  }
  void expect_weights(Part part, Role role) {
    test::ConvertedModel model(folder_.file("m.moe"));
    const std::vector<float> found = model.values(model.matrix(part, 0, -1, role));
    for (size_t i = 0; i < found.size(); ++i) {
      ASSERT_EQ(found[i], 0.75f * static_cast<float>(weight_at(i))) << i;
    }
  }
  void expect(const GgufBuilder& b, moe_status code, std::initializer_list<const char*> parts) {
    const Status status = run(b);
    EXPECT_EQ(status.code(), code);
    const std::string text = status.text();
    for (const char* part : parts) EXPECT_NE(text.find(part), std::string::npos) << text;
    EXPECT_EQ(text.find("Q4_K"), std::string::npos) << text;
  }

  test::TempFolder folder_;
  ConvertOptions options_;
  std::map<std::string, MatrixReport> matrices_;
};

TEST_F(GgufTernary, I2sIsStoredWithoutLoss) {
  for (const char* arch : {"bitnet-b1.58", "bitnet-25", "bitnet", "llama"}) {
    SCOPED_TRACE(arch);
    const Status status = run(model(arch));
    ASSERT_TRUE(status.ok()) << status.text();
    size_t n = 0;
    for (const auto& [name, m] : matrices_) {
      if (name == "embedding") continue;
      EXPECT_EQ(m.format, FormatId::kTernary2) << name;
      EXPECT_EQ(m.scale, ScaleKind::kTensor) << name;
      EXPECT_EQ(m.act, ActPrecision::kA8) << name;
      EXPECT_TRUE(m.lossless) << name;
      EXPECT_EQ(m.source_bytes,
                static_cast<uint64_t>(m.rows) * static_cast<uint64_t>(m.cols) / 4 + 32);
      ++n;
    }
    EXPECT_EQ(n, 7u);
    expect_weights(Part::kFfn, Role::kDown);
    expect_weights(Part::kAttention, Role::kV);
  }
}

TEST_F(GgufTernary, Bitnet25IsBitnetB158) {
  folder_.write("a.gguf", model("bitnet-b1.58").file());
  folder_.write("b.gguf", model("bitnet-25").file());
  const auto config = [&](const char* name) {
    return open_checkpoint(folder_.file(name)).document("config.json");
  };
  EXPECT_EQ(config("a.gguf"), config("b.gguf"));
  EXPECT_EQ(config("a.gguf").at("hidden_act"), "relu2");
}

// The file does not say in which blocks its weights are.
TEST_F(GgufTernary, BlocksOfArm) {
  options_.i2_s_arm = true;
  const Status status = run(model("bitnet-b1.58", 16));
  ASSERT_TRUE(status.ok()) << status.text();
  expect_weights(Part::kFfn, Role::kUp);
  expect_weights(Part::kAttention, Role::kQ);
}

TEST_F(GgufTernary, CodesAndScalesAreChecked) {
  GgufBuilder b = model("bitnet-b1.58");
  std::string bytes = i2_s(kChannels, 32, 1);
  bytes[5] = '\x0c';  // the third of its weights
  GgufBuilder bad;
  bad.string("general.architecture", "llama");
  bad.tensor("t", kI2S, {1, kChannels}, bytes);
  const auto read = [&](const GgufBuilder& file) {
    folder_.write("t.gguf", file.file());
    return guarded([&] {
      Checkpoint checkpoint(folder_.file("t.gguf"));
      unpack_i2_s(&checkpoint, false);
      std::vector<float> out(kChannels);
      checkpoint.read(*checkpoint.find("t"), 0, out.size(), out.data());
    });
  };
  EXPECT_STREQ(read(bad).text(),
               "tensor t: row 0, column 69: packed value 3 stands for no ternary weight");
  for (const float scale : {-1.0f, NAN, INFINITY}) {
    GgufBuilder c;
    c.tensor("t", kI2S, {1, kChannels}, i2_s(kChannels, 32, scale));
    EXPECT_EQ(read(c).code(), MOE_ERR_NON_FINITE) << scale;
  }
  GgufBuilder narrow;
  narrow.tensor("t", kI2S, {2, 64}, i2_s(kChannels, 16, 1));
  EXPECT_NE(std::string(read(narrow).text()).find("--i2s-arm"), std::string::npos);
  GgufBuilder cut;
  cut.tensor("t", kI2S, {1, kChannels}, std::string(32, '\1'));
  EXPECT_EQ(read(cut).code(), MOE_ERR_FORMAT);
}

// Their codes are in an order that only the build of bitnet.cpp knows.
TEST_F(GgufTernary, AdviceForOtherTypesSuitsATernaryModel) {
  const auto with = [&](const char* arch, uint32_t type, uint64_t bytes, const char* name = "") {
    GgufBuilder b;
    b.string("general.architecture", arch);
    b.string("general.name", name);
    b.tensor("blk.0.ffn_down.weight", type, {32, 256}, std::string(bytes, '\1'));
    b.f32_tensor("blk.0.ffn_down.weight_scale", {1});
    return b;
  };
  expect(with("llama", 38, 2048), MOE_ERR_UNSUPPORTED,
         {"tensor blk.0.ffn_down.weight has type TL1", "how bitnet.cpp was built", "I2_S"});
  expect(with("llama", 39, 1664), MOE_ERR_UNSUPPORTED, {"has type TL2", "TQ1_0 or TQ2_0"});
  expect(with("bitnet-25", 39, 4352), MOE_ERR_UNSUPPORTED, {"has type TL2"});
  expect(with("bitnet-b1.58", 40, 4608), MOE_ERR_UNSUPPORTED, {"type NVFP4", "safetensors"});
  expect(with("llama", 40, 4608, "Falcon3-1.58bit"), MOE_ERR_UNSUPPORTED, {"I2_S"});
}

}  // namespace
}  // namespace moe
