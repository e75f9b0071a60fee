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
  // The least that errors name.
  uint64_t least_bytes() {
    const std::string text = error({.most_bytes = 1});
    const std::string begin = "size: the smallest possible file of this model has ";
    EXPECT_TRUE(text.starts_with(begin)) << text;
    return std::stoull(text.substr(begin.size()));
  }
  double least_bits() {
    const std::string text = error({.most_bits = 0.5});
    const std::string begin = "bits: this model needs at least ";
    EXPECT_TRUE(text.starts_with(begin)) << text;
    return std::stod(text.substr(begin.size()));
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
    // Between tcq2 and int8_group formats are close together.
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

// A format that the caller fixed costs what the same format costs that was chosen.
TEST_F(ChooseFormatsTest, FixedMatricesAreExpectedToDoDamage) {
  options_.overrides = {"layers.0.*=int3_k", "head=int2_k"};
  convert_to({.most_bytes = uint64_t{1} << 40});
  const double fixed = report_.size->damage;
  double expected = 0;  // the others have no loss; f32 inputs
  options_.overrides = {"layers.0.*=int3_k:f32", "head=int2_k:f32"};
  convert_to({.most_bits = 32});
  for (const auto& [name, m] : matrices_) {
    if (m.lossless) continue;
    // Sensitivities of all layers, 1.2 of 7.34 of them for the first of three.
    const double place = name == "head" ? 1 : 1.2 / 7.34;
    const std::string role = name.substr(name.rfind('.') + 1);
    const double all = role == "q"      ? 1.34
                       : role == "k"    ? 1.12
                       : role == "v"    ? 4.84
                       : role == "o"    ? 1.36
                       : role == "head" ? 5.88
                       : role == "down" ? 6.34
                                        : 6.89 / 2;
    const double x = m.relative_error * m.relative_error;
    expected += all * place * x * (1 + 250 * x * x);
  }
  EXPECT_GT(expected, 0.3);
  EXPECT_NEAR(report_.size->damage, expected, 0.05 * expected);  // from samples
  EXPECT_GT(fixed, report_.size->damage);                        // inputs are rounded too
  EXPECT_LT(fixed, 1.2 * report_.size->damage);
}

TEST_F(ChooseFormatsTest, SomeFixedExpertsCountByTheirWeights) {
  options_.overrides = {"layers.1.moe.experts.0.*=int3_k"};
  convert_to({.most_bits = 5});
  const double three = matrices_.at("layers.1.moe.experts.1.down").sensitivity;
  options_.overrides.clear();
  convert_to({.most_bits = 5});
  EXPECT_NEAR(three, 0.75 * matrices_.at("layers.1.moe.experts.1.down").sensitivity, 1e-12);
}

// Two experts of 256 neurons each, and 64 of the shared one.
TEST_F(ChooseFormatsTest, ExpertsAndTheSharedOneCountLikeOneNetwork) {
  convert_to({.most_bits = 5});
  const double shared = matrices_.at("layers.1.moe.shared.down").sensitivity;
  const double routed = matrices_.at("layers.1.moe.experts.3.down").sensitivity;
  EXPECT_NEAR(shared + routed, 6.34 * 0.84 / 7.34, 1e-9);
  EXPECT_NEAR(routed / shared, 2 * 256 / 64.0, 1e-9);
}

// Gates and ups have one format, for the errors of both.
TEST_F(ChooseFormatsTest, TheSampleHasGatesAndUps) {
  use(R"({"d_model": 64, "n_layers": 1, "layers": [], "layer_defaults": {
    "attention": {"n_heads": 2, "n_kv_heads": 1, "head_dim": 64},
    "ffn": {"kind": "moe", "d_ff": 64, "gated": true, "act": "silu",
            "moe": {"n_experts": 8, "router": {"kind": "softmax", "k": 2}}}}})");
  const auto expected = [this] {  // in the smallest format
    convert_to({.most_bits = least_bits()});
    EXPECT_EQ(format("layers.0.moe.experts.0.gate"), FormatId::kTcq2);
    return *matrices_.at("layers.0.moe.experts.0.gate").expected_error;
  };
  const double all = expected();
  const test::RawTensors tensors = tensors_;
  for (const char* role : {"gate", "up"}) {
    tensors_ = tensors;
    for (int expert = 0; expert < 8; ++expert) {
      const std::string name =
          "layers.0.moe.experts." + std::to_string(expert) + "." + role + ".weight";
      replace(name, std::vector<float>(64 * 64));  // zeros have no loss
    }
    EXPECT_NEAR(expected(), std::sqrt(0.5) * all, 0.02 * all) << role;
  }
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
    EXPECT_DOUBLE_EQ(*matrices_.at(name).expected_error, 0.02) << name;  // of rounded inputs
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

// The checkpoint's codes are kept by default, so nothing would be rounded; a smaller size rounds.
TEST_F(ChooseFormatsTest, StatisticsAreOfUseWhereOnlyASizeRounds) {
  use(R"({"tokenizer": "bytes", "vocab_size": 256, "add_bos": false, "d_model": 128,
    "layer_defaults": {"attention": {"n_heads": 2, "n_kv_heads": 1, "head_dim": 64},
                       "ffn": {"kind": "dense", "d_ff": 256, "gated": true, "act": "silu"}}})");
  const std::vector<std::string> floats = {"embedding=f32", "head=f32"};
  for (auto& [name, tensor] : tensors_) {
    const bool outside = name.starts_with("embedding") || name.starts_with("head");
    if (tensor.shape.size() != 2 || outside) continue;
    std::vector<float> w = (test::write_checkpoint(source_, config_, tensors_), this->floats(name));
    for (float& v : w) v = v > 0.05f ? 0.5f : v < -0.05f ? -0.5f : 0.0f;
    replace(name, w);
  }
  options_.calibration = "Sphinx of black quartz, judge my vow.";
  options_.overrides = floats;
  options_.goal = {};
  EXPECT_EQ(run().code(), MOE_ERR_ARGUMENT);  // all of it is ternary, and stays so
  options_.overrides.clear();
  convert_to({.most_bits = least_bits()});
  EXPECT_TRUE(matrices_.at("head").weighted);
  EXPECT_TRUE(matrices_.at("layers.0.ffn.down").lossless);
  // Without anything that can be rounded it is refused with a size, too.
  options_.overrides = floats;
  EXPECT_TRUE(error({.most_bits = 40}).starts_with("calibration: changes nothing here"));
}

TEST_F(ChooseFormatsTest, SizesThatCannotBeMetNameTheSmallest) {
  EXPECT_TRUE(error({.most_bytes = 1000}).ends_with("1000 are asked for"));
  const uint64_t smallest = least_bytes();
  (void)error({.most_bytes = smallest - 1});
  EXPECT_TRUE(target_.names().empty());
  EXPECT_EQ(convert_to({.most_bytes = smallest}), smallest);
  const double least = least_bits();
  (void)error({.most_bits = least - 0.002});
  convert_to({.most_bits = least});
  EXPECT_NEAR(bits(), least, 2e-3);
}

// Names of formats differ in length where sizes are equal.
TEST_F(ChooseFormatsTest, TheSmallestSizeThatAnErrorNamesWorks) {
  for (const char* patch :
       {R"({"n_layers": 1, "layers": []})", R"({"n_layers": 5})", R"({"d_model": 64})",
        R"({"tie_embeddings": true})", R"({"vocab_size": 41})", "{}"}) {
    config_ = patched(patch);
    tensors_ = test::random_tensors(config_);
    const uint64_t smallest = least_bytes();
    EXPECT_LE(convert_to({.most_bytes = smallest}), smallest) << patch;
    const double least = least_bits();
    convert_to({.most_bits = least});
    EXPECT_LE(bits(), least) << patch;
  }
}

// tcq2 and int2_k have room up to 65504, int3_k up to 96 times that; one weight outside the sample
// decides.
TEST_F(ChooseFormatsTest, AFormatHoldsAllWeights) {
  for (const float large : {7e4f, 1e7f, 1e38f}) {
    std::vector<float> w =
        (test::write_checkpoint(source_, config_, tensors_), floats("layers.2.ffn.down.weight"));
    w[5 * 256 + 3] = large;
    replace("layers.2.ffn.down.weight", w);
    const uint64_t smallest = least_bytes();
    EXPECT_LE(convert_to({.most_bytes = smallest}), smallest);
    EXPECT_EQ(format("layers.0.ffn.down"), FormatId::kTcq2);
    EXPECT_EQ(format("layers.2.ffn.down"), large < 1e6f    ? FormatId::kInt3K
                                           : large < 1e30f ? FormatId::kInt6K
                                                           : FormatId::kInt8);
  }
  std::vector<float> w = floats("layers.2.ffn.down.weight");
  w[256 * 128 - 1] = std::nanf("");
  replace("layers.2.ffn.down.weight", w);
  std::filesystem::remove(path());
  options_.goal = {.most_bits = 8};
  expect_nothing_written(MOE_ERR_NON_FINITE,
                         "tensor layers.2.ffn.down.weight: element (127, 255) of "
                         "layers.2.ffn.down is NaN");
}

TEST_F(ChooseFormatsTest, CompressedFilesAreNoLarger) {
  options_.compress = true;
  for (const uint64_t most : {420'000, 600'000, 2'000'000}) {
    EXPECT_LE(convert_to({.most_bytes = most}), most);
    EXPECT_EQ(report_.file_bytes, std::filesystem::file_size(path()));
  }
  const std::map<std::string, MatrixReport> compressed = matrices_;
  const uint64_t bytes = report_.file_bytes;
  options_.compress = false;
  EXPECT_GT(convert_to({.most_bytes = 2'000'000}), bytes);
  for (const auto& [name, m] : matrices_) EXPECT_EQ(m.format, compressed.at(name).format) << name;
}

// Descriptions of the formats in the file take bytes as well.
TEST_F(ChooseFormatsTest, MoreBytesAreNeverWorse) {
  const uint64_t smallest = least_bytes();
  double damage = 1e300;
  for (uint64_t most = smallest; most < smallest + 36'000; most += 3001) {
    EXPECT_LE(convert_to({.most_bytes = most}), most);
    EXPECT_LE(report_.size->damage, damage) << most;
    damage = report_.size->damage;
  }
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
