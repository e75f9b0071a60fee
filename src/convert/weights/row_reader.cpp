// SPDX-License-Identifier: MIT
// Reads blocks of rows, transposed, in groups, picked or packed, and gives them out one by one.
#include "src/convert/weights/row_reader.h"

#include <algorithm>
#include <limits>

#include "formats/import/failure.h"
#include "quant/format.h"
#include "src/base/checked.h"

namespace moe {
namespace {

constexpr int64_t kPartFloats = int64_t{1} << 16;        // 256 KB: fits in cache
constexpr int64_t kTransposedFloats = int64_t{1} << 24;  // 64 MB: few long reads

// Distant rows are read individually.
bool scattered(const SourcePick& rows) {
  return rows.of > 0 && rows.items->back() - rows.items->front() >= std::ssize(*rows.items);
}

int32_t rows_per_block(int32_t rows, int32_t cols, bool transposed) {
  const int64_t n = transposed ? kTransposedFloats / std::max(cols, 1) : rows_per_part(cols);
  return static_cast<int32_t>(std::clamp<int64_t>(n, 1, rows));
}

int32_t whole(const SourcePick& pick, int32_t n) { return pick.of > 0 ? pick.of : n; }

// The largest offset of n items, or -1 if the groups are incomplete or out of bounds.
int64_t last_in_groups(const SourceGroups& groups, int32_t n, int64_t unit) {
  constexpr int64_t kMaxPlace = int64_t{1} << 50;
  int64_t size = 0, last = 0;
  for (const SourceGroups::Piece& piece : groups.pieces) {
    if (piece.n < 1 || piece.at < -1 || piece.at > kMaxPlace) return -1;
    size += piece.n;
    if (piece.at >= 0) last = std::max(last, piece.at + (piece.n - 1) * unit);
  }
  const bool sane = n % size == 0 && groups.stride >= 0 && groups.stride <= kMaxPlace / n;
  return sane ? (n / size - 1) * groups.stride + last : -1;
}

bool find_last(const SourceGroups& groups, int32_t n, int64_t stride, int64_t* last) {
  if (groups.pieces.empty()) return checked_mul<int64_t>(n - 1, stride, last);
  *last = last_in_groups(groups, n, stride);
  return *last >= 0;
}

}  // namespace

int32_t rows_per_part(int32_t cols) {
  const int64_t tiles = kPartFloats / std::max(cols, 1) / kTileRows;
  return static_cast<int32_t>(std::max<int64_t>(tiles, 1)) * kTileRows;
}

bool rows_are_together(const SourceTensor& tensor, const Source& source) {
  return source.col_stride == 1 && !tensor.across;
}

int64_t place_in_groups(const SourceGroups& groups, int32_t i, int64_t unit) {
  int32_t size = 0;
  for (const SourceGroups::Piece& piece : groups.pieces) size += piece.n;
  int32_t left = i % size;
  for (const SourceGroups::Piece& piece : groups.pieces) {
    if (left < piece.n)
      return piece.at < 0 ? -1 : i / size * groups.stride + piece.at + left * unit;
    left -= piece.n;
  }
  return -1;
}

RowReader::RowReader(const Checkpoint& checkpoint, const SourceTensor& tensor, const Source& source,
                     int32_t rows, int32_t cols)
    : checkpoint_(checkpoint),
      tensor_(tensor),
      row_groups_(source.row_groups),
      col_groups_(source.col_groups),
      picked_rows_(source.rows),
      picked_cols_(source.cols),
      factors_(source.factors),
      offset_(source.offset),
      row_stride_(source.row_stride),
      col_stride_(source.col_stride),
      rows_(whole(source.rows, rows)),
      cols_(whole(source.cols, cols)),
      picked_(static_cast<size_t>(source.cols.of > 0 ? cols : 0)) {
  if (row_stride_ == 0) row_stride_ = cols_;
  const bool transposed = !rows_are_together(tensor, source);
  block_rows_ =
      !transposed && scattered(source.rows) ? 1 : rows_per_block(rows_, cols_, transposed);
  buffer_.resize(static_cast<size_t>(block_rows_) * static_cast<size_t>(cols_));
  if (source.packing != Packing::kNone) unpacker_.emplace(checkpoint, tensor, source, cols_);
}

const float* RowReader::row(int32_t r) {
  const float* all =
      whole_row(picked_rows_.of > 0 ? (*picked_rows_.items)[static_cast<size_t>(r)] : r);
  if (picked_cols_.of == 0) return all;
  for (size_t c = 0; c < picked_.size(); ++c) picked_[c] = all[(*picked_cols_.items)[c]];
  return picked_.data();
}

const float* RowReader::whole_row(int32_t r) {
  if (r < first_ || r >= first_ + n_buffered_) fill(r);
  return buffer_.data() + static_cast<size_t>(r - first_) * static_cast<size_t>(cols_);
}

void RowReader::fill(int32_t first) {
  const int32_t n = std::min(block_rows_, rows_ - first);
  const auto width = static_cast<size_t>(cols_);
  n_buffered_ = 0;  // invalid if a read throws
  if (unpacker_) {
    for (int32_t i = 0; i < n; ++i) {
      unpacker_->read((offset_ + (first + i) * row_stride_) / cols_,
                      buffer_.data() + static_cast<size_t>(i) * width);
    }
  } else if (!row_groups_.pieces.empty() || !col_groups_.pieces.empty()) {
    for (int32_t i = 0; i < n; ++i) {
      read_grouped(first + i, buffer_.data() + static_cast<size_t>(i) * width);
    }
  } else if (col_stride_ != 1) {
    read_transposed(first, n);
  } else if (row_stride_ == cols_) {
    checkpoint_.read(tensor_, static_cast<uint64_t>(offset_ + first * row_stride_),
                     static_cast<size_t>(n) * width, buffer_.data());
  } else {
    for (int32_t i = 0; i < n; ++i) {
      checkpoint_.read(tensor_, static_cast<uint64_t>(offset_ + (first + i) * row_stride_), width,
                       buffer_.data() + static_cast<size_t>(i) * width);
    }
  }
  multiply(first, n);
  first_ = first;
  n_buffered_ = n;
}

void RowReader::multiply(int32_t first, int32_t n) {
  int32_t begin = 0;
  for (const SourceFactor& part : factors_) {
    const int32_t end = begin + part.rows;
    for (int32_t r = std::max(begin, first); r < std::min(end, first + n); ++r) {
      float* const row =
          buffer_.data() + static_cast<size_t>(r - first) * static_cast<size_t>(cols_);
      for (int32_t c = 0; c < cols_; ++c) row[c] *= part.factor;
    }
    begin = end;
  }
}

void RowReader::read_transposed(int32_t first, int32_t n) {
  span_.resize(static_cast<size_t>((n - 1) * row_stride_ + 1));
  for (int32_t c = 0; c < cols_; ++c) {
    const int64_t at = offset_ + first * row_stride_ + c * col_stride_;
    checkpoint_.read(tensor_, static_cast<uint64_t>(at), span_.size(), span_.data());
    for (int32_t i = 0; i < n; ++i) {
      buffer_[static_cast<size_t>(i) * static_cast<size_t>(cols_) + static_cast<size_t>(c)] =
          span_[static_cast<size_t>(i * row_stride_)];
    }
  }
}

void RowReader::read_grouped(int32_t r, float* out) {
  const auto width = static_cast<size_t>(cols_);
  const int64_t at =
      row_groups_.pieces.empty() ? r * row_stride_ : place_in_groups(row_groups_, r, row_stride_);
  std::fill(out, out + width, 0.0f);
  if (at < 0) return;
  if (col_groups_.pieces.empty() && col_stride_ != 1) return read_turned(at, out);
  if (col_groups_.pieces.empty()) {
    return checkpoint_.read(tensor_, static_cast<uint64_t>(offset_ + at), width, out);
  }
  span_.resize(static_cast<size_t>(row_stride_));
  checkpoint_.read(tensor_, static_cast<uint64_t>(offset_ + at), span_.size(), span_.data());
  for (int32_t c = 0; c < cols_; ++c) {
    const int64_t from = place_in_groups(col_groups_, c, 1);
    if (from >= 0) out[c] = span_[static_cast<size_t>(from)];
  }
}

void RowReader::read_turned(int64_t at, float* out) {
  const int64_t length = (cols_ - 1) * col_stride_ + 1;
  const auto held = static_cast<int64_t>(span_.size());
  if (at < span_at_ || at + length > span_at_ + held) {
    // The first row of a group reads the others as well.
    const int64_t left = static_cast<int64_t>(tensor_.n_elements) - offset_ - at;
    span_.resize(static_cast<size_t>(std::min(std::max(row_groups_.stride, length), left)));
    span_at_ = std::numeric_limits<int64_t>::max() / 2;  // invalid if a read throws
    checkpoint_.read(tensor_, static_cast<uint64_t>(offset_ + at), span_.size(), span_.data());
    span_at_ = at;
  }
  for (int32_t c = 0; c < cols_; ++c) {
    out[c] = span_[static_cast<size_t>(at - span_at_ + c * col_stride_)];
  }
}

void check_source(const SourceTensor& tensor, const Source& source, int32_t rows, int32_t cols) {
  rows = whole(source.rows, rows);
  cols = whole(source.cols, cols);
  std::vector<int64_t> expected = source.shape;
  if (expected.empty()) {
    expected = {rows};
    if (cols != 1 || tensor.shape.size() == 2) expected.push_back(cols);
  }
  if (tensor.shape != expected) {
    fail(MOE_ERR_SHAPE, "tensor %.200s: expected %s, file has %s", tensor.name.c_str(),
         shape_text(expected).c_str(), shape_text(tensor.shape).c_str());
  }
  const bool whole_codes = source.packing != Packing::kMxfp4 || cols % 32 == 0;
  const int64_t row_stride = source.row_stride == 0 ? cols : source.row_stride;
  int64_t last_row = 0, last_col = 0, last = 0;
  const bool fits =
      whole_codes && source.offset >= 0 && row_stride > 0 && source.col_stride > 0 &&
      find_last(source.row_groups, rows, row_stride, &last_row) &&
      find_last(source.col_groups, cols, source.col_stride, &last_col) &&
      (source.col_groups.pieces.empty() || last_col < row_stride) &&
      checked_add(last_row, last_col, &last) && checked_add(last, source.offset, &last) &&
      static_cast<uint64_t>(last) / weights_per_element(source.packing) < tensor.n_elements;
  if (!fits) {
    fail(MOE_ERR_SHAPE, "tensor %.200s: %s holds no slice of %d x %d there", tensor.name.c_str(),
         shape_text(tensor.shape).c_str(), rows, cols);
  }
}

}  // namespace moe
