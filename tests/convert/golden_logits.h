// SPDX-License-Identifier: MIT
#pragma once
// Logits computed by PyTorch, stored in the folder of the checkpoint.

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "formats/import/checkpoint.h"
#include "formats/import/failure.h"
#include "formats/import/json.h"
#include "formats/import/safetensors.h"
#include "tests/run/tiny_run.h"

namespace moe::test {

/// The folders in `root`, sorted; empty if it does not exist.
inline std::vector<std::string> folder_names(const std::string& root) {
  std::vector<std::string> names;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(root, ignored)) {
    if (entry.is_directory()) names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

inline Floats read_tensor(const InputFile& file, const std::vector<SourceTensor>& tensors,
                          const std::string& name) {
  for (const SourceTensor& t : tensors) {
    if (t.name != name) continue;
    Floats out(t.n_elements);
    file.read(t.offset, out.data(), out.size() * sizeof(float));
    return out;
  }
  fail(MOE_ERR_NOT_FOUND, "no tensor %s", name.c_str());
}

/// |found - expected| / |expected|
inline double relative(const Floats& found, const Floats& expected) {
  EXPECT_EQ(found.size(), expected.size());
  double error = 0, norm = 0;
  for (size_t i = 0; i < std::min(found.size(), expected.size()); ++i) {
    error += std::pow(static_cast<double>(found[i]) - static_cast<double>(expected[i]), 2);
    norm += std::pow(static_cast<double>(expected[i]), 2);
  }
  return std::sqrt(error / norm);
}

}  // namespace moe::test
