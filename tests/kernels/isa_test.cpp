// SPDX-License-Identifier: MIT
// The primitives of every instruction set have the bits of the scalar ones; the scalar ones are
// compared with plain arithmetic.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>

#include "kernels/cpu/select.h"
#include "tests/kernels/isa_probe_data.h"
#include "tests/support/every_isa.h"

namespace moe {

#define MOE_PROBE(name) void probe_##name(const ProbeIn& in, ProbeOut& out);
#include "isa_probes_built.h"
#undef MOE_PROBE

namespace {

using Probe = void (*)(const ProbeIn&, ProbeOut&);

struct NamedProbe {
  const char* name;
  Probe run;
};
const NamedProbe kProbes[] = {
#define MOE_PROBE(name) {#name, probe_##name},
#include "isa_probes_built.h"
#undef MOE_PROBE
};

// Mostly normal numbers, with some random bits (NaN, infinities, denormals).
ProbeIn make_input(std::mt19937& rng) {
  ProbeIn in;
  std::normal_distribution<float> plain(0.0f, 30.0f);
  const float special[] = {0.0f,  -0.0f, INFINITY, -INFINITY, 1e-40f, 65504.0f,       65520.0f,
                           6e-8f, 0.5f,  2.5f,     -1.5f,     3e-8f,  2.98023224e-8f, 1e9f};
  const auto number = [&]() {
    switch (rng() % 4) {
      case 0:
        return special[rng() % std::size(special)];
      case 1: {
        const uint32_t bits = static_cast<uint32_t>(rng());
        float f;
        std::memcpy(&f, &bits, 4);
        return std::isnan(f) ? 1.0f : f;
      }
      default:
        return plain(rng);
    }
  };
  for (int n = 0; n < 16; ++n) {
    in.a[n] = number();
    in.b[n] = rng() % 4 == 0 ? in.a[n] : number();
    in.c[n] = number();
    in.i[n] = static_cast<int32_t>(rng());
    in.j[n] = rng() % 4 == 0 ? in.i[n] : static_cast<int32_t>(rng());
    in.half[n] = static_cast<uint16_t>(rng());
    in.bytes[n] = static_cast<int8_t>(rng() % 3 == 0 ? (rng() % 2 == 0 ? -128 : 127) : rng());
  }
  for (int n = 0; n < 64; ++n) {
    for (int f = 0; f < 4; ++f) {
      const auto code = static_cast<uint8_t>(rng() % 3 << 2 * f);
      in.ternary2[n] = static_cast<uint8_t>((f == 0 ? 0 : in.ternary2[n]) | code);
    }
    in.ternary3[n] = static_cast<uint8_t>(rng() % 243);
    in.int8[n] = static_cast<uint8_t>(static_cast<int>(rng() % 255) - 127);
  }
  return in;
}

// Equal bits, or both NaN: the bits of a NaN result differ between architectures.
bool same(float x, float y) {
  return std::memcmp(&x, &y, 4) == 0 || (std::isnan(x) && std::isnan(y));
}

bool runs_here(const char* name) { return select_kernels(name).ok(); }

TEST(Isa, PrimitivesMatchScalarBitForBit) {
  std::mt19937 rng(7);
  for (int round = 0; round < 2000; ++round) {
    const ProbeIn in = make_input(rng);
    ProbeOut want = {};
    probe_scalar(in, want);
    for (const NamedProbe& probe : kProbes) {
      if (!runs_here(probe.name)) continue;
      ProbeOut got = {};
      probe.run(in, got);
      ASSERT_EQ(got.n_f, want.n_f);
      ASSERT_EQ(got.n_i, want.n_i);
      for (int r = 0; r < got.n_f; ++r) {
        for (int n = 0; n < 16; ++n) {
          ASSERT_TRUE(same(got.f[r][n], want.f[r][n]))
              << probe.name << " float result " << r << " lane " << n << ": " << got.f[r][n]
              << " scalar " << want.f[r][n];
        }
      }
      for (int r = 0; r < got.n_i; ++r) {
        for (int n = 0; n < 16; ++n) {
          ASSERT_EQ(got.i[r][n], want.i[r][n]) << probe.name << " result " << r << " lane " << n;
        }
      }
      ASSERT_EQ(std::memcmp(got.half, want.half, sizeof got.half), 0) << probe.name;
      ASSERT_EQ(std::memcmp(got.bytes, want.bytes, sizeof got.bytes), 0) << probe.name;
    }
  }
}

TEST(Isa, ScalarIsPlainArithmetic) {
  std::mt19937 rng(8);
  for (int round = 0; round < 200; ++round) {
    const ProbeIn in = make_input(rng);
    ProbeOut out = {};
    probe_scalar(in, out);
    for (int n = 0; n < 16; ++n) {
      const float a = in.a[n], b = in.b[n], c = in.c[n];
      EXPECT_TRUE(same(out.f[0][n], a + b));
      EXPECT_TRUE(same(out.f[2][n], a * b));
      EXPECT_TRUE(same(out.f[3][n], a / b));
      EXPECT_TRUE(same(out.f[4][n], std::fma(a, b, c)));
      EXPECT_TRUE(same(out.f[6][n], a < b ? a : b));
      EXPECT_TRUE(same(out.f[7][n], a > b ? a : b));
      EXPECT_TRUE(same(out.f[10][n], a < b ? a : c));
      EXPECT_TRUE(same(out.f[out.n_f - 1][n], in.a[n ^ 1]));
      EXPECT_EQ(out.i[0][n], in.int8[n]);
      EXPECT_EQ(out.i[1][n], in.int8[2 * n] + 256 * in.int8[2 * n + 1]);
      EXPECT_EQ(out.i[2][n], in.j[in.bytes[n] & 15]);
      const auto bits = static_cast<uint32_t>(in.i[n]);
      EXPECT_EQ(static_cast<uint32_t>(out.i[3][n]), bits << (in.bytes[0] & 31));
      EXPECT_EQ(static_cast<uint32_t>(out.i[4][n]), bits >> (in.bytes[0] & 31));
    }
    float tree[16];
    std::memcpy(tree, in.a, sizeof tree);
    for (int w = 8; w > 0; w /= 2) {
      for (int n = 0; n < w; ++n) tree[n] += tree[n + w];
    }
    EXPECT_TRUE(same(out.f[20][0], tree[0]));
  }
}

// The sums that the probe has of the halves of a block's bytes.
void expect_block(const ProbeIn& in, const uint8_t* block, const int32_t (*rows)[16]) {
  for (int half = 0; half < 2; ++half) {
    for (int n = 0; n < 16; ++n) {
      int32_t sum = 0;
      for (int j = 0; j < 4; ++j) sum += (block[4 * n + j] >> 4 * half & 15) * in.bytes[j];
      EXPECT_EQ(rows[half][n], sum) << "half " << half << " lane " << n;
    }
  }
}

// Moves the upper bits of a byte's fields of 2n bits to the lower ones of another.
void exchange(int n, uint8_t& a, uint8_t& b) {
  for (int bit = 0; bit < 8; ++bit) {
    if (bit / n % 2 != 0) continue;
    const int upper = a >> (bit + n) & 1, lower = b >> bit & 1;
    a = static_cast<uint8_t>((a & ~(1 << (bit + n))) | lower << (bit + n));
    b = static_cast<uint8_t>((b & ~(1 << bit)) | upper << bit);
  }
}

TEST(Isa, ScalarBlocksArePlainBits) {
  std::mt19937 rng(9);
  for (int round = 0; round < 200; ++round) {
    const ProbeIn in = make_input(rng);
    ProbeOut out = {};
    probe_scalar(in, out);
    uint8_t want[7][64];
    for (int i = 0; i < 64; ++i) {
      const uint8_t some = in.int8[i], other = in.ternary3[i];
      want[0][i] = in.int8[(i + 60) % 64];
      want[1][i] = in.int8[(i + 56) % 64];
      want[2][i] = some ^ other;
      for (int n = 1; n <= 2; ++n) {
        want[1 + 2 * n][i] = some;
        want[2 + 2 * n][i] = other;
        exchange(n, want[1 + 2 * n][i], want[2 + 2 * n][i]);
      }
    }
    const int32_t(*rows)[16] = out.i + out.n_i - 2 * std::size(want);
    for (const auto& block : want) {
      expect_block(in, block, rows);
      rows += 2;
    }
    if (HasFailure()) return;
  }
}

TEST(Isa, SelectNamesWhatThereIs) {
  const auto best = select_kernels(nullptr);
  ASSERT_TRUE(best.ok());
  EXPECT_EQ(best.value(), every_isa()[0]);
  EXPECT_STREQ(select_kernels("scalar").value()->name, "scalar");
  const auto unknown = select_kernels("mmx");
  ASSERT_FALSE(unknown.ok());
  EXPECT_EQ(unknown.status().code(), MOE_ERR_UNSUPPORTED);
  EXPECT_NE(std::strstr(unknown.status().text(), "mmx"), nullptr);
  EXPECT_NE(std::strstr(unknown.status().text(), "scalar"), nullptr);
}

}  // namespace
}  // namespace moe
