// SPDX-License-Identifier: MIT
#pragma once
// Rounds weights so that those to the right compensate for each error (calibration/feedback.h): 16
// rows at a time, for every integer format.

#include <memory>

#include "quant/weight_format.h"
#include "src/convert/calibration/feedback.h"

namespace moe {

/// Sums over rows of v H v^T, with H undamped: for errors, and for the weights themselves.
struct MomentError {
  double error = 0;
  double norm = 0;
};

class Compensator {
 public:
  /// False for unsupported group formats.
  static bool serves(const WeightFormat& format);
  /// `feedback` is known(), the format is supported; the other arguments must outlive this.
  Compensator(const WeightFormat& format, std::shared_ptr<const Feedback> feedback);

  /// Packs rows w (n_rows <= 16, inputs) of a format with scales in the tile, selected for the
  /// weights as changed by errors to the left: group by group, or for the groups that share bits at
  /// once. False, with the tile undefined, if the format cannot represent them.
  bool pack(const float* w, int n_rows, uint8_t* tile);
  /// The same for a format with separate scales: codes (n_rows, inputs) for scales[row].
  void round(const float* w, int n_rows, const float* scales, int8_t* codes);

  /// Sets the stored values of a row of the last call: stored[c] * scale for inputs [from, to).
  void put_stored(int row, const float* stored, int32_t from, int32_t to, float scale);
  /// Call once per call of pack() or round(), after put_stored() for all of its rows.
  MomentError measure();

 private:
  static constexpr int kGroup = 32;

  void load(const float* w, int n_rows);
  void aim(int32_t begin, int32_t n);
  bool choose_scales(int32_t begin, int32_t n, int n_rows);
  void use_scales(int32_t begin, int n_rows);
  void round_group(int32_t begin, int32_t n, int n_rows, int8_t* codes);
  void round_input(const float* target, int n_rows, int8_t* codes) const;
  float nearest(float wanted) const;
  double moments_of(const std::vector<float>& lanes) const;

  const WeightFormat& format_;
  const std::shared_ptr<const Feedback> feedback_;
  const int32_t cols_;
  const int32_t group_;        // inputs that share a scale
  const int32_t unit_;         // inputs whose scales are selected together
  std::vector<float> values_;  // values of the codes, ascending; empty: all integers
  // Row r of input c at 16 c + r.
  std::vector<float> weights_;
  std::vector<float> errors_;
  std::vector<float> targets_;  // of a group or unit
  std::vector<float> rows_;     // of a unit, (16, unit)
  std::vector<uint8_t> group_tile_;
  float scale_[kTileRows] = {};
  float minimum_[kTileRows] = {};
  std::vector<int8_t> codes_;
  std::vector<float> scales_, minimums_;  // (n_rows, groups)
};

}  // namespace moe
