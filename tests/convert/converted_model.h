// SPDX-License-Identifier: MIT
#pragma once
// A converted model file, opened to inspect its values.

#include <gtest/gtest.h>

#include "formats/import/failure.h"
#include "formats/moe/reader.h"
#include "quant/formats.h"
#include "src/convert/convert.h"
#include "src/model/check.h"
#include "src/model/config_read.h"

namespace moe::test {

class ConvertedModel {
 public:
  explicit ConvertedModel(const std::string& path)
      : file_(take(MoeFile::open(take(FileSource::open_path(path.c_str())), system_allocator()))) {
    config_ = std::make_unique<ModelConfig>(system_allocator());
    check(read_config(*file_->metadata().config(), config_.get()));
    check(validate(*config_));
    check(check_tensors(*file_, *config_));
  }

  const MoeFile& file() const { return *file_; }
  const ModelConfig& config() const { return *config_; }

  /// The stored matrix; its pointers are valid as long as this object.
  Matrix matrix(Part part, int32_t layer, int32_t expert, Role role, int32_t sublayer = -1) {
    const FileSegment* segment = file_->find(part, layer, expert);
    if (segment == nullptr) fail(MOE_ERR_NOT_FOUND, "no such segment");
    Array<uint8_t> bytes;
    check(bytes.resize(segment->raw));
    check(file_->read(*segment, true, bytes.data()));
    for (const BlobMatrix& m : file_->layout(*segment).matrices) {
      if (m.role != role || m.sublayer != sublayer) continue;
      memory_.push_back(std::move(bytes));
      return view(m, memory_.back().data());
    }
    fail(MOE_ERR_NOT_FOUND, "no such role");
  }
  std::vector<float> values(const Matrix& m) {
    std::vector<float> out;
    std::vector<float> row(static_cast<size_t>(m.cols));
    for (int32_t r = 0; r < m.rows; ++r) {
      read_row(m, r, row.data());
      out.insert(out.end(), row.begin(), row.end());
    }
    return out;
  }

 private:
  Box<MoeFile> file_;
  std::unique_ptr<ModelConfig> config_;
  std::vector<Array<uint8_t>> memory_;
};

}  // namespace moe::test
