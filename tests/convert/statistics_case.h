// SPDX-License-Identifier: MIT
#pragma once
// Conversions that save and use the statistics of a text, of a model with experts.

#include <gtest/gtest.h>

#include "src/convert/convert.h"
#include "tests/convert/tiny_checkpoint.h"

namespace moe::test {

inline constexpr const char* kSphinx =
    "Sphinx of black quartz, judge my vow. Sphinx of black quartz.";
// A model with one token per byte. Expert 0 of the second layer gets every token, the third layer's
// router scores them.
inline constexpr const char* kThreeLayers =
    R"({"tokenizer": "bytes", "vocab_size": 256, "add_bos": false,
  "context_length": 64, "n_layers": 3, "layers": [
  {"index": 0, "ffn": {"kind": "dense", "d_ff": 28, "gated": true, "act": "silu"}},
  {"index": 1, "ffn": {"kind": "moe", "moe": {"n_experts": 4, "router": {"kind": "hash"}}}},
  {"index": 2, "ffn": {"kind": "moe", "moe": {"n_experts": 4,
                                              "router": {"kind": "softmax", "k": 2}}}}]})";

class StatisticsTest : public testing::Test {
 protected:
  StatisticsTest() { test::write_checkpoint(source_, config_, tensors_); }

  Status run(const char* weights, const char* text, const char* statistics = nullptr,
             const char* save = nullptr) {
    options_.weights = weights;
    options_.calibration.reset();
    options_.statistics.reset();
    options_.save_statistics.reset();
    if (text != nullptr) options_.calibration = text;
    if (statistics != nullptr) options_.statistics = target_.file(statistics);
    if (save != nullptr) options_.save_statistics = target_.file(save);
    matrices_.clear();
    options_.on_matrix = [this](const MatrixReport& r) { matrices_.push_back(to_json(r)); };
    return convert(source_.path(), target_.file("m.moe"), options_, &report_);
  }
  // Everything a conversion gives, except for how often the text was read.
  std::string result() {
    std::string out = target_.text("m.moe");
    for (const std::string& matrix : matrices_) out += matrix;
    if (!report_.calibration) return out;
    report_.calibration->n_passes = 0;
    return out + to_json(report_);
  }
  void save() {
    ASSERT_TRUE(run("int4", kSphinx, nullptr, "s").ok());
    std::filesystem::remove(target_.file("m.moe"));
  }
  // The error for "s", which is refused before anything is written.
  Status refusal() {
    const Status status = run("int4", nullptr, "s");
    EXPECT_EQ(target_.names(), std::vector<std::string>{"s"}) << status.text();
    return status;
  }
  void expect_refused(moe_status code, const char* why) {
    const Status status = refusal();
    EXPECT_EQ(status.code(), code) << status.text();
    EXPECT_NE(std::string(status.text()).find(why), std::string::npos) << status.text();
  }

  test::TempFolder source_, target_;
  std::string config_ = patched(kThreeLayers);
  test::RawTensors tensors_ = test::random_tensors(config_);
  ConvertOptions options_;
  ConvertReport report_;
  std::vector<std::string> matrices_;
};

}  // namespace moe::test
