// SPDX-License-Identifier: MIT
// Balanced k-means on the neurons' rows of weights, with threads and in a fixed order.
#include "src/convert/split/clusters.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "formats/import/failure.h"

namespace moe {
namespace {

constexpr int kRounds = 20;

double dot(const float* a, const float* b, int32_t n) {
  double sum = 0;
  for (int32_t i = 0; i < n; ++i) sum += double{a[i]} * double{b[i]};
  return sum;
}

void to_unit_length(float* row, int32_t d) {
  const double length = std::sqrt(dot(row, row, d));
  if (!(length > 0)) return;
  for (int32_t i = 0; i < d; ++i) row[i] = static_cast<float>(double{row[i]} / length);
}

class Clusters {
 public:
  Clusters(std::vector<float> rows, int32_t d, int32_t n_groups, ThreadPool& pool,
           const std::function<void()>& look)
      : pool_(pool),
        look_(look),
        rows_(std::move(rows)),
        d_(d),
        n_(static_cast<int32_t>(rows_.size() / static_cast<size_t>(d))),
        n_groups_(n_groups),
        centres_(static_cast<size_t>(n_groups) * static_cast<size_t>(d)),
        likeness_(static_cast<size_t>(n_) * static_cast<size_t>(n_groups)),
        order_(likeness_.size()) {
    for (int32_t r = 0; r < n_; ++r) to_unit_length(rows_.data() + at(r), d_);
    std::iota(order_.begin(), order_.end(), 0);
  }

  std::vector<int32_t> find() {
    begin();
    std::vector<int32_t> groups = assign();
    for (int round = 0; round < kRounds; ++round) {
      move_centres(groups);
      std::vector<int32_t> next = assign();
      if (next == groups) break;
      groups = std::move(next);
    }
    return groups;
  }

 private:
  size_t at(int32_t r) const { return static_cast<size_t>(r) * static_cast<size_t>(d_); }

  // Initial centres: each the row least similar to the previous ones.
  void begin() {
    std::vector<double> nearest(static_cast<size_t>(n_), -2);
    int32_t chosen = 0;
    for (int32_t g = 0; g < n_groups_; ++g) {
      look_();
      const float* row = rows_.data() + at(chosen);
      std::copy_n(row, d_, centres_.data() + at(g));
      for (int32_t r = 0; r < n_; ++r) {
        double& likest = nearest[static_cast<size_t>(r)];
        likest = std::max(likest, dot(rows_.data() + at(r), row, d_));
      }
      chosen =
          static_cast<int32_t>(std::min_element(nearest.begin(), nearest.end()) - nearest.begin());
    }
  }

  void find_likeness() {
    pool_.parallel([&](int thread, int n_threads) {
      const Range part = split_range(n_, thread, n_threads);
      for (int64_t r = part.begin; r < part.end; ++r) {
        for (int32_t g = 0; g < n_groups_; ++g) {
          likeness_[static_cast<size_t>(r * n_groups_ + g)] = static_cast<float>(
              dot(rows_.data() + at(static_cast<int32_t>(r)), centres_.data() + at(g), d_));
        }
      }
    });
  }

  // Assigns the most similar pairs first, while the group has room.
  std::vector<int32_t> assign() {
    look_();
    find_likeness();
    std::sort(order_.begin(), order_.end(), [&](int32_t a, int32_t b) {
      const float x = likeness_[static_cast<size_t>(a)], y = likeness_[static_cast<size_t>(b)];
      return x != y ? x > y : a < b;
    });
    std::vector<int32_t> groups(static_cast<size_t>(n_), -1);
    std::vector<int32_t> room(static_cast<size_t>(n_groups_), n_ / n_groups_);
    for (const int32_t pair : order_) {
      int32_t& group = groups[static_cast<size_t>(pair / n_groups_)];
      const int32_t g = pair % n_groups_;
      if (group >= 0 || room[static_cast<size_t>(g)] == 0) continue;
      group = g;
      --room[static_cast<size_t>(g)];
    }
    return groups;
  }

  void move_centres(const std::vector<int32_t>& groups) {
    std::fill(centres_.begin(), centres_.end(), 0.0f);
    for (int32_t r = 0; r < n_; ++r) {
      float* centre = centres_.data() + at(groups[static_cast<size_t>(r)]);
      for (int32_t i = 0; i < d_; ++i) centre[i] += rows_[at(r) + static_cast<size_t>(i)];
    }
    for (int32_t g = 0; g < n_groups_; ++g) to_unit_length(centres_.data() + at(g), d_);
  }

  ThreadPool& pool_;
  const std::function<void()>& look_;
  std::vector<float> rows_;
  const int32_t d_, n_, n_groups_;
  std::vector<float> centres_;
  std::vector<float> likeness_;  // (n, n_groups)
  std::vector<int32_t> order_;   // of its entries
};

}  // namespace

void check_clusters(int32_t n, int32_t d, int32_t n_groups, uint64_t room) {
  const uint64_t n_pairs = static_cast<uint64_t>(n) * static_cast<uint64_t>(n_groups);
  const uint64_t n_numbers = static_cast<uint64_t>(n + n_groups) * static_cast<uint64_t>(d);
  const uint64_t bytes = n_pairs * (sizeof(float) + sizeof(int32_t)) + n_numbers * sizeof(float);
  if (bytes <= room && n_pairs <= std::numeric_limits<int32_t>::max()) return;
  fail(MOE_ERR_MEMORY,
       "split: clusters of %d inner neurons for %d experts take %llu bytes, and %llu may be taken; "
       "split in order, or into fewer experts",
       n, n_groups, static_cast<unsigned long long>(bytes), static_cast<unsigned long long>(room));
}

std::vector<int32_t> balanced_clusters(std::vector<float> rows, int32_t d, int32_t n_groups,
                                       ThreadPool& pool, const std::function<void()>& look) {
  return Clusters(std::move(rows), d, n_groups, pool, look).find();
}

std::vector<int32_t> groups_in_order(int32_t n, int32_t n_groups) {
  std::vector<int32_t> groups(static_cast<size_t>(n));
  for (int32_t i = 0; i < n; ++i) groups[static_cast<size_t>(i)] = i / (n / n_groups);
  return groups;
}

}  // namespace moe
