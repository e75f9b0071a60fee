// SPDX-License-Identifier: MIT
#pragma once
// Tiny random models for every router, layer kind and weight format.

#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include "kernels/router/table.h"
#include "tests/support/tiny_model.h"

namespace moe {

struct TinyKind {
  std::string name;
  std::function<void(ModelConfig&, TinyOptions&)> change;
};

inline void PrintTo(const TinyKind& kind, std::ostream* out) { *out << kind.name; }

/// The context of the tiny models: more than one block of keys.
inline constexpr int32_t kTinyContext = 160;

inline void each_attention(ModelConfig& config,
                           const std::function<void(AttentionConfig&)>& change) {
  for (LayerConfig& layer : config.layers) change(layer.attention);
}

inline void each_moe(ModelConfig& config, const std::function<void(FfnConfig&)>& change) {
  for (LayerConfig& layer : config.layers) {
    if (layer.ffn.kind == FfnKind::kMoe) change(layer.ffn);
  }
}

inline TinyKind router_kind(const char* name, const std::function<void(RouterConfig&)>& change) {
  return {name, [change](ModelConfig& c, TinyOptions&) {
            each_moe(c, [&](FfnConfig& f) { change(f.moe.router); });
          }};
}

/// Every router of the list, then variants of their parameters.
inline std::vector<TinyKind> tiny_routers() {
  using R = RouterConfig;
  std::vector<TinyKind> all;
  for (const RouterInfo& info : kRouters) {
    all.push_back(router_kind(info.name, [kind = info.kind](R& r) {
      r.kind = kind;
      r.threshold = 0.7f;
      r.tau = 0.3f;
    }));
  }
  const TinyKind more[] = {
      router_kind("softmax_renormalised", [](R& r) { r.weights = RouterWeights::kRenormalised; }),
      router_kind("softmax_chosen", [](R& r) { r.weights = RouterWeights::kChosen; }),
      router_kind("threshold_one",
                  [](R& r) {
                    r.kind = RouterKind::kThreshold;
                    r.threshold = 0.7f;
                    r.weights = RouterWeights::kOne;
                  }),
      router_kind("softmax_groups",
                  [](R& r) {
                    r.n_groups = 4;
                    r.top_groups = 2;
                    r.k = 3;
                  }),
      router_kind("sigmoid_groups",
                  [](R& r) {
                    r.kind = RouterKind::kSigmoid;
                    r.n_groups = 2;
                    r.k = 2;
                  }),
      router_kind("threshold_bounds",
                  [](R& r) {
                    r.kind = RouterKind::kThreshold;
                    r.threshold = 0.5f;
                    r.min_k = 2;
                    r.max_k = 4;
                  }),
      router_kind("cosine_sigmoid",
                  [](R& r) {
                    r.kind = RouterKind::kCosine;
                    r.gate = CosineGate::kSigmoid;
                    r.k = 1;
                  }),
      router_kind("sigmoid_renormalised",
                  [](R& r) {
                    r.kind = RouterKind::kSigmoid;
                    r.weights = RouterWeights::kRenormalised;
                    r.scale = 2;
                  }),
  };
  all.insert(all.end(), std::begin(more), std::end(more));
  return all;
}

/// Layers of multi-head latent attention, with the layout of DeepSeek's keys.
inline void set_latent(ModelConfig& config, TinyOptions& options) {
  options.keys_apart = true;
  for (LayerConfig& layer : config.layers) {
    layer.attention.latent = 12;
    layer.attention.rope.kind = RopeKind::kInterleaved;
    layer.attention.rope.dims = 4;
  }
  config.layers[1].attention.latent = 21;
  config.layers[1].attention.q_latent = 18;
}

/// Puts a mixer beside a layer's attention.
inline void add_mixer(LayerConfig& layer, const char* name, std::initializer_list<float> params) {
  layer.has_mixer = true;
  const MixerInfo* const info = find_mixer(name);
  ASSERT_NE(info, nullptr) << name;
  layer.mixer.mixer = default_mixer(*info);
  std::copy(params.begin(), params.end(), layer.mixer.mixer.params);
}

/// Puts a mixer in the place of a layer's attention.
inline void set_mixer(LayerConfig& layer, const char* name, std::initializer_list<float> params) {
  layer.has_attention = false;
  layer.attention = {};
  add_mixer(layer, name, params);
}

inline std::vector<TinyKind> tiny_layers() {
  using C = ModelConfig;
  using O = TinyOptions;
  return {
      {"mh_moe",
       [](C& c, O& o) {
         o.biases = true;
         each_moe(c, [](FfnConfig& f) {
           f.moe.n_subheads = 4;
           f.moe.head = f.moe.merge = true;
         });
       }},
      {"mh_moe_head_alone",
       [](C& c, O&) {
         each_moe(c, [](FfnConfig& f) {
           f.moe.n_subheads = 2;
           f.moe.head = true;
         });
       }},
      {"mh_moe_x_moe_merge_alone",
       [](C& c, O& o) {
         o.biases = true;
         each_moe(c, [](FfnConfig& f) {
           f.moe.n_subheads = 2;
           f.moe.merge = true;
           f.moe.n_sublayers = 2;
         });
       }},
      {"mh_moe_neither", [](C& c, O&) { each_moe(c, [](FfnConfig& f) { f.moe.n_subheads = 4; }); }},
      {"x_moe",
       [](C& c, O&) {
         each_moe(c, [](FfnConfig& f) {
           f.moe.n_sublayers = 3;
           f.gated = false;
           f.act.kind = Activation::kGelu;
         });
       }},
      {"shared_gated",
       [](C& c, O&) {
         each_moe(c, [](FfnConfig& f) {
           f.moe.shared.d_ff = 20;
           f.moe.shared.gated = true;
         });
       }},
      {"shared_plain", [](C& c, O&) { each_moe(c, [](FfnConfig& f) { f.moe.shared.d_ff = 20; }); }},
      {"window", [](C& c, O&) { c.layers[1].attention.window = 19; }},
      {"layer_norm_learned_positions",
       [](C& c, O& o) {
         o.biases = true;
         c.norm = NormKind::kLayer;
         c.positions = PositionKind::kLearned;
         each_attention(c, [](AttentionConfig& a) { a.rope = {}; });
       }},
      {"no_positions",
       [](C& c, O&) {
         c.positions = PositionKind::kNone;
         each_attention(c, [](AttentionConfig& a) { a.rope = {}; });
       }},
      {"rope_partial_interleaved",
       [](C& c, O&) {
         c.layers[0].attention.rope.kind = RopeKind::kInterleaved;
         c.layers[0].attention.rope.dims = 4;
         c.layers[1].attention.rope.scaling = RopeScaling::kLinear;
         c.layers[1].attention.rope.factor = 2;
       }},
      {"qk_norm",
       [](C& c, O&) {
         c.layers[0].attention.qk_norm = QkNorm::kHead;
         c.layers[1].attention.qk_norm = QkNorm::kWhole;
       }},
      {"sub_norms_sinks",
       [](C& c, O&) {
         each_attention(c, [](AttentionConfig& a) { a.sub_norm = a.sinks = true; });
         for (LayerConfig& layer : c.layers) {
           layer.ffn.sub_norm = true;
           layer.ffn.act.kind = Activation::kRelu2;
         }
       }},
      {"out_norms",
       [](C& c, O&) {
         c.residual_multiplier = 0.6f;
         c.layers[0].attention.norms = c.layers[0].ffn.norms = {false, true, false};
         c.layers[1].attention.norms = c.layers[1].ffn.norms = {true, true, false};
       }},
      {"post_norms",
       [](C& c, O& o) {
         o.biases = true;
         c.norm = NormKind::kLayer;
         c.final_norm = false;
         for (LayerConfig& layer : c.layers) {
           layer.attention.norms = layer.ffn.norms = {false, false, true};
         }
       }},
      {"blocks_alone",
       [](C& c, O&) {
         c.layers[0].has_ffn = false;
         c.layers[0].ffn = {};
         c.layers[1].has_attention = false;
         c.layers[1].attention = {};
         c.layers[1].ffn.norms.pre = false;
       }},
      {"gated_delta",
       [](C& c, O&) {
         c.layers[1].attention.output_gate = true;
         set_mixer(c.layers[0], "gated_delta", {2, 6, 5, 7, 4});
       }},
      {"gated_delta_alone",
       [](C& c, O&) {
         set_mixer(c.layers[0], "gated_delta", {1, 1, 1, 1, 1});
         set_mixer(c.layers[1], "gated_delta", {3, 3, 16, 33, 64, 1e-5f, 2});
         c.layers[1].mixer.norms = {true, true, false};
       }},
      {"kimi_delta",
       [](C& c, O& o) {
         set_latent(c, o);
         o.keys_apart = false;
         set_mixer(c.layers[0], "kimi_delta", {3, 5, 7, 4, 6});
         c.layers[1].attention.rope.kind = RopeKind::kNone;
       }},
      {"kimi_delta_bounded",
       [](C& c, O& o) {
         set_latent(c, o);
         o.keys_apart = false;
         set_mixer(c.layers[0], "kimi_delta", {3, 5, 7, 4, 0, 1e-5f, -5});
         c.layers[1].attention.output_gate = c.layers[1].attention.gate_by_head = true;
       }},
      {"kimi_delta_alone",
       [](C& c, O&) {
         set_mixer(c.layers[0], "kimi_delta", {1, 1, 1, 1, 1});
         set_mixer(c.layers[1], "kimi_delta", {2, 33, 16, 64, 16, 1e-3f, -0.5f});
         c.layers[1].mixer.norms = {true, true, false};
       }},
      {"lightning",
       [](C& c, O&) {
         c.residual_multiplier = 0.28f;
         c.embedding_norm = true;
         c.final_norm = false;
         set_mixer(c.layers[0], "lightning", {3, 7});
         for (LayerConfig& layer : c.layers) {
           layer.attention.norms = layer.ffn.norms = layer.mixer.norms = {false, false, true};
         }
       }},
      {"lightning_alone",
       [](C& c, O&) {
         set_mixer(c.layers[0], "lightning", {1, 1});
         set_mixer(c.layers[1], "lightning", {2, 33, 1e-3f});
         c.layers[1].mixer.norms = {true, true, false};
       }},
      {"mamba2",
       [](C& c, O& o) {
         o.biases = true;
         set_mixer(c.layers[0], "mamba2", {6, 5, 2, 9, 4});
       }},
      {"mamba2_alone",
       [](C& c, O&) {
         set_mixer(c.layers[0], "mamba2", {1, 1, 1, 1, 1});
         set_mixer(c.layers[1], "mamba2", {3, 33, 1, 16, 64, 0.1f, 0.5f, 1e-3f});
         c.layers[1].mixer.norms = {true, true, false};
       }},
      {"mixers_beside_attention",
       [](C& c, O& o) {
         o.biases = true;
         c.residual_multiplier = 0.7f;
         add_mixer(c.layers[0], "mamba2", {6, 5, 2, 9, 4});
         add_mixer(c.layers[1], "gated_delta", {2, 6, 5, 7, 4});
         c.layers[1].attention.norms = {true, true, false};
         c.layers[1].mixer.norms = {true, true, false};
       }},
      {"short_conv_alone",
       [](C& c, O&) {
         c.positions = PositionKind::kNone;
         c.residual_multiplier = 0.7f;
         set_mixer(c.layers[0], "short_conv", {1});
         set_mixer(c.layers[1], "short_conv", {64});
         c.layers[1].mixer.norms = {true, true, false};
       }},
      {"latent_attention",
       [](C& c, O& o) {
         set_latent(c, o);
         o.keys_apart = false;
       }},
      {"latent_keys_apart", [](C& c, O& o) { set_latent(c, o); }},
      {"multipliers_untied_embedding_norm",
       [](C& c, O&) {
         c.tie_embeddings = false;
         c.embedding_norm = true;
         c.embedding_multiplier = 3;
         c.residual_multiplier = 0.4f;
         c.logit_multiplier = 0.7f;
         each_attention(c, [](AttentionConfig& a) { a.multiplier = 0.2f; });
       }},
      {"caps",
       [](C& c, O&) {
         c.logit_cap = 0.5f;
         c.layers[0].attention.score_cap = 0.3f;
         c.layers[1].attention.score_cap = 2;
       }},
      {"clipped_qkv",
       [](C& c, O&) {
         c.layers[0].attention.qkv_clip = 0.2f;
         c.layers[1].attention.qkv_clip = 0.05f;
         c.layers[1].attention.qk_norm = QkNorm::kWhole;
       }},
      {"output_gate",
       [](C& c, O& o) {
         o.biases = true;
         c.layers[0].attention.output_gate = true;
         c.layers[0].attention.sub_norm = true;
       }},
      {"output_gate_by_head",
       [](C& c, O& o) {
         o.biases = true;
         each_attention(c, [](AttentionConfig& a) { a.output_gate = a.gate_by_head = true; });
         c.layers[0].attention.sub_norm = true;
       }},
      {"values_of_keys",
       [](C& c, O& o) {
         o.biases = true;
         AttentionConfig& a = c.layers[1].attention;
         a.n_kv_heads = 1;
         a.head_dim = 24;
         a.multiplier = 1;
         a.qk_norm = QkNorm::kHead;
         a.v_norm = a.v_from_k = true;
         a.rope.scaling = RopeScaling::kProportional;
         a.rope.dims = 24;
         a.rope.turning = 6;
         c.layers[0].attention.v_norm = true;
         c.layers[0].multiplier = 0.6f;
         c.layers[1].multiplier = -1.5f;
       }},
      {"norms_of_inputs",
       [](C& c, O& o) {
         o.biases = true;
         each_attention(c, [](AttentionConfig& a) { a.in_norms = true; });
         c.layers[0].attention.sub_norm = true;
         c.layers[0].ffn.in_norms = c.layers[0].ffn.sub_norm = true;
         EXPECT_TRUE(c.layers.push(c.layers[0]).ok());
         c.layers[2].ffn.gated = false;
       }},
      {"rotated_inputs",
       [](C& c, O& o) {
         static constexpr uint8_t kBits[] = {0x5a, 0x13, 0xc0, 0xff, 0x3e, 0x81};
         c.tie_embeddings = false;
         c.embedding_multiplier = 3;
         c.rotation.block = 16;
         for (const int32_t width : {32, 48}) {
           EXPECT_TRUE(c.rotation.signs.push({width, kBits}).ok());
         }
         c.layers[0].ffn.in_norms = true;
         c.layers[1].ffn.moe.shared.d_ff = 32;
         c.layers[1].attention.output_gate = true;
         o.rotated = true;
       }},
      {"rotated_tied_embedding",
       [](C& c, O& o) {
         c.rotation.block = 8;
         o.rotated = true;
         o.weights = FormatId::kTernary2;
         o.scale = ScaleKind::kRow;
         o.act = ActPrecision::kA8Block;
       }},
      {"keys_of_another_layer",
       [](C& c, O&) {
         EXPECT_TRUE(c.layers.push(c.layers[0]).ok());
         c.layers[1].attention.qk_norm = QkNorm::kWhole;
         c.layers[1].attention.output_gate = true;
         c.layers[1].attention.window = 19;
         c.layers[2].attention.qk_norm = QkNorm::kHead;
         c.layers[2].attention.qkv_clip = 0.7f;
         c.layers[1].attention.kv_layer = c.layers[2].attention.kv_layer = 0;
       }},
      {"experts_apart",
       [](C& c, O&) {
         each_moe(c, [](FfnConfig& f) {
           f.norms.out = true;
           f.moe.shared.d_ff = 20;
           f.moe.apart = f.moe.router_norm = f.moe.expert_scale = true;
         });
       }},
      {"embeddings_of_layers",
       [](C& c, O&) {
         c.embedding_multiplier = 3;
         c.layer_input = {.width = 5,
                          .act = Activation::kGeluTanh,
                          .multiplier = 1.3f,
                          .projection_multiplier = 0.6f,
                          .projection_eps = 1e-3f};
         c.layers[1].multiplier = 0.8f;
       }},
      {"norm_and_scales_of_routers",
       [](C& c, O&) {
         each_moe(c, [](FfnConfig& f) {
           f.moe.shared.d_ff = 20;
           f.moe.router_norm = f.moe.expert_scale = true;
         });
       }},
      {"guesses",
       [](C& c, O&) {
         LayerConfig layer = c.layers[0];
         layer.attention.qk_norm = QkNorm::kHead;
         EXPECT_TRUE(c.layers.push(layer).ok());
         c.n_predictions = 1;
       }},
      {"guesses_raw",
       [](C& c, O&) {
         EXPECT_TRUE(c.layers.push(c.layers[0]).ok());
         c.n_predictions = 1;
         c.raw_predictions = true;
       }},
      {"guesses_of_experts",
       [](C& c, O& o) {
         c.tie_embeddings = false;
         c.embedding_multiplier = 3;
         EXPECT_TRUE(c.layers.push(c.layers[1]).ok());
         set_latent(c, o);
         set_mixer(c.layers[0], "gated_delta", {2, 6, 5, 7, 4});
         c.layers[2].ffn.moe.n_experts = 5;
         c.n_predictions = 1;
       }},
      {"dense_head",
       [](C& c, O& o) {
         o.biases = true;
         c.head = {HeadKind::kTokens, 0, true, true, Activation::kGelu};
       }},
      {"clamped_swiglu",
       [](C& c, O&) {
         for (LayerConfig& layer : c.layers) {
           layer.ffn.act.alpha = 1.702f;
           layer.ffn.act.limit = 0.8f;
           layer.ffn.act.up_offset = 1;
         }
       }},
  };
}

/// Each mixer in the place of the first layer's attention, with small parameters.
inline std::vector<TinyKind> tiny_mixers() {
  std::vector<TinyKind> all;
  for (size_t m = 0; m < kMixers; ++m) {
    all.push_back({std::string("mixer_") + kMixerRows[m].name, [m](ModelConfig& c, TinyOptions& o) {
                     o.biases = true;
                     set_mixer(c.layers[0], kMixerRows[m].name, {});
                     MixerConfig& mixer = c.layers[0].mixer.mixer;
                     for (int i = 0; i < kMixerRows[m].n_params(); ++i) {
                       const MixerParam& p = kMixerRows[m].params[i];
                       if (!p.required) continue;
                       const float middle = (p.low + p.high) / 2;
                       mixer.params[i] = p.whole ? std::clamp(3.0f, p.low, p.high) : middle;
                     }
                   }});
  }
  return all;
}

inline std::vector<TinyKind> tiny_formats() {
  using C = ModelConfig;
  using O = TinyOptions;
  const auto kind = [](const char* name, FormatId format, ScaleKind scale, ActPrecision act) {
    return TinyKind{name, [=](C&, O& o) {
                      o.weights = format;
                      o.scale = scale;
                      o.act = act;
                    }};
  };
  using F = FormatId;
  using S = ScaleKind;
  using A = ActPrecision;
  std::vector<TinyKind> all;
  for (const WeightFormat& f : kWeightFormats) {
    const S scale = f.own_scales();
    if (!f.table) all.push_back(kind(f.name, f.id, scale, f.act));
  }
  const TinyKind more[] = {
      kind("int8_f32", F::kInt8, S::kRow, A::kF32),
      kind("int8_group_a8_block", F::kInt8Group, S::kGroup, A::kA8Block),
      kind("int4_a8", F::kInt4, S::kGroup, A::kA8),
      kind("ternary2_row", F::kTernary2, S::kRow, A::kA8Block),
      kind("ternary3_f32", F::kTernary3, S::kRow, A::kF32),
  };
  all.insert(all.end(), std::begin(more), std::end(more));
  return all;
}

inline std::vector<TinyKind> all_tiny_kinds() {
  std::vector<TinyKind> all = tiny_routers();
  for (const auto& more : {tiny_layers(), tiny_mixers(), tiny_formats()}) {
    all.insert(all.end(), more.begin(), more.end());
  }
  return all;
}

inline std::unique_ptr<MemorySink> build_tiny_kind(const TinyKind& kind) {
  ModelConfig config = tiny_config();
  config.context_length = kTinyContext;
  TinyOptions options;
  kind.change(config, options);
  return build_tiny_model(config, options);
}

/// A bidirectional tiny model: learned positions, post-norms, a token head; the second layer
/// has experts.
inline ModelConfig tiny_encoder() {
  ModelConfig c = tiny_config();
  c.norm = NormKind::kLayer;
  c.positions = PositionKind::kLearned;
  c.embedding_norm = true;
  c.final_norm = false;
  c.mask_token_id = 5;
  c.head = {HeadKind::kTokens, 0, true, true, Activation::kGelu};
  for (LayerConfig& layer : c.layers) {
    layer.attention.causal = false;
    layer.attention.rope = {};
    layer.attention.norms = layer.ffn.norms = {.pre = false, .out = false, .post = true};
  }
  return c;
}

/// An encoder-decoder with learned positions, pre-norms or post-norms, and two layers each, of
/// which the second has experts. EOS and start are token 1, padding is 2.
inline ModelConfig tiny_translator(bool pre = false) {
  ModelConfig c = tiny_encoder();
  c.mask_token_id = -1;
  c.head = {};
  c.head.tied_bias = true;
  c.embedding_norm = !pre;
  c.encoder_norm = c.final_norm = pre;
  c.context_length = 48;
  c.source_length = 40;
  c.n_encoder_layers = 2;
  c.start_token_id = 1;
  c.pad_token_id = 2;
  for (size_t l = 0; l < 2; ++l) {
    LayerConfig layer = c.layers[l];
    layer.attention.causal = true;
    layer.has_cross = true;
    layer.cross.causal = false;
    layer.cross.n_heads = layer.cross.n_kv_heads = 4;
    layer.cross.head_dim = 8;
    EXPECT_TRUE(c.layers.push(layer).ok());
  }
  for (LayerConfig& layer : c.layers) {
    layer.attention.norms = layer.cross.norms = layer.ffn.norms = {pre, false, !pre};
  }
  return c;
}

}  // namespace moe
