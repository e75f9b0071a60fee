// SPDX-License-Identifier: MIT
// Measures rows in place, or on a copy of a matrix that only the device can read.
#include "src/model/row_lengths.h"

#include "quant/formats.h"
#include "src/base/array.h"

namespace moe {
namespace {

void measure_rows(const Matrix& m, float* to) {
  for (int32_t row = 0; row < m.rows; ++row) to[row] = row_length(m, row);
}

}  // namespace

RowLengths::~RowLengths() {
  if (memory_ != nullptr) device_->free(memory_, static_cast<size_t>(bytes()));
}

Status RowLengths::reserve(Device& device, size_t n_rows) {
  if (n_rows == 0) return {};
  void* memory = nullptr;
  MOE_TRY(device.alloc(n_rows * sizeof(float), &memory));
  device_ = &device;
  memory_ = static_cast<float*>(memory);
  n_rows_ = n_rows;
  return {};
}

Status RowLengths::measure(const Matrix& m, const float** out) {
  float* const to = memory_ + n_measured_;
  if (device_->uses_host_memory()) {
    measure_rows(m, to);
  } else {
    MOE_TRY(measure_downloaded(m, to));
  }
  n_measured_ += static_cast<size_t>(m.rows);
  *out = to;
  return {};
}

Status RowLengths::measure_downloaded(const Matrix& m, float* to) {
  const auto n_tiles = static_cast<size_t>((m.rows + kTileRows - 1) / kTileRows);
  Array<uint8_t> tiles(allocator_);
  Array<float> scales(allocator_), lengths(allocator_);
  MOE_TRY(tiles.resize(n_tiles * static_cast<size_t>(m.tile_stride)));
  MOE_TRY(scales.resize(scale_count(m.format, m.scale_kind, m.group, m.rows, m.cols)));
  MOE_TRY(lengths.resize(static_cast<size_t>(m.rows)));
  MOE_TRY(device_->download(tiles.data(), m.tiles, tiles.size()));
  if (!scales.empty()) {
    MOE_TRY(device_->download(scales.data(), m.scales, scales.size() * sizeof(float)));
  }
  Matrix copy = m;
  copy.tiles = tiles.data();
  copy.scales = scales.data();
  measure_rows(copy, lengths.data());
  return device_->upload(to, lengths.data(), lengths.size() * sizeof(float));
}

}  // namespace moe
