#include "src/convert/weights/unpack.h"

#include <cmath>

#include "formats/import/failure.h"
#include "formats/import/gguf_blocks.h"

namespace moe {
namespace {

constexpr int32_t kMxBlock = 32;
constexpr uint8_t kMxNan = 255;

std::vector<int64_t> scales_shape(const SourceTensor& tensor, const Source& source) {
  if (source.packing == Packing::kTernaryRows) return {1};
  std::vector<int64_t> shape = tensor.shape;
  shape.pop_back();
  return shape;
}

}  // namespace

uint32_t weights_per_element(Packing packing) {
  switch (packing) {
    case Packing::kTernaryRows:
      return 4;
    case Packing::kMxfp4:
      return 2;
    case Packing::kNone:
      break;
  }
  return 1;
}

const SourceTensor& find_scales(const Checkpoint& checkpoint, const SourceTensor& tensor,
                                const Source& source) {
  const SourceTensor* scales = checkpoint.find(source.scales);
  if (scales == nullptr) {
    fail(MOE_ERR_NOT_FOUND, "tensor %.200s is missing, the scales of %.200s", source.scales.c_str(),
         tensor.name.c_str());
  }
  const std::vector<int64_t> expected = scales_shape(tensor, source);
  const bool scalar = source.packing == Packing::kTernaryRows && scales->shape.empty();
  if (!scalar && scales->shape != expected) {
    fail(MOE_ERR_SHAPE, "tensor %.200s: expected %s, file has %s", scales->name.c_str(),
         shape_text(expected).c_str(), shape_text(scales->shape).c_str());
  }
  const SourceTypeInfo& info = source_type_info(scales->type);
  const bool bytes = source.packing == Packing::kMxfp4;
  if (bytes ? scales->type != SourceType::kU8 : !info.floating) {
    fail(MOE_ERR_FORMAT, "tensor %.200s: expected %s, file has %s", scales->name.c_str(),
         bytes ? "U8" : "F32, BF16 or F16", info.name);
  }
  return *scales;
}

Unpacker::Unpacker(const Checkpoint& checkpoint, const SourceTensor& tensor, const Source& source,
                   int32_t cols)
    : checkpoint_(checkpoint),
      tensor_(tensor),
      scales_(find_scales(checkpoint, tensor, source)),
      packing_(source.packing),
      cols_(cols) {
  const auto width = static_cast<size_t>(cols);
  if (packing_ == Packing::kMxfp4) {
    codes_.resize(width / 2);
    row_scales_.resize(width / kMxBlock);
    return;
  }
  codes_.resize(width);
  checkpoint.read(scales_, 0, 1, &scale_);
  if (!std::isfinite(scale_) || scale_ <= 0) {
    fail(MOE_ERR_NON_FINITE, "tensor %.200s: expected a finite number above 0, found %g",
         scales_.name.c_str(), static_cast<double>(scale_));
  }
  if (source.scale_divides) scale_ = 1 / scale_;
}

void Unpacker::read(int64_t row, float* out) {
  if (packing_ == Packing::kMxfp4) return read_mxfp4(row, out);
  read_ternary(row, out);
}

void Unpacker::read_ternary(int64_t row, float* out) {
  const int64_t quarter = tensor_.shape[0];
  const int64_t bits = 2 * (row / quarter);
  checkpoint_.read_bytes(tensor_, static_cast<uint64_t>((row % quarter) * cols_), codes_.size(),
                         codes_.data());
  for (size_t c = 0; c < codes_.size(); ++c) {
    const int code = codes_[c] >> bits & 3;
    if (code == 3) {
      fail(MOE_ERR_CORRUPT,
           "tensor %.200s: row %lld, column %zu: packed value 3 stands for no ternary weight",
           tensor_.name.c_str(), static_cast<long long>(row), c);
    }
    out[c] = static_cast<float>(code - 1) * scale_;
  }
}

void Unpacker::read_mxfp4(int64_t row, float* out) {
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
