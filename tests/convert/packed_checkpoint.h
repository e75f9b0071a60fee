// SPDX-License-Identifier: MIT
#pragma once
// Checkpoints of packed weights, modified by tests of their conversion.

#include <gtest/gtest.h>

#include "formats/import/safetensors.h"
#include "src/convert/convert.h"
#include "tests/convert/converted_model.h"
#include "tests/convert/tiny_checkpoint.h"

namespace moe::test {

inline const char* const kDown = "model.layers.0.mlp.down_proj";

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
  RawTensor& tensor_there(const char* part) { return tensors_[std::string(kDown) + part]; }
  RawTensor& tensor(const char* part) { return tensors_.at(std::string(kDown) + part); }
  Status convert_patched(const char* patch, ConvertReport* report) {
    write_checkpoint(folder_, patched(patch, config_.c_str()), tensors_);
    ConvertOptions options;
    options.verify = true;
    options.weights = weights_;
    options.goal = goal_;
    options.overrides = overrides_;
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

  // The weights of the first layer, as stored in the model file.
  std::vector<float> stored(Part part, Role role, int32_t expert = -1) {
    ConvertedModel model(folder_.file("m.moe"));
    return model.values(model.matrix(part, 0, expert, role));
  }
  std::vector<float> stored_down() { return stored(Part::kFfn, Role::kDown); }

  TempFolder folder_;
  RawTensors tensors_;
  std::string config_;
  std::string weights_ = "auto";
  SizeGoal goal_;
  std::vector<std::string> overrides_;
  std::map<std::string, MatrixReport> matrices_;
};

}  // namespace moe::test
