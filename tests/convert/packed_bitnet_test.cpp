// SPDX-License-Identifier: MIT
// Checkpoints of quant_method "bitnet" in families that transformers applies it to.

#include "tests/convert/packed_checkpoint.h"

namespace moe {
namespace {

using test::kDown;
using test::RawTensor;

constexpr float kScale = 8;

class PackedBitnet : public test::PackedTest {
 protected:
  using Codes = std::vector<int>;

  static Codes codes_of(size_t n) {
    Codes codes(n);
    uint32_t state = 7;
    for (int& code : codes) {
      state = state * 1664525u + 1013904223u;
      code = static_cast<int>(state >> 24) % 3 - 1;
    }
    return codes;
  }
  // As pack_weights of transformers: item r + i q of the first axis in bits 2 i of item r.
  static std::string pack(const Codes& codes, size_t n_items) {
    const size_t q = (n_items + 3) / 4, inner = codes.size() / n_items;
    std::string bytes(q * inner, '\0');
    for (size_t i = 0; i < codes.size(); ++i) {
      const size_t item = i / inner;
      char& byte = bytes[item % q * inner + i % inner];
      byte = static_cast<char>(byte | (codes[i] + 1) << (2 * (item / q)));
    }
    return bytes;
  }
  static RawTensor scale_tensor(std::vector<float> scales) {
    const auto n = static_cast<int64_t>(scales.size());
    return test::f32_tensor({n}, scales);
  }
  static bool is_projection(const std::string& name) {
    for (const char* end : {"_proj.weight", "_with_mqa.weight", ".w1.weight", ".w2.weight",
                            ".w3.weight", ".query_key_value.weight", ".attention.dense.weight"}) {
      if (name.ends_with(end)) return true;
    }
    return false;
  }
  // Packs every projection of the layers that `skip` leaves.
  void pack_all(const std::string& skip = "none") {
    codes_.clear();
    for (auto& [name, t] : tensors_) {
      if (!is_projection(name) || t.shape.size() != 2 || name.find(skip) != std::string::npos) {
        continue;
      }
      codes_[name] = codes_of(static_cast<size_t>(t.shape[0] * t.shape[1]));
      t = {"U8", {t.shape[0] / 4, t.shape[1]}, pack(codes_[name], static_cast<size_t>(t.shape[0]))};
    }
    for (const auto& [name, codes] : codes_) tensors_[name + "_scale"] = scale_tensor({kScale});
  }
  void convert_as(const char* quantization) {
    ConvertReport report;
    const std::string patch = std::string(R"({"quantization_config": )") + quantization + "}";
    const Status status = convert_patched(patch.c_str(), &report);
    ASSERT_TRUE(status.ok()) << status.text();
  }
  void expect_values(const std::vector<float>& found, const Codes& codes, float scale) {
    ASSERT_EQ(found.size(), codes.size());
    for (size_t i = 0; i < found.size(); ++i) {
      ASSERT_EQ(found[i], static_cast<float>(codes[i]) * scale) << i;
    }
  }
  // All of a layer's matrices but routers and those that `skip` names.
  void expect_ternary(const std::string& skip = "none") {
    size_t n = 0;
    for (const auto& [name, m] : matrices_) {
      // DeepSeek's rotated keys are floats, as routers are.
      const bool other =
          name.ends_with("router") || name.ends_with("k_rope") || !name.starts_with("layers.");
      if (other || name.find(skip) != std::string::npos) continue;
      EXPECT_EQ(m.format, FormatId::kTernary2) << name;
      EXPECT_EQ(m.act, ActPrecision::kA8) << name;
      EXPECT_TRUE(m.lossless) << name;
      ++n;
    }
    EXPECT_GE(n, 7u);
  }

  std::map<std::string, Codes> codes_;
};

constexpr const char* kDivides = R"({"quant_method": "bitnet"})";
constexpr const char* kMultiplies = R"({"quant_method": "bitnet", "linear_class": "autobitlinear",
    "quantization_mode": "offline", "modules_to_not_convert": ["lm_head"]})";

TEST_F(PackedBitnet, InEveryFamily) {
  for (const char* family :
       {"llama",       "mistral_window", "qwen2",      "qwen3",       "granite",
        "olmo2",       "smollm3",        "phi3",       "gemma2",      "mixtral",
        "olmoe",       "qwen2_moe",      "qwen3_moe",  "phimoe",      "dots1",
        "minimax_m2",  "ernie4_5_moe",   "glm4_moe",   "deepseek_v2", "glm4_moe_lite",
        "bailing_moe", "bailing_moe_v2", "sarvam_moe", "gemma"}) {
    SCOPED_TRACE(family);
    open(family);
    pack_all();
    for (const char* quantization : {kDivides, kMultiplies}) {
      convert_as(quantization);
      if (HasFatalFailure()) continue;
      expect_ternary();
    }
  }
}

TEST_F(PackedBitnet, BitlinearDividesAndAutobitlinearMultiplies) {
  open("mixtral");
  pack_all();
  const std::string layer = "model.layers.0.";
  for (const char* quantization : {kDivides, kMultiplies}) {
    convert_as(quantization);
    const float scale = quantization == kDivides ? 1 / kScale : kScale;
    expect_values(stored(Part::kAttention, Role::kK), codes_.at(layer + "self_attn.k_proj.weight"),
                  scale);
    expect_values(stored(Part::kExperts, Role::kUp, 4),
                  codes_.at(layer + "block_sparse_moe.experts.4.w3.weight"), scale);
    expect_values(stored(Part::kExperts, Role::kDown, 1),
                  codes_.at(layer + "block_sparse_moe.experts.1.w2.weight"), scale);
  }
}

// As in transformers, which adds the bias before autobitlinear multiplies.
TEST_F(PackedBitnet, ABiasIsMultipliedWithItsMatrix) {
  open("qwen2");
  pack_all();
  const std::string name = "model.layers.0.self_attn.k_proj.bias";
  const Codes ones(static_cast<size_t>(tensors_.at(name).shape[0]), 1);
  tensors_[name] = test::f32_tensor({std::ssize(ones)}, {ones.begin(), ones.end()});
  for (const char* quantization : {kDivides, kMultiplies}) {
    convert_as(quantization);
    expect_values(stored(Part::kAttention, Role::kKBias), ones,
                  quantization == kDivides ? 1 : kScale);
  }
}

// The rows of gate and up are packed together where one matrix has both.
TEST_F(PackedBitnet, ProjectionsInOneMatrix) {
  open("phi3");
  pack_all();
  convert_as(kDivides);
  const Codes& both = codes_.at("model.layers.0.mlp.gate_up_proj.weight");
  const auto half = static_cast<ptrdiff_t>(both.size() / 2);
  expect_values(stored(Part::kFfn, Role::kUp), Codes(both.begin() + half, both.end()), 1 / kScale);
}

TEST_F(PackedBitnet, FusedExperts) {
  open("qwen3_moe");
  const std::string experts = "model.layers.0.mlp.experts.";
  const RawTensor up = tensors_.at(experts + "0.up_proj.weight");
  const int64_t f = up.shape[0], d = up.shape[1];
  int64_t n_experts = 0;
  while (tensors_.contains(experts + std::to_string(n_experts) + ".up_proj.weight")) ++n_experts;
  std::erase_if(tensors_, [&](const auto& t) { return t.first.starts_with(experts); });
  const auto n = static_cast<size_t>(n_experts), each = static_cast<size_t>(2 * f * d);
  const Codes codes = codes_of(n * each), down = codes_of(n * each / 2);
  std::vector<float> scales(n, 1);
  scales[2] = 4;
  std::string in_each, down_in_each;  // packed expert by expert
  for (size_t e = 0; e < n; ++e) {
    const auto at = [&](const Codes& all, size_t size) {
      const auto first = all.begin() + static_cast<ptrdiff_t>(e * size);
      return Codes(first, first + static_cast<ptrdiff_t>(size));
    };
    in_each += pack(at(codes, each), static_cast<size_t>(2 * f));
    down_in_each += pack(at(down, each / 2), static_cast<size_t>(d));
  }
  const auto expect_expert = [&](const char* quantization) {
    convert_as(quantization);
    const auto first = codes.begin() + static_cast<ptrdiff_t>(2 * each + each / 2);
    expect_values(stored(Part::kExperts, Role::kUp, 2),
                  Codes(first, first + static_cast<ptrdiff_t>(each / 2)), 4);
  };
  tensors_[experts + "gate_up_proj_scale"] = scale_tensor(scales);
  tensors_[experts + "down_proj_scale"] = scale_tensor({1});
  tensors_[experts + "gate_up_proj"] = {"U8", {n_experts, 2 * f / 4, d}, in_each};
  tensors_[experts + "down_proj"] = {"U8", {n_experts, d / 4, f}, down_in_each};
  expect_expert(kMultiplies);
  const int64_t quarter = (n_experts + 3) / 4;  // packed across the experts
  tensors_[experts + "gate_up_proj"] = {"U8", {quarter, 2 * f, d}, pack(codes, n)};
  tensors_[experts + "down_proj"] = {"U8", {quarter, d, f}, pack(down, n)};
  expect_expert(kMultiplies);
}

TEST_F(PackedBitnet, AnImpossibleNumberOfExperts) {
  open("qwen3_moe");
  pack_all();
  for (const uint64_t n : {UINT64_C(9223372036854775807), UINT64_C(18446744073709551615)}) {
    const std::string patch = R"({"quantization_config": {"quant_method": "bitnet"},
                                  "num_local_experts": null, "num_experts": )" +
                              std::to_string(n) + "}";
    expect(patch.c_str(), MOE_ERR_FORMAT, "num_experts");
  }
}

TEST_F(PackedBitnet, ModulesThatAreNotConvertedStayAsTheyAre) {
  open("llama");
  pack_all("down_proj");
  convert_as(R"({"quant_method": "bitnet", "modules_to_not_convert": ["lm_head", "down_proj"]})");
  expect_ternary("ffn.down");
  EXPECT_EQ(matrices_.at("layers.0.ffn.down").format, FormatId::kInt8);
  EXPECT_EQ(matrices_.at("layers.0.ffn.down").act, ActPrecision::kA8Block);
}

// transformers saves a loaded autobitlinear model like this.
TEST_F(PackedBitnet, CodesAsFloats) {
  open("qwen2");
  for (auto& [name, t] : tensors_) {
    if (!is_projection(name)) continue;
    codes_[name] = codes_of(static_cast<size_t>(t.shape[0] * t.shape[1]));
    t = test::bf16_tensor(t.shape, {codes_[name].begin(), codes_[name].end()});
  }
  for (const auto& [name, codes] : codes_) tensors_[name + "_scale"] = scale_tensor({kScale});
  convert_as(kMultiplies);
  expect_ternary();
  expect_values(stored_down(), codes_.at(std::string(kDown) + ".weight"), kScale);
}

TEST_F(PackedBitnet, OnlineWeightsAreRoundedWhereTheMethodApplies) {
  open("qwen2_moe");
  convert_as(R"({"quant_method": "bitnet", "linear_class": "autobitlinear", "quantization_mode":
      "online", "modules_to_not_convert": ["lm_head", "model.layers.0", "o_proj", ".*shared.*"]})");
  const auto is_rounded = [&](const std::string& name) {
    const MatrixReport& m = matrices_.at(name);
    EXPECT_EQ(m.format == FormatId::kTernary2, m.act == ActPrecision::kA8) << name;
    return m.format == FormatId::kTernary2;
  };
  EXPECT_TRUE(is_rounded("layers.1.attention.q"));
  EXPECT_TRUE(is_rounded("layers.1.moe.experts.3.down"));
  EXPECT_FALSE(is_rounded("layers.0.attention.q"));
  EXPECT_FALSE(is_rounded("layers.1.attention.o"));
  EXPECT_FALSE(is_rounded("layers.1.moe.shared.up"));
  EXPECT_FALSE(is_rounded("layers.1.moe.router"));
}

// The caller's format for one expert does damage, the rounding of the others none, in any order.
TEST_F(PackedBitnet, WhatTheCallerFixesAmongRoundedExpertsDoesDamage) {
  open("qwen2_moe");
  goal_.most_bits = 32;
  for (const char* expert : {"0", "3"}) {
    overrides_ = {std::string("*experts.") + expert + ".down=int2_k:f32"};
    ConvertReport report;
    const Status status = convert_patched(
        R"({"quantization_config": {"quant_method": "bitnet", "quantization_mode": "online"}})",
        &report);
    ASSERT_TRUE(status.ok()) << status.text();
    double expected = 0;
    for (const auto& [name, m] : matrices_) {
      if (m.format != FormatId::kInt2K) continue;
      // The sensitivity of all `down` is halved by layers and shared by neurons: a token has two of
      // six experts of 20, and a shared expert of 28.
      const double x = m.relative_error * m.relative_error;
      expected += 6.34 / 2 * (2 * 20.0 / (2 * 20 + 28)) / 6 * x * (1 + 250 * x * x);
    }
    EXPECT_GT(expected, 0.01);
    EXPECT_NEAR(report.size->damage, expected, 0.15 * expected) << expert;
  }
}

TEST_F(PackedBitnet, ErrorsNameTheTensor) {
  open("mistral_window");
  const std::string plain = R"({"quantization_config": {"quant_method": "bitnet"}})";
  expect(plain.c_str(), MOE_ERR_FORMAT, "says bitnet, but no tensor NAME.weight with a");
  expect(R"({"quantization_config": {"quant_method": "quip"}})", MOE_ERR_UNSUPPORTED,
         "awq, bitnet, bitsandbytes");
  expect(R"({"quantization_config": {"quant_method": "bitnet", "use_rms_norm": true,
             "rms_norm_eps": 0.01}})",
         MOE_ERR_UNSUPPORTED,
         "use_rms_norm: the norms before matrices have an eps of 0.01 (rms_norm_eps), but only the "
         "model's rms_norm_eps, ");
  expect(R"({"quantization_config": {"quant_method": "bitnet", "quantization_mode": "online",
             "modules_to_not_convert": ["a+b"]}})",
         MOE_ERR_UNSUPPORTED, "modules_to_not_convert[0]");
  pack_all();
  tensors_.erase(std::string(kDown) + ".weight_scale");
  expect(plain.c_str(), MOE_ERR_NOT_FOUND, "down_proj.weight_scale is missing, the scales of");
}

TEST_F(PackedBitnet, UnknownKeysAreListedWithAllOthers) {
  for (const char* family : {"mixtral", "llama"}) {
    open(family);
    pack_all();
    expect(R"({"zed": 1, "quantization_config": {"quant_method": "bitnet", "new": 2, "off": null,
               "modules_to_not_convert": null}})",
           MOE_ERR_UNSUPPORTED,
           "config.json: keys zed (1), quantization_config.new (2) are not known to this importer "
           "and may change what the model computes; if they do not: moe convert --ignore-key "
           "zed,quantization_config.new");
  }
}

}  // namespace
}  // namespace moe
