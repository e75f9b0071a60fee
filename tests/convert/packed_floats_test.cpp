// SPDX-License-Identifier: MIT
// Checkpoints in FP8 and FP4, of compressed-tensors, ModelOpt and Quark.

#include <cmath>
#include <cstring>

#include "quant/half.h"
#include "tests/convert/packed_checkpoint.h"

namespace moe {
namespace {

using test::kDown;
using test::PackedTest;

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

}  // namespace
}  // namespace moe
