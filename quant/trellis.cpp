// SPDX-License-Identifier: MIT
// Packs, checks and randomly fills tiles of tcq2 and tcq3, and quantises rows to them: the path
// with the least squared error (Viterbi 1967) for scales that are fitted to it.
#include "quant/trellis.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "quant/block_scan.h"
#include "quant/factors.h"
#include "quant/random.h"
#include "quant/weight_group.h"

namespace moe {
namespace {

constexpr int kN = kTileGroup;
constexpr int kMostLevels = 16;
constexpr int kSubsets = 4;  // of levels: every fourth
constexpr int kStates = 4;   // the last row's branch bit, and twice that of the row before
constexpr int kShared = Unsigned4Scales::kShared;
constexpr int32_t kPart = kShared * kN;  // inputs that share an f16; a segment has two parts
constexpr int kScaleBytes = scale_bytes(GroupScale::kUnsigned4);
constexpr int kGroupsOfSegment = groups_of_segment(GroupScale::kUnsigned4);

int32_t groups_in(int32_t cols) { return (cols + kN - 1) / kN; }

// A group has a block for each bit of its weights.
int64_t segment_bytes(const TrellisKind& kind) {
  return kScaleBytes + int64_t{kGroupsOfSegment} * kind.bits * kBlockBytes;
}
uint8_t* codes_of(const TrellisKind& kind, uint8_t* tile, int32_t group) {
  return tile + group / kGroupsOfSegment * segment_bytes(kind) + kScaleBytes +
         group % kGroupsOfSegment * kind.bits * kBlockBytes;
}

// A state follows one of two, which differ in `old`, the branch bit of the row before the last two.
constexpr int state_before(int state, int old) { return state / 2 + 2 * old; }
constexpr int subset_of(int state, int old) { return 2 * (state % 2 ^ old) + state / 2; }

// Errors stay finite, so that a path closes whatever is wanted.
float squared_error(float d) {
  const float squared = d * d;
  return squared < 1e30f ? squared : 1e30f;
}

// The best paths of kInputs inputs through the 16 rows of a tile.
template <size_t kInputs>
class Paths {
 public:
  explicit Paths(const TrellisKind& kind) : n_levels_(kind.n_levels()) {
    for (int i = 0; i < n_levels_; ++i) values_[i] = static_cast<float>(kind.value(i));
  }

  /// Finds the best paths for the weights wanted (16, kInputs). Rows from n_rows on may have any
  /// level.
  void find(const float* wanted, const float* scales, int n_rows) {
    start();
    for (int row = 0; row < kTileRows; ++row) {
      if (row < n_rows) {
        set_errors(wanted + row * int64_t{kInputs}, scales[row]);
      } else {
        std::memset(errors_, 0, sizeof errors_);
      }
      step(row);
    }
    for (size_t i = 0; i < kInputs; ++i) trace(wanted, scales, n_rows, i);
  }

  float value(int row, size_t i) const { return values_[levels[row][i]]; }

  uint8_t levels[kTileRows][kInputs];
  uint8_t branches[kTileRows][kInputs];

 private:
  // The rows are a ring: a path ends in the state in which it began.
  void start() {
    for (int begin = 0; begin < kStates; ++begin) {
      for (int state = 0; state < kStates; ++state) {
        const float error = begin == state ? 0.0f : std::numeric_limits<float>::max() / 2;
        std::fill_n(totals_[begin][state], kInputs, error);
      }
    }
  }

  // The least squared error in each subset of levels.
  void set_errors(const float* wanted, float scale) {
    for (int level = 0; level < n_levels_; ++level) {
      float* error = errors_[level % kSubsets];
      const float value = values_[level] * scale;
      for (size_t i = 0; i < kInputs; ++i) {
        const float d = wanted[i] - value;
        const float squared = squared_error(d);
        error[i] = level < kSubsets || squared < error[i] ? squared : error[i];
      }
    }
  }

  void step(int row) {
    for (int begin = 0; begin < kStates; ++begin) {
      for (int state = 0; state < kStates; ++state) {
        choose(begin, state, old_[row][begin][state]);
      }
    }
    std::memcpy(totals_, next_, sizeof totals_);
  }

  // The better of the two ways to a state.
  __attribute__((noinline)) void choose(int begin, int state, uint8_t* old) {
    const float* total[] = {totals_[begin][state_before(state, 0)],
                            totals_[begin][state_before(state, 1)]};
    const float* error[] = {errors_[subset_of(state, 0)], errors_[subset_of(state, 1)]};
    float* least = next_[begin][state];
    for (size_t i = 0; i < kInputs; ++i) {
      const float a = total[0][i] + error[0][i], b = total[1][i] + error[1][i];
      least[i] = b < a ? b : a;
      old[i] = b < a ? 1 : 0;
    }
  }

  void trace(const float* wanted, const float* scales, int n_rows, size_t i) {
    int begin = 0;
    for (int state = 1; state < kStates; ++state) {
      if (totals_[state][state][i] < totals_[begin][begin][i]) begin = state;
    }
    int state = begin;
    for (int row = kTileRows - 1; row >= 0; --row) {
      const int old = old_[row][begin][state][i];
      const int subset = subset_of(state, old);
      const float* weight = row < n_rows ? wanted + row * int64_t{kInputs} + i : nullptr;
      levels[row][i] =
          static_cast<uint8_t>(weight != nullptr ? nearest(subset, *weight, scales[row]) : subset);
      branches[row][i] = static_cast<uint8_t>(state % 2);
      state = state_before(state, old);
    }
  }

  int nearest(int subset, float wanted, float scale) const {
    int best = subset;
    float least = std::numeric_limits<float>::infinity();
    for (int level = subset; level < n_levels_; level += kSubsets) {
      const float d = wanted - values_[level] * scale;
      if (squared_error(d) < least) {
        least = squared_error(d);
        best = level;
      }
    }
    return best;
  }

  using Totals = float[kStates][kStates][kInputs];  // squared errors from a state to a state
  const int n_levels_;
  float values_[kMostLevels];
  float errors_[kSubsets][kInputs];
  Totals totals_, next_;
  uint8_t old_[kTileRows][kStates][kStates][kInputs];
};

void put_bits(uint8_t* byte, int at, int mask, int bits) {
  *byte = static_cast<uint8_t>((*byte & ~(mask << at)) | bits << at);
}

// Writes n codes of each row to a group.
void put_levels(const TrellisKind& kind, const Paths<kN>& paths, int n, uint8_t* codes) {
  for (int row = 0; row < kTileRows; ++row) {
    for (int i = 0; i < n; ++i) {
      const int e = i / 8, half = i % 8 / 4 * 4;
      uint8_t* byte = codes + row * 4 + i % 4;
      put_bits(byte, e + half, 1, paths.branches[row][i]);
      const int u = paths.levels[row][i] / kSubsets;
      if (kind.bits == 2) {
        put_bits(byte + kBlockBytes, e + half, 1, u);
      } else {
        put_bits(byte + (1 + e % 2) * kBlockBytes, e / 2 * 2 + half, 3, u);
      }
    }
  }
}

// The scales of 256 inputs of a row.
void put_factors(const TrellisKind& kind, uint8_t* tile, int32_t part, int row,
                 const Factors& factors) {
  uint8_t* scales = tile + part / 2 * segment_bytes(kind);
  const int first = part % 2 * kShared;
  put_half(scales, Unsigned4Scales::half_at(row, first), factors.half);
  for (int g = first; g < first + kShared; ++g) {
    put_bits(scales + Unsigned4Scales::kFactors + kTileRows * (g / 2) + row, g % 2 * 4, 15,
             factors.factor[g - first]);
  }
}

// Fits scales and codes to at most 256 inputs of 16 rows.
class PartFit {
 public:
  PartFit(const TrellisKind& kind, const float* w, int64_t ld, int n_rows, int32_t n,
          const float* importance)
      : kind_(kind), n_rows_(n_rows), n_inputs_(n), n_groups_(groups_in(n)), paths_(kind) {
    for (int g = 0; g < n_groups_; ++g) {
      for (int row = 0; row < n_rows; ++row) {
        std::copy_n(w + row * ld + g * kN, inputs_of(g), wanted_[g][row]);
      }
      const float* from = importance != nullptr ? importance + g * kN : nullptr;
      const WeightGroup known = read_group(w + g * kN, from, inputs_of(g));
      std::copy_n(known.importance, kN, importance_[g]);
    }
  }

  void run() {
    for (int g = 0; g < n_groups_; ++g) search(g);
    for (int again = 0; again < 2; ++again) {
      share();
      for (int g = 0; g < n_groups_; ++g) {
        find(g);
        for (int row = 0; row < n_rows_; ++row) {
          if (factors_[row].at(g) != 0.0f) keep(g, row, moments(g, row));
        }
      }
    }
    share();
  }

  void put(int32_t part, uint8_t* tile) {
    for (int row = 0; row < n_rows_; ++row) put_factors(kind_, tile, part, row, factors_[row]);
    for (int g = 0; g < n_groups_; ++g) {
      find(g);
      put_levels(kind_, paths_, inputs_of(g), codes_of(kind_, tile, part * kShared + g));
    }
  }

 private:
  int inputs_of(int g) const { return std::min(n_inputs_ - g * kN, kN); }

  // Tries several places of the largest level, near the largest weight of each row.
  void search(int g) {
    constexpr float kReaches[] = {0.7f, 0.8f, 0.9f, 1.0f, 1.15f};
    const auto most = static_cast<float>(kind_.value(kind_.n_levels() - 1));
    float largest[kTileRows] = {}, gained[kTileRows] = {};
    for (int row = 0; row < n_rows_; ++row) {
      for (const float v : wanted_[g][row]) largest[row] = std::max(largest[row], std::fabs(v));
    }
    for (const float reach : kReaches) {
      float scales[kTileRows] = {};
      for (int row = 0; row < n_rows_; ++row) scales[row] = largest[row] * reach / most;
      paths_.find(wanted_[g][0], scales, n_rows_);
      for (int row = 0; row < n_rows_; ++row) {
        const Moments m = moments(g, row);
        const float gain = m.product * m.scale();
        if (!(gain > gained[row])) continue;
        gained[row] = gain;
        keep(g, row, m);
      }
    }
  }

  struct Moments {
    float product = 0;  // sum of importance * level * weight
    float squared = 0;  // sum of importance * level^2

    /// The scale of least squared error. A scale of 0 would lose product * scale more.
    float scale() const {
      const float found = product / squared;
      return found > 0 && is_finite(found) ? found : 0.0f;
    }
  };
  Moments moments(int g, int row) const {
    float product[kGroupSums] = {}, squared[kGroupSums] = {};
    for (size_t i = 0; i < kN; ++i) {
      const float value = paths_.value(row, i);
      const float h = importance_[g][i] * value;
      product[i % kGroupSums] += h * wanted_[g][row][i];
      squared[i % kGroupSums] += h * value;
    }
    return {sum_of(product), sum_of(squared)};
  }
  void keep(int g, int row, const Moments& m) {
    scales_[row][g] = m.scale();
    weights_[row][g] = m.squared;
  }

  // Rounds the scales to what the groups of a row share.
  void share() {
    for (int row = 0; row < n_rows_; ++row) {
      factors_[row] = factors_of(kFourBitFactors, scales_[row], weights_[row], n_groups_);
    }
  }

  void find(int g) {
    float scales[kTileRows] = {};
    for (int row = 0; row < n_rows_; ++row) scales[row] = factors_[row].at(g);
    paths_.find(wanted_[g][0], scales, n_rows_);
  }

  const TrellisKind& kind_;
  const int n_rows_;
  const int32_t n_inputs_;
  const int n_groups_;
  float wanted_[kShared][kTileRows][kN] = {};
  float importance_[kShared][kN];
  float scales_[kTileRows][kShared] = {};
  float weights_[kTileRows][kShared] = {};
  Factors factors_[kTileRows];
  Paths<kN> paths_;
};

}  // namespace

size_t trellis_tile_bytes(const TrellisKind& kind, int64_t cols) {
  const int64_t groups = (cols + kN - 1) / kN;
  const int64_t segments = (groups + kGroupsOfSegment - 1) / kGroupsOfSegment;
  return static_cast<size_t>(segments * kScaleBytes + groups * kind.bits * kBlockBytes);
}

void trellis_pack_codes(const TrellisKind& kind, const int8_t* codes, int64_t ld, int n_rows,
                        int32_t cols, uint8_t* tile) {
  std::memset(tile, 0, trellis_tile_bytes(kind, cols));
  Factors one = {1.0f, {}};
  std::fill_n(one.factor, kShared, 1);
  float scales[kTileRows];
  std::fill_n(scales, kTileRows, 1.0f);
  Paths<kN> paths(kind);
  for (int32_t group = 0; group < groups_in(cols); ++group) {
    const int32_t begin = group * kN, n = std::min(cols - begin, kN);
    float wanted[kTileRows][kN] = {};
    for (int row = 0; row < n_rows; ++row) {
      if (group % kShared == 0) put_factors(kind, tile, group / kShared, row, one);
      for (int32_t i = 0; i < n; ++i) wanted[row][i] = codes[row * ld + begin + i];
    }
    paths.find(wanted[0], scales, n_rows);
    put_levels(kind, paths, n, codes_of(kind, tile, group));
  }
}

void trellis_pack_scales(const TrellisKind& kind, const float* scales, int n_rows, int32_t cols,
                         uint8_t* tile) {
  const int32_t n_groups = groups_in(cols);
  for (int row = 0; row < n_rows; ++row) {
    for (int32_t g = 0; g < n_groups; g += kShared) {
      const float* from = scales + int64_t{row} * n_groups + g;
      const int n = std::min(n_groups - g, kShared);
      put_factors(kind, tile, g / kShared, row, factors_of(kFourBitFactors, from, nullptr, n));
    }
  }
}

Status trellis_quantise(const TrellisKind& kind, const float* w, int64_t ld, int n_rows,
                        int32_t cols, const float* importance, uint8_t* tile) {
  for (int row = 0; row < n_rows; ++row) {
    MOE_TRY(check_weights(w + row * ld, cols, kLargestHalf));
  }
  std::memset(tile, 0, trellis_tile_bytes(kind, cols));
  for (int32_t begin = 0; begin < cols; begin += kPart) {
    PartFit fit(kind, w + begin, ld, n_rows, std::min(cols - begin, kPart),
                importance != nullptr ? importance + begin : nullptr);
    fit.run();
    fit.put(begin / kPart, tile);
  }
  return {};
}

void trellis_round_rows(const TrellisKind& kind, const float* wanted, const float* scales,
                        int n_rows, int8_t* codes) {
  Paths<1> paths(kind);
  paths.find(wanted, scales, n_rows);
  for (int row = 0; row < n_rows; ++row) codes[row] = static_cast<int8_t>(paths.value(row, 0));
}

int64_t trellis_find_invalid(const TrellisKind& kind, const uint8_t* tile, size_t bytes) {
  const auto step = static_cast<size_t>(segment_bytes(kind));
  for (size_t at = 0; at < bytes; at += step) {
    if (find_block(tile + at, kBlockBytes, infinite_halves) >= 0) {
      return static_cast<int64_t>(at / kBlockBytes);
    }
  }
  return -1;
}

// Their mean is 0, and their variance amplitude^2 / 3.
void trellis_random_tile(const TrellisKind& kind, Random& random, size_t bytes, float amplitude,
                         uint8_t* tile) {
  for (size_t i = 0; i < bytes; i += 8) {
    const uint64_t v = random.next();
    std::memcpy(tile + i, &v, 8);
  }
  float mean_square = 0;
  for (int level = 0; level < kind.n_levels(); ++level) {
    const auto value = static_cast<float>(kind.value(level));
    mean_square += value * value / static_cast<float>(kind.n_levels());
  }
  constexpr int kLeast = 12, kMost = kFourBitFactors.most;
  const float half = amplitude / std::sqrt(3 * mean_square) / (0.5f * (kLeast + kMost));
  const auto n_parts = 2 * static_cast<int32_t>(bytes / static_cast<size_t>(segment_bytes(kind)));
  for (int32_t part = 0; part < n_parts; ++part) {
    for (int row = 0; row < kTileRows; ++row) {
      Factors scale = {as_half(half), {}};
      for (int i = 0; i < kShared; ++i) {
        scale.factor[i] = kLeast + static_cast<int>((kMost - kLeast + 1) * random.uniform());
      }
      put_factors(kind, tile, part, row, as_packed(kFourBitFactors, scale, kShared));
    }
  }
}

}  // namespace moe
