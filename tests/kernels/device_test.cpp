// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <cmath>

#include "tests/kernels/random_layer.h"
#include "tests/support/cpu_devices.h"
#include "tests/support/every_isa.h"
#include "tests/support/failing_allocator.h"

namespace moe {
namespace {

StreamShape some_shape() {
  StreamShape s;
  s.max_rows = 9;
  s.d_model = 48;
  s.max_d_in = 100;
  s.max_d_ff = 300;
  s.max_experts = 6;
  s.max_subheads = 2;
  s.max_routed = 6;
  s.max_d_e = 7;
  return s;
}

TEST(CpuDevice, NamesItsInstructionSetAndRefusesOthers) {
  const OpenedDevice d("scalar", 1);
  ASSERT_NE(d.device, nullptr);
  EXPECT_STREQ(d.device->name(), "cpu (scalar)");
  const OpenedDevice automatic(nullptr, 1);
  const std::string best = std::string("cpu (") + every_isa()[0]->name + ")";
  EXPECT_EQ(automatic.device->name(), best);
  ThreadPool pool(system_allocator());
  EXPECT_EQ(open_cpu_device("z80", pool, system_allocator()).status().code(), MOE_ERR_UNSUPPORTED);
}

TEST(CpuDevice, StreamBytesAreWhatIsAllocatedAndFailureLeaksNothing) {
  for (size_t fail_at = 0; fail_at < 3; ++fail_at) {
    FailingAllocator allocator(fail_at);
    ThreadPool pool(system_allocator());
    ASSERT_TRUE(pool.start(3).ok());
    Result<Device*> device = open_cpu_device(nullptr, pool, allocator.get());
    ASSERT_EQ(device.ok(), fail_at != 0);
    if (!device.ok()) {
      EXPECT_EQ(device.status().code(), MOE_ERR_MEMORY);
      continue;
    }
    const size_t before = allocator.live_bytes();
    Result<Stream*> stream = device.value()->open_stream(some_shape());
    ASSERT_EQ(stream.ok(), fail_at != 1);
    if (stream.ok()) {
      EXPECT_EQ(allocator.live_bytes() - before, device.value()->stream_bytes(some_shape()));
      device.value()->close_stream(stream.value());
    } else {
      EXPECT_EQ(stream.status().code(), MOE_ERR_MEMORY);
    }
    EXPECT_EQ(allocator.live_bytes(), before);
    close_cpu_device(device.value());
  }
}

TEST(CpuDevice, ShapesThatOverflowAreRefused) {
  const OpenedDevice d(nullptr, 1);
  StreamShape s = some_shape();
  s.max_d_ff = -1;
  EXPECT_EQ(d.device->open_stream(s).status().code(), MOE_ERR_RANGE);
  s = some_shape();
  s.max_rows = s.max_subheads = s.max_routed = INT32_MAX;
  EXPECT_EQ(d.device->open_stream(s).status().code(), MOE_ERR_RANGE);
  // (Token, expert) pairs are counted in 32 bits.
  s = some_shape();
  s.max_rows = 4096;
  s.max_subheads = 8;
  s.max_experts = s.max_routed = 65536;
  EXPECT_EQ(d.device->stream_bytes(s), 0u);
  s.max_routed = 65535;
  EXPECT_NE(d.device->stream_bytes(s), 0u);
  s.max_rows = s.max_subheads = 65536;
  s.max_routed = 0;
  EXPECT_EQ(d.device->stream_bytes(s), 0u);
}

TEST(CpuDevice, MemoryGoesThereAndBack) {
  const OpenedDevice d(nullptr, 1);
  void* p = nullptr;
  ASSERT_TRUE(d.device->alloc(1000, &p).ok());
  EXPECT_EQ(reinterpret_cast<uintptr_t>(p) % 64, 0u);
  const std::vector<float> x = random_floats(250, 1);
  std::vector<float> back(250);
  ASSERT_TRUE(d.device->upload(p, x.data(), 1000).ok());
  ASSERT_TRUE(d.device->download(back.data(), p, 1000).ok());
  EXPECT_EQ(x, back);
  d.device->free(p, 1000);
}

TEST(CpuDevice, CancelledStreamsDoNothing) {
  LayerKind kind;
  RandomLayer random(kind);
  const OpenedDevice d(nullptr, 2);
  Stream* stream = d.device->open_stream(random.layer.shape(3)).value();
  const std::vector<float> x = random_floats(static_cast<size_t>(3 * kind.d_model), 1);
  std::vector<float> y(x.size(), 5);
  FfnOp op = random.layer.op;
  op.x = x.data();
  op.y = y.data();
  op.n_rows = 3;
  stream->cancelled = true;
  d.device->ffn(*stream, op);
  d.device->norm(*stream, {x.data(), y.data(), 3, kind.d_model, op.norm, false, 1});
  EXPECT_EQ(y, std::vector<float>(x.size(), 5));
  EXPECT_EQ(d.device->sync(*stream).code(), MOE_ERR_CANCELLED);
  stream->cancelled = false;
  d.device->ffn(*stream, op);
  EXPECT_TRUE(d.device->sync(*stream).ok());
  EXPECT_NE(y, std::vector<float>(x.size(), 5));
  d.device->close_stream(stream);
}

TEST(CpuDevice, NothingIsAllocatedAfterTheStreamIsOpen) {
  LayerKind kind;
  kind.n_subheads = 2;
  kind.head = kind.merge = true;
  kind.shared = true;
  kind.format = FormatId::kTernary2;
  kind.act_precision = ActPrecision::kA8;
  kind.router.k = 3;
  RandomLayer random(kind);
  FailingAllocator allocator;
  const OpenedDevice d(nullptr, 2, allocator.get());
  Stream* stream = d.device->open_stream(random.layer.shape(5)).value();
  const size_t before = allocator.n_allocations();
  const std::vector<float> x = random_floats(static_cast<size_t>(5 * kind.d_model), 1);
  std::vector<float> y(x.size());
  FfnOp op = random.layer.op;
  op.x = x.data();
  op.y = y.data();
  op.n_rows = 5;
  d.device->ffn(*stream, op);
  EXPECT_TRUE(d.device->sync(*stream).ok());
  EXPECT_EQ(allocator.n_allocations(), before);
  d.device->close_stream(stream);
}

TEST(CpuDevice, EmbedGathersRowsOfAnyFormat) {
  const int32_t d_model = 37;
  const std::vector<float> values = random_floats(20 * 37, 2);
  const PackedMatrix positions(FormatId::kF32, random_floats(8 * 37, 3), 8, d_model);
  std::vector<int8_t> codes(values.size());
  std::vector<float> scales(20);
  ASSERT_TRUE(int8_rows(values.data(), 20, d_model, codes.data(), scales.data()).ok());
  const PackedMatrix tables[] = {
      {FormatId::kF32, values, 20, d_model},
      {FormatId::kBf16, values, 20, d_model},
      {FormatId::kInt8, codes, 20, d_model, ActPrecision::kA8Block, ScaleKind::kRow, scales}};
  const BatchRow rows[] = {{0, 0, 19}, {0, 7, 0}, {0, 3, 16}};
  const OpenedDevice d(nullptr, 2);
  StreamShape shape = some_shape();
  shape.d_model = d_model;
  Stream* stream = d.device->open_stream(shape).value();
  for (const PackedMatrix& table : tables) {
    for (bool learned : {false, true}) {
      std::vector<float> x(3 * 37);
      d.device->embed(*stream, table, learned ? positions.get() : Matrix(), rows, 3, 2.5f,
                      x.data());
      for (int32_t r = 0; r < 3; ++r) {
        for (int32_t i = 0; i < d_model; ++i) {
          float expected = weight(table, rows[r].token, i) * 2.5f;
          if (learned) expected += weight(positions, rows[r].position, i);
          ASSERT_EQ(x[static_cast<size_t>(r * d_model + i)], expected);
        }
      }
    }
  }
  d.device->close_stream(stream);
}

TEST(CpuDevice, LinearWithSeveralOutputsAndPrecisions) {
  const int32_t d_in = 70;
  const std::vector<float> x = random_floats(static_cast<size_t>(5 * d_in), 1);
  const PackedMatrix plain(FormatId::kF32, random_floats(33 * 70, 2), 33, d_in);
  std::vector<int8_t> codes(static_cast<size_t>(20 * d_in));
  for (size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<int8_t>(i % 3) - 1;
  const PackedMatrix ternary(FormatId::kTernary2, codes, 20, d_in, ActPrecision::kA8,
                             ScaleKind::kTensor, {0.5f});
  const std::vector<float> bias = random_floats(33, 4);
  const std::vector<float> norm_weight = random_floats(70, 5);
  std::vector<float> reference;
  for (const OpenedDevice& d : all_devices()) {
    StreamShape shape = some_shape();
    Stream* stream = d.device->open_stream(shape).value();
    std::vector<float> a(5 * 33), b(5 * 25, 1), c(5 * 33, 2);
    LinearOut outs[3];
    outs[0] = {&plain.get(), bias.data(), a.data(), 33, false, 1};
    outs[1] = {&ternary.get(), nullptr, b.data(), 25, false, 2};  // ld_y wider than the rows
    outs[2] = {&plain.get(), bias.data(), c.data(), 33, true, 0.25f};
    LinearOp op;
    op.x = x.data();
    op.ld_x = op.d_in = d_in;
    op.n_rows = 5;
    op.norm = {NormKind::kRms, 1e-5f, norm_weight.data(), nullptr};
    op.outs = outs;
    op.n_outs = 3;
    d.device->linear(*stream, op);
    ASSERT_TRUE(d.device->sync(*stream).ok());
    d.device->close_stream(stream);
    for (size_t i = 0; i < a.size(); ++i) ASSERT_EQ(c[i], std::fma(0.25f, a[i], 2.0f));
    for (size_t r = 0; r < 5; ++r) ASSERT_EQ(b[r * 25 + 20], 1);
    std::vector<float> all = a;
    all.insert(all.end(), b.begin(), b.end());
    if (reference.empty()) reference = all;
    EXPECT_EQ(first_difference(reference, all), -1) << d.name;
    for (size_t r = 0; r < 5; ++r) {
      double square = 0;
      for (size_t k = 0; k < 70; ++k) square += static_cast<double>(x[r * 70 + k]) * x[r * 70 + k];
      double expected = bias[3];
      for (size_t k = 0; k < 70; ++k) {
        expected += x[r * 70 + k] / std::sqrt(square / 70 + 1e-5) * norm_weight[k] *
                    static_cast<double>(weight(plain, 3, static_cast<int32_t>(k)));
      }
      ASSERT_NEAR(a[r * 33 + 3], expected, 1e-4);
    }
  }
}

}  // namespace
}  // namespace moe
