#include <gtest/gtest.h>

#include <cmath>

#include "quant/half.h"
#include "tests/kernels/every_isa.h"

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

constexpr int kPositions = 200;

// One head's rows in a cache type, with what the rows read back as.
struct Rows {
  std::vector<uint16_t> half;
  std::vector<int8_t> code;
  std::vector<float> scale;
  std::vector<double> value;
};

Rows make_rows(const CpuKernels& k, KvType type, int head_dim, unsigned seed) {
  const auto d = static_cast<size_t>(head_dim);
  const std::vector<float> x = random_floats(d * kPositions, seed, 2);
  Rows r{std::vector<uint16_t>(x.size()), std::vector<int8_t>(x.size()),
         std::vector<float>(kPositions), std::vector<double>(x.size())};
  for (size_t p = 0; p < kPositions; ++p) {
    if (type == KvType::kF16) {
      k.round_f16(&x[p * d], head_dim, &r.half[p * d]);
    } else {
      r.scale[p] = k.round_int8(&x[p * d], head_dim, &r.code[p * d]);
    }
    for (size_t i = p * d; i < (p + 1) * d; ++i) {
      r.value[i] = type == KvType::kF16 ? static_cast<double>(f16_to_f32(r.half[i]))
                                        : static_cast<double>(r.code[i]) * r.scale[p];
      EXPECT_NEAR(r.value[i], x[i], type == KvType::kF16 ? 4e-3 : 0.05);
    }
  }
  return r;
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
        const Rows k = make_rows(*kernels, type, c.head_dim, 9);
        const Rows v = make_rows(*kernels, type, c.head_dim, 10);
        std::vector<float> out(d + 1, -77);
        AttentionHead a;
        a.q = q.data();
        a.out = out.data();
        a.head_dim = c.head_dim;
        a.type = type;
        a.k = type == KvType::kF16 ? static_cast<const void*>(k.half.data()) : k.code.data();
        a.v = type == KvType::kF16 ? static_cast<const void*>(v.half.data()) : v.code.data();
        a.k_scale = k.scale.data();
        a.v_scale = v.scale.data();
        a.first = c.first;
        a.last = c.last;
        a.multiplier = multiplier;
        a.sink = c.sink ? &sink : nullptr;
        kernels->attention_head(a);
        EXPECT_EQ(out.back(), -77) << "wrote past the head";
        if (first.empty()) first = out;
        EXPECT_EQ(first_difference(first, out), -1) << kernels->name << " d " << d;
        const std::vector<double> expected = exact(c, q, k, v, multiplier, sink);
        for (size_t i = 0; i < d; ++i) ASSERT_NEAR(out[i], expected[i], 3e-6) << kernels->name;
      }
    }
  }
}

TEST(AttentionKernel, KeysOutsideContributeNothing) {
  const Case c{24, 70, 131, false};
  for (const CpuKernels* kernels : every_isa()) {
    Rows k = make_rows(*kernels, KvType::kF16, 24, 9);
    Rows v = make_rows(*kernels, KvType::kF16, 24, 10);
    const std::vector<float> q = random_floats(24, 8);
    std::vector<float> clean(24);
    std::vector<float> dirty(24);
    AttentionHead a;
    a.q = q.data();
    a.head_dim = 24;
    a.k = k.half.data();
    a.v = v.half.data();
    a.first = c.first;
    a.last = c.last;
    a.out = clean.data();
    kernels->attention_head(a);
    for (size_t p = 0; p < kPositions; ++p) {
      if (p >= 70 && p < 131) continue;
      for (size_t i = 0; i < 24; ++i) k.half[p * 24 + i] = v.half[p * 24 + i] = 0x7E00;  // NaN
    }
    a.out = dirty.data();
    kernels->attention_head(a);
    EXPECT_EQ(first_difference(clean, dirty), -1);
  }
}

TEST(CacheRounding, Int8EdgeRows) {
  for (const CpuKernels* k : every_isa()) {
    std::vector<int8_t> code(20, 5);
    const std::vector<float> zero(20, 0);
    EXPECT_GT(k->round_int8(zero.data(), 20, code.data()), 0);
    for (int8_t c : code) EXPECT_EQ(c, 0);
    std::vector<float> x(20, 0.5f);
    x[3] = -2;
    EXPECT_FLOAT_EQ(k->round_int8(x.data(), 20, code.data()), 2.0f / 127);
    EXPECT_EQ(code[3], -127);
    EXPECT_EQ(code[4], 32);  // 31.75
    x[7] = std::nanf("");
    (void)k->round_int8(x.data(), 20, code.data());  // any codes, but no undefined behaviour
  }
}

}  // namespace
}  // namespace moe
