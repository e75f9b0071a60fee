// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "quant/half.h"
#include "tests/kernels/random_floats.h"
#include "tests/support/every_isa.h"

namespace moe {
namespace {

struct Case {
  int head_dim;
  int first;
  int last;
  bool sink;
};
const Case kCases[] = {{64, 0, 1, false},  {64, 0, 63, true},     {64, 0, 64, false},
                       {24, 0, 65, true},  {20, 37, 200, false},  {128, 64, 129, true},
                       {16, 63, 64, true}, {80, 190, 200, false}, {7, 3, 150, false}};

constexpr int kCacheRows = 256;

// One head's rows in each cache type, and the values they represent (position, head_dim).
struct Rows {
  std::vector<uint16_t> half;
  std::vector<int8_t> code;
  std::vector<float> scale;
  std::vector<double> value;
};

// The index of a row's first element. A key's elements are 16 apart, a value's are contiguous.
size_t key_at(size_t p, size_t d) { return p / 16 * 16 * d + p % 16; }
size_t value_at(size_t p, size_t d) { return p * d; }

Rows make_rows(const CpuKernels& k, KvType type, int head_dim, unsigned seed, bool keys) {
  const auto d = static_cast<size_t>(head_dim);
  const int stride = keys ? 16 : 1;
  const std::vector<float> x = random_floats(d * kCacheRows, seed, 2);
  Rows r{std::vector<uint16_t>(x.size()), std::vector<int8_t>(x.size()),
         std::vector<float>(kCacheRows), std::vector<double>(x.size())};
  for (size_t p = 0; p < kCacheRows; ++p) {
    const size_t at = keys ? key_at(p, d) : value_at(p, d);
    if (type == KvType::kF16) {
      k.round_f16(&x[p * d], head_dim, stride, &r.half[at]);
    } else {
      r.scale[p] = k.round_int8(&x[p * d], head_dim, stride, &r.code[at]);
    }
    for (size_t i = 0; i < d; ++i) {
      const size_t from = at + i * static_cast<size_t>(stride);
      double& value = r.value[p * d + i];
      value = type == KvType::kF16 ? static_cast<double>(f16_to_f32(r.half[from]))
                                   : static_cast<double>(r.code[from]) * r.scale[p];
      EXPECT_NEAR(value, x[p * d + i], type == KvType::kF16 ? 4e-3 : 0.05);
    }
  }
  return r;
}

AttentionTile make_tile(KvType type, int head_dim, const Rows& k, const Rows& v) {
  AttentionTile a;
  a.head_dim = head_dim;
  a.type = type;
  a.k = type == KvType::kF16 ? static_cast<const void*>(k.half.data()) : k.code.data();
  a.v = type == KvType::kF16 ? static_cast<const void*>(v.half.data()) : v.code.data();
  a.k_scale = type == KvType::kF16 ? nullptr : k.scale.data();
  a.v_scale = type == KvType::kF16 ? nullptr : v.scale.data();
  return a;
}

std::vector<double> exact(const Case& c, const std::vector<float>& q, const Rows& k, const Rows& v,
                          double multiplier, double sink) {
  const auto d = static_cast<size_t>(c.head_dim);
  double total = c.sink ? std::exp(sink) : 0;
  std::vector<double> out(d);
  for (auto p = static_cast<size_t>(c.first); p < static_cast<size_t>(c.last); ++p) {
    double score = 0;
    for (size_t i = 0; i < d; ++i) score += q[i] * k.value[p * d + i];
    const double e = std::exp(score * multiplier);
    total += e;
    for (size_t i = 0; i < d; ++i) out[i] += e * v.value[p * d + i];
  }
  for (double& o : out) o /= total;
  return out;
}

TEST(AttentionKernel, EveryIsaGivesTheSameBitsAndTheRightValues) {
  for (KvType type : {KvType::kF16, KvType::kInt8}) {
    for (const Case& c : kCases) {
      const auto d = static_cast<size_t>(c.head_dim);
      const std::vector<float> q = random_floats(d, 8);
      const float sink = 0.7f;
      const auto multiplier = static_cast<float>(0.5 / std::sqrt(c.head_dim));
      std::vector<float> first;
      for (const CpuKernels* kernels : every_isa()) {
        const Rows k = make_rows(*kernels, type, c.head_dim, 9, true);
        const Rows v = make_rows(*kernels, type, c.head_dim, 10, false);
        std::vector<float> out(d + 1, -77);
        AttentionTile a = make_tile(type, c.head_dim, k, v);
        a.n_queries = 1;
        a.queries[0] = {q.data(), out.data(), c.first, c.last, c.sink ? &sink : nullptr};
        a.multiplier = multiplier;
        kernels->attention(a);
        EXPECT_EQ(out.back(), -77) << "wrote past the head";
        if (first.empty()) first = out;
        EXPECT_EQ(first_difference(first, out), -1) << kernels->name << " d " << d;
        const std::vector<double> expected = exact(c, q, k, v, multiplier, sink);
        for (size_t i = 0; i < d; ++i) ASSERT_NEAR(out[i], expected[i], 3e-6) << kernels->name;
      }
    }
  }
}

// Queries with different ranges of keys, some of them disjoint, in tiles of every size.
TEST(AttentionKernel, QueriesDoNotSeeEachOther) {
  const int ranges[][2] = {{0, 1},     {0, 130},   {5, 131}, {64, 128}, {70, 71},
                           {190, 256}, {129, 200}, {0, 256}, {63, 65},  {127, 140}};
  std::mt19937 rng(4);
  for (KvType type : {KvType::kF16, KvType::kInt8}) {
    for (const int head_dim : {64, 72, 7}) {
      const auto d = static_cast<size_t>(head_dim);
      const std::vector<float> q = random_floats(d * kMaxQueries, 8);
      const float sink = -0.3f;
      for (const CpuKernels* kernels : every_isa()) {
        const Rows k = make_rows(*kernels, type, head_dim, 9, true);
        const Rows v = make_rows(*kernels, type, head_dim, 10, false);
        for (int n = 1; n <= kMaxQueries; ++n) {
          std::vector<float> alone(d * static_cast<size_t>(n)), together(alone.size());
          AttentionTile all = make_tile(type, head_dim, k, v);
          all.n_queries = n;
          const bool near =
              rng() % 2 == 0;  // like consecutive rows of a text with a sliding window
          for (int i = 0; i < n; ++i) {
            const auto at = static_cast<size_t>(i) * d;
            const auto& range = ranges[rng() % std::size(ranges)];
            const int first = near ? 60 + i : range[0];
            const int last = near ? 189 + i : range[1];
            all.queries[i] = {&q[at], &together[at], first, last, i % 3 == 0 ? &sink : nullptr};
            AttentionTile one = make_tile(type, head_dim, k, v);
            one.n_queries = 1;
            one.queries[0] = all.queries[i];
            one.queries[0].out = &alone[at];
            kernels->attention(one);
          }
          kernels->attention(all);
          ASSERT_EQ(first_difference(alone, together), -1) << kernels->name << ' ' << n;
        }
      }
    }
  }
}

TEST(AttentionKernel, KeysOutsideContributeNothing) {
  const Case c{24, 70, 131, false};
  for (const CpuKernels* kernels : every_isa()) {
    Rows k = make_rows(*kernels, KvType::kF16, 24, 9, true);
    Rows v = make_rows(*kernels, KvType::kF16, 24, 10, false);
    const std::vector<float> q = random_floats(24, 8);
    std::vector<float> clean(24);
    std::vector<float> dirty(24);
    AttentionTile a = make_tile(KvType::kF16, 24, k, v);
    a.n_queries = 1;
    a.queries[0] = {q.data(), clean.data(), c.first, c.last, nullptr};
    kernels->attention(a);
    for (size_t p = 0; p < kCacheRows; ++p) {
      if (p >= 70 && p < 131) continue;
      for (size_t i = 0; i < 24; ++i) {
        k.half[key_at(p, 24) + 16 * i] = v.half[value_at(p, 24) + i] = 0x7E00;  // NaN
      }
    }
    a.queries[0].out = dirty.data();
    kernels->attention(a);
    EXPECT_EQ(first_difference(clean, dirty), -1);
  }
}

// A latent cache: one row per position for keys and values; the values begin after `rope` elements.
struct LatentCase {
  int rope;
  int width;
  int first;
  int last;
};
const LatentCase kLatentCases[] = {
    {16, 64, 0, 1}, {64, 512, 0, 200}, {4, 20, 37, 150}, {4, 3, 64, 129}, {8, 17, 190, 256}};

AttentionTile latent_tile(const LatentCase& c, const std::vector<uint16_t>& rows) {
  AttentionTile a;
  a.head_dim = c.rope + c.width;
  a.latent_dim = c.width;
  a.type = KvType::kLatent;
  a.k = rows.data();
  a.v = rows.data() + c.rope;
  a.multiplier = static_cast<float>(0.5 / std::sqrt(a.head_dim));
  return a;
}

std::vector<double> exact_latent(const LatentCase& c, const float* q,
                                 const std::vector<double>& row, double multiplier) {
  const auto d = static_cast<size_t>(c.rope + c.width);
  double total = 0;
  std::vector<double> out(static_cast<size_t>(c.width));
  for (auto p = static_cast<size_t>(c.first); p < static_cast<size_t>(c.last); ++p) {
    double score = 0;
    for (size_t i = 0; i < d; ++i) score += q[i] * row[p * d + i];
    const double e = std::exp(score * multiplier);
    total += e;
    for (size_t i = 0; i < out.size(); ++i) {
      out[i] += e * row[p * d + static_cast<size_t>(c.rope) + i];
    }
  }
  for (double& o : out) o /= total;
  return out;
}

TEST(AttentionKernel, ALatentHasTheRightValuesAndTheSameBits) {
  for (const LatentCase& c : kLatentCases) {
    const auto d = static_cast<size_t>(c.rope + c.width), w = static_cast<size_t>(c.width);
    const std::vector<float> q = random_floats(d * kMaxQueries, 8);
    std::vector<float> first;
    for (const CpuKernels* kernels : every_isa()) {
      Rows rows = make_rows(*kernels, KvType::kF16, c.rope + c.width, 9, false);
      for (size_t p = 0; p < kCacheRows; ++p) {
        const bool seen = p >= static_cast<size_t>(c.first) && p < static_cast<size_t>(c.last);
        if (!seen) std::fill_n(&rows.half[p * d], d, uint16_t{0x7E00});  // NaN
      }
      for (int n = 1; n <= kMaxQueries; ++n) {
        std::vector<float> out(w * static_cast<size_t>(n) + 1, -77);
        AttentionTile a = latent_tile(c, rows.half);
        a.n_queries = n;
        for (size_t i = 0; i < static_cast<size_t>(n); ++i) {
          a.queries[i] = {&q[i * d], &out[i * w], c.first, c.last, nullptr};
        }
        kernels->attention(a);
        EXPECT_EQ(out.back(), -77) << "wrote past the values";
        if (first.size() < out.size()) first = out;
        for (size_t i = 0; i < static_cast<size_t>(n); ++i) {
          const std::vector<double> expected = exact_latent(c, &q[i * d], rows.value, a.multiplier);
          for (size_t j = 0; j < w; ++j) {
            ASSERT_NEAR(out[i * w + j], expected[j], 3e-6) << kernels->name << ' ' << n;
            ASSERT_EQ(out[i * w + j], first[i * w + j]) << kernels->name << ' ' << n;
          }
        }
      }
    }
  }
}

TEST(CacheRounding, Int8EdgeRows) {
  for (const CpuKernels* k : every_isa()) {
    std::vector<int8_t> code(20, 5);
    const std::vector<float> zero(20, 0);
    EXPECT_GT(k->round_int8(zero.data(), 20, 1, code.data()), 0);
    for (int8_t c : code) EXPECT_EQ(c, 0);
    std::vector<float> x(20, 0.5f);
    x[3] = -2;
    EXPECT_FLOAT_EQ(k->round_int8(x.data(), 20, 1, code.data()), 2.0f / 127);
    EXPECT_EQ(code[3], -127);
    EXPECT_EQ(code[4], 32);  // 31.75
    x[7] = std::nanf("");
    (void)k->round_int8(x.data(), 20, 1,
                        code.data());  // the codes are unspecified, without undefined behaviour
  }
}

}  // namespace
}  // namespace moe
