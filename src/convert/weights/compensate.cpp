// SPDX-License-Identifier: MIT
// Carries the errors of a row's rounded weights over to the following ones, 16 rows in vector
// registers.
#include "src/convert/weights/compensate.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "quant/quantise.h"

namespace moe {
namespace {

// out[r] += sum over i of factors[i] * lanes[16 i + r]
void add_lanes(const float* factors, const float* lanes, int32_t n, float* out) {
  float sums[kTileRows];
  std::copy(out, out + kTileRows, sums);
  for (int32_t i = 0; i < n; ++i) {
    for (int r = 0; r < kTileRows; ++r) sums[r] += factors[i] * lanes[i * kTileRows + r];
  }
  std::copy(sums, sums + kTileRows, out);
}

std::vector<float> values_of(const WeightFormat& format) {
  std::set<float> values;
  for (int byte = 0; format.group != 0 && byte < 256; ++byte) {
    values.insert(format.random_code(static_cast<uint8_t>(byte)));
  }
  return {values.begin(), values.end()};
}

}  // namespace

bool Compensator::serves(const WeightFormat& format) {
  return format.group == 0 || (kGroup % format.group == 0 && format.random_code != nullptr);
}

Compensator::Compensator(const WeightFormat& format, std::shared_ptr<const Feedback> feedback)
    : format_(format),
      feedback_(std::move(feedback)),
      cols_(feedback_->n()),
      group_(format.group != 0 ? format.group : kGroup),
      unit_(std::max<int32_t>(format.scale_inputs, kGroup)),
      values_(values_of(format)),
      weights_(static_cast<size_t>(cols_) * kTileRows),
      errors_(weights_.size()),
      targets_(static_cast<size_t>(unit_) * kTileRows),
      rows_(targets_.size()),
      group_tile_(format.group != 0 ? format.tile_bytes(unit_) : 0) {
  if (format.group == 0) return;
  codes_.resize(weights_.size());
  const size_t n_groups = static_cast<size_t>((cols_ + group_ - 1) / group_);
  scales_.resize(n_groups * kTileRows);
  if (format.minimums) minimums_.resize(scales_.size());
}

bool Compensator::pack(const float* w, int n_rows, uint8_t* tile) {
  load(w, n_rows);
  for (int32_t begin = 0; begin < cols_; begin += group_) {
    const int32_t n = std::min(group_, cols_ - begin);
    if (begin % unit_ == 0) {
      const int32_t shared = std::min(unit_, cols_ - begin);
      aim(begin, shared);
      if (!choose_scales(begin, shared, n_rows)) return false;
    }
    if (unit_ != group_) aim(begin, n);
    use_scales(begin, n_rows);
    round_group(begin, n, n_rows, codes_.data());
  }
  format_.pack_codes(codes_.data(), cols_, n_rows, cols_, tile);
  format_.pack_scales(scales_.data(), format_.minimums ? minimums_.data() : nullptr, n_rows, cols_,
                      tile);
  return true;
}

void Compensator::round(const float* w, int n_rows, const float* scales, int8_t* codes) {
  load(w, n_rows);
  std::copy(scales, scales + n_rows, scale_);
  for (int32_t begin = 0; begin < cols_; begin += group_) {
    const int32_t n = std::min(group_, cols_ - begin);
    aim(begin, n);
    round_group(begin, n, n_rows, codes);
  }
}

void Compensator::load(const float* w, int n_rows) {
  std::fill(errors_.begin(), errors_.end(), 0.0f);
  for (int32_t c = 0; c < cols_; ++c) {
    for (int r = 0; r < kTileRows; ++r) {
      weights_[static_cast<size_t>(c * kTileRows + r)] =
          r < n_rows ? w[static_cast<ptrdiff_t>(r) * cols_ + c] : 0.0f;
    }
  }
}

// Adds the errors to the left of a group to its targets.
void Compensator::aim(int32_t begin, int32_t n) {
  const int32_t first = moment_block(begin, cols_).begin;
  for (int32_t i = 0; i < n; ++i) {
    const int32_t c = begin + i;
    float* target = targets_.data() + ptrdiff_t{i} * kTileRows;
    std::copy_n(weights_.data() + ptrdiff_t{c} * kTileRows, kTileRows, target);
    add_lanes(feedback_->above(c), errors_.data() + ptrdiff_t{first} * kTileRows, begin - first,
              target);
  }
}

// Chooses the scales of all groups of the n inputs.
bool Compensator::choose_scales(int32_t begin, int32_t n, int n_rows) {
  for (int r = 0; r < n_rows; ++r) {
    for (int32_t i = 0; i < n; ++i) {
      rows_[static_cast<size_t>(r * n + i)] = targets_[static_cast<size_t>(i * kTileRows + r)];
    }
  }
  const float* importance = feedback_->diagonal().data() + begin;
  if (!quantise_tile(format_, rows_.data(), 0, n_rows, n, importance, group_tile_.data()).ok()) {
    return false;
  }
  const int32_t n_groups = (cols_ + group_ - 1) / group_;
  for (int r = 0; r < n_rows; ++r) {
    for (int32_t g = 0; g * group_ < n; ++g) {
      const auto at = static_cast<size_t>(r * n_groups + begin / group_ + g);
      scales_[at] = format_.scale(group_tile_.data(), r, g);
      if (format_.minimums) minimums_[at] = format_.minimum(group_tile_.data(), r, g);
    }
  }
  return true;
}

void Compensator::use_scales(int32_t begin, int n_rows) {
  const int32_t n_groups = (cols_ + group_ - 1) / group_;
  for (int r = 0; r < n_rows; ++r) {
    const auto at = static_cast<size_t>(r * n_groups + begin / group_);
    scale_[r] = scales_[at];
    if (format_.minimums) minimum_[r] = minimums_[at];
  }
}

void Compensator::round_group(int32_t begin, int32_t n, int n_rows, int8_t* codes) {
  for (int32_t i = 0; i < n; ++i) {
    const int32_t c = begin + i, first = moment_block(c, cols_).begin;
    float* target = targets_.data() + ptrdiff_t{i} * kTileRows;
    float* error = errors_.data() + ptrdiff_t{c} * kTileRows;
    const float* above = feedback_->above(c) + (begin - first);
    add_lanes(above, error - ptrdiff_t{i} * kTileRows, i, target);
    int8_t rounded[kTileRows];
    round_input(target, n_rows, rounded);
    for (int r = 0; r < n_rows; ++r) {
      const auto code = static_cast<float>(rounded[r]);
      codes[static_cast<ptrdiff_t>(r) * cols_ + c] = rounded[r];
      error[r] =
          weights_[static_cast<size_t>(c * kTileRows + r)] - (code * scale_[r] + minimum_[r]);
    }
  }
}

void Compensator::round_input(const float* target, int n_rows, int8_t* codes) const {
  if (format_.round_rows != nullptr) return format_.round_rows(target, scale_, n_rows, codes);
  for (int r = 0; r < n_rows; ++r) {
    const float wanted = scale_[r] != 0 ? (target[r] - minimum_[r]) / scale_[r] : 0.0f;
    codes[r] = static_cast<int8_t>(nearest(wanted));
  }
}

float Compensator::nearest(float wanted) const {
  if (std::isnan(wanted)) return 0;  // weights near the limit of f32
  if (values_.empty()) {
    const auto most = static_cast<float>(format_.max_code);
    return std::nearbyint(std::min(std::max(wanted, -most), most));
  }
  const auto above = std::lower_bound(values_.begin(), values_.end(), wanted);
  if (above == values_.begin()) return values_.front();
  if (above == values_.end()) return values_.back();
  return wanted - above[-1] <= *above - wanted ? above[-1] : *above;
}

void Compensator::put_stored(int row, const float* stored, int32_t from, int32_t to, float scale) {
  for (int32_t c = from; c < to; ++c) {
    const auto at = static_cast<size_t>(c * kTileRows + row);
    errors_[at] = weights_[at] - stored[c] * scale;
  }
}

MomentError Compensator::measure() { return {moments_of(errors_), moments_of(weights_)}; }

double Compensator::moments_of(const std::vector<float>& lanes) const {
  double sum = 0;
  for (int32_t c = 0; c < cols_; ++c) {
    const int32_t first = moment_block(c, cols_).begin;
    const float* own = lanes.data() + ptrdiff_t{c} * kTileRows;
    float sums[kTileRows];
    std::copy_n(own, kTileRows, sums);
    add_lanes(feedback_->above(c), lanes.data() + ptrdiff_t{first} * kTileRows, c - first, sums);
    double whole = 0, damping = 0;
    for (int r = 0; r < kTileRows; ++r) {
      whole += double{sums[r]} * double{sums[r]};
      damping += double{own[r]} * double{own[r]};
    }
    sum += double{feedback_->pivot(c)} * whole - Feedback::kDamping * damping;
  }
  return std::isfinite(sum) ? std::max(sum, 0.0) : std::numeric_limits<double>::max();
}

}  // namespace moe
