// SPDX-License-Identifier: MIT
// Decodes MXFP4: two codes in a byte, and a power of two for each block of a row.
#include "src/convert/weights/unpack.h"

#include <cmath>

#include "formats/import/failure.h"
#include "formats/import/gguf_blocks.h"

namespace moe {
namespace {

constexpr int32_t kMxBlock = 32;
constexpr uint8_t kMxNan = 255;

std::vector<int64_t> scales_shape(const SourceTensor& tensor) {
  std::vector<int64_t> shape = tensor.shape;
  shape.pop_back();
  return shape;
}

}  // namespace

uint32_t weights_per_element(Packing packing) { return packing == Packing::kMxfp4 ? 2 : 1; }

const SourceTensor& find_scales(const Checkpoint& checkpoint, const SourceTensor& tensor,
                                const Source& source) {
  const SourceTensor* scales = checkpoint.find(source.scales);
  if (scales == nullptr) {
    fail(MOE_ERR_NOT_FOUND, "tensor %.200s is missing, the scales of %.200s", source.scales.c_str(),
         tensor.name.c_str());
  }
  const std::vector<int64_t> expected = scales_shape(tensor);
  if (scales->shape != expected) {
    fail(MOE_ERR_SHAPE, "tensor %.200s: expected %s, file has %s", scales->name.c_str(),
         shape_text(expected).c_str(), shape_text(scales->shape).c_str());
  }
  if (scales->type != SourceType::kU8) {
    fail(MOE_ERR_FORMAT, "tensor %.200s: expected U8, file has %s", scales->name.c_str(),
         source_type_info(scales->type).name);
  }
  return *scales;
}

Unpacker::Unpacker(const Checkpoint& checkpoint, const SourceTensor& tensor, const Source& source,
                   int32_t cols)
    : checkpoint_(checkpoint),
      tensor_(tensor),
      scales_(find_scales(checkpoint, tensor, source)),
      codes_(static_cast<size_t>(cols) / 2),
      row_scales_(static_cast<size_t>(cols) / kMxBlock) {}

void Unpacker::read(int64_t row, float* out) {
  checkpoint_.read_bytes(tensor_, static_cast<uint64_t>(row) * codes_.size(), codes_.size(),
                         codes_.data());
  checkpoint_.read_bytes(scales_, static_cast<uint64_t>(row) * row_scales_.size(),
                         row_scales_.size(), row_scales_.data());
  for (size_t c = 0; c < codes_.size(); ++c) {
    const uint8_t exponent = row_scales_[2 * c / kMxBlock];
    const float scale = exponent == kMxNan ? NAN : std::ldexp(1.0f, exponent - 127);
    out[2 * c] = kFp4Values[codes_[c] & 15] * scale;
    out[2 * c + 1] = kFp4Values[codes_[c] >> 4] * scale;
  }
}

}  // namespace moe
