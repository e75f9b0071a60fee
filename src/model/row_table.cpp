// SPDX-License-Identifier: MIT
// Reads the tile of 16 rows that a row is part of, and decodes the row.
#include "src/model/row_table.h"

#include <algorithm>
#include <cstring>

#include "formats/moe/checksum.h"
#include "kernels/hadamard.h"
#include "quant/formats.h"
#include "src/base/os/threads.h"

namespace moe {

Status RowTable::open(const MoeFile& file, const FileSegment& segment) {
  for (const BlobMatrix& m : file.layout(segment).matrices) {
    if (m.role == Role::kWeight) {
      table_ = m;
    } else {
      MOE_TRY(rest_.matrices.push(m));
    }
  }
  if (!rest_.matrices.empty()) MOE_TRY(place(&rest_));
  constexpr uint64_t kMost = SIZE_MAX / 4;  // a smaller sum does not wrap on 32-bit machines
  if (rest_.bytes > kMost || table_.tile_stride > kMost) {
    return out_of_memory("rows of a table", std::max(rest_.bytes, table_.tile_stride));
  }
  file_ = &file;
  segment_ = &segment;
  return {};
}

size_t RowTable::scale_bytes() const {
  const size_t n = scale_count(table_.format, table_.scale, table_.group, kTileRows, table_.cols);
  return n * sizeof(float);
}

Status RowTable::allocate_memory() {
  if (memory_ != nullptr) return {};
  memory_ = static_cast<uint8_t*>(allocate(allocator_, bytes(), kSegmentAlign));
  return memory_ == nullptr ? out_of_memory("rows of a table", bytes()) : Status();
}

Status RowTable::load(bool verify) {
  if (loaded_) return {};
  MOE_TRY(allocate_memory());
  if (verify) MOE_TRY(check_sum());
  LockGuard guard(mutex_);
  MOE_TRY(read_rest());
  loaded_ = true;
  return {};
}

// Rows that are waited for go first, between two parts.
void RowTable::let_rows_pass() const {
  while (n_waiting_.load(std::memory_order_relaxed) != 0) yield_thread();
}

Status RowTable::check_sum() {
  const size_t most = room_bytes() - static_cast<size_t>(kSegmentAlign);
  XxhStream hash;
  for (uint64_t done = 0; done < segment_->stored;) {
    let_rows_pass();
    LockGuard guard(mutex_);
    tile_index_ = kNoTile;
    const auto n = static_cast<size_t>(std::min<uint64_t>(most, segment_->stored - done));
    const uint8_t* bytes = nullptr;
    MOE_TRY(file_->read_part(*segment_, done, n, memory_, &bytes));
    hash.add(bytes, n);
    done += n;
  }
  return file_->check_sum(*segment_, hash.value());
}

// The rest of the segment are a few matrices: its bytes pass through the tile's room.
Status RowTable::read_rest() {
  size_t i = 0;
  for (const BlobMatrix& from : file_->layout(*segment_).matrices) {
    if (from.role == Role::kWeight) continue;
    const BlobMatrix& to = rest_.matrices[i++];
    uint8_t* const base = memory_ + rest_at();
    const uint64_t scales = scale_floats(from) * sizeof(float);
    MOE_TRY(copy(from.offset, stored_bytes(from) - scales, base + to.offset));
    MOE_TRY(copy(from.scales_offset, scales, base + to.scales_offset));
    const Status status = validate_codes(view(to, base));
    char name[kTensorNameBytes];
    if (!status.ok()) {
      return file_->in_file(
          status.with_context("tensor %s", tensor_name(segment_->part, -1, -1, from, name)));
    }
  }
  return {};
}

Status RowTable::copy(uint64_t offset, uint64_t n, uint8_t* out) {
  const size_t most = std::max(tile_bytes(), scale_bytes());
  for (uint64_t done = 0; done < n;) {
    const auto part = static_cast<size_t>(std::min<uint64_t>(most, n - done));
    const uint8_t* bytes = nullptr;
    MOE_TRY(file_->read_part(*segment_, offset + done, part, memory_, &bytes));
    std::memcpy(out + done, bytes, part);
    done += part;
  }
  return {};
}

Status RowTable::read_tile(int32_t tile) {
  if (tile == tile_index_) return {};
  tile_index_ = kNoTile;
  const auto at = static_cast<uint64_t>(tile);
  tile_ = view(table_, nullptr);
  tile_.rows = std::min(kTileRows, table_.rows - tile * kTileRows);
  MOE_TRY(file_->read_part(*segment_, table_.offset + at * table_.tile_stride, tile_bytes(),
                           memory_, &tile_.tiles));
  if (const size_t n = scale_bytes(); n > 0) {
    const uint64_t first = table_.scale == ScaleKind::kTensor ? 0 : at * n;
    const uint8_t* scales = nullptr;
    MOE_TRY(file_->read_part(*segment_, table_.scales_offset + first, n, memory_ + room_bytes(),
                             &scales));
    tile_.scales = reinterpret_cast<const float*>(scales);
  }
  const Status status = validate_codes(tile_);
  char name[kTensorNameBytes];
  if (!status.ok()) {
    return file_->in_file(status.with_context("tensor %s from row %d on",
                                              tensor_name(segment_->part, -1, -1, table_, name),
                                              tile * kTileRows));
  }
  tile_index_ = tile;
  return {};
}

Status RowTable::read(int32_t row, float* out) {
  n_waiting_.fetch_add(1, std::memory_order_relaxed);
  LockGuard guard(mutex_);
  n_waiting_.fetch_sub(1, std::memory_order_relaxed);
  MOE_TRY(read_tile(row / kTileRows));
  read_row(tile_, row % kTileRows, out);
  if (rotation_ != nullptr) unrotate_row(*rotation_, table_.cols, out);
  return {};
}

Status RowTable::verify() {
  const bool unchecked = loaded_;
  MOE_TRY(load(true));
  if (unchecked) MOE_TRY(check_sum());
  for (int32_t row = 0; row < table_.rows; row += kTileRows) {
    let_rows_pass();
    LockGuard guard(mutex_);
    MOE_TRY(read_tile(row / kTileRows));
  }
  return {};
}

}  // namespace moe
