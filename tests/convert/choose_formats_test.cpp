// SPDX-License-Identifier: MIT
// Conversions to a number of bytes, or of bits per weight.

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <limits>
#include <set>

#include "quant/formats.h"
#include "tests/convert/convert_fixture.h"

namespace moe {
namespace {

using test::ConvertTest;
using test::patched;

// Matrices large enough for a format to show in the size of the file.
constexpr const char* kLargeConfig = R"({"vocab_size": 512, "d_model": 128, "n_layers": 3,
  "layer_defaults": {"attention": {"n_heads": 2, "n_kv_heads": 1, "head_dim": 64},
                     "ffn": {"kind": "dense", "d_ff": 256, "gated": true, "act": "silu"}},
  "layers": [{"index": 1, "ffn": {"kind": "moe", "moe": {"n_experts": 4,
    "shared": {"d_ff": 64, "gated": true}, "router": {"kind": "softmax", "k": 2}}}}]})";

class ChooseFormatsTest : public ConvertTest {
 protected:
  ChooseFormatsTest() { use(kLargeConfig); }
  void use(const char* patch) {
    config_ = patched(patch);
    tensors_ = test::random_tensors(config_);
  }
  // Bytes of the file.
  uint64_t convert_to(const SizeGoal& goal) {
    options_.goal = goal;
    matrices_.clear();
    const Status status = run();
    EXPECT_TRUE(status.ok()) << status.text();
    return std::filesystem::file_size(path());
  }
  std::string error(const SizeGoal& goal) {
    options_.goal = goal;
    const Status status = run();
    EXPECT_EQ(status.code(), MOE_ERR_ARGUMENT) << status.text();
    return status.text();
  }
  double bits() const {
    double bytes = 0, weights = 0;
    for (const auto& [name, m] : matrices_) {
      bytes += static_cast<double>(m.bytes);
      weights += static_cast<double>(m.rows) * m.cols;
    }
    return 8 * bytes / weights;
  }
  FormatId format(const std::string& name) const { return matrices_.at(name).format; }
};

TEST_F(ChooseFormatsTest, TheFileIsAtMostAsLargeAsAsked) {
  uint64_t smallest = 0, largest = 0;
  options_.weights = "int2_k";
  options_.overrides = {"layers.*.attention.*=int2_k", "embedding=int2_k", "head=int2_k"};
  smallest = convert_to({}) + 64;  // names of formats have lengths
  options_.overrides.clear();
  options_.weights = "source";
  largest = convert_to({});
  options_.weights = "auto";
  double damage = 1e300;
  for (int percent = 0; percent <= 100; percent += 10) {
    const uint64_t most = smallest + (largest - smallest) * static_cast<uint64_t>(percent) / 100;
    const uint64_t bytes = convert_to({.most_bytes = most});
    EXPECT_LE(bytes, most);
    EXPECT_EQ(report_.file_bytes, bytes);
    ASSERT_TRUE(report_.size);
    EXPECT_LE(report_.size->damage, damage) << most;
    EXPECT_NEAR(report_.size->bits, bits(), 1e-9);
    damage = report_.size->damage;
    // Between int2_k and int8_group formats are close together.
    if (most < largest / 4) {
      EXPECT_GE(static_cast<double>(bytes), 0.985 * static_cast<double>(most));
    }
  }
  EXPECT_EQ(damage, 0);  // f32, as the checkpoint
  EXPECT_EQ(convert_to({.most_bytes = uint64_t{1} << 60}), largest);
}

TEST_F(ChooseFormatsTest, BitsAreTheMeanOverAllMatrices) {
  for (const double most : {3.4, 3.8, 4.25, 6.0, 9.0}) {
    convert_to({.most_bits = most});
    EXPECT_LE(bits(), most);
    EXPECT_GE(bits(), most - 0.1);
    EXPECT_NEAR(report_.size->bits, bits(), 1e-9);
    EXPECT_EQ(report_.size->most_bits, most);
  }
}

// The choice can be written down by name.
TEST_F(ChooseFormatsTest, TheChoiceIsThatOfOverrides) {
  convert_to({.most_bits = 3.9});
  const std::string chosen = target_.text("model.moe");
  std::set<FormatId> formats;
  for (const auto& [name, m] : matrices_) {
    if (!m.expected_error) continue;
    formats.insert(m.format);
    options_.overrides.push_back(name + "=" + format_info(m.format).name);
  }
  EXPECT_GE(formats.size(), 2u);
  convert_to({});
  EXPECT_EQ(target_.text("model.moe"), chosen);
}

TEST_F(ChooseFormatsTest, OneFormatForARoleInALayer) {
  convert_to({.most_bits = 4});
  for (const char* role : {"gate", "up", "down"}) {
    for (const char* expert : {"1", "2", "3"}) {
      EXPECT_EQ(format(std::string("layers.1.moe.experts.") + expert + "." + role),
                format(std::string("layers.1.moe.experts.0.") + role));
    }
  }
  // The file interleaves them.
  for (const char* block : {"layers.0.ffn.", "layers.1.moe.shared.", "layers.1.moe.experts.0."}) {
    EXPECT_EQ(format(std::string(block) + "gate"), format(std::string(block) + "up"));
  }
  EXPECT_EQ(format("layers.1.moe.router"), FormatId::kF32);
}

TEST_F(ChooseFormatsTest, EqualBytesForAnyNumberOfThreads) {
  options_.n_threads = 1;
  convert_to({.most_bits = 3.7});
  const std::string alone = target_.text("model.moe");
  options_.n_threads = 3;
  convert_to({.most_bits = 3.7});
  EXPECT_EQ(target_.text("model.moe"), alone);
}

TEST_F(ChooseFormatsTest, OverridesKeepTheirFormats) {
  options_.overrides = {"layers.0.*=int8", "head=auto", "layers.2.ffn.down=:f32"};
  const uint64_t most = 650'000;
  EXPECT_LE(convert_to({.most_bytes = most}), most);
  for (const auto& [name, m] : matrices_) {
    const bool fixed = name.starts_with("layers.0.") || name == "head";
    if (name.ends_with("router")) continue;
    EXPECT_EQ(m.expected_error.has_value(), !fixed) << name;
    if (name.starts_with("layers.0.")) {
      EXPECT_EQ(m.format, FormatId::kInt8) << name;
    }
  }
  EXPECT_EQ(format("head"), FormatId::kInt8Group);
  EXPECT_EQ(matrices_.at("layers.2.ffn.down").act, ActPrecision::kF32);
}

// The layers share the sensitivity of a role, whatever their number.
TEST_F(ChooseFormatsTest, SensitivitiesOfAllLayersTogether) {
  for (const int n_layers : {1, 2, 3, 40}) {
    use(("{\"n_layers\": " + std::to_string(n_layers) + R"(, "d_model": 16, "layer_defaults":
      {"attention": {"n_heads": 1, "n_kv_heads": 1, "head_dim": 16},
       "ffn": {"kind": "dense", "d_ff": 16, "gated": true, "act": "silu"}}, "layers": []})")
            .c_str());
    convert_to({.most_bits = 40});
    std::map<std::string, double> sums;
    for (const auto& [name, m] : matrices_) {
      if (name.starts_with("layers.")) sums[name.substr(name.rfind('.') + 1)] += m.sensitivity;
    }
    EXPECT_NEAR(sums.at("q"), 1.34, 1e-9) << n_layers;
    EXPECT_NEAR(sums.at("down"), 6.34, 1e-9) << n_layers;
    EXPECT_NEAR(sums.at("gate"), 2.67 + 4.22, 1e-9) << n_layers;  // with up
  }
  EXPECT_NEAR(matrices_.at("layers.39.attention.q").sensitivity,
              5.3 / 0.84 * matrices_.at("layers.20.attention.q").sensitivity, 1e-9);
}

TEST_F(ChooseFormatsTest, RulesOfTheCheckpointDecideOnInputsAlone) {
  config_ = patched(R"({"precision": [{"match": "*", "weights": "f32"},
    {"match": "layers.0.attention.q", "activations": "a8"}]})",
                    config_.c_str());
  convert_to({.most_bits = 4.5});
  EXPECT_NE(format("layers.2.ffn.up"), FormatId::kF32);
  EXPECT_EQ(matrices_.at("layers.0.attention.q").act, ActPrecision::kA8);
  EXPECT_EQ(matrices_.at("layers.0.attention.k").act, ActPrecision::kA8Group);
}

TEST_F(ChooseFormatsTest, TernaryValuesStayWhatTheyAre) {
  for (const char* name : {"layers.0.ffn.gate", "layers.0.ffn.up", "layers.0.ffn.down"}) {
    std::vector<float> w =
        (test::write_checkpoint(source_, config_, tensors_), floats(std::string(name) + ".weight"));
    for (float& v : w) v = v > 0.05f ? 0.5f : v < -0.05f ? -0.5f : 0.0f;
    replace(std::string(name) + ".weight", w);
  }
  convert_to({.most_bits = 3.3});
  for (const char* name : {"layers.0.ffn.gate", "layers.0.ffn.up", "layers.0.ffn.down"}) {
    EXPECT_TRUE(format_info(format(name)).ternary()) << name;
    EXPECT_TRUE(matrices_.at(name).lossless) << name;
  }
  EXPECT_FALSE(format_info(format("layers.2.ffn.down")).ternary());
  convert_to({.most_bits = 30});
  EXPECT_EQ(format("layers.0.ffn.down"), FormatId::kTernary2);
  EXPECT_EQ(format("layers.2.ffn.down"), FormatId::kF32);
}

TEST_F(ChooseFormatsTest, StatisticsWeightTheErrors) {
  use(R"({"tokenizer": "bytes", "vocab_size": 256, "add_bos": false, "d_model": 128,
    "layer_defaults": {"attention": {"n_heads": 2, "n_kv_heads": 1, "head_dim": 64},
                       "ffn": {"kind": "dense", "d_ff": 256, "gated": true, "act": "silu"}}})");
  convert_to({.most_bits = 3.8});
  const double plain = *matrices_.at("layers.0.ffn.down").expected_error;
  options_.calibration = "Sphinx of black quartz, judge my vow.";
  options_.save_statistics = target_.file("statistics");
  convert_to({.most_bits = 3.8});
  EXPECT_LE(bits(), 3.8);
  EXPECT_NE(*matrices_.at("layers.0.ffn.down").expected_error, plain);
  EXPECT_TRUE(matrices_.at("layers.0.ffn.down").weighted);
  const std::string calibrated = target_.text("model.moe");
  options_.statistics = *options_.save_statistics;
  options_.calibration.reset();
  options_.save_statistics.reset();
  convert_to({.most_bits = 3.8});
  EXPECT_EQ(target_.text("model.moe"), calibrated);
}

TEST_F(ChooseFormatsTest, SizesThatCannotBeMetNameTheSmallest) {
  const std::string text = error({.most_bytes = 1000});
  const std::string begin = "size: the smallest possible file of this model has ";
  ASSERT_TRUE(text.starts_with(begin)) << text;
  EXPECT_TRUE(text.ends_with("1000 are asked for")) << text;
  EXPECT_TRUE(target_.names().empty());
  const uint64_t smallest = std::stoull(text.substr(begin.size()));
  EXPECT_EQ(error({.most_bytes = smallest - 1}).substr(0, begin.size()), begin);
  EXPECT_NEAR(static_cast<double>(convert_to({.most_bytes = smallest})),
              static_cast<double>(smallest), 64);  // names of formats have lengths

  const std::string few = error({.most_bits = 1});
  const std::string needs = "bits: this model needs at least ";
  ASSERT_TRUE(few.starts_with(needs)) << few;
  const double least = std::stod(few.substr(needs.size()));
  convert_to({.most_bits = least});
  EXPECT_NEAR(bits(), least, 2e-3);
  EXPECT_TRUE(error({.most_bits = least - 0.002}).starts_with(needs));
}

TEST_F(ChooseFormatsTest, RefusesWhatMakesNoSense) {
  EXPECT_EQ(error({.most_bytes = 1 << 20, .most_bits = 3}),
            "size: expected bytes or bits per weight, found both");
  for (const double most : {-1.0, 65.0, std::nan(""), std::numeric_limits<double>::infinity()}) {
    EXPECT_TRUE(error({.most_bits = most}).starts_with("bits: expected 0 to 64 per weight, found"));
  }
  options_.weights = "int4";
  EXPECT_EQ(error({.most_bits = 3}),
            "weights \"int4\": a size or a number of bits chooses the formats; overrides may fix "
            "those of single matrices");
  EXPECT_TRUE(target_.names().empty());
}

}  // namespace
}  // namespace moe
