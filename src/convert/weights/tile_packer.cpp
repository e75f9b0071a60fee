// SPDX-License-Identifier: MIT
// Quantises a tile's rows as the storage says, and adds up the squared error.
#include "src/convert/weights/tile_packer.h"

#include <algorithm>
#include <cmath>

#include "formats/import/failure.h"
#include "quant/formats.h"
#include "quant/quantise.h"
#include "src/convert/weights/weighted.h"

namespace moe {

namespace {

constexpr int32_t kChunk = 64;  // a loop of this length is vectorised

bool same_values(const float* wanted, const float* stored, int32_t n, float scale) {
  int32_t i = 0;
  for (; i + kChunk <= n; i += kChunk) {
    int32_t different = 0;
    for (int32_t j = 0; j < kChunk; ++j) different |= wanted[i + j] != stored[i + j] * scale;
    if (different != 0) return false;
  }
  for (; i < n; ++i) {
    if (wanted[i] != stored[i] * scale) return false;
  }
  return true;
}

double squared_norm(const float* values, int32_t n) {
  constexpr int32_t kSums = 8;
  double sums[kSums] = {};
  int32_t i = 0;
  for (; i + kSums <= n; i += kSums) {
    for (int32_t j = 0; j < kSums; ++j) {
      const double v = values[i + j];
      sums[j] += v * v;
    }
  }
  double sum = 0;
  for (; i < n; ++i) sum += static_cast<double>(values[i]) * static_cast<double>(values[i]);
  for (const double s : sums) sum += s;
  return sum;
}

// Squares of wanted - stored * scale; *largest is updated with the largest difference.
double squared_difference(const float* wanted, const float* stored, int32_t n, float scale,
                          double* largest) {
  constexpr int32_t kSums = 8;
  double sums[kSums] = {}, tops[kSums] = {};
  const auto difference = [&](int32_t i) {
    return std::fabs(static_cast<double>(wanted[i]) - static_cast<double>(stored[i] * scale));
  };
  int32_t i = 0;
  for (; i + kSums <= n; i += kSums) {
    for (int32_t j = 0; j < kSums; ++j) {
      const double d = difference(i + j);
      sums[j] += d * d;
      tops[j] = d > tops[j] ? d : tops[j];
    }
  }
  double sum = 0, top = 0;
  for (; i < n; ++i) {
    const double d = difference(i);
    sum += d * d;
    top = d > top ? d : top;
  }
  for (int32_t j = 0; j < kSums; ++j) {
    sum += sums[j];
    top = std::max(top, tops[j]);
  }
  *largest = top;
  return sum;
}

}  // namespace

void StorageError::add(const StorageError& other) {
  squared_error += other.squared_error;
  squared_norm += other.squared_norm;
  largest = std::max(largest, other.largest);
  weighted_error += other.weighted_error;
  weighted_norm += other.weighted_norm;
}

double StorageError::relative() const {
  return squared_norm > 0 ? std::sqrt(squared_error / squared_norm) : 0;
}

double StorageError::weighted() const {
  return weighted_norm > 0 ? std::sqrt(weighted_error / weighted_norm) : 0;
}

// Padding rows have scale 1: every scale of a file is positive.
std::vector<float> first_scales(const PlannedMatrix& matrix, const Storage& storage) {
  std::vector<float> scales(
      scale_count(storage.format, storage.scale, storage.group, matrix.slot.rows, matrix.slot.cols),
      1.0f);
  if (storage.scale == ScaleKind::kTensor) {
    const bool lossless = storage.fit.scale_kind == ScaleKind::kTensor;
    scales[0] = lossless ? storage.fit.tensor_scale : static_cast<float>(storage.absmean);
  }
  return scales;
}

TilePacker::TilePacker(const PlannedMatrix& matrix, const Storage& storage,
                       const Checkpoint& checkpoint, const KnownInputs& inputs,
                       std::vector<float>* scales)
    : matrix_(matrix),
      checkpoint_(checkpoint),
      storage_(storage),
      format_(format_info(storage.format)),
      importance_(can_calibrate(matrix, storage) ? inputs.importance : nullptr),
      reader_(checkpoint, *matrix.tensor, matrix.source, matrix.slot.rows, matrix.slot.cols),
      scales_(*scales),
      stored_(static_cast<size_t>(matrix.slot.cols)) {
  const size_t tile = static_cast<size_t>(kTileRows) * static_cast<size_t>(matrix.slot.cols);
  if (storage.format == FormatId::kI32) {
    ids_.resize(kTileRows);
  } else {
    values_.resize(tile);
    const bool codes = format_.group == 0 || (storage.own_codes && !format_.only_blocks());
    if (format_.integer && codes) codes_.resize(tile);
  }
  if (format_.only_blocks()) {
    own_blocks_.emplace(matrix, checkpoint);
  } else if (storage.own_codes) {
    own_scales_.emplace(matrix, storage.format, checkpoint);
  }
  if (importance_ != nullptr && inputs.feedback != nullptr && Compensator::serves(format_)) {
    compensator_.emplace(format_, inputs.feedback);
  }
  if (storage.scale == ScaleKind::kGroup && format_.group == 0) {
    row_scales_.resize(static_cast<size_t>((matrix.slot.cols + storage.group - 1) / storage.group));
  }
}

void TilePacker::pack(int32_t t, uint8_t* out) {
  const int32_t cols = matrix_.slot.cols;
  const int32_t first = t * kTileRows;
  const int n = std::min(kTileRows, matrix_.slot.rows - first);
  if (storage_.format == FormatId::kI32) {
    read_ids(first, n);
    i32_pack(ids_.data(), 1, n, 1, out);
    return;
  }
  read_rows(first, n);
  if (!format_.integer) {
    format_.pack_values(values_.data(), cols, n, cols, out);
  } else if (own_blocks_) {
    format_.pack_blocks(own_blocks_->read(first, n), own_blocks_->row_bytes(), n, cols, out);
  } else if (own_scales_) {
    own_scales_->split(first, n, values_.data(), codes_.data());
    format_.pack_codes(codes_.data(), cols, n, cols, out);
    put_own_scales(first, n, out);
  } else if (format_.quantise_tile != nullptr) {
    quantise_groups(first, n, out);
  } else {
    quantise_rows(first, n);
    format_.pack_codes(codes_.data(), cols, n, cols, out);
  }
  measure(first, n, out);
}

void TilePacker::put_own_scales(int32_t first, int n, uint8_t* out) {
  const float* scales = own_scales_->scales();
  if (format_.pack_scales == nullptr) {
    std::copy(scales, scales + n, scales_.begin() + first);
  } else {
    format_.pack_scales(scales, own_scales_->minimums(), n, matrix_.slot.cols, out);
  }
}

// Weights that errors have made too large for the format are rounded as they are.
void TilePacker::quantise_groups(int32_t first, int n, uint8_t* out) {
  if (compensator_ && compensator_->pack(values_.data(), n, out)) return;
  fell_back_ = true;
  const Status status =
      quantise_tile(format_, values_.data(), first, n, matrix_.slot.cols, importance_, out);
  if (!status.ok()) {
    check(status.with_context("tensor %.200s as %s", matrix_.tensor->name.c_str(), format_.name));
  }
}

void TilePacker::quantise_rows(int32_t first, int n) {
  for (int i = 0; i < n; ++i) {
    const ptrdiff_t at = static_cast<ptrdiff_t>(i) * matrix_.slot.cols;
    quantise_row(first + i, values_.data() + at, codes_.data() + at);
  }
  if (!compensator_) return;  // other threads write the scales of their rows
  float scales[kTileRows];
  for (int i = 0; i < n; ++i) {
    scales[i] = scales_[storage_.scale == ScaleKind::kRow ? static_cast<size_t>(first + i) : 0];
  }
  compensator_->round(values_.data(), n, scales, codes_.data());
}

void TilePacker::read_rows(int32_t first, int n) {
  const auto cols = static_cast<size_t>(matrix_.slot.cols);
  for (int i = 0; i < n; ++i) {
    const float* row = reader_.row(first + i);
    check_finite(matrix_, first + i, row);
    std::copy(row, row + cols, values_.data() + static_cast<size_t>(i) * cols);
  }
}

void TilePacker::read_ids(int32_t first, int n) {
  int64_t wide[kTileRows];
  checkpoint_.read(*matrix_.tensor, static_cast<uint64_t>(first), static_cast<size_t>(n), wide);
  for (int i = 0; i < n; ++i) {
    if (wide[i] < 0 || wide[i] >= matrix_.slot.limit) {
      fail(MOE_ERR_RANGE, "tensor %.200s: element %d: expected 0..%d, found %lld",
           matrix_.tensor->name.c_str(), first + i, matrix_.slot.limit - 1,
           static_cast<long long>(wide[i]));
    }
    ids_[static_cast<size_t>(i)] = static_cast<int32_t>(wide[i]);
  }
}

void TilePacker::quantise_row(int32_t r, const float* row, int8_t* codes) {
  const int32_t cols = matrix_.slot.cols;
  if (format_.quantise_row != nullptr) {
    float* const scale = &scales_[static_cast<size_t>(r)];
    check(format_.quantise_row(row, cols, codes, scale));
    if (importance_ != nullptr) refine_row(row, importance_, cols, format_.max_code, codes, scale);
  } else if (storage_.fit.scale_kind == ScaleKind::kNone) {
    ternary_codes(row, cols, storage_.absmean, codes);
  } else if (storage_.scale == ScaleKind::kGroup) {
    ternary_split(storage_.fit, row, cols, codes, row_scales_.data());
    put_group_scales(r, row_scales_.data());
  } else {
    float* scale = storage_.scale == ScaleKind::kRow ? &scales_[static_cast<size_t>(r)] : nullptr;
    ternary_split(storage_.fit, row, cols, codes, scale);
  }
}

void TilePacker::put_group_scales(int32_t r, const float* scales) {
  for (int32_t c = 0; c < matrix_.slot.cols; c += storage_.group) {
    const int64_t at = scale_index(storage_.scale, storage_.group, matrix_.slot.cols, r, c);
    scales_[static_cast<size_t>(at)] = scales[c / storage_.group];
  }
}

float TilePacker::scale_at(int32_t r, int32_t c) const {
  const int64_t at = scale_index(storage_.scale, storage_.group, matrix_.slot.cols, r, c);
  return scales_[static_cast<size_t>(at)];
}

void TilePacker::weigh(int row, const float* wanted, int32_t from, int32_t to, float scale) {
  if (compensator_) {
    compensator_->put_stored(row, stored_.data(), from, to, scale);
    return;
  }
  for (int32_t c = from; c < to; ++c) {
    const double w = wanted[c], h = importance_[c];
    const double difference = w - double{stored_[static_cast<size_t>(c)] * scale};
    error_.weighted_error += h * difference * difference;
    error_.weighted_norm += h * w * w;
  }
}

void TilePacker::measure_moments() {
  const MomentError found = compensator_->measure();
  error_.weighted_error += found.error;
  error_.weighted_norm += found.norm;
}

// Reads the tile back, so that the report reflects what was stored.
void TilePacker::measure(int32_t first, int n, const uint8_t* tile) {
  const int32_t cols = matrix_.slot.cols;
  const bool apart = !scales_.empty();
  const int32_t run = apart && storage_.scale == ScaleKind::kGroup ? storage_.group : cols;
  for (int i = 0; i < n; ++i) {
    read_weights(format_, tile, cols, i, stored_.data());
    const float* wanted = values_.data() + static_cast<ptrdiff_t>(i) * cols;
    for (int32_t from = 0; from < cols; from += run) {
      const float scale = apart ? scale_at(first + i, from) : 1.0f;
      const int32_t to = std::min(from + run, cols);
      double error = 0, largest = 0;
      const double norm = squared_norm(wanted + from, to - from);
      // Most matrices are stored either entirely without loss or not at all.
      if (!same_values(wanted + from, stored_.data() + from, to - from, scale)) {
        error =
            squared_difference(wanted + from, stored_.data() + from, to - from, scale, &largest);
      }
      if (!std::isfinite(error)) {
        fail(MOE_ERR_RANGE, "tensor %.200s: row %d has a value that %s cannot hold%s",
             matrix_.tensor->name.c_str(), first + i, format_.name,
             format_.group != 0 ? "; --weights int8 can" : "");
      }
      if (importance_ != nullptr) weigh(i, wanted, from, to, scale);
      error_.squared_error += error;
      error_.squared_norm += norm;
      error_.largest = std::max(error_.largest, largest);
    }
  }
  if (compensator_) measure_moments();
}

}  // namespace moe
