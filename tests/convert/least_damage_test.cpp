// SPDX-License-Identifier: MIT
#include "src/convert/least_damage.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "quant/random.h"

namespace moe {
namespace {

using Parts = std::vector<SizeOptions>;

struct Total {
  uint64_t bytes = 0;
  double damage = 0;
};

Total total(const Parts& parts, const std::vector<size_t>& options) {
  Total t;
  for (size_t p = 0; p < parts.size(); ++p) {
    t.bytes += parts[p].at(options.at(p)).bytes;
    t.damage += parts[p][options[p]].damage;
  }
  return t;
}

Total chosen(const Parts& parts, uint64_t most) { return total(parts, least_damage(parts, most)); }

Total with_smallest(const Parts& parts) { return chosen(parts, 0); }

// This tries all combinations of options.
double least_possible(const Parts& parts, uint64_t most) {
  std::vector<size_t> at(parts.size());
  double best = 1e300;
  for (;;) {
    const Total t = total(parts, at);
    if (t.bytes <= most) best = std::min(best, t.damage);
    size_t p = 0;
    while (p < parts.size() && ++at[p] == parts[p].size()) at[p++] = 0;
    if (p == parts.size()) return best;
  }
}

Parts random_parts(size_t n, size_t n_options, Random& random) {
  Parts parts(n);
  for (SizeOptions& options : parts) {
    const uint64_t unit = 1 + random.next() % 50;
    for (size_t i = 0; i < n_options; ++i) {
      options.push_back({unit * (1 + random.next() % 40), 1e-3 * double(random.next() % 1000)});
    }
  }
  return parts;
}

TEST(LeastDamage, HullIsWhatEachByteBuysMostOf) {
  const SizeOptions options = {{16, 0}, {8, 1}, {2, 10}, {4, 4}, {6, 3.9}, {5, 4}, {2, 11}};
  EXPECT_EQ(convex_hull(options), (std::vector<size_t>{2, 3, 1, 0}));
  EXPECT_EQ(convex_hull({{5, 1}}), std::vector<size_t>{0});
  // Equal gains per byte are one step.
  EXPECT_EQ(convex_hull({{1, 3}, {2, 2}, {3, 1}}), (std::vector<size_t>{0, 2}));
}

TEST(LeastDamage, FewPartsAreSearchedCompletely) {
  Random random(1);
  for (int i = 0; i < 300; ++i) {
    const Parts parts = random_parts(1 + random.next() % 5, 1 + random.next() % 6, random);
    const uint64_t smallest = with_smallest(parts).bytes;
    for (int k = 0; k < 8; ++k) {
      const uint64_t most = smallest + random.next() % (1 + smallest * 3);
      const Total t = chosen(parts, most);
      EXPECT_LE(t.bytes, most);
      EXPECT_NEAR(t.damage, least_possible(parts, most), 1e-9);
    }
  }
}

double largest_step(const Parts& parts) {
  double largest = 0;
  for (const SizeStep& step : steps_on_hulls(parts)) largest = std::max(largest, step.gain);
  return largest;
}

// Without the search, sizes that lie on the hull are met with the least damage, and others with one
// that exceeds it by less than the largest step. A search over some parts only helps.
TEST(LeastDamage, StepsAloneAreOptimalOnTheHull) {
  Random random(2);
  size_t n_on_hull = 0;
  for (int i = 0; i < 100; ++i) {
    const Parts parts = random_parts(6, 4, random);
    const uint64_t smallest = with_smallest(parts).bytes;
    for (int k = 0; k < 8; ++k) {
      const uint64_t most = smallest + random.next() % (1 + smallest * 2);
      const Total t = total(parts, least_damage(parts, most, 1));
      EXPECT_LE(t.bytes, most);
      EXPECT_LT(t.damage, least_possible(parts, most) + largest_step(parts) + 1e-9);
      EXPECT_NEAR(t.damage, least_possible(parts, t.bytes), 1e-9);
      for (const size_t most_cases : {4, 16}) {
        const Total searched = total(parts, least_damage(parts, most, most_cases));
        EXPECT_LE(searched.bytes, most);
        EXPECT_LE(searched.damage, t.damage + 1e-12);
      }
      EXPECT_LE(chosen(parts, most).damage, t.damage + 1e-12);
      n_on_hull += t.bytes < most ? 1 : 0;
    }
  }
  EXPECT_GT(n_on_hull, 100u);
}

TEST(LeastDamage, StepsOfAllPartsAreInOrderOfWhatTheyBuy) {
  const Parts parts = {{{1, 10}, {3, 4}, {7, 0}}, {{2, 9}, {4, 4}, {5, 2.5}}, {{6, 1}}};
  const std::vector<SizeStep> steps = steps_on_hulls(parts);
  ASSERT_EQ(steps.size(), 4u);
  const size_t expected[][2] = {{0, 1}, {1, 1}, {1, 2}, {0, 2}};
  const double per_byte[] = {3, 2.5, 1.5, 1};
  for (size_t i = 0; i < steps.size(); ++i) {
    EXPECT_EQ(steps[i].part, expected[i][0]);
    EXPECT_EQ(steps[i].option, expected[i][1]);
    EXPECT_DOUBLE_EQ(steps[i].per_byte(), per_byte[i]);
  }
}

TEST(LeastDamage, MoreBytesNeverDoMoreDamage) {
  Random random(3);
  for (int i = 0; i < 2; ++i) {
    const Parts parts = random_parts(40, 7, random);
    const uint64_t smallest = with_smallest(parts).bytes;
    double before = 1e300;
    for (uint64_t most = smallest; most < smallest * 4; most += 1 + smallest / 200) {
      const Total t = chosen(parts, most);
      EXPECT_LE(t.bytes, most);
      EXPECT_LE(t.damage, before + 1e-12);
      before = t.damage;
    }
  }
}

TEST(LeastDamage, TheExtremesAreTheSmallestAndTheBest) {
  Random random(4);
  const Parts parts = random_parts(30, 6, random);
  Total smallest, best;
  for (const SizeOptions& options : parts) {
    const auto small = std::min_element(
        options.begin(), options.end(), [](const SizeOption& a, const SizeOption& b) {
          return a.bytes != b.bytes ? a.bytes < b.bytes : a.damage < b.damage;
        });
    smallest.bytes += small->bytes;
    best.damage +=
        std::min_element(options.begin(), options.end(), [](const auto& a, const auto& b) {
          return a.damage < b.damage;
        })->damage;
  }
  EXPECT_EQ(chosen(parts, 0).bytes, smallest.bytes);
  EXPECT_EQ(chosen(parts, smallest.bytes).bytes, smallest.bytes);
  EXPECT_NEAR(chosen(parts, UINT64_MAX).damage, best.damage, 1e-9);
}

// With so many parts what no search fills is little.
TEST(LeastDamage, ManyPartsFillTheRoom) {
  Random random(5);
  const Parts parts = random_parts(2000, 12, random);
  const uint64_t smallest = with_smallest(parts).bytes;
  const Total t = chosen(parts, smallest * 2);
  EXPECT_LE(t.bytes, smallest * 2);
  EXPECT_GE(t.bytes, smallest * 2 - smallest / 10000);
  // Any solution's damage is at least that of the steps, of which the last is taken in part.
  const Total on_hull = total(parts, least_damage(parts, smallest * 2, 1));
  EXPECT_LE(t.damage, on_hull.damage + 1e-9);
  EXPECT_GT(t.damage, on_hull.damage - largest_step(parts));
  EXPECT_EQ(least_damage({}, 10), std::vector<size_t>{});
}

}  // namespace
}  // namespace moe
