// SPDX-License-Identifier: MIT
// Models of every kind, written and opened again.

#include <gtest/gtest.h>

#include "kernels/router/table.h"
#include "tests/support/memory_device.h"
#include "tests/support/tiny_model.h"

namespace moe {
namespace {

MoeConfig top_k(int32_t n_experts, int32_t k) {
  MoeConfig moe;
  moe.n_experts = n_experts;
  moe.router.k = k;
  return moe;
}

// Opens, prepares and verifies; then every expert can be acquired.
void expect_opens(const ModelConfig& config, const TinyOptions& options = {}) {
  const auto bytes = build_tiny_model(config, options);
  MemoryDevice device(system_allocator());
  auto opened = open_model(*bytes, device);
  ASSERT_TRUE(opened.ok()) << opened.status().text();
  Model& model = *opened.value();
  const Status prepared = model.prepare();
  ASSERT_TRUE(prepared.ok()) << prepared.text();
  for (int32_t l = 0; l < config.n_layers(); ++l) {
    ExpertSource* experts = model.layer(l).experts;
    const FfnConfig& ffn = config.layers[static_cast<size_t>(l)].ffn;
    ASSERT_EQ(experts != nullptr, ffn.kind == FfnKind::kMoe);
    for (int32_t e = 0; experts != nullptr && e < ffn.moe.n_experts; ++e) {
      Expert expert;
      const Status status = experts->acquire(e, {}, &expert);
      ASSERT_TRUE(status.ok()) << status.text();
      EXPECT_EQ(expert.n_sublayers, ffn.moe.n_sublayers);
      EXPECT_FALSE(expert.ffn[0].up.empty());
      EXPECT_EQ(expert.ffn[0].gate.empty(), !ffn.gated);
      experts->release(e);
    }
  }
  const Status verified = model.verify();
  EXPECT_TRUE(verified.ok()) << verified.text();
}

TEST(ModelOpen, Default) { expect_opens(tiny_config()); }

TEST(ModelOpen, EveryFormat) {
  for (const WeightFormat& format : kWeightFormats) {
    if (format.id == FormatId::kI32) continue;
    for (const ScaleKind scale : {ScaleKind::kTensor, ScaleKind::kRow, ScaleKind::kGroup}) {
      if (scale == ScaleKind::kGroup && !format.can_have(scale)) continue;
      SCOPED_TRACE(format.name);
      TinyOptions options;
      options.weights = format.id;
      options.scale = scale;
      options.compress = scale == ScaleKind::kRow;
      options.biases = scale == ScaleKind::kTensor;
      expect_opens(tiny_config(), options);
    }
  }
}

TEST(ModelOpen, EveryRouter) {
  for (const RouterInfo& info : kRouters) {
    SCOPED_TRACE(info.name);
    MoeConfig moe = top_k(8, 2);
    moe.router.kind = info.kind;
    moe.router.threshold = 0.5f;
    TinyOptions options;
    options.biases = true;
    expect_opens(tiny_config(moe), options);
  }
}

TEST(ModelOpen, MultiHeadSharedAndStacks) {
  MoeConfig moe = top_k(4, 1);
  moe.n_subheads = 2;
  moe.head = moe.merge = true;
  moe.shared.d_ff = 16;
  moe.shared.gated = true;
  expect_opens(tiny_config(moe));
  MoeConfig stack = top_k(4, 1);
  stack.n_sublayers = 3;
  ModelConfig config = tiny_config(stack);
  for (LayerConfig& layer : config.layers) layer.ffn.gated = false;
  expect_opens(config);
}

TEST(ModelOpen, LayerNormLearnedPositionsAndAllNorms) {
  ModelConfig config = tiny_config();
  config.norm = NormKind::kLayer;
  config.positions = PositionKind::kLearned;
  config.embedding_norm = true;
  config.tie_embeddings = false;
  for (LayerConfig& layer : config.layers) {
    layer.attention.rope.kind = RopeKind::kNone;
    layer.attention.qk_norm = QkNorm::kWhole;
    layer.attention.sub_norm = true;
    layer.attention.sinks = true;
    layer.ffn.sub_norm = true;
  }
  TinyOptions options;
  options.biases = true;
  expect_opens(config, options);
}

}  // namespace
}  // namespace moe
