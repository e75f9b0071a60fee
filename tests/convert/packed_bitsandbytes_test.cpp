// SPDX-License-Identifier: MIT
// Checkpoints of bitsandbytes: LLM.int8, NF4 and FP4.

#include "tests/convert/packed_checkpoint.h"

namespace moe {
namespace {

using test::kDown;
using test::PackedTest;

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

TEST_F(PackedTest, Fp4OfBitsandbytesGetsEightBits) {
  open("bnb_fp4");
  ConvertReport report;
  const Status status = convert_patched("{}", &report);
  ASSERT_TRUE(status.ok()) << status.text();
  for (const auto& [name, m] : matrices_) {
    const bool ffn = name.find(".ffn.") != std::string::npos;
    EXPECT_EQ(m.format, ffn ? FormatId::kInt8 : FormatId::kInt8Group) << name;
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
  expect(R"({"quantization_config": {"quant_method": "bitsandbytes", "load_in_4bit": true,
                                     "bnb_4bit_quant_type": "fp4"}})",
         MOE_ERR_FORMAT, "says bitsandbytes, but no tensor NAME.quant_state.bitsandbytes__fp4");
}

// Without a type in config.json, the missing one may be either.
TEST_F(PackedTest, BitsandbytesStatesOfBothKinds) {
  open("bnb_fp4");
  const test::RawTensors fp4 = tensors_;
  open("nf4");
  std::erase_if(tensors_, [](const auto& entry) { return entry.first.starts_with(kDown); });
  for (const auto& [name, tensor] : fp4) {
    if (name.starts_with(kDown)) tensors_[name] = tensor;
  }
  const std::string other = "model.layers.0.mlp.up_proj.weight.quant_state.bitsandbytes__";
  ASSERT_EQ(tensors_.erase(other + "nf4"), 1u);
  expect(R"({"quantization_config": {"bnb_4bit_quant_type": null}})", MOE_ERR_NOT_FOUND,
         ("tensor " + other + "fp4 or " + other + "nf4 is missing").c_str());
}

}  // namespace
}  // namespace moe
