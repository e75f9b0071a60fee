// SPDX-License-Identifier: MIT
#pragma once
// Converts the tiny checkpoint, as each test changes it.

#include <gtest/gtest.h>

#include <map>
#include <memory>

#include "src/convert/convert.h"
#include "tests/convert/converted_model.h"
#include "tests/convert/tiny_checkpoint.h"

namespace moe::test {

class ConvertTest : public testing::Test {
 protected:
  Status run() {
    write_checkpoint(source_, config_, tensors_);
    options_.on_matrix = [this](const MatrixReport& r) { matrices_[r.name] = r; };
    return convert(source_.path(), path(), options_, &report_);
  }
  std::string path() const { return target_.file("model.moe"); }
  std::unique_ptr<ConvertedModel> converted() {
    const Status status = run();
    EXPECT_TRUE(status.ok()) << status.text();
    EXPECT_EQ(target_.names(), std::vector<std::string>{"model.moe"});
    return std::make_unique<ConvertedModel>(path());
  }
  std::vector<float> floats(const std::string& name) {
    const Checkpoint checkpoint(source_.path());
    const SourceTensor& tensor = *checkpoint.find(name);
    std::vector<float> out(tensor.n_elements);
    checkpoint.read(tensor, 0, out.size(), out.data());
    return out;
  }
  /// Replaces the values of a tensor by w (rows, cols).
  void replace(const std::string& name, const std::vector<float>& w) {
    tensors_[name] = f32_tensor(tensors_.at(name).shape, w);
  }
  void expect_nothing_written(moe_status code, const std::string& text) {
    const Status status = run();
    EXPECT_EQ(status.code(), code);
    EXPECT_EQ(std::string(status.text()), text);
    EXPECT_TRUE(target_.names().empty());
  }

  TempFolder source_, target_;
  std::string config_ = kTinyConfig;
  RawTensors tensors_ = random_tensors(kTinyConfig);
  ConvertOptions options_;
  ConvertReport report_;
  std::map<std::string, MatrixReport> matrices_;
};

}  // namespace moe::test
