// Checkpoints of GPTQ, AWQ, compressed-tensors, bitsandbytes, FP8, ModelOpt and Quark: the formats
// they are stored in, and files that contradict their configuration. families_test.cpp tests their
// logits.

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "formats/import/failure.h"
#include "formats/import/safetensors.h"
#include "quant/half.h"
#include "src/convert/convert.h"
#include "tests/convert/converted_model.h"
#include "tests/convert/tiny_checkpoint.h"

namespace moe {
namespace {

const char* const kDown = "model.layers.0.mlp.down_proj";

class PackedTest : public testing::Test {
 protected:
  // Loads a checkpoint of tests/data/families, which tests modify.
  void open(const std::string& family) {
    const std::string folder = "tests/data/families/" + family;
    const InputFile file(folder + "/model.safetensors");
    tensors_.clear();
    for (const SourceTensor& t : read_safetensors_header(file, 0)) {
      std::string bytes(source_bytes(t.type, t.n_elements), '\0');
      file.read(t.offset, bytes.data(), bytes.size());
      tensors_[t.name] = {source_type_info(t.type).name, t.shape, bytes};
    }
    config_ = read_json_file(folder + "/config.json").dump();
  }
  test::RawTensor& tensor_there(const char* part) { return tensors_[std::string(kDown) + part]; }
  test::RawTensor& tensor(const char* part) { return tensors_.at(std::string(kDown) + part); }
  Status convert_patched(const char* patch, ConvertReport* report) {
    test::write_checkpoint(folder_, test::patched(patch, config_.c_str()), tensors_);
    ConvertOptions options;
    options.verify = true;
    options.weights = weights_;
    matrices_.clear();
    options.on_matrix = [this](const MatrixReport& m) { matrices_[m.name] = m; };
    return convert(folder_.path(), folder_.file("m.moe"), options, report);
  }
  void expect(const char* patch, moe_status code, const char* part) {
    ConvertReport report;
    const Status status = convert_patched(patch, &report);
    EXPECT_EQ(status.code(), code) << status.text();
    EXPECT_NE(std::string(status.text()).find(part), std::string::npos) << status.text();
  }

  // Of the first layer, as stored in the model file.
  std::vector<float> stored(Part part, Role role, int32_t expert = -1) {
    test::ConvertedModel model(folder_.file("m.moe"));
    return model.values(model.matrix(part, 0, expert, role));
  }
  std::vector<float> stored_down() { return stored(Part::kFfn, Role::kDown); }

  test::TempFolder folder_;
  test::RawTensors tensors_;
  std::string config_;
  std::string weights_ = "auto";
  std::map<std::string, MatrixReport> matrices_;
};

// Four-bit and eight-bit codes keep their scales if groups are a multiple of 32 inputs, eight-bit
// codes also with a scale per row. A four-bit zero point becomes a minimum, rounded to float16.
// Groups of 16 and permuted inputs are stored as int8.
TEST_F(PackedTest, CodesAreKeptWhereAFormatFits) {
  const auto formats = [&](FormatId format, double error, int n_expected) {
    ConvertReport report;
    const Status status = convert_patched("{}", &report);
    ASSERT_TRUE(status.ok()) << status.text();
    int n = 0;
    for (const auto& [name, m] : matrices_) {
      if (!name.starts_with("layers.") || name.ends_with("router")) continue;
      EXPECT_EQ(m.format, format) << name;
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
    formats(format, error, n_expected);
  };
  of("gptq", FormatId::kInt8, 0.02, 2 * kDense);
  of("gptq_in_order", FormatId::kInt4, 0, kDense);  // groups of 64
  for (auto& [name, t] : tensors_) {
    if (name.ends_with(".qzeros")) t.bytes[0] = '\x76';  // one group's 7 becomes 6
  }
  formats(FormatId::kInt4Min, 1.0 / 2048, kDense);
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

TEST_F(PackedTest, RowsOfLlmInt8AreWhatTheirScalesSay) {
  open("llm_int8");
  const test::RawTensor codes = tensor(".weight"), largest = tensor(".SCB");
  const auto with = [&](const char* part, const test::RawTensor& t, moe_status code,
                        const std::string& text) {
    open("llm_int8");
    tensor(part) = t;
    expect("{}", code, text.c_str());
  };
  with(".SCB", test::f32_tensor({63}, std::vector<float>(63)), MOE_ERR_SHAPE,
       "tensor model.layers.0.mlp.down_proj.SCB: expected (64) of F32, one for each row of "
       "model.layers.0.mlp.down_proj.weight; file has (63) of F32");
  with(".SCB", {"I32", {64}, largest.bytes}, MOE_ERR_FORMAT, "file has (64) of I32");
  std::vector<float> values(64, 1.0f);
  values[5] = NAN;
  with(".SCB", test::f32_tensor({64}, values), MOE_ERR_NON_FINITE,
       "down_proj.SCB: element 5: expected a finite number from 0 on, found nan");
  values[5] = -1.0f;
  with(".SCB", test::f32_tensor({64}, values), MOE_ERR_RANGE, "element 5: expected a finite");
  with(".weight", {"U8", codes.shape, codes.bytes}, MOE_ERR_FORMAT,
       "tensor model.layers.0.mlp.down_proj.weight: expected a matrix of I8, file has (64, 72) of "
       "U8");
  with(".weight", {"I8", {64 * 72}, codes.bytes}, MOE_ERR_SHAPE, "file has (4608) of I8");
  with(".weight", {"I8", {72, 64}, codes.bytes}, MOE_ERR_SHAPE, "expected (72) of F32");
  with(".weight_format", {"U8", {1}, "\2"}, MOE_ERR_UNSUPPORTED,
       "down_proj.weight_format: expected 0, codes in the order of rows, found 2");
  with(".weight_format", {"U8", {2}, std::string(2, '\0')}, MOE_ERR_FORMAT,
       "down_proj.weight_format: expected a number of U8, file has (2) of U8");
  const auto without = [&](const char* part) {
    open("llm_int8");
    tensors_.erase(std::string(kDown) + part);
    expect("{}", MOE_ERR_NOT_FOUND,
           (std::string("down_proj") + part + " is missing; quantization_config says load_in_8bit")
               .c_str());
  };
  without(".SCB");
  without(".weight");
  open("llm_int8");
  values[5] = 0.0f;  // a row of zeros, in a file without weight_format
  tensor(".SCB") = test::f32_tensor({64}, values);
  tensors_.erase(std::string(kDown) + ".weight_format");
  ConvertReport report;
  EXPECT_TRUE(convert_patched("{}", &report).ok());
  EXPECT_TRUE(matrices_.at("layers.0.ffn.down").lossless);
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

TEST_F(PackedTest, Mxfp4StaysFp4) {
  open("gpt_oss_mxfp4");
  ConvertReport report;
  ASSERT_TRUE(convert_patched("{}", &report).ok());
  for (const char* part : {"gate", "up", "down"}) {
    const MatrixReport& m = matrices_.at(std::string("layers.1.moe.experts.5.") + part);
    EXPECT_EQ(m.format, FormatId::kFp4) << part;
    EXPECT_TRUE(m.lossless) << part;
  }
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

TEST_F(PackedTest, ActivationScalesOfFp8AreIgnored) {
  open("llama");
  const std::string attention = "model.layers.0.self_attn.";
  const test::RawTensor one = test::f32_tensor({1}, {1.0f});
  for (const std::string matrix : {"k", "v"}) {
    const std::string name = attention + matrix + "_proj";
    tensors_[name + ".weight"] = {"F8_E4M3", {16, 32}, std::string(512, '\x38')};
    for (const char* part : {".weight_scale", ".input_scale", ".activation_scale", ".output_scale",
                             ".output_zero_point"}) {
      tensors_[name + part] = one;
    }
    tensors_[attention + matrix + "_scale"] = one;
    tensors_[attention + matrix + "_zero_point"] = one;
  }
  const char* const says = R"({"quantization_config": {"quant_method": "fp8"}})";
  ConvertReport report;
  const Status status = convert_patched(says, &report);
  EXPECT_TRUE(status.ok()) << status.text();
  tensors_[attention + "q_scale"] = one;
  expect(says, MOE_ERR_FORMAT, "self_attn.q_scale: config.json describes no such tensor");
}

TEST_F(PackedTest, Fp8IsCodesTimesScales) {
  open("deepseek_v3_fp8");
  for (const auto& [name, t] : tensors_) {
    if (!name.ends_with("down_proj.weight")) continue;
    EXPECT_EQ(t.dtype, "F8_E4M3") << name;
  }
  ConvertReport report;
  ASSERT_TRUE(convert_patched("{}", &report).ok());
  for (const auto& [name, m] : matrices_) EXPECT_LE(m.relative_error, 0.02) << name;
  EXPECT_EQ(matrices_.at("layers.0.ffn.down").format, FormatId::kInt8);
  const test::RawTensor scales = tensor(".weight_scale_inv");
  tensor(".weight_scale_inv").shape = {1, 4};
  expect("{}", MOE_ERR_SHAPE,
         "down_proj.weight_scale_inv: expected (2, 2), a scale for each 16 by 24 of the (32, 40) "
         "weights; file has (1, 4)");
  tensor(".weight_scale_inv") = {"I32", scales.shape, scales.bytes};
  expect("{}", MOE_ERR_FORMAT,
         "down_proj.weight_scale_inv: expected F16, BF16, F32 or F8_E8M0, file has I32");
  tensor(".weight_scale_inv") = scales;
  tensor(".weight_scale_inv").bytes.replace(0, 4, std::string("\x00\x00\x80\x7F", 4));
  expect("{}", MOE_ERR_NON_FINITE,
         "down_proj.weight_scale_inv: row 0, column 0: its scale makes this weight infinite");
  tensor(".weight_scale_inv") = scales;
  tensor(".weight").bytes[40 + 3] = '\xFF';
  expect("{}", MOE_ERR_NON_FINITE, "down_proj.weight: row 1, column 3: the code is NaN");
  tensors_.erase(std::string(kDown) + ".weight_scale_inv");
  expect("{}", MOE_ERR_NOT_FOUND,
         "tensor model.layers.0.mlp.down_proj.weight_scale_inv is missing; config.json: "
         "quantization_config says "
         "fp8");
}

TEST_F(PackedTest, Fp8IsWhatItsConfigurationSays) {
  open("deepseek_v3_fp8");
  const auto says = [](const std::string& patch) {
    return R"({"quantization_config": )" + patch + "}";
  };
  expect(says(R"({"weight_block_size": [16]})").c_str(), MOE_ERR_FORMAT,
         "weight_block_size: expected numbers of outputs and of inputs");
  expect(says(R"({"weight_block_size": [16, 0]})").c_str(), MOE_ERR_FORMAT,
         "weight_block_size[1]: expected an integer in 1..1048576");
  expect(says(R"({"weight_block_size": null})").c_str(), MOE_ERR_SHAPE, "expected (1, 1)");
  expect(says(R"({"fmt": "e5m2"})").c_str(), MOE_ERR_FORMAT, "fmt: expected one of e4m3");
  open("llama");
  expect(says(R"({"quant_method": "fp8"})").c_str(), MOE_ERR_FORMAT,
         "quantization_config says fp8, but no tensor NAME.weight of F8_E4M3 is there");
}

// The small scale becomes 0 in float16, and the large one overflows.
TEST_F(PackedTest, AMatrixWhoseScalesFloat16CannotHoldBecomesInt8) {
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
    EXPECT_LE(m.relative_error, m.format == FormatId::kInt8 ? 0.02 : 1.0 / 1024);
    return m.format;
  };
  EXPECT_EQ(stored(kSmall, 1), FormatId::kInt4Min);  // its weights are negligible
  EXPECT_EQ(stored(kSmall, kAll - 1), FormatId::kInt4Min);
  EXPECT_EQ(stored(kSmall, kAll), FormatId::kInt8);
  EXPECT_EQ(stored(kLarge, 1), FormatId::kInt8);
  EXPECT_EQ(stored(kLarge, kAll), FormatId::kInt8);
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
  expect(R"({"quantization_config": {"quant_method": "awq"}})", MOE_ERR_SHAPE, "qweight");
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

TEST_F(PackedTest, Fp4IsWhatItsTensorsSay) {
  const auto with = [&](const char* family, const char* part, const test::RawTensor& t,
                        moe_status code, const char* text) {
    open(family);
    tensor(part) = t;
    expect("{}", code, text);
  };
  const std::string ones(512, '\x38');
  with("nvfp4", ".weight_scale", {"F8_E4M3", {64, 4}, ones.substr(256)}, MOE_ERR_SHAPE,
       "tensor model.layers.0.mlp.down_proj.weight_scale: expected (64, 8), a scale for each 16 "
       "inputs of the (64, 128) weights; file has (64, 4)");
  with("nvfp4", ".weight_scale", {"F16", {64, 4}, ones}, MOE_ERR_FORMAT,
       "down_proj.weight_scale: expected F8_E4M3, F8_E8M0 or U8, file has F16");
  with("nvfp4", ".weight_scale", {"F8_E4M3", {64, 8}, ones.substr(1) + '\x7F'}, MOE_ERR_NON_FINITE,
       "down_proj.weight_scale: row 63, group 7: the scale is NaN");
  with("nvfp4", ".weight_packed", {"U8", {4096}, std::string(4096, '\0')}, MOE_ERR_SHAPE,
       "down_proj.weight_packed: expected a matrix, file has (4096)");
  const auto global = [&](const test::RawTensor& t, moe_status code, const char* text) {
    with("nvfp4", ".weight_global_scale", t, code, text);
  };
  global(test::f32_tensor({2}, {1, 1}), MOE_ERR_SHAPE,
         "down_proj.weight_global_scale: expected one number of F32, file has (2) of F32");
  global({"F16", {1}, "\1\1"}, MOE_ERR_FORMAT, "expected one number of F32, file has (1) of F16");
  global(test::f32_tensor({1}, {0}), MOE_ERR_RANGE,
         "down_proj.weight_global_scale: expected a finite number above 0, found 0");
  global(test::f32_tensor({1}, {-1}), MOE_ERR_RANGE, "above 0, found -1");
  global(test::f32_tensor({1}, {NAN}), MOE_ERR_NON_FINITE, "above 0, found nan");
  global(test::f32_tensor({1}, {INFINITY}), MOE_ERR_NON_FINITE, "above 0, found inf");
  global(test::f32_tensor({1}, {1e-38f}), MOE_ERR_NON_FINITE, "its scale makes weights infinite");
  for (const char* part : {".weight_scale", ".weight_global_scale"}) {
    open("nvfp4");
    tensors_.erase(std::string(kDown) + part);
    expect("{}", MOE_ERR_NOT_FOUND,
           (std::string("down_proj") + part +
            " is missing; config.json: quantization_config says compressed-tensors")
               .c_str());
  }
  const std::string exponents(256, '\x7F');
  with("mxfp4", ".weight_scale", {"U8", {64, 4}, exponents.substr(1) + '\xFF'}, MOE_ERR_NON_FINITE,
       "down_proj.weight_scale: row 63, group 3: the scale is NaN");
  with("mxfp4", ".weight_scale", {"U8", {64, 4}, exponents.substr(1) + '\xFE'}, MOE_ERR_NON_FINITE,
       "row 63, group 3: its scale makes weights infinite");
  with("mxfp4", ".weight_scale", {"F8_E8M0", {64, 4}, exponents}, MOE_OK, "");
  EXPECT_EQ(matrices_.at("layers.0.ffn.down").format, FormatId::kFp4);
  open("mxfp4");
  std::erase_if(tensors_, [](const auto& t) { return t.first.ends_with(".weight_packed"); });
  expect("{}", MOE_ERR_FORMAT, "but no tensor NAME.weight_packed of U8 is there");
}

// The same values; the global scale was inverted and rounded.
void expect_near(const std::vector<float>& found, const std::vector<float>& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); ++i) {
    ASSERT_NEAR(found[i], expected[i], 2e-3f * std::fabs(expected[i])) << i;
  }
}

// The names and configurations of ModelOpt for the tensors of compressed-tensors.
TEST_F(PackedTest, ModelOptSaysTheSameInOtherWords) {
  open("nvfp4");
  ConvertReport report;
  ASSERT_TRUE(convert_patched("{}", &report).ok());
  const FormatId format = matrices_.at("layers.0.ffn.down").format;
  const std::vector<float> before = stored_down();
  const auto rename = [this](std::string_view from, std::string_view to) {
    for (const auto& [name, t] : test::RawTensors(tensors_)) {
      if (!name.ends_with(from)) continue;
      tensors_[name.substr(0, name.size() - from.size()) + std::string(to)] = t;
      tensors_.erase(name);
    }
  };
  rename(".weight_packed", ".weight");
  rename(".weight_global_scale", ".weight_scale_2");
  for (auto& [name, t] : tensors_) {
    if (!name.ends_with("_scale_2")) continue;
    float global = 0;
    std::memcpy(&global, t.bytes.data(), sizeof global);
    t = test::f32_tensor({}, {1 / global});
  }
  tensors_["model.layers.0.self_attn.k_proj.k_scale"] = test::f32_tensor({}, {1});
  const auto says = [](const std::string& rest) {
    return R"({"quantization_config": {"quant_method": "modelopt", )" + rest + "}}";
  };
  const Status status = convert_patched(says(R"("quant_algo": "NVFP4")").c_str(), &report);
  ASSERT_TRUE(status.ok()) << status.text();
  EXPECT_EQ(matrices_.at("layers.0.ffn.down").format, format);
  expect_near(stored_down(), before);
  const std::string layer = R"("quantized_layers": {"a": {"quant_algo": "NVFP4"}, "b": )";
  const std::string mixed = R"("quant_algo": "MIXED_PRECISION", )" + layer;
  expect(says(mixed + R"({"quant_algo": "FP8"}})").c_str(), MOE_ERR_FORMAT,
         "says modelopt, but no tensor NAME.weight of F8_E4M3 is there");
  expect(says(mixed + R"({"quant_algo": "W4A8_AWQ"}})").c_str(), MOE_ERR_UNSUPPORTED,
         "quantized_layers.b.quant_algo: \"W4A8_AWQ\" is not supported; FP8, ");
  expect(says(R"("quant_algo": "NVFP4_AWQ")").c_str(), MOE_ERR_UNSUPPORTED,
         "quant_algo: \"NVFP4_AWQ\" is not supported");
  folder_.write("hf_quant_config.json",
                R"({"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "NVFP4"}})");
  const char* const silent = R"({"quantization_config": null})";
  EXPECT_TRUE(convert_patched(silent, &report).ok());
  expect_near(stored_down(), before);
  folder_.write("hf_quant_config.json", R"({"quantization": {"quant_algo": "W8A16"}})");
  expect(silent, MOE_ERR_UNSUPPORTED,
         "hf_quant_config.json: quantization.quant_algo: \"W8A16\" is not supported");
}

// Scales of the cache, also of projections that are not quantised, or of no matrix at all.
TEST_F(PackedTest, ScalesOfTheCacheAreIgnored) {
  const std::string attention = "model.layers.0.self_attn.";
  const auto with_scales = [&](const char* family) {
    open(family);
    for (const char* name :
         {"k_proj.k_scale", "v_proj.v_scale", "k_proj.output_scale", "k_scale", "v_zero_point"}) {
      tensors_[attention + name] = test::f32_tensor({}, {0.25f});
    }
    for (const char* name : {"k_proj.k_bias", "v_proj.v_bias"}) {
      tensors_[attention + name] = test::f32_tensor({32}, std::vector<float>(32, 0.5f));
    }
  };
  const auto config = [](const char* name) {
    return R"({"quantization_config": )" + std::string(name) + "}";
  };
  ConvertReport report;
  open("llama");
  ASSERT_TRUE(convert_patched("{}", &report).ok());
  const std::vector<float> keys = stored(Part::kAttention, Role::kK);
  const auto converts = [&](const std::string& patch) {
    const Status status = convert_patched(patch.c_str(), &report);
    ASSERT_TRUE(status.ok()) << status.text();
    EXPECT_EQ(stored(Part::kAttention, Role::kK), keys);
  };
  with_scales("llama");
  expect("{}", MOE_ERR_FORMAT, "config.json describes no such tensor");  // nothing is quantised
  converts(config(R"({"quant_method": "modelopt", "kv_cache_quant_algo": "FP8"})"));
  converts(config(R"({"quant_method": "compressed-tensors", "config_groups": {},
                      "kv_cache_scheme": {"num_bits": 8, "type": "float"}})"));
  tensors_[attention + "k_proj.pre_quant_scale"] = test::f32_tensor({64}, std::vector<float>(64));
  expect(config(R"({"quant_method": "modelopt"})").c_str(), MOE_ERR_FORMAT,
         "k_proj.pre_quant_scale: config.json describes no such tensor");
  with_scales("llama");
  folder_.write("hf_quant_config.json", R"({"quantization": {"quant_algo": null}})");
  converts("{}");
  // Only the down projection is FP8.
  test::RawTensor& codes = tensor(".weight");
  codes = {"F8_E4M3", codes.shape,
           std::string(static_cast<size_t>(codes.shape[0] * codes.shape[1]), '\x38')};
  tensor_there(".weight_scale") = test::f32_tensor({}, {0.5f});
  folder_.write("hf_quant_config.json", R"({"quantization": {"quant_algo": "FP8"}})");
  converts("{}");
  const std::vector<float> down = stored_down();
  EXPECT_EQ(down, std::vector<float>(down.size(), 0.5f));
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

TEST_F(PackedTest, QuarkHasMxfp4AndFp8) {
  open("mxfp4");
  for (const auto& [name, t] : test::RawTensors(tensors_)) {
    constexpr std::string_view kEnd = "_packed";
    if (!name.ends_with(kEnd)) continue;
    tensors_[name.substr(0, name.size() - kEnd.size())] = t;
    tensors_.erase(name);
  }
  const auto says = [](const std::string& weight, const std::string& more = "") {
    return R"({"quantization_config": {"quant_method": "quark", "global_quant_config": {"weight": )" +
           weight + "}" + more + "}}";
  };
  const std::string four =
      R"({"dtype": "fp4", "qscheme": "per_group", "group_size": 32, "scale_format": "e8m0"})";
  ConvertReport report;
  const Status status = convert_patched(says(four).c_str(), &report);
  ASSERT_TRUE(status.ok()) << status.text();
  EXPECT_EQ(matrices_.at("layers.0.ffn.down").format, FormatId::kFp4);
  EXPECT_TRUE(matrices_.at("layers.0.ffn.down").lossless);
  const auto refused = [&](const std::string& patch, const char* text) {
    expect(patch.c_str(), MOE_ERR_UNSUPPORTED, text);
  };
  refused(says(R"({"dtype": "int4", "qscheme": "per_group"})"),
          "global_quant_config.weight.dtype: \"int4\" is not supported; fp8_e4m3 and fp4");
  refused(says("[" + four + "]"), "global_quant_config.weight: ");
  refused(says(R"({"dtype": "fp4", "qscheme": "per_group", "group_size": 16})"),
          "weight.group_size: 16 is not supported");
  refused(says(four, R"(, "algo_config": [{"name": "awq"}, {"name": "rotation"}])"),
          "algo_config[1].name: \"rotation\" is not supported; convert a checkpoint without it");
  refused(says(four, R"(, "layer_quant_config": {"*.q_proj": {"weight": {"dtype": "int8"}}})"),
          "layer_quant_config.*.q_proj.weight.dtype: \"int8\"");
  expect(says(four, R"(, "layer_quant_config": {"*.q_proj": {"weight":
                        {"dtype": "fp8_e4m3", "qscheme": "per_channel"}}})")
             .c_str(),
         MOE_ERR_FORMAT, "says quark, but no tensor NAME.weight of F8_E4M3 is there");
  tensor(".weight_scale").dtype = "F8_E4M3";
  expect(says(four).c_str(), MOE_ERR_FORMAT,
         "down_proj.weight_scale: expected F8_E8M0 or U8, file has F8_E4M3");
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

TEST_F(PackedTest, ExpertsOfALayerAreOneTensorOfFp8) {
  const std::string experts = "model.layers.0.mlp.experts.";
  open("fp8_fused");
  ConvertReport report;
  const Status status = convert_patched("{}", &report);
  ASSERT_TRUE(status.ok()) << status.text();
  for (const char* part : {"gate", "up", "down"}) {
    EXPECT_LE(matrices_.at(std::string("layers.0.moe.experts.3.") + part).relative_error, 0.02);
  }
  const test::RawTensor scales = tensors_.at(experts + "gate_up_proj_scale_inv");
  const auto with = [&](const std::string& part, const test::RawTensor& t, moe_status code,
                        const char* text) {
    open("fp8_fused");
    tensors_[experts + part] = t;
    expect("{}", code, text);
  };
  EXPECT_EQ(scales.shape, (std::vector<int64_t>{4, 6, 8}));
  with("gate_up_proj_scale_inv", {"F32", {4, 8, 6}, scales.bytes}, MOE_ERR_SHAPE,
       "tensor model.layers.0.mlp.experts.gate_up_proj_scale_inv: expected (4, 6, 8), a scale for "
       "each 16 by 8 of the (4, 96, 64) weights; file has (4, 8, 6)");
  with("gate_up_proj_scale_inv", {"F8_E8M0", {4, 6, 8}, std::string(192, '\x70')}, MOE_OK, "");
  with("gate_up_proj_scale_inv", {"U8", {4, 6, 8}, std::string(192, '\x70')}, MOE_OK, "");
  // The last expert's last scale.
  with("gate_up_proj_scale_inv", {"U8", {4, 6, 8}, std::string(191, '\x70') + '\xFF'},
       MOE_ERR_NON_FINITE, "gate_up_proj_scale_inv: row 368, column 56: its scale makes");
  with("down_proj", {"F8_E4M3", {4, 64, 1, 48}, std::string(12288, '\0')}, MOE_ERR_SHAPE,
       "down_proj: expected (4, 64, 48), file has (4, 64, 1, 48)");
  with("down_proj", {"F8_E4M3", {0, 64, 48}, ""}, MOE_ERR_SHAPE,
       "down_proj: expected a matrix, or one for each expert; file has (0, 64, 48)");
  open("fp8_fused");
  tensors_.erase(experts + "down_proj_scale_inv");
  expect("{}", MOE_ERR_NOT_FOUND,
         "tensor model.layers.0.mlp.experts.down_proj_scale_inv is missing; config.json: "
         "quantization_config says fp8");
}

// An FP8 tensor that is named like an unused scale of another matrix is removed with that matrix.
TEST_F(PackedTest, AnUnusedScaleOfFp8IsNoMatrix) {
  open("fp8_fused");
  const test::RawTensor one = {"F8_E4M3", {1, 1, 1}, std::string(1, '\x38')};
  tensors_["a"] = one;
  tensors_["a.input_scale"] = one;
  tensors_["a_scale_inv"] = test::f32_tensor({1, 1, 1}, {1.0f});
  expect("{}", MOE_ERR_FORMAT, "tensor a: config.json describes no such tensor");
}

float e4m3(uint8_t code) {
  const int exponent = code >> 3 & 15, mantissa = code & 7;
  const float size = exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -9)
                                   : std::ldexp(static_cast<float>(8 + mantissa), exponent - 10);
  return code & 128 ? -size : size;
}

// Without blocks a gate and its up have a scale each, or one together.
TEST_F(PackedTest, ScalesOfFusedExpertsAreOnePerHalf) {
  const std::string experts = "model.layers.0.mlp.experts.";
  constexpr int kCount = 4;
  constexpr size_t kHalf = 48 * 64;
  const auto scaled = [&](const std::vector<int64_t>& shape, const std::vector<float>& scales) {
    open("fp8_fused");
    for (auto& [name, t] : tensors_) {
      const bool fused = name.starts_with(experts);
      if (!name.ends_with("_scale_inv")) continue;
      t = test::f32_tensor(fused ? std::vector<int64_t>{kCount, 1, 1} : std::vector<int64_t>{},
                           std::vector<float>(fused ? kCount : 1, 1.0f));
    }
    tensors_[experts + "gate_up_proj_scale_inv"] = test::f32_tensor(shape, scales);
    ConvertReport report;
    weights_ = "f32";
    const Status status =
        convert_patched(R"({"quantization_config": {"weight_block_size": null}})", &report);
    ASSERT_TRUE(status.ok()) << status.text();
    const std::string& codes = tensors_.at(experts + "gate_up_proj").bytes;
    for (int e = 0; e < kCount; ++e) {
      for (size_t half = 0; half < 2; ++half) {
        const auto at = static_cast<size_t>(e);
        const float scale = scales[scales.size() == 2 * kCount ? 2 * at + half : at];
        std::vector<float> expected;
        for (size_t i = 0; i < kHalf; ++i) {
          const auto code = static_cast<uint8_t>(codes[(2 * at + half) * kHalf + i]);
          expected.push_back(e4m3(code) * scale);
        }
        EXPECT_EQ(stored(Part::kExperts, half == 0 ? Role::kGate : Role::kUp, e), expected)
            << "expert " << e << ", half " << half;
      }
    }
  };
  scaled({kCount, 2, 1}, {1, 2, 3, 4, 5, 6, 7, 8});
  scaled({kCount, 1, 1}, {1, 2, 3, 4});
  scaled({kCount}, {1, 2, 3, 4});
}

// Blocks of 64 weights: rows of 96 inputs divide into groups of 32, although a block may span two
// rows; rows of 40 do not.
TEST_F(PackedTest, Nf4KeepsItsCodes) {
  open("nf4");
  ConvertReport report;
  const Status status = convert_patched("{}", &report);
  ASSERT_TRUE(status.ok()) << status.text();
  for (const char* part :
       {"attention.q", "attention.k", "attention.v", "attention.o", "ffn.gate", "ffn.up"}) {
    const MatrixReport& m = matrices_.at(std::string("layers.0.") + part);
    EXPECT_EQ(m.format, FormatId::kNf4) << part;
    EXPECT_LT(m.relative_error, 0.006) << part;
    EXPECT_GT(m.relative_error, 0.003) << part;  // the table is rounded
  }
  EXPECT_EQ(matrices_.at("layers.0.ffn.down").format, FormatId::kInt8);
  // A checkpoint that does not name its method, with a different table for one matrix.
  tensor_there(".weight.quant_map").bytes.replace(4, 4, std::string("\0\0\x40\xBF", 4));
  const std::string up = "model.layers.0.mlp.up_proj.weight.quant_map";
  tensors_.at(up) = tensor(".weight.quant_map");
  const Status older =
      convert_patched(R"({"quantization_config": {"quant_method": null}})", &report);
  ASSERT_TRUE(older.ok()) << older.text();
  EXPECT_EQ(matrices_.at("layers.0.ffn.up").format, FormatId::kInt8);
  EXPECT_EQ(matrices_.at("layers.0.ffn.gate").format, FormatId::kNf4);
}

TEST_F(PackedTest, Fp4OfBitsandbytesBecomesInt8) {
  open("bnb_fp4");
  ConvertReport report;
  const Status status = convert_patched("{}", &report);
  ASSERT_TRUE(status.ok()) << status.text();
  for (const auto& [name, m] : matrices_) {
    EXPECT_EQ(m.format, FormatId::kInt8) << name;
    EXPECT_LE(m.relative_error, 0.02) << name;
  }
}

TEST_F(PackedTest, BlocksAreWhatTheirStateSays) {
  const char* const kStateName = ".weight.quant_state.bitsandbytes__nf4";
  open("nf4");
  const test::RawTensor right = tensor(kStateName);
  const auto expect_state = [&](const char* from, const std::string& to, moe_status code,
                                const char* part) {
    std::string text = right.bytes;
    const size_t at = text.find(from);
    ASSERT_NE(at, std::string::npos) << text;
    text.replace(at, std::string(from).size(), to);
    tensor(kStateName) = {"U8", {std::ssize(text)}, text};
    expect("{}", code, part);
    tensor(kStateName) = right;
  };
  expect_state("[96, 40]", "[96, 41]", MOE_ERR_SHAPE,
               "down_proj.weight: expected 1968 bytes of codes of (96, 41), as "
               "model.layers.0.mlp.down_proj.weight.quant_state.bitsandbytes__nf4 says; file has "
               "1920");
  expect_state("[96, 40]", "[40, 96]", MOE_ERR_SHAPE, "down_proj.weight");
  expect_state("[96, 40]", "[2147483649, 1]", MOE_ERR_FORMAT, "shape[0]: expected an integer in");
  expect_state("[96, 40]", "[3840]", MOE_ERR_FORMAT, "shape: expected numbers of outputs and");
  expect_state("\"nf4\"", "\"nf5\"", MOE_ERR_FORMAT,
               "bitsandbytes__nf4: quant_type: expected one of nf4, fp4, found \"nf5\"");
  expect_state("\"nf4\"", "\"fp4\"", MOE_ERR_FORMAT,
               "quant_type: expected \"nf4\", as in its name, found \"fp4\"");
  expect_state("\"blocksize\": 64", "\"blocksize\": 128", MOE_ERR_SHAPE,
               "down_proj.weight.absmax: expected (30) of U8, file has (60) of U8");
  expect_state("\"blocksize\": 64", "\"blocksize\": 0", MOE_ERR_FORMAT,
               "blocksize: expected an integer in 1..1048576, found 0");
  expect_state("\"nested_blocksize\"", "\"unknown\"", MOE_ERR_FORMAT,
               "down_proj.weight.absmax: expected (60) of F32, file has (60) of U8");
  expect_state("\"nested_offset\"", "\"unknown\"", MOE_ERR_FORMAT, "nested_offset");
  expect_state("{", "[", MOE_ERR_FORMAT, "bitsandbytes__nf4");
  expect_state("{", std::string(4096, ' ') + "{", MOE_ERR_FORMAT,
               "expected JSON of at most 4096 bytes in U8");
}

TEST_F(PackedTest, TablesAndFactorsAreWholeAndFinite) {
  const auto with = [&](const char* part, const test::RawTensor& t, moe_status code,
                        const char* text) {
    open("nf4");
    tensor(part) = t;
    expect("{}", code, text);
  };
  with(".weight.quant_map", test::f32_tensor({15}, std::vector<float>(15)), MOE_ERR_SHAPE,
       "down_proj.weight.quant_map: expected (16) of F32, file has (15) of F32");
  with(".weight.quant_map", test::f32_tensor({16}, std::vector<float>(16, INFINITY)),
       MOE_ERR_NON_FINITE, "down_proj.weight.quant_map: element 0: expected a finite number");
  with(".weight.nested_quant_map", test::f32_tensor({255}, std::vector<float>(255)), MOE_ERR_SHAPE,
       "down_proj.weight.nested_quant_map: expected (256) of F32, file has (255) of F32");
  with(".weight.nested_absmax", test::f32_tensor({2}, {1, 1}), MOE_ERR_SHAPE,
       "down_proj.weight.nested_absmax: expected (1) of F32, file has (2) of F32");
  with(".weight.nested_absmax", test::f32_tensor({1}, {NAN}), MOE_ERR_NON_FINITE,
       "down_proj.weight.nested_absmax: block 0: expected a finite factor, found nan");
  open("bnb_fp4");
  tensor(".weight.absmax").bytes.replace(8, 4, std::string("\x00\x00\x80\x7F", 4));
  expect("{}", MOE_ERR_NON_FINITE,
         "down_proj.weight.absmax: block 2: expected a finite factor, found inf");
  tensors_.erase(std::string(kDown) + ".weight.absmax");
  expect("{}", MOE_ERR_NOT_FOUND,
         "tensor model.layers.0.mlp.down_proj.weight.absmax is missing; quantization_config says "
         "bitsandbytes");
}

TEST_F(PackedTest, BitsandbytesIsWhatItsConfigurationSays) {
  open("nf4");
  expect(R"({"quantization_config": {"bnb_4bit_quant_type": "fp4"}})", MOE_ERR_FORMAT,
         "quant_type: expected \"fp4\", as bnb_4bit_quant_type of config.json, found \"nf4\"");
  expect(R"({"quantization_config": {"bnb_4bit_quant_type": "nf3"}})", MOE_ERR_FORMAT,
         "bnb_4bit_quant_type: expected one of nf4, fp4");
  expect(R"({"quantization_config": {"load_in_4bit": false, "load_in_8bit": true}})",
         MOE_ERR_FORMAT, "says load_in_8bit, but no tensor NAME.SCB is there");
  expect(R"({"quantization_config": {"load_in_8bit": true}})", MOE_ERR_FORMAT,
         "quantization_config: expected load_in_4bit or load_in_8bit of bitsandbytes, found both");
  expect(R"({"quantization_config": {"load_in_4bit": false}})", MOE_ERR_FORMAT, "found neither");
  open("llama");
  expect(R"({"quantization_config": {"quant_method": "bitsandbytes", "load_in_4bit": true}})",
         MOE_ERR_FORMAT, "says bitsandbytes, but no tensor NAME.quant_state.bitsandbytes__nf4");
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
