// SPDX-License-Identifier: MIT
// Checkpoints of GPTQ, AWQ and compressed-tensors with integer codes: the formats they are stored
// in, and files that contradict their configuration. families_test.cpp tests their logits.

#include "quant/half.h"
#include "tests/convert/packed_checkpoint.h"

namespace moe {
namespace {

using test::kDown;
using test::PackedTest;

// Four-bit and eight-bit codes keep their scales if groups are a multiple of 32 inputs, eight-bit
// codes also with a scale per row. A four-bit zero point becomes a minimum, rounded to float16.
// Groups of 16 and permuted inputs are stored as int8, in attention as int8_group.
TEST_F(PackedTest, CodesAreKeptWhereAFormatFits) {
  const auto formats = [&](FormatId format, FormatId attention, double error, int n_expected) {
    ConvertReport report;
    const Status status = convert_patched("{}", &report);
    ASSERT_TRUE(status.ok()) << status.text();
    int n = 0;
    for (const auto& [name, m] : matrices_) {
      if (!name.starts_with("layers.") || name.ends_with("router")) continue;
      const bool in_attention = name.find(".attention.") != std::string::npos;
      EXPECT_EQ(m.format, in_attention ? attention : format) << name;
      EXPECT_LE(m.relative_error, error) << name;
      ++n;
    }
    EXPECT_EQ(n, n_expected);
  };
  constexpr int kDense = 7;           // q, k, v, o, gate, up, down
  constexpr int kSparse = 4 + 4 * 3;  // four experts
  const auto of = [&](const char* family, FormatId format, double error, int n_expected) {
    SCOPED_TRACE(family);
    open(family);
    formats(format, format, error, n_expected);
  };
  open("gptq");
  formats(FormatId::kInt8, FormatId::kInt8Group, 0.02, 2 * kDense);
  of("gptq_in_order", FormatId::kInt4, 0, kDense);  // groups of 64
  for (auto& [name, t] : tensors_) {
    if (name.ends_with(".qzeros")) t.bytes[0] = '\x76';  // one group's 7 becomes 6
  }
  formats(FormatId::kInt4Min, FormatId::kInt4Min, 1.0 / 2048, kDense);
  of("awq", FormatId::kInt4Min, 1.0 / 2048, 2 * kDense);
  of("w4a16", FormatId::kInt4Min, 1.0 / 2048, kSparse);
  of("gptq_8", FormatId::kInt8Group, 0, kDense);
  of("llm_int8", FormatId::kInt8, 0, kDense);
  // One code in 256 is -128.
  of("w8a8", FormatId::kInt8, 0.0015, 2 * kDense);
  of("w8a16_group", FormatId::kInt8Group, 0.004, kDense);
  of("w8a8_tensor", FormatId::kInt8, 0.001, kDense);
  of("nvfp4", FormatId::kInt8Group, 0.007, kDense);
  of("mxfp4", FormatId::kFp4, 0, kDense);
}

// The error of this weight is its scale; all others are exact.
TEST_F(PackedTest, TheLowestCodeOfEightBitsBecomesTheNext) {
  open("gptq_8");
  tensor(".qweight").bytes[1] = '\0';  // input 1 of output 0
  const float scale =
      f16_to_f32(static_cast<uint16_t>(static_cast<uint8_t>(tensor(".scales").bytes[0]) |
                                       static_cast<uint8_t>(tensor(".scales").bytes[1]) << 8));
  ConvertReport report;
  const Status status = convert_patched("{}", &report);
  ASSERT_TRUE(status.ok()) << status.text();
  const MatrixReport& m = matrices_.at("layers.0.ffn.down");
  EXPECT_EQ(m.format, FormatId::kInt8Group);
  EXPECT_FALSE(m.lossless);
  EXPECT_EQ(m.max_error, double{scale});
  EXPECT_LT(m.relative_error, 0.001);
  EXPECT_TRUE(matrices_.at("layers.0.ffn.up").lossless);
}

// Codes minus their zero point have nine bits. A group in which they fit in eight keeps them; the
// others are rounded.
TEST_F(PackedTest, ZeroPointsOfEightBitsAreRounded) {
  open("gptq_8");
  tensor(".qzeros").bytes[0] = '\x63';  // zero point 100 instead of 128, for output 0 in group 0
  ConvertReport report;
  ASSERT_TRUE(convert_patched("{}", &report).ok());
  const MatrixReport& m = matrices_.at("layers.0.ffn.down");
  EXPECT_EQ(m.format, FormatId::kInt8Group);
  EXPECT_GT(m.relative_error, 0.0);
  EXPECT_LT(m.relative_error, 0.001);
  tensor(".qzeros").bytes[0] = '\xFF';
  expect("{}", MOE_ERR_RANGE,
         "tensor model.layers.0.mlp.down_proj.qzeros: output 0, group 0: expected a zero point in "
         "1..255, found 256");
}

TEST_F(PackedTest, AZeroPointPastTheLastCodeOfFourBitsIsRefused) {
  open("gptq");
  tensor(".qzeros").bytes[0] = '\x7F';
  expect("{}", MOE_ERR_RANGE,
         "tensor model.layers.0.mlp.down_proj.qzeros: output 0, group 0: expected a zero point in "
         "1..15, found 16");
}

TEST_F(PackedTest, EightBitCodesInAFormatOfTheUsersChoice) {
  const auto of = [&](const char* family, const char* weights, FormatId format, bool lossless) {
    open(family);
    weights_ = weights;
    ConvertReport report;
    const Status status = convert_patched("{}", &report);
    ASSERT_TRUE(status.ok()) << status.text();
    const MatrixReport& m = matrices_.at("layers.0.attention.q");
    EXPECT_EQ(m.format, format) << family << " " << weights;
    EXPECT_EQ(m.lossless, lossless) << family << " " << weights;
  };
  of("gptq_8", "int8", FormatId::kInt8, false);
  of("gptq_8", "int8_group", FormatId::kInt8Group, true);
  of("gptq_8", "int4", FormatId::kInt8Group, true);  // eight-bit codes are kept
  EXPECT_EQ(matrices_.at("layers.0.ffn.up").format, FormatId::kInt4);
  of("llm_int8", "int8", FormatId::kInt8, true);
  of("llm_int8", "int8_group", FormatId::kInt8Group, false);
  of("llm_int8", "int4", FormatId::kInt8, true);
}

TEST_F(PackedTest, CodesThatARequestRoundsAgainAreReported) {
  const auto kept = [&](const char* family, const char* weights, const char* name) {
    open(family);
    weights_ = weights;
    ConvertReport report;
    const Status status = convert_patched("{}", &report);
    EXPECT_TRUE(status.ok()) << status.text();
    const MatrixReport& m = matrices_.at(name);
    return m.kept;
  };
  const std::optional<FormatId> none;
  EXPECT_EQ(kept("gptq_in_order", "auto", "layers.0.ffn.down"), none);
  EXPECT_EQ(kept("gptq_in_order", "int4", "layers.0.ffn.down"), none);
  EXPECT_EQ(kept("gptq_in_order", "int4_min", "layers.0.ffn.down"), FormatId::kInt4);
  EXPECT_EQ(kept("awq", "int4", "layers.0.attention.q"), FormatId::kInt4Min);
  EXPECT_EQ(kept("awq", "f32", "layers.0.ffn.up"), FormatId::kInt4Min);
  EXPECT_EQ(kept("gptq_8", "int8", "layers.0.ffn.up"), FormatId::kInt8Group);
  EXPECT_EQ(kept("bitnet_packed", "int8", "layers.0.ffn.up"), FormatId::kTernary2);
  EXPECT_EQ(matrices_.at("layers.0.ffn.up").kept_bytes * 3 < matrices_.at("layers.0.ffn.up").bytes,
            true);
  EXPECT_EQ(kept("qwen2", "int4", "layers.0.ffn.up"), none);  // it has no codes
}

// A negative scale negates the codes, and a scale of 0 makes a row of zeros.
TEST_F(PackedTest, ScalesOfRowsHaveAnySign) {
  open("w8a8");
  std::string& scales = tensor(".weight_scale").bytes;
  scales[1] = static_cast<char>(scales[1] ^ '\x80');
  scales[2] = scales[3] = '\0';
  for (char& code : tensor(".weight").bytes) code = code == '\x80' ? '\x81' : code;
  ConvertReport report;
  const Status status = convert_patched("{}", &report);
  ASSERT_TRUE(status.ok()) << status.text();
  EXPECT_EQ(matrices_.at("layers.0.ffn.down").format, FormatId::kInt8);
  EXPECT_TRUE(matrices_.at("layers.0.ffn.down").lossless);
  scales[1] = '\x7F';
  scales[0] = '\x80';
  expect("{}", MOE_ERR_NON_FINITE, "tensor model.layers.0.mlp.down_proj.weight: element (0, 0)");
}

TEST_F(PackedTest, GroupsWhoseInputsLieApartBecomeInt8) {
  open("gptq_in_order");
  std::string& index = tensor(".g_idx").bytes;  // 64 zeros, then 64 ones
  std::swap(index[0], index[64 * 4]);
  ConvertReport report;
  ASSERT_TRUE(convert_patched(R"({"quantization_config": {"desc_act": true}})", &report).ok());
  EXPECT_EQ(matrices_.at("layers.0.ffn.down").format, FormatId::kInt8);
  EXPECT_EQ(matrices_.at("layers.0.ffn.up").format, FormatId::kInt4);
}

TEST_F(PackedTest, AroundTheMiddleCodeThereIsNoMinimum) {
  open("awq");
  for (auto& [name, t] : tensors_) {
    if (name.ends_with(".qzeros")) t.bytes.assign(t.bytes.size(), '\x88');
  }
  ConvertReport report;
  ASSERT_TRUE(convert_patched("{}", &report).ok());
  const MatrixReport& m = matrices_.at("layers.0.ffn.down");
  EXPECT_EQ(m.format, FormatId::kInt4);
  EXPECT_TRUE(m.lossless);
}

TEST_F(PackedTest, AGroupIsTheTensorsOrTheIndexs) {
  open("gptq");
  tensor(".g_idx").bytes[4] = 4;  // groups are 0..3
  expect("{}", MOE_ERR_RANGE,
         "tensor model.layers.0.mlp.down_proj.g_idx: element 1: expected 0..3, found 4");
  tensor(".g_idx").bytes[7] = '\x80';
  expect("{}", MOE_ERR_RANGE, "element 1: expected 0..3, found -2147483644");
  tensor(".g_idx") = {"I32", {63}, std::string(63 * 4, '\0')};
  expect("{}", MOE_ERR_SHAPE, "down_proj.g_idx: expected (64) of I32, file has (63) of I32");
  tensors_.erase(std::string(kDown) + ".g_idx");
  expect("{}", MOE_ERR_NOT_FOUND, "tensor model.layers.0.mlp.down_proj.g_idx is missing");
  ConvertReport report;
  const Status status = convert_patched(R"({"quantization_config": {"desc_act": false}})", &report);
  EXPECT_TRUE(status.ok()) << status.text();
}

TEST_F(PackedTest, ZeroPointsAreThereWhereTheyCount) {
  const auto without = [&](const char* family, const std::string& zeros) {
    open(family);
    std::erase_if(tensors_, [&](const auto& item) { return item.first.ends_with(zeros); });
  };
  ConvertReport report;
  without("gptq", ".qzeros");
  expect("{}", MOE_ERR_NOT_FOUND,
         "down_proj.qzeros is missing; config.json: quantization_config says gptq");
  without("awq", ".qzeros");
  expect("{}", MOE_ERR_NOT_FOUND,
         "down_proj.qzeros is missing; config.json: quantization_config says awq");
  EXPECT_TRUE(convert_patched(R"({"quantization_config": {"zero_point": false}})", &report).ok());
  without("w4a16", ".weight_zero_point");
  expect("{}", MOE_ERR_NOT_FOUND, ".weight_zero_point is missing");
  EXPECT_TRUE(convert_patched(
                  R"({"quantization_config": {"config_groups": {"group_0": {"weights":
                      {"symmetric": true}}}}})",
                  &report)
                  .ok());
}

TEST_F(PackedTest, AMatrixIsOneOfTheConfigGroups) {
  const auto weights = [](const std::string& patch) {
    return R"({"quantization_config": {"config_groups": {"group_0": {"weights": )" + patch + "}}}}";
  };
  open("w4a16");
  expect(weights(R"({"num_bits": 8})").c_str(), MOE_ERR_SHAPE,
         ".weight_packed: codes of 4 bits with a scale for each 32 inputs; config.json: "
         "quantization_config has no such group");
  expect(weights(R"({"group_size": 16})").c_str(), MOE_ERR_SHAPE, "has no such group");
  expect(weights(R"({"group_size": 16, "actorder": "group"})").c_str(), MOE_ERR_SHAPE,
         "has no such group");
  open("w8a8");
  expect(weights(R"({"strategy": "group", "group_size": 16})").c_str(), MOE_ERR_SHAPE,
         "has no such group");
}

TEST_F(PackedTest, GroupsInAnotherOrderHaveAnIndex) {
  open("w8a8");
  for (auto& [name, t] : tensors_) {
    if (!name.ends_with("down_proj.weight_scale")) continue;
    t = {"BF16", {32, 2}, std::string(128, '\x3C')};
  }
  const auto weights = [](const std::string& order) {
    return R"({"strategy": "group", "group_size": 32, "actorder": ")" + order + "\"}";
  };
  const auto groups = [](const std::string& of_0, const std::string& more) {
    return R"({"quantization_config": {"config_groups": {"group_0": {"weights": )" + of_0 + "}" +
           more + "}}}";
  };
  expect(groups(weights("group"), "").c_str(), MOE_ERR_NOT_FOUND,
         "down_proj.weight_g_idx is missing; config.json: quantization_config says "
         "compressed-tensors");
  ConvertReport report;
  EXPECT_TRUE(convert_patched(groups(weights("weight"), "").c_str(), &report).ok());
  // If two groups apply to a matrix, a tensor that only one of them needs may be missing.
  const std::string second = R"(, "group_1": {"weights": {"num_bits": 8, "group_size": 32}})";
  EXPECT_TRUE(convert_patched(groups(weights("group"), second).c_str(), &report).ok());
}

TEST_F(PackedTest, ActivationScalesAreIgnored) {
  open("w8a8");
  const std::string two(2, '\0');
  for (const char* part : {".input_scale", ".input_zero_point", ".output_scale"}) {
    tensor_there(part) = {"BF16", {1}, two};
  }
  tensors_["model.layers.0.self_attn.k_scale"] = {"BF16", {1}, two};
  tensors_["model.layers.0.self_attn.v_scale"] = {"BF16", {1}, two};
  ConvertReport report;
  const Status status = convert_patched("{}", &report);
  EXPECT_TRUE(status.ok()) << status.text();
  open("gptq");
  tensor_there(".bias") = {"F16", {32}, std::string(64, '\0')};
  const Status zeros = convert_patched("{}", &report);
  EXPECT_TRUE(zeros.ok()) << zeros.text();
  tensor(".bias").bytes[3] = 1;
  expect("{}", MOE_ERR_FORMAT, "down_proj.bias: config.json describes no such tensor");
}

// The small scale becomes 0 in float16, and the large one overflows.
TEST_F(PackedTest, AMatrixWhoseScalesFloat16CannotHoldGetsEightBits) {
  constexpr float kSmall = 2e-8f, kLarge = 1e5f;
  constexpr int kAll = 32;
  const auto stored = [&](float scale, int how_many) {
    open("w4a16");
    std::string& bytes = tensors_.at("model.layers.0.self_attn.q_proj.weight_scale").bytes;
    EXPECT_EQ(bytes.size(), 2u * kAll);
    const uint32_t bits = f32_to_bits(scale) >> 16;
    const std::string one = {static_cast<char>(bits), static_cast<char>(bits >> 8)};
    for (int i = 0; i < how_many; ++i) bytes.replace(static_cast<size_t>(2 * i), 2, one);
    ConvertReport report;
    const Status status = convert_patched("{}", &report);
    EXPECT_TRUE(status.ok()) << status.text();
    const MatrixReport m = matrices_["layers.0.attention.q"];
    EXPECT_LE(m.relative_error, m.format == FormatId::kInt4Min ? 1.0 / 1024 : 0.02);
    return m.format;
  };
  EXPECT_EQ(stored(kSmall, 1), FormatId::kInt4Min);  // its weights are negligible
  EXPECT_EQ(stored(kSmall, kAll - 1), FormatId::kInt4Min);
  EXPECT_EQ(stored(kSmall, kAll), FormatId::kInt8);
  EXPECT_EQ(stored(kLarge, 1), FormatId::kInt8Group);
  EXPECT_EQ(stored(kLarge, kAll), FormatId::kInt8Group);
}

TEST_F(PackedTest, TheConfigurationFitsTheTensors) {
  open("gptq_8");
  expect(R"({"quantization_config": {"bits": 4}})", MOE_ERR_SHAPE,
         ".scales: expected (8, 64) for 4 bits and groups of 32 inputs");
  expect(R"({"quantization_config": {"group_size": -1}})", MOE_ERR_SHAPE,
         ".scales: expected (1, 64) for 8 bits and groups of 128 inputs");
  expect(R"({"quantization_config": {"group_size": 48}})", MOE_ERR_SHAPE,
         "48 inputs in a group do not divide its 128 inputs");
  open("gptq");
  expect(R"({"quantization_config": {"bits": 8}})", MOE_ERR_SHAPE,
         "as config.json: quantization_config and");
  expect(R"({"quantization_config": {"group_size": 32}})", MOE_ERR_SHAPE,
         ".scales: expected (2, 32) for 4 bits and groups of 32 inputs, as config.json: "
         "quantization_config");
  expect(R"({"quantization_config": {"group_size": 24}})", MOE_ERR_SHAPE,
         "24 inputs in a group do not divide its");
  expect(R"({"quantization_config": {"bits": 3}})", MOE_ERR_UNSUPPORTED, "4 and 8 are");
  expect(R"({"quantization_config": {"is_marlin_format": true}})", MOE_ERR_UNSUPPORTED,
         "is_marlin_format");
  expect(R"({"quantization_config": {"quant_method": "awq"}})", MOE_ERR_UNSUPPORTED,
         "checkpoint_format: \"gptq\" is not supported; gemm is");
  expect(R"({"quantization_config": {"quant_method": "awq", "checkpoint_format": "gemm"}})",
         MOE_ERR_SHAPE, "qweight");
  expect(R"({"quantization_config": {"quant_method": "compressed-tensors",
             "format": "pack-quantized", "config_groups": {"group_0": {"weights":
             {"num_bits": 4}}}}})",
         MOE_ERR_FORMAT, "says compressed-tensors, but no tensor NAME.weight_packed");
  expect(R"({"quantization_config": {"quant_method": "quanto"}})", MOE_ERR_UNSUPPORTED, "quanto");
  tensors_.erase(std::string(kDown) + ".scales");
  expect("{}", MOE_ERR_NOT_FOUND, "tensor model.layers.0.mlp.down_proj.scales is missing");
  open("awq");
  expect(R"({"quantization_config": {"version": "gemv"}})", MOE_ERR_UNSUPPORTED, "gemm is");
  tensor(".qzeros").dtype = "F32";
  expect("{}", MOE_ERR_FORMAT, "down_proj.qzeros: expected I32, file has F32");
}

TEST_F(PackedTest, CompressedTensorsFitTheirShapes) {
  open("w4a16");
  expect(R"({"quantization_config": {"format": "mxfp6-pack-quantized"}})", MOE_ERR_UNSUPPORTED,
         "format: \"mxfp6-pack-quantized\" is not supported; pack-quantized, int-quantized, "
         "naive-quantized, float-quantized, mxfp8-quantized, nvfp4-pack-quantized, "
         "mxfp4-pack-quantized are");
  expect(R"({"quantization_config": {"format": "float-quantized"}})", MOE_ERR_UNSUPPORTED,
         "config_groups.group_0.weights.type: \"int\" is not supported; float is in format "
         "float-quantized");
  expect(R"({"quantization_config": {"format": "float-quantized", "config_groups": {"group_0":
             {"weights": {"type": "float"}}}}})",
         MOE_ERR_UNSUPPORTED, "config_groups.group_0.weights.num_bits: 4 is not supported; 8 is");
  expect(R"({"quantization_config": {"format": "mixed-precision"}})", MOE_ERR_UNSUPPORTED,
         "format: \"mixed-precision\" is not supported");
  expect(R"({"quantization_config": {"config_groups": {"group_0": {"weights": null}}}})",
         MOE_ERR_FORMAT, "config_groups: expected a group with weights");
  expect(R"({"quantization_config": {"transform_config": {"config_groups": {"R1": {}}}}})",
         MOE_ERR_UNSUPPORTED, "convert a checkpoint without transforms");
  expect(
      R"({"quantization_config": {"config_groups": {"group_0": {"weights": {"type": "float"}}}}})",
      MOE_ERR_UNSUPPORTED, "config_groups.group_0.weights.type");
  const char* const kQ = "model.layers.0.self_attn.q_proj";
  tensors_.at(std::string(kQ) + ".weight_shape").bytes[8] = 31;
  expect("{}", MOE_ERR_SHAPE, "q_proj.weight_packed: (32, 4) holds no codes of 4 or 8 bits of");
  open("w8a8");
  tensor(".weight_scale") = {"BF16", {32, 3}, std::string(192, '\x3F')};
  expect("{}", MOE_ERR_SHAPE, "down_proj.weight: 3 groups do not divide its 64 inputs");
}

TEST_F(PackedTest, OneScaleOfAMatrixIsThatOfItsRows) {
  const auto strategy = [](const std::string& name) {
    return R"({"quantization_config": {"config_groups": {"group_0": {"weights": {"strategy": ")" +
           name + "\"}}}}}";
  };
  const auto with = [&](const test::RawTensor& scales, const std::string& patch, moe_status code,
                        const char* text) {
    open("w8a8_tensor");
    tensor(".weight_scale") = scales;
    expect(patch.c_str(), code, text);
  };
  const auto scales = [](std::vector<int64_t> shape, float value) {
    int64_t n = 1;
    for (const int64_t side : shape) n *= side;
    return test::f32_tensor(shape, std::vector<float>(static_cast<size_t>(n), value));
  };
  with(scales({}, 0.5f), "{}", MOE_OK, "");
  with(scales({64, 1}, 0.5f), "{}", MOE_ERR_SHAPE,
       "tensor model.layers.0.mlp.down_proj.weight_scale: expected (1, 1) for 8 bits and groups of "
       "128 inputs, as config.json: quantization_config and model.layers.0.mlp.down_proj.weight "
       "say; file has "
       "(64, 1)");
  with(scales({1}, 0.5f), strategy("channel"), MOE_ERR_SHAPE, "weight_scale: expected (64, 1)");
  with(scales({1, 2}, 0.5f), "{}", MOE_ERR_SHAPE, "has no such group");
  with(scales({1}, NAN), "{}", MOE_ERR_NON_FINITE, "down_proj.weight: element (0, 0)");
  with({"I32", {1}, std::string(4, '\1')}, "{}", MOE_ERR_FORMAT,
       "down_proj.weight_scale: expected F16, BF16 or F32, file has I32");
  open("w8a8_tensor");
  tensors_.erase(std::string(kDown) + ".weight_scale");
  expect("{}", MOE_ERR_NOT_FOUND, "down_proj.weight_scale is missing");
  open("w8a8_tensor");
  for (auto& [name, t] : tensors_) {
    for (char& code : t.bytes) code = t.dtype == "I8" && code == '\x80' ? '\x81' : code;
  }
  ConvertReport report;
  ASSERT_TRUE(convert_patched("{}", &report).ok());
  EXPECT_TRUE(matrices_.at("layers.0.ffn.down").lossless);
}

TEST_F(PackedTest, OneZeroPointOfAMatrixIsThatOfItsRows) {
  const char* const patch = R"({"quantization_config": {"config_groups": {"group_0": {"weights":
      {"symmetric": false}}}}})";
  open("w8a8_tensor");
  expect(patch, MOE_ERR_NOT_FOUND, "weight_zero_point is missing");
  for (const auto& [name, t] : test::RawTensors(tensors_)) {
    if (t.dtype == "I8") tensors_[name + "_zero_point"] = {"I8", {1}, "\3"};
  }
  ConvertReport report;
  const Status status = convert_patched(patch, &report);
  ASSERT_TRUE(status.ok()) << status.text();
  EXPECT_LT(matrices_.at("layers.0.ffn.down").relative_error, 0.01);
  tensor(".weight_zero_point") = {"I8", {64, 1}, std::string(64, '\3')};
  expect(patch, MOE_ERR_SHAPE, "down_proj.weight_zero_point: expected (1, 1)");
}

// transformers 5 writes "format", older programs "checkpoint_format".
TEST_F(PackedTest, TheFormatOfCodesMayHaveEitherName) {
  open("gptq");
  const auto values = [&](const char* keys) {
    ConvertReport report;
    const std::string patch = "{\"quantization_config\": {" + std::string(keys) + "}}";
    const Status status = convert_patched(patch.c_str(), &report);
    EXPECT_TRUE(status.ok()) << status.text();
    return stored_down();
  };
  const std::vector<float> first = values(R"("checkpoint_format": "gptq")");
  const std::vector<float> second = values(R"("checkpoint_format": "gptq_v2")");
  EXPECT_NE(first, second);
  EXPECT_EQ(values(R"("checkpoint_format": null)"), first);
  EXPECT_EQ(values(R"("checkpoint_format": null, "format": "GPTQ")"), first);
  EXPECT_EQ(values(R"("checkpoint_format": null, "format": "gptq_v2")"), second);
  EXPECT_EQ(values(R"("checkpoint_format": "gptq", "format": "gptq_v2")"), first);
  expect(R"({"quantization_config": {"checkpoint_format": null, "format": "marlin"}})",
         MOE_ERR_UNSUPPORTED, "format: \"marlin\" is not supported; gptq and gptq_v2 are");
  expect(R"({"quantization_config": {"rotation": "hadamard"}})", MOE_ERR_UNSUPPORTED, "rotation");
  open("awq");
  EXPECT_EQ(values(R"("version": null, "format": "gemm")"), values(R"("version": "GEMM")"));
  expect(R"({"quantization_config": {"version": null, "format": "gemv_fast"}})",
         MOE_ERR_UNSUPPORTED, "format: \"gemv_fast\" is not supported; gemm is");
  expect(R"({"quantization_config": {"version": null, "backend": "llm-awq"}})", MOE_ERR_UNSUPPORTED,
         "backend: \"llm-awq\" is not supported");
}

TEST_F(PackedTest, ErrorsNameTheFileThatSaysIt) {
  open("fp8_fused");
  std::erase_if(tensors_, [](const auto& t) { return t.second.dtype == "F8_E4M3"; });
  const char* const silent = R"({"quantization_config": null})";
  folder_.write("hf_quant_config.json", R"({"quantization": {"quant_algo": "FP8"}})");
  expect(silent, MOE_ERR_FORMAT,
         "hf_quant_config.json says modelopt, but no tensor NAME.weight of F8_E4M3");
  folder_.write("hf_quant_config.json", R"({"quant_algo": "NVFP4"})");
  expect(silent, MOE_ERR_FORMAT,
         "hf_quant_config.json says modelopt, but no tensor NAME.weight of U8 is there");
  folder_.write("quantize_config.json", R"({"bits": 4, "group_size": 32})");
  expect(silent, MOE_ERR_FORMAT,
         "quantize_config.json says gptq, but no tensor NAME.qweight with a NAME.scales is there");
  open("gptq");
  expect(silent, MOE_ERR_SHAPE, "inputs, as quantize_config.json and ");
  tensors_.erase(std::string(kDown) + ".scales");
  expect(silent, MOE_ERR_NOT_FOUND, ".scales is missing; quantize_config.json says gptq");
}

TEST_F(PackedTest, CodesWithoutAConfigurationAreNamed) {
  const auto refused = [&](const char* family, const char* text) {
    open(family);
    expect(R"({"quantization_config": null})", MOE_ERR_FORMAT, text);
  };
  refused(
      "gptq",
      ".qweight: looks like GPTQ or AWQ, but config.json has no quantization_config, which says "
      "how to read it; take config.json from the published checkpoint");
  refused("awq", ".qweight: looks like GPTQ or AWQ");
  refused("w4a16", ".weight_packed: looks like compressed-tensors");
  refused("nvfp4", ".weight_packed: looks like compressed-tensors");
  refused("w8a8", ".weight: looks like codes of 8 bits");
  refused("llm_int8", ".SCB: looks like LLM.int8 of bitsandbytes");
  refused("nf4", ".weight.absmax: looks like bitsandbytes");
  refused("deepseek_v3_fp8", ": looks like FP8, but config.json has no quantization_config");
}

// In a checkpoint of two kinds each reader leaves the other's matrices.
TEST_F(PackedTest, GroupsHaveFormatsOfTheirOwn) {
  open("nvfp4");
  const test::RawTensors fours = tensors_;
  const std::string config = config_;
  open("w8a8_tensor");
  for (const auto& [name, t] : fours) {
    if (name.find("down_proj") != std::string::npos) tensors_[name] = t;
  }
  tensors_.erase(std::string(kDown) + ".weight");
  const Json groups = parse_json(config, "nvfp4").at("quantization_config").at("config_groups");
  const std::string patch = R"({"quantization_config": {"config_groups": {"four": )" +
                            groups.at("group_0").dump() + "}}}";
  ConvertReport report;
  const Status status = convert_patched(patch.c_str(), &report);
  ASSERT_TRUE(status.ok()) << status.text();
  EXPECT_EQ(matrices_.at("layers.0.ffn.down").format, FormatId::kInt8Group);
  EXPECT_EQ(matrices_.at("layers.0.ffn.up").format, FormatId::kInt8);
}

TEST_F(PackedTest, ScalesThatAreNoNumbersAreNamed) {
  open("awq");
  tensor(".scales").bytes.replace(0, 2, "\x00\x7E", 2);
  expect("{}", MOE_ERR_NON_FINITE, "tensor model.layers.0.mlp.down_proj.weight: element (0, 0)");
  tensor(".scales").bytes.replace(0, 2, "\x00\x00", 2);  // a scale of 0: zeros
  ConvertReport report;
  EXPECT_TRUE(convert_patched("{}", &report).ok());
}

}  // namespace
}  // namespace moe
