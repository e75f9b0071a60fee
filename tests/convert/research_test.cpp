// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include "formats/import/failure.h"
#include "tests/convert/tiny_checkpoint.h"

namespace moe {
namespace {

using test::patched;

class ResearchTest : public testing::Test {
 protected:
  Imported read(const std::string& config) {
    folder_.write("config.json", config);
    folder_.write("model.safetensors", test::safetensors_text(test::RawTensors{}));
    return import_checkpoint(Checkpoint(folder_.path()));
  }
  std::string error_of(const std::string& config) {
    const Status status = guarded([&] { read(config); });
    EXPECT_FALSE(status.ok()) << config;
    return status.text();
  }
  test::TempFolder folder_;
};

TEST_F(ResearchTest, ReadsTheModel) {
  const Imported in = read(test::kTinyConfig);
  const ModelConfig& c = in.config;
  EXPECT_EQ(c.name.view(), "tiny");
  EXPECT_EQ(c.vocab_size, 40);
  EXPECT_EQ(c.d_model, 24);
  EXPECT_EQ(c.context_length, 32);
  EXPECT_EQ(c.norm, NormKind::kRms);
  EXPECT_EQ(c.norm_eps, 1e-5f);
  EXPECT_FALSE(c.tie_embeddings);
  EXPECT_EQ(c.bos_token_id, 0);
  EXPECT_EQ(c.pad_token_id, -1);
  EXPECT_TRUE(c.add_bos);
  ASSERT_EQ(c.eos_token_ids.size(), 1u);
  ASSERT_EQ(c.n_layers(), 2);
  EXPECT_EQ(c.layers[0].ffn.kind, FfnKind::kDense);
  EXPECT_EQ(c.layers[1].ffn.kind, FfnKind::kMoe);
  EXPECT_EQ(c.layers[1].ffn.d_ff, 20);  // from the defaults
  EXPECT_EQ(c.layers[1].ffn.moe.n_experts, 4);
  EXPECT_EQ(c.layers[1].ffn.moe.router.k, 2);
  EXPECT_EQ(c.layers[0].attention.rope.kind, RopeKind::kHalf);
  EXPECT_EQ(c.layers[0].attention.rope.dims, 12);
  EXPECT_EQ(in.tokenizer, TokenizerKind::kNone);
}

TEST_F(ResearchTest, LaterLayersWinAndNullRemoves) {
  const Imported in = read(patched(R"({"n_layers": 5, "layers": [
      {"index": {"from": 1, "step": 2}, "attention": {"window": 8, "rope": {"theta": 5e5}}},
      {"index": [3, 4], "attention": {"window": null, "n_kv_heads": 2}}]})"));
  const auto attention = [&](size_t l) { return in.config.layers[l].attention; };
  EXPECT_EQ(attention(0).window, 0);
  EXPECT_EQ(attention(1).window, 8);
  EXPECT_EQ(attention(1).rope.theta, 5e5f);
  EXPECT_EQ(attention(3).window, 0);
  EXPECT_EQ(attention(3).rope.theta, 5e5f);
  EXPECT_EQ(attention(3).n_kv_heads, 2);
  EXPECT_EQ(attention(4).rope.theta, 1e4f);
}

TEST_F(ResearchTest, ReadsEveryRouter) {
  const auto router = [&](const char* json) {
    return read(patched((std::string(R"({"layers": [{"index": 1, "ffn": {"kind": "moe", "moe":
        {"n_experts": 4, "capacity": {"gamma": 1.5, "min_capacity": 2, "order": "arrival"},
        "router": )") + json +
                         "}}}]}")
                            .c_str()))
        .config.layers[1]
        .ffn.moe.router;
  };
  RouterConfig r = router(R"({"kind": "softmax", "k": 3, "weights": "chosen", "scale": 2.5})");
  EXPECT_EQ(r.kind, RouterKind::kSoftmax);
  EXPECT_EQ(r.weights, RouterWeights::kChosen);
  EXPECT_EQ(r.k, 3);
  EXPECT_EQ(r.scale, 2.5f);
  EXPECT_EQ(r.gamma, 1.5f);
  EXPECT_EQ(r.min_capacity, 2);
  EXPECT_EQ(r.order, CapacityOrder::kArrival);
  r = router(R"({"kind": "threshold", "t": 0.5, "weights": "one"})");
  EXPECT_EQ(r.weights, RouterWeights::kOne);
  r = router(R"({"kind": "threshold", "t": 0.75, "min_k": 2, "max_k": 3})");
  EXPECT_EQ(r.kind, RouterKind::kThreshold);
  EXPECT_EQ(r.threshold, 0.75f);
  EXPECT_EQ(r.min_k, 2);
  EXPECT_EQ(r.max_k, 3);
  r = router(R"({"kind": "cosine", "k": 2, "gate": "sigmoid", "tau": 0.07, "d_e": 16,
                 "normalise_token": false, "topk_norm": false})");
  EXPECT_EQ(r.kind, RouterKind::kCosine);
  EXPECT_EQ(r.gate, CosineGate::kSigmoid);
  EXPECT_EQ(r.tau, 0.07f);
  EXPECT_FALSE(r.normalise_token);
  EXPECT_EQ(r.topk_norm, 0);
  r = router(R"({"kind": "sigmoid", "k": 1, "weights": "renormalised"})");
  EXPECT_EQ(r.kind, RouterKind::kSigmoid);
  EXPECT_EQ(r.weights, RouterWeights::kRenormalised);
  EXPECT_EQ(router(R"({"kind": "sparsemixer", "jitter": 0.1})").jitter, 0.1f);
  EXPECT_EQ(router(R"({"kind": "hash"})").kind, RouterKind::kHash);
  EXPECT_EQ(router(R"({"kind": "base"})").kind, RouterKind::kBase);
}

TEST_F(ResearchTest, ReadsScalingOfRope) {
  const Imported in =
      read(patched(R"({"layer_defaults": {"attention": {"rope": {"kind": "interleaved",
      "dims": 4, "scaling": {"kind": "longrope", "original_context": 16, "short_factor": [1, 2],
      "long_factor": [3, 4]}}}}})"));
  const RopeConfig& rope = in.config.layers[1].attention.rope;
  EXPECT_EQ(rope.kind, RopeKind::kInterleaved);
  EXPECT_EQ(rope.scaling, RopeScaling::kLongrope);
  EXPECT_EQ(rope.long_factor[1], 4);
  EXPECT_EQ(rope.original_context, 16);
  // Without rotary positions "rope" has no effect, but is checked.
  const char* unused =
      R"({"positions": "learned", "layer_defaults": {"attention": {"rope": {"dims": 4}}}})";
  EXPECT_EQ(read(patched(unused)).config.layers[0].attention.rope.kind, RopeKind::kNone);
  error_of(
      patched(R"({"positions": "none", "layer_defaults": {"attention": {"rope": {"dim": 4}}}})"));
}

TEST_F(ResearchTest, ReadsNormsOfInputs) {
  const Imported in = read(patched(R"({
      "layer_defaults": {"attention": {"in_norms": true}, "ffn": {"in_norms": true}},
      "layers": [{"index": 1, "attention": {"in_norms": null}, "ffn": {"in_norms": false}}]})"));
  EXPECT_TRUE(in.config.layers[0].attention.in_norms && in.config.layers[0].ffn.in_norms);
  EXPECT_FALSE(in.config.layers[1].attention.in_norms || in.config.layers[1].ffn.in_norms);
}

TEST_F(ResearchTest, ReadsWhatGemma4Needs) {
  const Imported in = read(patched(R"({
      "layer_input": {"width": 6, "act": "silu", "multiplier": 2, "projection_eps": 1e-3},
      "layer_defaults": {"multiplier": 0.5, "attention": {"v_norm": true, "rope": {"dims": 4,
          "scaling": {"kind": "proportional", "factor": 1, "turning": 2}}}},
      "layers": [{"index": 0, "attention": {"v_from_k": true}},
                 {"index": 1, "multiplier": 3, "attention": {"v_norm": false, "kv_layer": 0},
                  "ffn": {"kind": "moe", "out_norm": true, "moe": {"n_experts": 4,
                  "router": {"kind": "softmax", "k": 2}, "shared": {"d_ff": 8},
                  "apart": true, "router_norm": true, "expert_scale": true}}}]})"));
  EXPECT_EQ(in.config.layer_input.width, 6);
  EXPECT_EQ(in.config.layer_input.act, Activation::kSilu);
  EXPECT_EQ(in.config.layer_input.multiplier, 2);
  EXPECT_EQ(in.config.layer_input.projection_multiplier, 1);
  EXPECT_EQ(in.config.layer_input.projection_eps, 1e-3f);
  const LayerConfig &first = in.config.layers[0], &second = in.config.layers[1];
  EXPECT_TRUE(first.attention.v_norm && first.attention.v_from_k);
  EXPECT_EQ(first.attention.kv_layer, -1);
  EXPECT_EQ(first.multiplier, 0.5f);
  EXPECT_EQ(first.attention.rope.scaling, RopeScaling::kProportional);
  EXPECT_EQ(first.attention.rope.turning, 2);
  EXPECT_EQ(second.multiplier, 3);
  EXPECT_EQ(second.attention.kv_layer, 0);
  EXPECT_FALSE(second.attention.v_norm || second.attention.v_from_k);
  const MoeConfig& moe = second.ffn.moe;
  EXPECT_TRUE(moe.apart && moe.router_norm && moe.expert_scale);
  EXPECT_EQ(in.config.layers[0].ffn.moe.apart, false);
  error_of(patched(R"({"layer_input": {"width": 0, "act": "silu"}})"));
  error_of(patched(R"({"layer_defaults": {"attention": {"kv_layer": "first"}}})"));
  error_of(patched(R"({"layers": [{"index": 0, "multiplier": "half"}]})"));
}

TEST_F(ResearchTest, ReadsTheLayerThatGuesses) {
  Imported in = read(patched(R"({"n_predictions": 1})"));
  EXPECT_FALSE(in.config.raw_predictions);
  in = read(patched(R"({"n_predictions": 1, "raw_predictions": true})"));
  EXPECT_TRUE(in.config.raw_predictions);
  const int32_t n_layers = in.config.n_layers();
  EXPECT_EQ(in.config.n_predictions, 1);
  EXPECT_EQ(in.config.n_main_layers(), n_layers - 1);
  leave_out_predictions(&in);
  EXPECT_EQ(in.config.n_predictions, 0);
  EXPECT_FALSE(in.config.raw_predictions);
  EXPECT_EQ(in.config.n_layers(), n_layers - 1);
  EXPECT_EQ(in.ignored, std::vector<std::string>{"layers." + std::to_string(n_layers - 1) + ".*"});
  EXPECT_EQ(in.n_skipped_layers, 1);
  error_of(patched(R"({"n_predictions": 2})"));
  error_of(patched(R"({"n_predictions": true})"));
  error_of(patched(R"({"raw_predictions": true})"));
  error_of(patched(R"({"n_predictions": 1, "raw_predictions": 1})"));
}

TEST_F(ResearchTest, ReadsGates) {
  const Imported in = read(patched(R"({"layer_defaults": {"attention": {"output_gate": true}},
      "layers": [{"index": 1, "attention": {"gate_by_head": true}}]})"));
  const AttentionConfig &first = in.config.layers[0].attention,
                        &second = in.config.layers[1].attention;
  EXPECT_TRUE(first.output_gate && second.output_gate && second.gate_by_head);
  EXPECT_FALSE(first.gate_by_head);
  EXPECT_EQ(first.n_gates(), first.n_heads * first.head_dim);
  EXPECT_EQ(second.n_gates(), second.n_heads);
  error_of(patched(R"({"layer_defaults": {"attention": {"gate_by_head": 1}}})"));
  EXPECT_NE(error_of(patched(R"({"layer_defaults": {"attention": {"gate_by_head": true}}})"))
                .find("gate_by_head is set, but there is no output_gate"),
            std::string::npos);
}

TEST_F(ResearchTest, ReadsPrecisionAndTokenizer) {
  const Imported in = read(patched(R"({"tokenizer": "tokenizer.json", "precision": [
      {"match": "*", "weights": "auto"}, {"match": "*.experts.*", "weights": "ternary3",
       "activations": "a8"}]})"));
  EXPECT_EQ(in.tokenizer, TokenizerKind::kFile);
  EXPECT_EQ(in.tokenizer_file, "tokenizer.json");
  ASSERT_EQ(in.precision.size(), 2u);
  EXPECT_TRUE(in.precision[0].weights_auto);
  EXPECT_EQ(in.precision[1].weights, FormatId::kTernary3);
  EXPECT_EQ(in.precision[1].activations, ActPrecision::kA8);
  EXPECT_EQ(read(patched(R"({"tokenizer": "bytes", "vocab_size": 256})")).tokenizer,
            TokenizerKind::kBytes);
}

// Two encoder layers and one decoder layer.
const char* const kTranslator = R"({"n_layers": 3, "positions": "learned", "n_encoder_layers": 2,
    "source_length": 20, "encoder_norm": true, "start_token_id": 3, "eos_token_ids": [3],
    "forced_token_id": 5, "layers": [
      {"index": [0, 1], "attention": {"causal": false}},
      {"index": {"from": 2}, "cross_attention": {"n_heads": 2, "n_kv_heads": 1, "norm": false,
                                                 "post_norm": true}}]})";

TEST_F(ResearchTest, ReadsEncoderAndDecoder) {
  const Imported in = read(patched(kTranslator));
  const ModelConfig& c = in.config;
  EXPECT_TRUE(c.is_encoder_decoder());
  EXPECT_EQ(c.n_encoder_layers, 2);
  EXPECT_EQ(c.source_length, 20);
  EXPECT_TRUE(c.encoder_norm);
  EXPECT_EQ(c.start_token_id, 3);
  EXPECT_EQ(c.forced_token_id, 5);
  EXPECT_FALSE(c.layers[1].has_cross);
  ASSERT_TRUE(c.layers[2].has_cross);
  const AttentionConfig& cross = c.layers[2].cross;
  EXPECT_FALSE(cross.causal);
  EXPECT_EQ(cross.n_heads, 2);
  EXPECT_EQ(cross.n_kv_heads, 1);
  EXPECT_EQ(cross.head_dim, 12);
  EXPECT_FALSE(cross.norms.pre);
  EXPECT_TRUE(cross.norms.post);
}

TEST_F(ResearchTest, ErrorsOfEncoderAndDecoderNameTheKey) {
  const auto expect = [&](const char* patch, const char* word) {
    const std::string text = error_of(patched(patch, patched(kTranslator).c_str()));
    EXPECT_NE(text.find(word), std::string::npos) << patch << ": " << text;
  };
  expect(R"({"n_encoder_layers": 0})", "n_encoder_layers");
  expect(R"({"n_encoder_layers": 3})", "n_encoder_layers");
  expect(R"({"n_encoder_layers": 1})", "causal");
  expect(R"({"source_length": null})", "source_length");
  expect(R"({"start_token_id": null})", "start_token_id");
  expect(R"({"eos_token_ids": null})", "eos_token_ids");
  expect(R"({"positions": "rope"})", "positions");
  expect(R"({"layer_defaults": {"cross_attention": {"n_heads": 2}}})", "cross_attention");
  expect(R"({"layers": [{"index": [0, 1], "attention": {"causal": false}},
      {"index": 2, "cross_attention": {"n_heads": 2, "window": 4}}]})",
         "window");
  expect(R"({"layers": [{"index": [0, 1], "attention": {"causal": false}},
      {"index": 2, "cross_attention": {"n_heads": 5}}]})",
         "n_heads 5");
}

TEST_F(ResearchTest, ErrorsNameTheKey) {
  const auto layer = [&](const char* patch) {
    return error_of(patched((std::string(R"({"layer_defaults": )") + patch + "}").c_str()));
  };
  EXPECT_EQ(error_of(patched(R"({"d_modell": 24})")).substr(0, 36),
            "config.json: unknown key \"d_modell\";");
  EXPECT_EQ(
      layer(R"({"ffn": {"act": "swish"}})"),
      "config.json: layer 0: ffn.act: expected one of relu, gelu, gelu_tanh, silu, relu2, tanh, "
      "found \"swish\"");
  EXPECT_EQ(layer(R"({"attention": {"heads": 2}})").substr(0, 55),
            "config.json: layer 0: attention: unknown key \"heads\"; k");
  EXPECT_EQ(error_of(patched(R"({"model_type": "gpt2"})")).substr(0, 56),
            "config.json: unknown model_type \"gpt2\"; known: gpt_oss, ");
  EXPECT_EQ(error_of(patched(R"({"norm": {"kind": "batch"}})")),
            "config.json: norm.kind: expected one of rms, layer, found \"batch\"");
  EXPECT_EQ(error_of(patched(R"({"vocab_size": null})")), "config.json: \"vocab_size\" is missing");
  error_of(patched(R"({"layout_version": 2})"));
  error_of(patched(R"({"n_layers": 100000})"));
  error_of(patched(R"({"positions": "alibi"})"));
  const auto router = [&](const char* text) {
    const std::string head = R"({"layers": [{"index": 1, "ffn": {"kind": "moe", "moe": {)";
    const std::string patch = head + "\"n_experts\": 4, \"router\": " + text + "}}}]}";
    return error_of(patched(patch.c_str()));
  };
  EXPECT_NE(router(R"({"kind": "cosine", "k": 1, "scale": 2})").find("unknown key \"scale\""),
            std::string::npos);
  EXPECT_NE(router(R"({"kind": "threshold", "t": 1, "weights": "chosen"})").find("raw, renorm"),
            std::string::npos);
  error_of(patched(R"({"layers": [{"index": 2, "ffn": {}}]})"));
  error_of(patched(R"({"layers": [{"index": {"from": 0, "step": 0}}]})"));
  error_of(patched(R"({"layers": [{"ffn": {}}]})"));
  error_of(patched(R"({"precision": [{"match": "*", "weights": "int5"}]})"));
  error_of(patched(R"({"precision": [{"weights": "int8"}]})"));
  Json rules = {{"precision", {{{"match", std::string(257, '*')}, {"weights", "int8"}}}}};
  error_of(patched(rules.dump().c_str()));
  rules["precision"][0]["match"] = "*";
  rules["precision"] = std::vector<Json>(1025, rules["precision"][0]);
  error_of(patched(rules.dump().c_str()));
  error_of(patched(R"({"tokenizer": "../tokenizer.json"})"));
  layer(R"({"attention": {"head_dim": null, "n_heads": 5}})");
  layer(R"({"attention": {"rope": {"scaling": {"kind": "yarn", "factor": 2}}}})");
  layer(R"({"attention": {"rope": {"scaling": {"kind": "longrope", "original_context": 4,
            "short_factor": [1], "long_factor": [1]}}}})");
}

TEST_F(ResearchTest, RefusesImpossibleExperts) {
  const auto moe = [&](const char* json) {
    return error_of(patched(
        (std::string(R"({"layers": [{"index": 1, "ffn": {"kind": "moe", "moe": )") + json + "}}]}")
            .c_str()));
  };
  moe(R"({"n_experts": 0, "router": {"kind": "softmax", "k": 1}})");
  moe(R"({"n_experts": 4, "router": {"kind": "softmax", "k": 0}})");
  moe(R"({"n_experts": 4, "router": {"kind": "softmax", "k": 5}})");
  moe(R"({"n_experts": 4, "router": {"kind": "threshold", "t": 1.5}})");
  moe(R"({"n_experts": 4, "router": {"kind": "threshold", "k": 2, "t": 0.5}})");
  moe(R"({"n_experts": 4, "router": {"kind": "switch"}})");
  moe(R"({"n_experts": 4, "router": {"kind": "cosine", "d_e": 4, "tau": 0}})");
  moe(R"({"n_experts": 4, "n_subheads": 5, "router": {"kind": "softmax", "k": 1}})");
  moe(R"({"n_experts": 4})");
}

TEST_F(ResearchTest, RefusesMoreExpertsThanMemoryHolds) {
  const Imported in = read(patched(R"({"layers": [{"index": 1, "ffn": {"kind": "moe", "moe":
      {"n_experts": 65536, "n_sublayers": 5, "router": {"kind": "hash"}}}}]})"));
  EXPECT_EQ(guarded([&] { list_slots(in.config, in.cosine_widths); }).code(), MOE_ERR_RANGE);
}

TEST(Matches, StarStandsForAnything) {
  EXPECT_TRUE(matches("*", ""));
  EXPECT_TRUE(matches("layers.*.experts.*", "layers.0.moe.experts.3.up"));
  EXPECT_TRUE(matches("*a*b", "xaabab"));
  EXPECT_TRUE(matches("head", "head"));
  EXPECT_FALSE(matches("head", "heads"));
  EXPECT_FALSE(matches("*.up", "layers.0.ffn.down"));
  EXPECT_FALSE(matches("", "x"));
  const std::string long_text(100'000, 'a');
  EXPECT_FALSE(matches("*a*a*a*a*a*a*b", long_text));  // in linear time per star
}

}  // namespace
}  // namespace moe
