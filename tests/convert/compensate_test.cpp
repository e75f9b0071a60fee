// SPDX-License-Identifier: MIT
// Second moments, their factors, and rounding with error compensation, compared with their
// definitions.
#include "src/convert/weights/compensate.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <optional>
#include <random>

#include "quant/formats.h"
#include "src/convert/calibration/cholesky.h"
#include "tests/support/quantise_whole.h"
#include "tests/support/stored_weights.h"

namespace moe {
namespace {

constexpr const char* kFormats[] = {"int4",   "int4_min",   "int4_k", "nl4",      "nf4",
                                    "int6_k", "int8_group", "fp4",    "int8",     "int2_k",
                                    "int3_k", "tcq2",       "tcq3",   "ternary2", "ternary3"};

class Pool {
 public:
  explicit Pool(int n) : pool_(system_allocator()) { EXPECT_TRUE(pool_.start(n).ok()); }
  operator ThreadPool&() { return pool_; }

 private:
  ThreadPool pool_;
};

std::vector<float> normals(size_t n, unsigned seed) { return moe::normals(n, seed, 1.0f); }

// Inputs (n_rows, n) whose columns are correlated with their neighbours and differ in magnitude.
std::vector<float> correlated(int32_t n_rows, int32_t n, unsigned seed) {
  std::vector<float> x = normals(static_cast<size_t>(n_rows * n), seed);
  for (int32_t r = 0; r < n_rows; ++r) {
    for (int32_t c = 1; c < n; ++c) {
      float& v = x[static_cast<size_t>(r * n + c)];
      v = 0.9f * x[static_cast<size_t>(r * n + c - 1)] + 0.45f * v;
    }
  }
  return x;
}

SecondMoments moments_of(const std::vector<float>& x, int32_t n, ThreadPool& pool) {
  SecondMoments out(n);
  std::vector<double> panel(SecondMoments::panel_size(n));
  out.add(x.data(), n, nullptr, static_cast<int32_t>(x.size()) / n, panel.data(), pool);
  return out;
}

// v H v^T by definition, within blocks.
double quadratic(const SecondMoments& h, const std::vector<double>& v) {
  double sum = 0;
  for (int32_t i = 0; i < h.n(); ++i) {
    for (int32_t j = moment_block(i, h.n()).begin; j <= i; ++j) {
      const double term = v[static_cast<size_t>(i)] * v[static_cast<size_t>(j)] * h.at(i, j);
      sum += i == j ? term : 2 * term;
    }
  }
  return sum;
}

double mean_of(const SecondMoments& h) {
  double mean = 0;
  for (int32_t i = 0; i < h.n(); ++i) mean += h.at(i, i) / h.n();
  return mean;
}

TEST(SecondMoments, AreSumsInTheOrderOfRows) {
  Pool one(1), four(4);
  for (const int32_t n : {1, 7, 300, kMomentBlock + 9}) {
    const int32_t n_rows = 21;
    const std::vector<float> x = normals(static_cast<size_t>(n_rows * n), 3);
    std::vector<int32_t> ids;
    for (int32_t r = 0; r < n_rows; ++r) ids.push_back((r * 8 + 5) % n_rows);
    std::vector<double> panel(SecondMoments::panel_size(n));
    SecondMoments whole(n), cut(n);
    whole.add(x.data(), n, ids.data(), n_rows, panel.data(), four);
    for (int32_t r = 0; r < n_rows; r += 5) {
      cut.add(x.data(), n, &ids[static_cast<size_t>(r)], std::min(5, n_rows - r), panel.data(),
              one);
    }
    EXPECT_EQ(whole.n_rows(), 21u);
    for (int32_t i = 0; i < n; ++i) {
      for (int32_t j = moment_block(i, n).begin; j <= i; j += 1 + n / 100) {
        double sum = 0;
        for (const int32_t id : ids) {
          sum += double{x[static_cast<size_t>(id * n + i)]} *
                 double{x[static_cast<size_t>(id * n + j)]};
        }
        ASSERT_EQ(whole.at(i, j), sum) << n << " " << i << " " << j;
        ASSERT_EQ(cut.at(i, j), sum) << n << " " << i << " " << j;
      }
    }
  }
}

TEST(SecondMoments, BytesGrowWithBlocks) {
  EXPECT_EQ(SecondMoments::bytes(4), 80u);
  EXPECT_EQ(SecondMoments::bytes(kMomentBlock + 4), SecondMoments::bytes(kMomentBlock) + 80);
  EXPECT_EQ(SecondMoments::bytes(65536), 32 * SecondMoments::bytes(kMomentBlock));
}

TEST(Cholesky, IsTheFactorWithAnyNumberOfThreads) {
  Pool one(1), three(3);
  for (const int32_t n : {1, 2, 33, 400}) {
    std::vector<double> a;
    const std::vector<float> noise = normals(static_cast<size_t>(n * (n + 1) / 2), 1);
    for (int32_t i = 0; i < n; ++i) {
      for (int32_t j = 0; j <= i; ++j) {
        a.push_back(i == j ? 2.0 * n : double{noise[a.size()]});
      }
    }
    std::vector<double> l = a, same = a;
    ASSERT_TRUE(cholesky(n, l.data(), three));
    ASSERT_TRUE(cholesky(n, same.data(), one));
    EXPECT_EQ(l, same);
    const auto at = [&](int32_t i, int32_t j) {
      return l[static_cast<size_t>(i * (i + 1) / 2 + j)];
    };
    for (int32_t i = 0; i < n; i += 7) {
      for (int32_t j = 0; j <= i; ++j) {
        double sum = 0;
        for (int32_t k = 0; k <= j; ++k) sum += at(i, k) * at(j, k);
        ASSERT_NEAR(sum, a[static_cast<size_t>(i * (i + 1) / 2 + j)], 1e-10 * n);
      }
    }
  }
}

TEST(Cholesky, RefusesWhatHasNoFactor) {
  Pool pool(1);
  double indefinite[] = {1, 2, 1}, singular[] = {1, 1, 1}, nan[] = {1, NAN, 3},
         infinite[] = {INFINITY, 0, 3};
  for (double* a : {indefinite, singular, nan, infinite}) EXPECT_FALSE(cholesky(2, a, pool));
}

// e H e^T computed from the factor, whose damping makes singular moments (of a single row) regular.
TEST(Feedback, IsTheFactorOfDampedMoments) {
  Pool pool(2);
  for (const int32_t n : {1, 33, 200, kMomentBlock + 9}) {
    for (const int32_t n_rows : {1, 60}) {
      if (n > kMomentBlock && n_rows == 1) continue;  // slow
      const SecondMoments h = moments_of(correlated(n_rows, n, 5), n, pool);
      const Feedback feedback(h, nullptr, pool);
      ASSERT_TRUE(feedback.known());
      ASSERT_EQ(feedback.n(), n);
      std::vector<double> e;
      for (const float v : normals(static_cast<size_t>(n), 9)) e.push_back(v);
      double sum = 0, squares = 0;
      for (int32_t k = 0; k < n; ++k) {
        const int32_t begin = moment_block(k, n).begin;
        double term = e[static_cast<size_t>(k)];
        for (int32_t j = begin; j < k; ++j) {
          term += e[static_cast<size_t>(j)] * double{feedback.above(k)[j - begin]};
        }
        sum += double{feedback.pivot(k)} * term * term;
        squares += e[static_cast<size_t>(k)] * e[static_cast<size_t>(k)];
      }
      const double expected = quadratic(h, e) / mean_of(h) + Feedback::kDamping * squares;
      EXPECT_NEAR(sum, expected, 2e-5 * expected) << n << " " << n_rows;
    }
  }
}

TEST(Feedback, ZeroOrNonFiniteMomentsGiveNoFeedback) {
  Pool pool(1);
  for (const float bad : {0.0f, NAN, INFINITY}) {
    EXPECT_FALSE(Feedback(moments_of(std::vector<float>(8, bad), 4, pool), nullptr, pool).known());
  }
  std::vector<float> one_nan = normals(40, 1);
  one_nan[17] = NAN;
  EXPECT_FALSE(Feedback(moments_of(one_nan, 4, pool), nullptr, pool).known());
  const SecondMoments none(4);
  EXPECT_FALSE(Feedback(none, nullptr, pool).known());
}

// An input that is always 0 takes part in no feedback and is not an error.
TEST(Feedback, AnInputOfZerosIsLeftAlone) {
  Pool pool(1);
  std::vector<float> x = correlated(50, 4, 2);
  for (size_t i = 2; i < x.size(); i += 4) x[i] = 0;
  const Feedback feedback(moments_of(x, 4, pool), nullptr, pool);
  ASSERT_TRUE(feedback.known());
  EXPECT_EQ(feedback.above(2)[0], 0.0f);
  EXPECT_EQ(feedback.above(2)[1], 0.0f);
  EXPECT_EQ(feedback.above(3)[2], 0.0f);
  EXPECT_NE(feedback.above(3)[1], 0.0f);
}

// With few rows the feedback is close to that of the average moments, whose weight falls with the
// number of rows.
TEST(Feedback, FewRowsAreBlendedWithTheAverage) {
  Pool pool(1);
  constexpr int32_t n = 64;
  const SecondMoments average = moments_of(correlated(3000, n, 11), n, pool);
  const auto distance = [&](int32_t n_rows) {
    const std::vector<float> x = normals(static_cast<size_t>(n_rows * n), 4);
    const Feedback own(moments_of(x, n, pool), &average, pool), other(average, nullptr, pool);
    double sum = 0;
    for (int32_t k = 1; k < n; ++k) {
      for (int32_t j = 0; j < k; ++j) sum += std::abs(own.above(k)[j] - other.above(k)[j]);
    }
    return sum / n;
  };
  EXPECT_LT(distance(1), 0.5 * distance(4000));
}

TEST(SecondMoments, KnowWhetherTheyAreFinite) {
  Pool pool(1);
  std::vector<float> x = normals(64, 3);
  EXPECT_TRUE(moments_of(x, 16, pool).is_finite());
  x[37] = std::numeric_limits<float>::infinity();
  EXPECT_FALSE(moments_of(x, 16, pool).is_finite());
}

struct Rounded {
  std::vector<uint8_t> tile;
  std::vector<float> scales;  // one per row, if the format stores them outside the tile
  std::vector<float> values;
  MomentError reported;
};

class CompensatorTest : public testing::TestWithParam<const char*> {
 protected:
  // Without compensation if `feedback` is null.
  Rounded round(const std::vector<float>& w, int32_t n,
                const std::shared_ptr<const Feedback>& feedback) {
    const int n_rows = static_cast<int>(w.size()) / n;
    Rounded out;
    out.tile.resize(format_.tile_bytes(n));
    out.scales.assign(static_cast<size_t>(n_rows), 1.0f);
    std::optional<Compensator> compensator;
    if (feedback != nullptr) compensator.emplace(format_, feedback);
    if (format_.group != 0) {
      EXPECT_TRUE(
          compensator
              ? compensator->pack(w.data(), n_rows, out.tile.data())
              : quantise_tile(format_, w.data(), 0, n_rows, n, nullptr, out.tile.data()).ok());
    } else {
      std::vector<int8_t> codes(w.size());
      quantise(w, n, codes.data(), &out.scales);
      if (compensator) compensator->round(w.data(), n_rows, out.scales.data(), codes.data());
      format_.pack_codes(codes.data(), n, n_rows, n, out.tile.data());
    }
    std::vector<float> row(static_cast<size_t>(n));
    for (int r = 0; r < n_rows; ++r) {
      read_weights(format_, out.tile.data(), n, r, row.data());
      const float scale = out.scales[static_cast<size_t>(r)];
      for (const float v : row) out.values.push_back(v * scale);
      if (compensator) compensator->put_stored(r, row.data(), 0, n, scale);
    }
    if (compensator) out.reported = compensator->measure();
    return out;
  }
  void quantise(const std::vector<float>& w, int32_t n, int8_t* codes, std::vector<float>* scales) {
    const auto n_rows = static_cast<int64_t>(w.size()) / n;
    if (format_.quantise_row != nullptr) {
      ASSERT_TRUE(int8_rows(w.data(), n_rows, n, codes, scales->data()).ok());
    } else {
      float scale = 0;
      ASSERT_TRUE(absmean_ternary(w.data(), n_rows, n, codes, &scale).ok());
      scales->assign(scales->size(), scale);
    }
  }
  static double error(const SecondMoments& h, const std::vector<float>& w,
                      const std::vector<float>& stored) {
    const auto n = static_cast<size_t>(h.n());
    double sum = 0;
    for (size_t begin = 0; begin < w.size(); begin += n) {
      std::vector<double> e;
      for (size_t c = 0; c < n; ++c) e.push_back(double{w[begin + c]} - double{stored[begin + c]});
      sum += quadratic(h, e);
    }
    return sum / mean_of(h);
  }

  const WeightFormat& format_ = *find_weight_format(GetParam());
  Pool pool_{2};
};

TEST_P(CompensatorTest, LosesLessOnCorrelatedInputs) {
  std::vector<int32_t> widths = {96, 135};
  if (format_.name == std::string("int4")) widths.push_back(kMomentBlock + 70);  // slow
  if (format_.scale_inputs > 32) widths.push_back(300);                          // two segments
  for (const int32_t n : widths) {
    for (const size_t n_rows : {1u, 5u, 16u}) {
      const SecondMoments h = moments_of(correlated(n / 2 + 100, n, 7), n, pool_);
      const auto feedback = std::make_shared<Feedback>(h, nullptr, pool_);
      const std::vector<float> w = normals(n_rows * static_cast<size_t>(n), 8);
      const Rounded with = round(w, n, feedback), without = round(w, n, nullptr);
      const double lost = error(h, w, with.values);
      EXPECT_LT(lost, 0.7 * error(h, w, without.values)) << n << " " << n_rows;
      EXPECT_NEAR(with.reported.error, lost, 1e-3 * lost);
      const double norm = error(h, w, std::vector<float>(w.size()));
      EXPECT_NEAR(with.reported.norm, norm, 1e-3 * norm);
      if (n > kMomentBlock) break;
    }
  }
}

TEST_P(CompensatorTest, UnrelatedInputsChangeNothing) {
  const int32_t n = format_.scale_inputs > 32 ? 300 : 70;
  std::vector<float> x(static_cast<size_t>(n * n));
  for (size_t i = 0; i < static_cast<size_t>(n); ++i) x[i * static_cast<size_t>(n) + i] = 1;
  const auto feedback = std::make_shared<Feedback>(moments_of(x, n, pool_), nullptr, pool_);
  const std::vector<float> w = normals(3 * static_cast<size_t>(n), 8);
  EXPECT_EQ(round(w, n, feedback).tile, round(w, n, nullptr).tile);
}

TEST_P(CompensatorTest, IsTheSameWithAnyNumberOfThreads) {
  constexpr int32_t n = 500;
  const std::vector<float> x = correlated(200, n, 7), w = normals(size_t{16} * n, 8);
  std::vector<Rounded> found;
  for (const int threads : {1, 2, 4}) {
    Pool pool(threads);
    const auto feedback = std::make_shared<Feedback>(moments_of(x, n, pool), nullptr, pool);
    found.push_back(round(w, n, feedback));
    EXPECT_EQ(found[0].tile, found.back().tile);
    EXPECT_EQ(found[0].reported.error, found.back().reported.error);
  }
}

TEST_P(CompensatorTest, ZerosStay) {
  constexpr int32_t n = 70;
  const SecondMoments h = moments_of(correlated(100, n, 7), n, pool_);
  const auto feedback = std::make_shared<Feedback>(h, nullptr, pool_);
  const std::vector<float> w(size_t{2} * n);
  const Rounded with = round(w, n, feedback);
  EXPECT_EQ(with.values, w);
  EXPECT_EQ(with.reported.error, 0);
}

INSTANTIATE_TEST_SUITE_P(All, CompensatorTest, testing::ValuesIn(kFormats),
                         [](const auto& test) { return std::string(test.param); });

TEST(Compensator, FailsOnWeightsThatTheFormatCannotHold) {
  Pool pool(1);
  constexpr int32_t n = 64;
  std::vector<float> x = correlated(100, n, 3);
  const auto feedback = std::make_shared<Feedback>(moments_of(x, n, pool), nullptr, pool);
  Compensator compensator(*find_weight_format("int4"), feedback);
  const std::vector<float> large(n, 1e9f);
  std::vector<uint8_t> tile(find_weight_format("int4")->tile_bytes(n));
  EXPECT_FALSE(compensator.pack(large.data(), 1, tile.data()));
}

// Weights near the limit of float32 make targets that are not finite. Their codes are still in
// range.
TEST(Compensator, TargetsThatAreNoNumbersBecomeZeros) {
  Pool pool(1);
  constexpr int32_t n = 64;
  const auto feedback =
      std::make_shared<Feedback>(moments_of(correlated(100, n, 3), n, pool), nullptr, pool);
  for (const char* name : {"int8", "ternary2"}) {
    Compensator compensator(*find_weight_format(name), feedback);
    std::vector<float> w(n);
    for (size_t i = 0; i < w.size(); ++i) w[i] = i % 2 == 0 ? 3e38f : -3e38f;
    const float scale = 1e30f;
    std::vector<int8_t> codes(w.size(), 77);
    compensator.round(w.data(), 1, &scale, codes.data());
    const int most = find_weight_format(name)->max_code;
    for (const int8_t code : codes) EXPECT_LE(std::abs(code), most) << name;
    EXPECT_TRUE(std::isfinite(compensator.measure().error)) << name;
  }
}

TEST(Compensator, DoesNotServeOtherGroupSizes) {
  WeightFormat format = *find_weight_format("int4");
  EXPECT_TRUE(Compensator::serves(format));
  format.group = 64;
  EXPECT_FALSE(Compensator::serves(format));
  format.group = 32;
  format.random_code = nullptr;
  EXPECT_FALSE(Compensator::serves(format));
}

}  // namespace
}  // namespace moe
