// SPDX-License-Identifier: MIT
// The stored format of a matrix: by default, by the caller's format and by rules.

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "quant/formats.h"
#include "src/convert/weights/precision.h"
#include "tests/convert/convert_fixture.h"

namespace moe {
namespace {

using test::ConvertTest;
using test::patched;

class StoredFormatTest : public ConvertTest {
 protected:
  FormatId format(const std::string& name) const { return matrices_.at(name).format; }
  void convert_all() {
    options_.verify = true;
    const Status status = run();
    ASSERT_TRUE(status.ok()) << status.text();
    test::ConvertedModel model(path());  // checks every tensor against the configuration
  }
};

constexpr const char* kEveryRole = R"({"d_model": 36, "layers": [{"index": 1, "ffn": {"kind": "moe",
    "moe": {"n_experts": 4, "n_subheads": 3, "mh": true, "shared": {"d_ff": 8, "gated": true},
            "router": {"kind": "softmax", "k": 2}}}}]})";

bool is_shared(const std::string& name) {
  return name == "embedding" || name == "head" || name == "layers.1.moe.head" ||
         name == "layers.1.moe.merge" ||
         (name.find(".attention.") != std::string::npos && name.find("norm") == std::string::npos);
}

TEST_F(StoredFormatTest, WhatEveryTokenUsesIsInt8GroupByDefault) {
  config_ = patched(kEveryRole);
  tensors_ = test::random_tensors(config_);
  for (const char* weights : {"auto", "int8", "int8_group"}) {
    SCOPED_TRACE(weights);
    options_.weights = weights;
    convert_all();
    size_t n_shared = 0, n_others = 0;
    for (const auto& [name, m] : matrices_) {
      if (!format_info(m.format).integer) continue;
      const bool shared = is_shared(name);
      ++(shared ? n_shared : n_others);
      const bool by_group =
          weights == std::string("int8_group") || (shared && weights == std::string("auto"));
      EXPECT_EQ(m.format, by_group ? FormatId::kInt8Group : FormatId::kInt8) << name;
      EXPECT_EQ(m.act, by_group ? ActPrecision::kA8Group : ActPrecision::kA8Block) << name;
    }
    EXPECT_EQ(n_shared, 2u + 2 * 4 + 2);
    EXPECT_EQ(n_others, 3u + 4 * 3 + 3);
    EXPECT_EQ(format("layers.1.moe.router"), FormatId::kF32);
  }
}

TEST_F(StoredFormatTest, RulesReplaceTheDefault) {
  config_ = patched(R"({"precision": [
      {"match": "layers.0.attention.*", "weights": "int8", "activations": "a8"},
      {"match": "layers.1.attention.q", "activations": "a8"},
      {"match": "head", "weights": "bf16"}]})");
  options_.overrides = {"layers.1.attention.k=int8", "layers.0.attention.v=auto"};
  convert_all();
  EXPECT_EQ(format("layers.0.attention.q"), FormatId::kInt8);
  EXPECT_EQ(matrices_.at("layers.0.attention.q").act, ActPrecision::kA8);
  EXPECT_EQ(format("layers.0.attention.v"), FormatId::kInt8Group);
  EXPECT_EQ(format("layers.1.attention.q"), FormatId::kInt8Group);
  EXPECT_EQ(matrices_.at("layers.1.attention.q").act, ActPrecision::kA8);
  EXPECT_EQ(format("layers.1.attention.k"), FormatId::kInt8);
  EXPECT_EQ(format("layers.1.attention.v"), FormatId::kInt8Group);
  EXPECT_EQ(format("head"), FormatId::kBf16);
  options_.weights = "int8";
  options_.overrides = {"embedding=auto"};
  convert_all();
  EXPECT_EQ(format("embedding"), FormatId::kInt8Group);
  EXPECT_EQ(format("layers.1.attention.v"), FormatId::kInt8);
}

// int8_group's float16 scales hold weights up to 127 times the largest float16.
TEST_F(StoredFormatTest, WeightsTooLargeForTheDefaultAreInt8) {
  constexpr float kMost = 127.0f * 65504.0f;
  const auto enlarge = [&](const char* name, float largest) {
    std::string& bytes = tensors_.at(name).bytes;
    std::memcpy(bytes.data() + bytes.size() - sizeof largest, &largest, sizeof largest);
  };
  enlarge("layers.0.attention.q.weight", -std::nextafter(kMost, INFINITY));
  enlarge("layers.0.attention.o.weight", kMost);
  enlarge("embedding.weight", 1e30f);
  std::string halves;  // from 1024 to 65504
  for (int i = 0; i < 40 * 24; ++i) {
    const int bits = i == 0 ? 0x7BFF : 0x6400 + i * 37 % 0x17FF;
    halves += {static_cast<char>(bits & 0xFF), static_cast<char>(bits >> 8)};
  }
  tensors_["head.weight"] = {"F16", {40, 24}, halves};
  for (const char* weights : {"auto", "int4"}) {
    SCOPED_TRACE(weights);
    options_.weights = weights;
    convert_all();
    EXPECT_EQ(format("layers.0.attention.q"), FormatId::kInt8);
    EXPECT_EQ(matrices_.at("layers.0.attention.q").act, ActPrecision::kA8Block);
    EXPECT_EQ(format("layers.0.attention.o"), FormatId::kInt8Group);
    EXPECT_EQ(format("embedding"), FormatId::kInt8);
    EXPECT_EQ(format("head"), FormatId::kInt8Group);
    std::filesystem::remove(path());
  }
  options_.weights = "auto";
  options_.overrides = {"embedding=int8_group"};
  expect_nothing_written(MOE_ERR_RANGE,
                         "tensor embedding.weight as int8_group: row 39: weight 23: expected at "
                         "most 8.31901e+06, found 1e+30");
}

TEST_F(StoredFormatTest, Int8IsTheDefaultIfItHasNoLargerError) {
  std::vector<float> w(24 * 24);
  for (size_t i = 0; i < w.size(); ++i) w[i] = static_cast<float>(i % 24 == 0 ? 127 : i * 5 % 127);
  replace("layers.0.attention.q.weight", w);  // both hold whole numbers up to 127
  for (float& v : w) v *= 1e-8f;              // f16 has no such scales
  replace("layers.0.attention.o.weight", w);
  convert_all();
  EXPECT_EQ(format("layers.0.attention.q"), FormatId::kInt8);
  EXPECT_TRUE(matrices_.at("layers.0.attention.q").lossless);
  EXPECT_EQ(format("layers.0.attention.o"), FormatId::kInt8);
  EXPECT_LT(matrices_.at("layers.0.attention.o").relative_error, 0.01);
  EXPECT_EQ(format("layers.0.attention.k"), FormatId::kInt8Group);
}

TEST_F(StoredFormatTest, ADefaultForWeightsThatAreNotFiniteNamesThem) {
  std::vector<float> w(24 * 24, 0.5f);
  w[7 * 24 + 5] = NAN;
  replace("layers.0.attention.q.weight", w);
  expect_nothing_written(
      MOE_ERR_NON_FINITE,
      "tensor layers.0.attention.q.weight: element (7, 5) of layers.0.attention.q is NaN");
}

TEST_F(StoredFormatTest, FourBitsAreForLinearMatrices) {
  for (const char* weights : {"int4", "int4_min", "int4_k", "nl4", "nf4", "fp4"}) {
    SCOPED_TRACE(weights);
    options_.weights = weights;
    options_.overrides = {std::string("layers.0.attention.*=") + weights};
    options_.verify = true;
    auto model = converted();
    const FormatId id = find_weight_format(weights)->id;
    for (const Matrix& m :
         {model->matrix(Part::kAttention, 0, -1, Role::kO),  // chosen by the override
          model->matrix(Part::kFfn, 0, -1, Role::kGate),
          model->matrix(Part::kExperts, 1, 3, Role::kDown)}) {
      EXPECT_EQ(m.format, id);
      EXPECT_EQ(m.scale_kind, ScaleKind::kGroup);
      EXPECT_EQ(m.group, 32);
      EXPECT_EQ(m.act, ActPrecision::kA8Group);
      EXPECT_EQ(m.scales, nullptr);
    }
    EXPECT_EQ(model->matrix(Part::kEmbedding, -1, -1, Role::kWeight).format, FormatId::kInt8Group);
    EXPECT_EQ(model->matrix(Part::kHead, -1, -1, Role::kWeight).format, FormatId::kInt8Group);
    EXPECT_EQ(model->matrix(Part::kAttention, 1, -1, Role::kO).format, FormatId::kInt8Group);
    EXPECT_EQ(model->matrix(Part::kRouter, 1, -1, Role::kScores).format, FormatId::kF32);
    for (const auto& [name, report] : matrices_) {
      EXPECT_LT(report.relative_error, id == FormatId::kFp4 ? 0.15 : 0.1) << name;
    }
    std::filesystem::remove(path());
  }
}

// Layer 0 is among the first eighth of eight layers; of those between, every third has six bits.
TEST_F(StoredFormatTest, MixedFourBits) {
  PrecisionPolicy policy = PrecisionPolicy::mixed4({}, {}, 24);
  const auto chosen = [&](Role role, SlotKind kind, int32_t layer) {
    Slot slot;
    slot.role = role;
    slot.kind = kind;
    slot.name = "layers.0.ffn.down.weight";
    return policy.choose(slot, BitLinear::kNo, layer).weights;
  };
  std::string six;
  for (int32_t l = 0; l < 24; ++l) {
    if (chosen(Role::kDown, SlotKind::kLinear, l) == FormatId::kInt6K)
      six += std::to_string(l) + " ";
    EXPECT_EQ(chosen(Role::kGate, SlotKind::kLinear, l), FormatId::kInt4K);
    EXPECT_EQ(chosen(Role::kUp, SlotKind::kLinear, l), FormatId::kInt4K);
    EXPECT_EQ(chosen(Role::kV, SlotKind::kLinear, l), FormatId::kInt6K);
  }
  EXPECT_EQ(six, "0 1 2 5 8 11 14 17 20 21 22 23 ");
  EXPECT_EQ(chosen(Role::kWeight, SlotKind::kVocab, -1), FormatId::kInt6K);
  EXPECT_EQ(chosen(Role::kScores, SlotKind::kExact, 3), std::nullopt);
  EXPECT_EQ(chosen(Role::kWeight, SlotKind::kVector, 3), FormatId::kF32);
}

TEST_F(StoredFormatTest, MixedFourBitsOfAModel) {
  options_.weights = "mixed4";
  options_.overrides = {"layers.0.attention.q=int8"};
  options_.verify = true;
  auto model = converted();
  EXPECT_EQ(model->matrix(Part::kAttention, 0, -1, Role::kQ).format, FormatId::kInt8);
  EXPECT_EQ(model->matrix(Part::kAttention, 0, -1, Role::kO).format, FormatId::kInt6K);
  EXPECT_EQ(model->matrix(Part::kHead, -1, -1, Role::kWeight).format, FormatId::kInt6K);
  EXPECT_EQ(model->matrix(Part::kEmbedding, -1, -1, Role::kWeight).format, FormatId::kInt6K);
  EXPECT_EQ(model->matrix(Part::kFfn, 0, -1, Role::kGate).format, FormatId::kInt4K);
  EXPECT_EQ(model->matrix(Part::kExperts, 1, 3, Role::kDown).format, FormatId::kInt4K);
  EXPECT_EQ(model->matrix(Part::kRouter, 1, -1, Role::kScores).format, FormatId::kF32);
}

TEST_F(StoredFormatTest, SourceKeepsEveryWeight) {
  options_.weights = "source";
  options_.overrides = {"head=int8"};
  options_.verify = true;
  auto model = converted();
  EXPECT_EQ(model->matrix(Part::kHead, -1, -1, Role::kWeight).format, FormatId::kInt8);
  for (const auto& [name, report] : matrices_) {
    EXPECT_EQ(report.lossless, name != "head") << name;
  }
  EXPECT_EQ(model->matrix(Part::kExperts, 1, 3, Role::kDown).format, FormatId::kF32);
  EXPECT_EQ(model->matrix(Part::kExperts, 1, 3, Role::kDown).act, ActPrecision::kF32);
}

// Six bits are precise enough for what every token uses.
TEST_F(StoredFormatTest, SixBitsAreForEveryLinearMatrix) {
  options_.weights = "int6_k";
  options_.verify = true;
  auto model = converted();
  for (const Matrix& m : {model->matrix(Part::kAttention, 0, -1, Role::kO),
                          model->matrix(Part::kExperts, 1, 3, Role::kDown)}) {
    EXPECT_EQ(m.format, FormatId::kInt6K);
    EXPECT_EQ(m.group, 16);
    EXPECT_EQ(m.act, ActPrecision::kA8Group);
  }
  EXPECT_EQ(model->matrix(Part::kHead, -1, -1, Role::kWeight).format, FormatId::kInt8Group);
  for (const auto& [name, report] : matrices_) EXPECT_LT(report.relative_error, 0.03) << name;
}

// Two and three bits are not for what every token uses.
TEST_F(StoredFormatTest, FewBitsAreForExperts) {
  for (const FormatId format : {FormatId::kInt2K, FormatId::kInt3K}) {
    options_.weights = format_info(format).name;
    options_.verify = true;
    auto model = converted();
    const Matrix& down = model->matrix(Part::kExperts, 1, 3, Role::kDown);
    EXPECT_EQ(down.format, format);
    EXPECT_EQ(down.group, 16);
    EXPECT_EQ(down.act, ActPrecision::kA8Group);
    EXPECT_EQ(model->matrix(Part::kAttention, 0, -1, Role::kO).format, FormatId::kInt8Group);
    for (const auto& [name, report] : matrices_) {
      EXPECT_LT(report.relative_error, format == FormatId::kInt2K ? 0.31 : 0.17) << name;
    }
  }
}

TEST_F(StoredFormatTest, WeightsThatFourBitsCannotHoldAreNamed) {
  std::vector<float> w(24 * 24, 0.5f);
  w[19 * 24 + 5] = 1e30f;
  replace("layers.0.attention.q.weight", w);
  options_.overrides = {"layers.0.attention.q=int4"};
  options_.weights = "int4";
  expect_nothing_written(
      MOE_ERR_RANGE,
      "tensor layers.0.attention.q.weight as int4: row 19: weight 5: expected at most "
      "458528, found 1e+30");
}

}  // namespace
}  // namespace moe
