// SPDX-License-Identifier: MIT
// A configuration written to a file and read again is the same in every field.

#include <gtest/gtest.h>

#include <cmath>

#include "src/convert/config_write.h"
#include "src/model/config_read.h"
#include "tests/support/tiny_model.h"

namespace moe {
namespace {

ModelConfig unusual() {
  ModelConfig c = tiny_config();
  c.norm = NormKind::kLayer;
  c.norm_eps = 3e-6f;
  c.embedding_norm = true;
  c.final_norm = false;
  c.tie_embeddings = false;
  c.embedding_multiplier = 12;
  c.residual_multiplier = 0.22f;
  c.logit_multiplier = 0.125f;
  c.logit_cap = 30;
  c.layer_input = {6, Activation::kSilu, 1.5f, 0.75f, 1e-4f};
  c.pad_token_id = 2;
  c.add_bos = true;
  AttentionConfig& a = c.layers[0].attention;
  a.norms = {false, true, true};
  a.window = 17;
  a.multiplier = 0.5f;
  a.qk_norm = QkNorm::kHead;
  a.sub_norm = true;
  a.sinks = true;
  a.score_cap = 50;
  a.qkv_clip = 8;
  a.output_gate = a.gate_by_head = true;
  a.v_norm = a.v_from_k = true;
  a.latent = 24;
  a.q_latent = 20;
  a.latent_eps = 2e-6f;
  a.rope = {RopeKind::kInterleaved,
            4,
            5e5f,
            RopeScaling::kYarn,
            4,
            2,
            3,
            31,
            2,
            false,
            1.1f,
            32,
            nullptr,
            nullptr};
  static const float kShort[] = {1, 2};
  static const float kLong[] = {3, 4};
  c.layers[1].attention.rope = a.rope;
  c.layers[1].attention.rope.scaling = RopeScaling::kLongrope;
  c.layers[1].attention.rope.short_factor = kShort;
  c.layers[1].attention.rope.long_factor = kLong;
  c.layers[1].multiplier = 0.75f;
  FfnConfig& f = c.layers[1].ffn;
  f.sub_norm = true;
  f.norms = {false, true, false};
  f.act = {Activation::kSilu, 1.702f, 7, 1};
  f.moe.n_subheads = 2;
  f.moe.head = f.moe.merge = true;
  f.moe.shared = {40, true};
  f.moe.apart = f.moe.router_norm = f.moe.expert_scale = true;
  RouterConfig& r = f.moe.router;
  r.kind = RouterKind::kCosine;
  r.weights = RouterWeights::kRaw;
  r.k = 3;
  r.scale = 2.5f;
  r.gate = CosineGate::kSigmoid;
  r.tau = 0.07f;
  r.cosine_eps = 1e-5f;
  r.normalise_token = false;
  r.topk_norm = 1;
  r.jitter = 0.02f;
  r.gamma = 1.25f;
  r.min_capacity = 4;
  r.n_groups = 4;
  r.top_groups = 3;
  r.order = CapacityOrder::kArrival;
  return c;
}

void expect_same(const RopeConfig& a, const RopeConfig& b) {
  EXPECT_EQ(a.kind, b.kind);
  EXPECT_EQ(a.dims, b.dims);
  EXPECT_EQ(a.theta, b.theta);
  EXPECT_EQ(a.scaling, b.scaling);
  EXPECT_EQ(a.factor, b.factor);
  EXPECT_EQ(a.low_freq_factor, b.low_freq_factor);
  EXPECT_EQ(a.high_freq_factor, b.high_freq_factor);
  EXPECT_EQ(a.beta_fast, b.beta_fast);
  EXPECT_EQ(a.beta_slow, b.beta_slow);
  EXPECT_EQ(a.truncate, b.truncate);
  EXPECT_EQ(a.attention_factor, b.attention_factor);
  EXPECT_EQ(a.original_context, b.original_context);
  EXPECT_EQ(a.turning, b.turning);
  ASSERT_EQ(a.short_factor == nullptr, b.short_factor == nullptr);
  for (int i = 0; a.short_factor != nullptr && i < a.dims / 2; ++i) {
    EXPECT_EQ(a.short_factor[i], b.short_factor[i]);
    EXPECT_EQ(a.long_factor[i], b.long_factor[i]);
  }
}

void expect_same(const RouterConfig& a, const RouterConfig& b) {
  EXPECT_EQ(a.kind, b.kind);
  EXPECT_EQ(a.weights, b.weights);
  EXPECT_EQ(a.k, b.k);
  EXPECT_EQ(a.threshold, b.threshold);
  EXPECT_EQ(a.min_k, b.min_k);
  EXPECT_EQ(a.max_k, b.max_k);
  EXPECT_EQ(a.scale, b.scale);
  EXPECT_EQ(a.gate, b.gate);
  EXPECT_EQ(a.tau, b.tau);
  EXPECT_EQ(a.cosine_eps, b.cosine_eps);
  EXPECT_EQ(a.normalise_token, b.normalise_token);
  EXPECT_EQ(a.topk_norm, b.topk_norm);
  EXPECT_EQ(a.jitter, b.jitter);
  EXPECT_EQ(a.gamma, b.gamma);
  EXPECT_EQ(a.min_capacity, b.min_capacity);
  EXPECT_EQ(a.n_groups, b.n_groups);
  EXPECT_EQ(a.top_groups, b.top_groups);
  EXPECT_EQ(a.order, b.order);
}

void expect_same(const BlockNorms& a, const BlockNorms& b) {
  EXPECT_EQ(a.pre, b.pre);
  EXPECT_EQ(a.out, b.out);
  EXPECT_EQ(a.post, b.post);
}

void expect_same(const LayerConfig& a, const LayerConfig& b) {
  EXPECT_EQ(a.has_attention, b.has_attention);
  EXPECT_EQ(a.has_ffn, b.has_ffn);
  EXPECT_EQ(a.has_mixer, b.has_mixer);
  expect_same(a.mixer.norms, b.mixer.norms);
  EXPECT_EQ(a.mixer.mixer.kind, b.mixer.mixer.kind);
  for (int i = 0; i < kMaxMixerParams; ++i) {
    EXPECT_EQ(a.mixer.mixer.params[i], b.mixer.mixer.params[i]);
  }
  expect_same(a.attention.norms, b.attention.norms);
  expect_same(a.ffn.norms, b.ffn.norms);
  EXPECT_EQ(a.attention.n_heads, b.attention.n_heads);
  EXPECT_EQ(a.attention.n_kv_heads, b.attention.n_kv_heads);
  EXPECT_EQ(a.attention.head_dim, b.attention.head_dim);
  EXPECT_EQ(a.attention.window, b.attention.window);
  EXPECT_EQ(a.attention.multiplier, b.attention.multiplier);
  EXPECT_EQ(a.attention.qk_norm, b.attention.qk_norm);
  EXPECT_EQ(a.attention.sub_norm, b.attention.sub_norm);
  EXPECT_EQ(a.attention.sinks, b.attention.sinks);
  EXPECT_EQ(a.attention.score_cap, b.attention.score_cap);
  EXPECT_EQ(a.attention.qkv_clip, b.attention.qkv_clip);
  EXPECT_EQ(a.attention.output_gate, b.attention.output_gate);
  EXPECT_EQ(a.attention.gate_by_head, b.attention.gate_by_head);
  EXPECT_EQ(a.attention.v_norm, b.attention.v_norm);
  EXPECT_EQ(a.attention.in_norms, b.attention.in_norms);
  EXPECT_EQ(a.attention.v_from_k, b.attention.v_from_k);
  EXPECT_EQ(a.attention.kv_layer, b.attention.kv_layer);
  EXPECT_EQ(a.multiplier, b.multiplier);
  EXPECT_EQ(a.attention.q_latent, b.attention.q_latent);
  EXPECT_EQ(a.attention.latent_eps, b.attention.latent_eps);
  EXPECT_EQ(a.attention.latent, b.attention.latent);
  expect_same(a.attention.rope, b.attention.rope);
  EXPECT_EQ(a.ffn.kind, b.ffn.kind);
  EXPECT_EQ(a.ffn.d_ff, b.ffn.d_ff);
  EXPECT_EQ(a.ffn.gated, b.ffn.gated);
  EXPECT_EQ(a.ffn.sub_norm, b.ffn.sub_norm);
  EXPECT_EQ(a.ffn.in_norms, b.ffn.in_norms);
  EXPECT_EQ(a.ffn.act.kind, b.ffn.act.kind);
  EXPECT_EQ(a.ffn.act.alpha, b.ffn.act.alpha);
  EXPECT_EQ(a.ffn.act.limit, b.ffn.act.limit);
  EXPECT_EQ(a.ffn.act.up_offset, b.ffn.act.up_offset);
  if (a.ffn.kind != FfnKind::kMoe) return;
  EXPECT_EQ(a.ffn.moe.n_experts, b.ffn.moe.n_experts);
  EXPECT_EQ(a.ffn.moe.n_subheads, b.ffn.moe.n_subheads);
  EXPECT_EQ(a.ffn.moe.head, b.ffn.moe.head);
  EXPECT_EQ(a.ffn.moe.merge, b.ffn.moe.merge);
  EXPECT_EQ(a.ffn.moe.n_sublayers, b.ffn.moe.n_sublayers);
  EXPECT_EQ(a.ffn.moe.shared.d_ff, b.ffn.moe.shared.d_ff);
  EXPECT_EQ(a.ffn.moe.shared.gated, b.ffn.moe.shared.gated);
  EXPECT_EQ(a.ffn.moe.apart, b.ffn.moe.apart);
  EXPECT_EQ(a.ffn.moe.router_norm, b.ffn.moe.router_norm);
  EXPECT_EQ(a.ffn.moe.expert_scale, b.ffn.moe.expert_scale);
  expect_same(a.ffn.moe.router, b.ffn.moe.router);
}

void expect_same(const ModelConfig& a, const ModelConfig& b) {
  EXPECT_EQ(a.name.view(), b.name.view());
  EXPECT_EQ(a.vocab_size, b.vocab_size);
  EXPECT_EQ(a.d_model, b.d_model);
  EXPECT_EQ(a.context_length, b.context_length);
  EXPECT_EQ(a.norm, b.norm);
  EXPECT_EQ(a.norm_eps, b.norm_eps);
  EXPECT_EQ(a.positions, b.positions);
  EXPECT_EQ(a.tie_embeddings, b.tie_embeddings);
  EXPECT_EQ(a.embedding_norm, b.embedding_norm);
  EXPECT_EQ(a.second_positions, b.second_positions);
  EXPECT_EQ(a.head.kind, b.head.kind);
  EXPECT_EQ(a.head.n_labels, b.head.n_labels);
  EXPECT_EQ(a.head.pooling, b.head.pooling);
  EXPECT_EQ(a.final_norm, b.final_norm);
  EXPECT_EQ(a.embedding_multiplier, b.embedding_multiplier);
  EXPECT_EQ(a.residual_multiplier, b.residual_multiplier);
  EXPECT_EQ(a.logit_multiplier, b.logit_multiplier);
  EXPECT_EQ(a.logit_cap, b.logit_cap);
  EXPECT_EQ(a.layer_input.width, b.layer_input.width);
  EXPECT_EQ(a.layer_input.act, b.layer_input.act);
  EXPECT_EQ(a.layer_input.multiplier, b.layer_input.multiplier);
  EXPECT_EQ(a.layer_input.projection_multiplier, b.layer_input.projection_multiplier);
  EXPECT_EQ(a.layer_input.projection_eps, b.layer_input.projection_eps);
  EXPECT_EQ(a.bos_token_id, b.bos_token_id);
  EXPECT_EQ(a.pad_token_id, b.pad_token_id);
  EXPECT_EQ(a.add_bos, b.add_bos);
  ASSERT_EQ(a.eos_token_ids.size(), b.eos_token_ids.size());
  for (size_t i = 0; i < a.eos_token_ids.size(); ++i)
    EXPECT_EQ(a.eos_token_ids[i], b.eos_token_ids[i]);
  EXPECT_EQ(a.sampling.given, b.sampling.given);
  EXPECT_EQ(a.sampling.temperature, b.sampling.temperature);
  EXPECT_EQ(a.sampling.top_k, b.sampling.top_k);
  EXPECT_EQ(a.sampling.top_p, b.sampling.top_p);
  EXPECT_EQ(a.sampling.min_p, b.sampling.min_p);
  EXPECT_EQ(a.sampling.repetition_penalty, b.sampling.repetition_penalty);
  EXPECT_EQ(a.sampling.repetition_window, b.sampling.repetition_window);
  ASSERT_EQ(a.layers.size(), b.layers.size());
  for (size_t i = 0; i < a.layers.size(); ++i) expect_same(a.layers[i], b.layers[i]);
}

void expect_round_trip(const ModelConfig& config) {
  flatbuffers::FlatBufferBuilder b;
  b.Finish(write_config(b, config));
  ModelConfig read;
  const Status status =
      read_config(*flatbuffers::GetRoot<fbs::ModelConfig>(b.GetBufferPointer()), &read);
  ASSERT_TRUE(status.ok()) << status.text();
  expect_same(config, read);
}

TEST(Config, RoundTrip) {
  expect_round_trip(tiny_config());
  expect_round_trip(unusual());
  ModelConfig c = tiny_config();
  c.sampling = {.given = true,
                .temperature = 0.5f,
                .top_k = 7,
                .top_p = 0.75f,
                .min_p = 0.25f,
                .repetition_penalty = 1.5f,
                .repetition_window = 12};
  expect_round_trip(c);
}

TEST(Config, KeysOfAnotherLayer) {
  ModelConfig c = tiny_config();
  c.layers[1].attention.kv_layer = 0;
  EXPECT_TRUE(validate(c).ok());
  expect_round_trip(c);
  const auto error = [&](auto change) {
    ModelConfig own = tiny_config();
    own.layers[1].attention.kv_layer = 0;
    change(own);
    return std::string(validate(own).text());
  };
  EXPECT_EQ(error([](ModelConfig& m) { m.layers[1].attention.kv_layer = 1; }),
            "layer 1: attention.kv_layer: expected -1..0, found 1");
  EXPECT_EQ(error([](ModelConfig& m) { m.layers[0].attention.kv_layer = 0; }),
            "layer 0: attention.kv_layer: expected -1..-1, found 0");
  EXPECT_EQ(error([](ModelConfig& m) { m.layers[1].attention.n_kv_heads = 4; }),
            "layer 1: attention.kv_layer: 0: that layer's n_kv_heads or head_dim are others");
  EXPECT_EQ(error([](ModelConfig& m) {
              m.layers[0].has_attention = false;
              m.layers[0].attention = {};
            }),
            "layer 1: attention.kv_layer: 0: that layer has no attention");
  EXPECT_EQ(error([](ModelConfig& m) {
              EXPECT_TRUE(m.layers.push(m.layers[1]).ok());
              m.layers[2].attention.kv_layer = 1;
            }),
            "layer 2: attention.kv_layer: 1: that layer has no keys of its own");
  EXPECT_EQ(error([](ModelConfig& m) { m.layers[1].attention.v_norm = true; }),
            "layer 1: attention.v_norm: there are no values of its own, but those of kv_layer");
}

TEST(Config, NormsOfInputs) {
  const auto error = [](auto change) {
    ModelConfig c = tiny_config();
    c.layers[0].attention.in_norms = c.layers[0].ffn.in_norms = true;
    change(c.layers);
    return std::string(validate(c).text());
  };
  using Layers = Array<LayerConfig>;
  const char* const own =
      "layer 0: attention.in_norms: needs matrices for q, k and v, and no latent or output_gate";
  EXPECT_EQ(error([](Layers&) {}), "");
  EXPECT_EQ(error([](Layers& l) { l[0].attention.output_gate = true; }), own);
  EXPECT_EQ(error([](Layers& l) { l[0].attention.v_from_k = true; }), own);
  EXPECT_EQ(error([](Layers& l) { l[0].attention.latent = 8; }), own);
  EXPECT_EQ(error([](Layers& l) { l[1].ffn.in_norms = true; }),
            "layer 1: ffn.in_norms: only a dense FFN has them");
}

TEST(Config, Rotation) {
  static constexpr uint8_t kBits[8] = {};
  const auto error = [](auto change) {
    ModelConfig c = tiny_config();
    c.rotation.block = 16;
    EXPECT_TRUE(c.rotation.signs.push({32, kBits}).ok());
    EXPECT_TRUE(c.rotation.signs.push({48, kBits}).ok());
    change(c.rotation);
    return std::string(validate(c).text());
  };
  using R = RotationConfig;
  EXPECT_EQ(error([](R&) {}), "");
  EXPECT_EQ(error([](R& r) { r.block = 0; }), "rotation: there are signs, but no block");
  EXPECT_EQ(error([](R& r) { r.block = 12; }), "rotation.block: expected a power of two, found 12");
  EXPECT_EQ(error([](R& r) { r.block = 1 << 17; }),
            "rotation.block: expected 2..65536, found 131072");
  EXPECT_EQ(error([](R& r) { r.block = 32; }),
            "rotation.signs: blocks of 32 do not divide a width of 48");
  EXPECT_EQ(error([](R& r) { r.signs[1].width = 32; }),
            "rotation.signs: width: expected 33..1048576, found 32");
  EXPECT_EQ(error([](R& r) { r.signs[1].width = 1 << 20; }),
            "rotation.signs: the widths add up to more than 1048576");
  RotationConfig r(system_allocator());
  EXPECT_FALSE(r.takes(32));
  r.block = 16;
  EXPECT_TRUE(r.takes(32));  // without signs any width
  EXPECT_FALSE(r.takes(40));
}

TEST(Config, NetworksApart) {
  const auto error = [&](auto change) {
    ModelConfig c = tiny_config();
    c.layers[1].ffn.norms.out = true;
    MoeConfig& moe = c.layers[1].ffn.moe;
    moe.shared.d_ff = 16;
    moe.apart = moe.router_norm = moe.expert_scale = true;
    change(c.layers[1].ffn);
    return std::string(validate(c).text());
  };
  EXPECT_EQ(error([](FfnConfig&) {}), "");
  const char* const apart =
      "layer 1: moe.apart: needs a shared expert without a gate, out_norm, and no sub-heads";
  EXPECT_EQ(error([](FfnConfig& f) { f.moe.shared.d_ff = 0; }), apart);
  EXPECT_EQ(error([](FfnConfig& f) { f.moe.shared.gated = true; }), apart);
  EXPECT_EQ(error([](FfnConfig& f) { f.norms.out = false; }), apart);
  EXPECT_EQ(error([](FfnConfig& f) { f.moe.head = true; }), apart);
  const char* const router =
      "layer 1: moe.router_norm: needs a router with scores, and no sub-heads";
  EXPECT_EQ(error([](FfnConfig& f) { f.moe.router.kind = RouterKind::kHash; }), router);
  EXPECT_EQ(error([](FfnConfig& f) {
              f.moe.apart = false;
              f.moe.n_subheads = 2;
            }),
            router);
}

TEST(Config, PairsOfTexts) {
  ModelConfig c = tiny_config();
  for (LayerConfig& layer : c.layers) {
    layer.attention.causal = false;
    layer.attention.rope = {};
  }
  c.positions = PositionKind::kLearned;
  c.second_positions = true;
  c.tie_embeddings = false;
  c.head = {.kind = HeadKind::kClasses, .n_labels = 2, .pooling = Pooling::kMean};
  expect_round_trip(c);
  EXPECT_TRUE(validate(c).ok()) << validate(c).text();
  const char* const pooling = "head.pooling: expected first, or mean of a head of classes";
  c.head.pooling = Pooling::kLast;
  EXPECT_STREQ(validate(c).text(), pooling);
  c.head.pooling = Pooling::kMean;
  c.head.kind = HeadKind::kTags;
  EXPECT_STREQ(validate(c).text(), pooling);
  c.head.pooling = Pooling::kFirst;
  c.positions = PositionKind::kRope;
  EXPECT_STREQ(validate(c).text(),
               "second_positions: only an encoder with learned positions has them");
}

TEST(Config, BlocksThatAreNotThere) {
  ModelConfig c = tiny_config();
  c.layers[0].has_attention = c.layers[1].has_ffn = false;
  EXPECT_STREQ(validate(c).text(), "layer 0: attention is absent, but configured");
  c.layers[0].attention = {};
  EXPECT_STREQ(validate(c).text(), "layer 1: ffn is absent, but configured");
  c.layers[1].ffn = {};
  EXPECT_TRUE(validate(c).ok());
  expect_round_trip(c);
  c.layers[1] = {};
  c.layers[1].has_attention = c.layers[1].has_ffn = false;
  EXPECT_STREQ(validate(c).text(), "layer 1: there is neither attention nor ffn");
}

LayerConfig short_conv(float length) {
  LayerConfig layer = tiny_config().layers[0];
  layer.has_attention = false;
  layer.attention = {};
  layer.has_mixer = true;
  layer.mixer.mixer.kind = MixerKind::kShortConv;
  layer.mixer.mixer.params[0] = length;
  return layer;
}

TEST(Config, Mixers) {
  ModelConfig c = tiny_config();
  c.layers[1] = short_conv(5);
  c.layers[1].mixer.norms = {false, true, true};
  EXPECT_TRUE(validate(c).ok());
  expect_round_trip(c);
  c.layers[1] = short_conv(0);
  EXPECT_STREQ(validate(c).text(),
               "layer 1: short_conv: length: expected a whole number in 1..64, found 0");
  c.layers[1] = short_conv(65);
  EXPECT_EQ(validate(c).code(), MOE_ERR_RANGE);
  c.layers[1] = short_conv(64);
  c.d_model = 1 << 19;
  EXPECT_STREQ(validate(c).text(),
               "layer 1: short_conv.conv.weight: expected at most 16777216 rows, found 33554432");
  c.d_model = tiny_config().d_model;
  c.layers[1] = short_conv(3);
  c.layers[1].has_attention = true;
  c.layers[1].attention = c.layers[0].attention;
  EXPECT_TRUE(validate(c).ok());  // side by side
  expect_round_trip(c);
  c.layers[1].mixer.norms.post = true;
  EXPECT_STREQ(validate(c).text(),
               "layer 1: short_conv: a norm after the sum needs a layer of its own, without "
               "attention");
  c.layers[1] = short_conv(3);
  c.layers[0].attention.causal = false;
  c.layers[0].attention.rope = {};
  EXPECT_STREQ(validate(c).text(), "layer 1: short_conv: only for decoders without an encoder");
}

// Reads the configuration of a file with one layer.
Status read_one_layer(flatbuffers::FlatBufferBuilder& b, flatbuffers::Offset<fbs::Layer> layer,
                      ModelConfig* read) {
  const auto norm = b.CreateString("rms");
  const auto positions = b.CreateString("none");
  const auto layers = b.CreateVector(&layer, 1);
  fbs::ModelConfigBuilder model(b);
  model.add_norm(norm);
  model.add_positions(positions);
  model.add_layers(layers);
  b.Finish(model.Finish());
  return read_config(*flatbuffers::GetRoot<fbs::ModelConfig>(b.GetBufferPointer()), read);
}

// A file says the name of its mixer, and parameters.
TEST(Config, MixersOfFiles) {
  const auto error = [](const char* kind, const char* param) {
    flatbuffers::FlatBufferBuilder b;
    std::vector<flatbuffers::Offset<fbs::MixerParam>> params;
    if (param != nullptr) params.push_back(fbs::CreateMixerParam(b, b.CreateString(param), 3));
    const auto list = b.CreateVector(params);
    const auto mixer = fbs::CreateMixer(b, b.CreateString(kind), list);
    const auto layer = fbs::CreateLayer(b, 0, 0, 0, mixer);
    ModelConfig read;
    return std::string(read_one_layer(b, layer, &read).text());
  };
  EXPECT_EQ(error("short_conv", "length"), "");
  EXPECT_EQ(error("short_conv", "width"), "layer 0: short_conv: unknown parameter 'width'");
  EXPECT_EQ(error("short_conv", nullptr), "layer 0: short_conv: the file does not say length");
  EXPECT_EQ(error("long_conv", "length"), "layer 0: unknown mixer in this build 'long_conv'");
}

// Older files lack newer fields.
TEST(Config, AFileThatSaysNothingOfBlocksHasNormsInFront) {
  flatbuffers::FlatBufferBuilder b;
  const auto attention = fbs::CreateAttention(b, 4, 2, 8);
  const auto act = fbs::CreateActivation(b, b.CreateString("silu"));
  const auto layer =
      fbs::CreateLayer(b, attention, fbs::CreateFeedForward(b, 48, true, false, act));
  ModelConfig read;
  ASSERT_TRUE(read_one_layer(b, layer, &read).ok());
  EXPECT_TRUE(read.final_norm && read.layers[0].has_attention && read.layers[0].has_ffn);
  expect_same(read.layers[0].attention.norms, {true, false, false});
  expect_same(read.layers[0].ffn.norms, {true, false, false});
}

TEST(Config, AdviceOnSamplingIsUsable) {
  const auto error = [](const SamplingAdvice& advice) {
    ModelConfig c = tiny_config();
    c.sampling = advice;
    return std::string(validate(c).text());
  };
  EXPECT_EQ(error({.temperature = 0, .top_k = 3}), "");
  EXPECT_EQ(error({.temperature = 2e6f}), "sampling: temperature: expected 0..1e6, found 2e+06");
  EXPECT_NE(error({.temperature = NAN}), "");
  EXPECT_NE(error({.top_k = -1}), "");
  EXPECT_NE(error({.top_p = 0}), "");
  EXPECT_NE(error({.min_p = 1}), "");
  EXPECT_NE(error({.repetition_penalty = 0}), "");
  EXPECT_NE(error({.repetition_window = -1}), "");
}

TEST(Config, NormEpsIsSmall) {
  ModelConfig c = tiny_config();
  EXPECT_TRUE(validate(c).ok());
  c.norm_eps = 1e26f;
  EXPECT_STREQ(validate(c).text(), "norm.eps: expected at most 1, found 1e+26");
}

TEST(Config, RopeFactorsMustFit) {
  flatbuffers::FlatBufferBuilder b;
  b.Finish(write_config(b, unusual()));
  auto* config = flatbuffers::GetMutableRoot<fbs::ModelConfig>(b.GetBufferPointer());
  auto* rope = const_cast<fbs::Rope*>(config->layers()->Get(1)->attention()->rope());
  auto* table = reinterpret_cast<flatbuffers::Table*>(rope);
  ASSERT_TRUE(table->SetField<int32_t>(fbs::Rope::VT_DIMS, 8, 0));
  ModelConfig read;
  EXPECT_EQ(read_config(*config, &read).code(), MOE_ERR_SHAPE);
}

}  // namespace
}  // namespace moe
