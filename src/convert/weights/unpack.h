// SPDX-License-Identifier: MIT
#pragma once
// Decodes weights stored as codes in U8 tensors to float rows.

#include "formats/import/checkpoint.h"
#include "src/convert/importer.h"

namespace moe {

/// Weights per element of the tensor; 1 for kNone.
uint32_t weights_per_element(Packing packing);

/// The scale tensor named by `source`. Throws MOE_ERR_NOT_FOUND, MOE_ERR_SHAPE or MOE_ERR_FORMAT
/// (dtype) naming it.
const SourceTensor& find_scales(const Checkpoint& checkpoint, const SourceTensor& tensor,
                                const Source& source);

class Unpacker {
 public:
  /// `tensor` and its scales were checked (check_source, find_scales); `cols`: weights per row.
  Unpacker(const Checkpoint& checkpoint, const SourceTensor& tensor, const Source& source,
           int32_t cols);

  /// Row `row` of the tensor, with leading axes flattened. A NaN scale gives NaN.
  void read(int64_t row, float* out);

 private:
  const Checkpoint& checkpoint_;
  const SourceTensor& tensor_;
  const SourceTensor& scales_;
  std::vector<uint8_t> codes_;  // of one row
  std::vector<uint8_t> row_scales_;
};

}  // namespace moe
