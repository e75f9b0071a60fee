// SPDX-License-Identifier: MIT
// Well-formed files whose content is not a valid model.

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <limits>

#include "tests/support/memory_device.h"
#include "tests/support/raw_file.h"
#include "tests/support/tiny_model.h"

namespace moe {
namespace {

Result<Box<Model>> open_model_bytes(const std::vector<uint8_t>& bytes, Device& device) {
  MOE_ASSIGN(Box<MoeFile> file, open_bytes(bytes));
  return Model::open(std::move(file), {}, device, Logger(), system_allocator());
}

// The status of opening the model, preparing it and acquiring every expert.
Status use(const std::vector<uint8_t>& bytes) {
  MemoryDevice device(system_allocator());
  auto opened = open_model_bytes(bytes, device);
  if (!opened.ok()) return opened.status();
  Model& model = **opened;
  MOE_TRY(model.prepare());
  for (int32_t l = 0; l < model.config().n_layers(); ++l) {
    for (int32_t e = 0; e < model.config().layers[static_cast<size_t>(l)].ffn.moe.n_experts; ++e) {
      Expert expert;
      MOE_TRY(model.layer(l).experts->acquire(e, {}, &expert));
    }
  }
  return {};
}

class BadModel : public ::testing::Test {
 protected:
  BadModel() : config_(tiny_config()) {
    options_.weights = FormatId::kTernary2;
    rebuild();
  }
  void rebuild() {
    sink_ = build_tiny_model(config_, options_);
    raw_ = take_apart(*sink_, config_);
  }
  void expect(moe_status code, const char* text) const {
    const Status status = use(put_together(raw_));
    EXPECT_EQ(status.code(), code) << status.text();
    EXPECT_NE(std::strstr(status.text(), text), nullptr) << status.text();
  }
  // The same file with another configuration.
  void expect_config(moe_status code, const char* text,
                     const std::function<void(ModelConfig*)>& change) {
    ModelConfig changed = tiny_config();
    change(&changed);
    raw_.config = &changed;
    expect(code, text);
    raw_.config = &config_;
  }

  ModelConfig config_;
  TinyOptions options_;
  std::unique_ptr<MemorySink> sink_;
  RawFile raw_;
};
using BadTensors = BadModel;
using BadConfig = BadModel;
using BadValues = BadModel;

TEST_F(BadTensors, TheGoodFileIsUsable) {
  const Status status = use(put_together(raw_));
  EXPECT_TRUE(status.ok()) << status.text();
}

TEST_F(BadTensors, ShapesAgainstTheConfiguration) {
  expect_config(MOE_ERR_SHAPE,
                "tensor layers.1.experts.0.gate: expected (25, 32), file has (24, 32)",
                [](ModelConfig* c) { c->layers[1].ffn.d_ff = 25; });
  expect_config(MOE_ERR_SHAPE, "tensor embedding.weight: expected (63, 32), file has (64, 32)",
                [](ModelConfig* c) { c->vocab_size = 63; });
  expect_config(MOE_ERR_SHAPE, "tensor layers.0.attention.k: expected (32, 32), file has (16, 32)",
                [](ModelConfig* c) { c->layers[0].attention.n_kv_heads = 4; });
  expect_config(MOE_ERR_SHAPE, "tensor layers.0.ffn.gate: expected (49, 32), file has (48, 32)",
                [](ModelConfig* c) { c->layers[0].ffn.d_ff = 49; });
}

TEST_F(BadTensors, MissingTensors) {
  expect_config(MOE_ERR_NOT_FOUND, "tensor head.weight",
                [](ModelConfig* c) { c->tie_embeddings = false; });
  expect_config(MOE_ERR_NOT_FOUND, "tensor embedding_norm.weight",
                [](ModelConfig* c) { c->embedding_norm = true; });
  expect_config(MOE_ERR_NOT_FOUND, "tensor layers.0.attention.sinks",
                [](ModelConfig* c) { c->layers[0].attention.sinks = true; });
  expect_config(MOE_ERR_SHAPE, "tensor layers.0.attention.k: expected",
                [](ModelConfig* c) { c->layers[0].attention.latent = 8; });
  expect_config(MOE_ERR_NOT_FOUND, "tensor layers.0.attention.out_norm",
                [](ModelConfig* c) { c->layers[0].attention.norms.out = true; });
  expect_config(MOE_ERR_NOT_FOUND, "tensor layers.1.ffn.post_norm",
                [](ModelConfig* c) { c->layers[1].ffn.norms.post = true; });
  expect_config(MOE_ERR_NOT_FOUND, "tensor layers.2.attention.norm", [](ModelConfig* c) {
    const LayerConfig layer = c->layers[0];
    ASSERT_TRUE(c->layers.push(layer).ok());
  });
}

// Other devices than the CPU do not compute these, and older readers would not miss all of them.
TEST_F(BadTensors, OfLayersWithExtras) {
  MemoryDevice other(system_allocator());
  other.extras = false;
  const auto refused = [&](const char* extra) {
    rebuild();
    EXPECT_TRUE(use(put_together(raw_)).ok());
    EXPECT_EQ(std::string(open_model_bytes(put_together(raw_), other).status().text()),
              std::string("layer 1 ") + extra +
                  ", which runs only on the CPU (--device cpu): the device is memory");
  };
  LayerConfig& layer = config_.layers[1];
  layer.multiplier = 0.5f;
  refused("multiplies its result");
  EXPECT_EQ(raw_.front[10], 6);
  layer.multiplier = 1;
  layer.attention.kv_layer = 0;
  refused("sees the keys of another layer");
  layer.attention.kv_layer = -1;
  layer.attention.v_norm = true;
  refused("has a norm for its values");
  EXPECT_EQ(raw_.front[10], 6);
  layer.attention.v_norm = false;
  layer.attention.in_norms = true;
  refused("has norms for the inputs of single matrices");
  layer.attention.in_norms = false;
  layer.ffn.moe.router_norm = true;
  refused("has a norm for its router");
  layer.ffn.moe.router_norm = false;
  layer.ffn.moe.expert_scale = true;
  refused("multiplies the outputs of its experts");
  raw_.matrix("expert_scale", "router", 1).role = "sinks";
  expect(MOE_ERR_FORMAT, "tensor layers.1.router.sinks: the model has no such tensor");
}

TEST_F(BadTensors, OfLayerInputs) {
  config_.layer_input = {.width = 6};
  rebuild();
  EXPECT_TRUE(use(put_together(raw_)).ok());
  MemoryDevice other(system_allocator());
  other.extras = false;
  EXPECT_STREQ(open_model_bytes(put_together(raw_), other).status().text(),
               "the model has embeddings for each layer, which are used only on the CPU (--device "
               "cpu): the device is memory");
  raw_.matrix("out_norm", "layer_input", 1).role = "post_norm";
  expect(MOE_ERR_FORMAT, "tensor layers.0.layer_input.post_norm: the model has no such tensor");
  config_.layer_input.width = 7;
  expect(MOE_ERR_SHAPE, "tensor layer_inputs.weight: expected (64, 14), file has (64, 12)");
}

TEST_F(BadTensors, OfRotatedInputs) {
  static constexpr uint8_t kBits[4] = {1, 2, 3, 4};
  MemoryDevice other(system_allocator());
  other.extras = false;
  config_.rotation.block = 16;
  ASSERT_TRUE(config_.rotation.signs.push({32, kBits}).ok());
  options_.rotated = true;
  rebuild();
  EXPECT_EQ(raw_.front[10], 7);
  EXPECT_TRUE(use(put_together(raw_)).ok());
  EXPECT_EQ(std::string(open_model_bytes(put_together(raw_), other).status().text()),
            "the model's matrices read rotated inputs, which are computed only on the CPU "
            "(--device cpu): the device is memory");
  raw_.matrix("down", "ffn", 0).rotated = true;  // 48 inputs
  expect(MOE_ERR_FORMAT,
         "tensor layers.0.ffn.down: the file does not say how 48 inputs are rotated");
  rebuild();
  raw_.matrix("up", "experts", 1, 0).rotated = true;
  expect(MOE_ERR_UNSUPPORTED,
         "tensor layers.1.experts.0.up: rotated inputs are not supported here");
  rebuild();
  raw_.matrix("k", "attention", 1).rotated = false;
  expect(MOE_ERR_UNSUPPORTED,
         "tensor layers.0.attention.k: it reads the input of another matrix, but only one of them "
         "is rotated");
}

TEST_F(BadTensors, OfAMixer) {
  LayerConfig& layer = config_.layers[0];
  layer.has_attention = false;
  layer.attention = {};
  layer.has_mixer = true;
  layer.mixer.mixer.kind = MixerKind::kShortConv;
  layer.mixer.mixer.params[0] = 3;
  rebuild();
  EXPECT_TRUE(use(put_together(raw_)).ok());
  MemoryDevice other(system_allocator());
  other.mixes = false;
  EXPECT_STREQ(open_model_bytes(put_together(raw_), other).status().text(),
               "layer 0 is a short_conv, which runs only on the CPU (--device cpu): the device is "
               "memory");
  layer.mixer.mixer.params[0] = 4;
  expect(MOE_ERR_SHAPE, "tensor layers.0.mixer.short_conv.conv.weight: expected (128, 1)");
  layer.mixer.mixer.params[0] = 3;
  raw_.matrix("short_conv.out.weight", "mixer", 0).role = "q";
  expect(MOE_ERR_FORMAT, "tensor layers.0.mixer.q: the model has no such tensor");
  raw_.matrix("q", "mixer", 0).role = "short_conv.gate.weight";
  expect(MOE_ERR_UNSUPPORTED, "unknown tensor role 'short_conv.gate.weight'");
}

TEST_F(BadTensors, ExtraTensors) {
  expect_config(MOE_ERR_FORMAT, "tensor layers.0.ffn.gate: the model has no such tensor",
                [](ModelConfig* c) { c->layers[0].ffn.gated = false; });
  expect_config(MOE_ERR_SHAPE, "tensor layers.1.router.scores: expected (7, 32), file has (8, 32)",
                [](ModelConfig* c) { c->layers[1].ffn.moe.n_experts = 7; });
  expect_config(MOE_ERR_FORMAT, "segment layers.1.attention: the model has no such part",
                [](ModelConfig* c) { c->layers.pop(); });
  expect_config(MOE_ERR_FORMAT, "tensor layers.0.attention.norm: the model has no such tensor",
                [](ModelConfig* c) { c->layers[0].attention.norms.pre = false; });
  expect_config(MOE_ERR_FORMAT, "segment layers.1.ffn: the model has no such part",
                [](ModelConfig* c) { c->layers[1].ffn.norms.pre = false; });
  expect_config(MOE_ERR_FORMAT, "segment final_norm: the model has no such part",
                [](ModelConfig* c) { c->final_norm = false; });
  expect_config(MOE_ERR_FORMAT, "segment layers.0.attention: the model has no such part",
                [](ModelConfig* c) {
                  c->layers[0].has_attention = false;
                  c->layers[0].attention = {};
                });
}

TEST_F(BadTensors, AGapInTheExperts) {
  raw_.segment("experts", 1, 5).expert = 8;
  expect(MOE_ERR_NOT_FOUND, "tensor layers.1.experts.5.gate: the file does not have it");
}

TEST_F(BadTensors, DuplicateTensors) {
  raw_.matrix("k", "attention", 0).role = "v";
  expect(MOE_ERR_FORMAT, "tensor layers.0.attention.v: the file has it twice");
}

TEST_F(BadTensors, UnsuitableFormats) {
  raw_.matrix("scores", "router", 1).activations = "a8";
  expect(MOE_ERR_UNSUPPORTED, "needs f32 activations");
  raw_.matrix("scores", "router", 1).activations = "";
  raw_.matrix("k", "attention", 0).activations = "a8_group";
  expect(MOE_ERR_UNSUPPORTED, "weight format ternary2 needs f32, a8 or a8_block activations");
  raw_.matrix("k", "attention", 0).activations = "a8_block";
  raw_.matrix("norm", "attention", 0).format = "i32";
  expect(MOE_ERR_UNSUPPORTED,
         "tensor layers.0.attention.norm: expected weight format f32, file has i32");
  raw_.matrix("norm", "attention", 0).format = "f32";
  raw_.matrix("scores", "router", 1).format = "i32";
  expect(MOE_ERR_UNSUPPORTED,
         "tensor layers.1.router.scores: expected weight format of a matrix, file has i32");
}

TEST_F(BadTensors, ACosineRouterThatIsTooWide) {
  config_.layers[1].ffn.moe.router.kind = RouterKind::kCosine;
  options_.d_e = 65536;
  rebuild();
  EXPECT_TRUE(use(put_together(raw_)).ok());
  options_.d_e = 65537;
  rebuild();
  expect(MOE_ERR_RANGE, "tensor layers.1.router.proj: expected a width of at most 65536");
}

TEST_F(BadTensors, RoutersThatQuantiseTheirInput) {
  options_.routers = FormatId::kInt8;
  rebuild();
  expect(MOE_ERR_UNSUPPORTED,
         "tensor layers.1.router.scores: expected f32 activations, file has a8");
}

TEST_F(BadConfig, MoeNumbers) {
  const auto moe = [](auto change) {
    return [change](ModelConfig* c) { change(&c->layers[1].ffn.moe); };
  };
  expect_config(MOE_ERR_RANGE, "layer 1: moe.n_experts",
                moe([](MoeConfig* m) { m->n_experts = 0; }));
  expect_config(MOE_ERR_RANGE, "layer 1: moe.n_experts",
                moe([](MoeConfig* m) { m->n_experts = -1; }));
  const auto groups = [&](int32_t n, int32_t top, int32_t k) {
    return moe([=](MoeConfig* m) {
      m->router.n_groups = n;
      m->router.top_groups = top;
      m->router.k = k;
    });
  };
  expect_config(MOE_ERR_RANGE, "n_groups: expected 1..8, found 0", groups(0, 1, 1));
  expect_config(MOE_ERR_RANGE, "n_groups: expected 1..8, found 16", groups(16, 1, 1));
  expect_config(MOE_ERR_SHAPE, "n_groups: 3 does not divide n_experts 8", groups(3, 1, 1));
  expect_config(MOE_ERR_RANGE, "top_groups: expected 1..4, found 5", groups(4, 5, 1));
  expect_config(MOE_ERR_RANGE, "k: expected 1..4, found 5", groups(4, 2, 5));
  expect_config(MOE_ERR_RANGE, "k: expected 1..8, found 0",
                moe([](MoeConfig* m) { m->router.k = 0; }));
  expect_config(MOE_ERR_RANGE, "k: expected 1..8, found 9",
                moe([](MoeConfig* m) { m->router.k = 9; }));
  expect_config(MOE_ERR_SHAPE, "n_subheads", moe([](MoeConfig* m) {
                  m->n_subheads = 3;
                  m->head = m->merge = true;
                }));
  expect_config(MOE_ERR_RANGE, "n_sublayers", moe([](MoeConfig* m) { m->n_sublayers = 1000000; }));
  for (const float t : {-0.25f, 1.25f, std::nanf(""), std::numeric_limits<float>::infinity()}) {
    expect_config(MOE_ERR_RANGE, "threshold", moe([t](MoeConfig* m) {
                    m->router.kind = RouterKind::kThreshold;
                    m->router.threshold = t;
                  }));
  }
  for (const float tau : {0.0f, -0.3f, std::nanf(""), std::numeric_limits<float>::infinity()}) {
    expect_config(MOE_ERR_RANGE, "tau", moe([tau](MoeConfig* m) {
                    m->router.kind = RouterKind::kCosine;
                    m->router.tau = tau;
                  }));
  }
}

TEST_F(BadConfig, OtherNumbers) {
  expect_config(MOE_ERR_RANGE, "vocab_size", [](ModelConfig* c) { c->vocab_size = 0; });
  expect_config(MOE_ERR_RANGE, "d_model", [](ModelConfig* c) { c->d_model = 0; });
  expect_config(MOE_ERR_RANGE, "d_model",
                [](ModelConfig* c) { c->d_model = std::numeric_limits<int32_t>::min(); });
  expect_config(MOE_ERR_RANGE, "context_length", [](ModelConfig* c) { c->context_length = 0; });
  expect_config(MOE_ERR_RANGE, "context_length",
                [](ModelConfig* c) { c->context_length = 1 << 30; });
  expect_config(MOE_ERR_RANGE, "n_layers", [](ModelConfig* c) { c->layers.clear(); });
  expect_config(MOE_ERR_RANGE, "d_ff", [](ModelConfig* c) { c->layers[0].ffn.d_ff = 0; });
  expect_config(MOE_ERR_RANGE, "head_dim",
                [](ModelConfig* c) { c->layers[0].attention.head_dim = 0; });
  expect_config(MOE_ERR_SHAPE, "n_kv_heads",
                [](ModelConfig* c) { c->layers[0].attention.n_kv_heads = 3; });
  for (const float bad : {0.0f, -1.0f, std::nanf(""), std::numeric_limits<float>::infinity()}) {
    expect_config(MOE_ERR_RANGE, "norm.eps", [bad](ModelConfig* c) { c->norm_eps = bad; });
    expect_config(MOE_ERR_RANGE, "theta",
                  [bad](ModelConfig* c) { c->layers[0].attention.rope.theta = bad; });
  }
  expect_config(MOE_ERR_RANGE, "attention.q_latent: expected 0..0, found 8",
                [](ModelConfig* c) { c->layers[0].attention.q_latent = 8; });
  expect_config(MOE_ERR_RANGE, "attention.rope.dims: expected 1..", [](ModelConfig* c) {
    c->layers[0].attention.latent = 8;
    c->layers[0].attention.rope.kind = RopeKind::kNone;
    c->layers[0].attention.rope.dims = 4096;
  });
  expect_config(MOE_ERR_ARGUMENT,
                "attention.latent is set, but rope.dims, what all keys share, is not",
                [](ModelConfig* c) {
                  c->layers[0].attention.latent = 8;
                  c->layers[0].attention.rope = {};
                });
  expect_config(MOE_ERR_ARGUMENT, "attention.latent_eps is set, but there is no latent",
                [](ModelConfig* c) { c->layers[0].attention.latent_eps = 1e-6f; });
  for (const float bad : {-1.0f, 2.0f, std::nanf("")}) {
    expect_config(MOE_ERR_RANGE, "attention.latent_eps", [bad](ModelConfig* c) {
      c->layers[0].attention.latent = 8;
      c->layers[0].attention.latent_eps = bad;
    });
  }
  for (const float bad : {-1.0f, 1001.0f, std::nanf("")}) {
    expect_config(MOE_ERR_RANGE, "logit_cap", [bad](ModelConfig* c) { c->logit_cap = bad; });
    expect_config(MOE_ERR_RANGE, "layer 0: attention.score_cap",
                  [bad](ModelConfig* c) { c->layers[0].attention.score_cap = bad; });
  }
  for (const float bad : {-1.0f, INFINITY, std::nanf("")}) {
    expect_config(MOE_ERR_RANGE, "layer 0: attention.qkv_clip",
                  [bad](ModelConfig* c) { c->layers[0].attention.qkv_clip = bad; });
  }
  expect_config(MOE_ERR_RANGE, "layer 1: multiplier: expected a finite number, found nan",
                [](ModelConfig* c) { c->layers[1].multiplier = std::nanf(""); });
  expect_config(MOE_ERR_RANGE, "layer_input.width: expected 0..524288, found -1",
                [](ModelConfig* c) { c->layer_input.width = -1; });
  expect_config(MOE_ERR_RANGE, "layer_input.projection_eps: expected at most 1, found 2",
                [](ModelConfig* c) { c->layer_input = {.width = 4, .projection_eps = 2}; });
  expect_config(MOE_ERR_RANGE, "layer_input.multiplier: expected a finite number, found inf",
                [](ModelConfig* c) { c->layer_input = {.width = 4, .multiplier = INFINITY}; });
  expect_config(MOE_ERR_RANGE, "layer 1: attention.kv_layer: expected -1..0, found 7",
                [](ModelConfig* c) { c->layers[1].attention.kv_layer = 7; });
  expect_config(MOE_ERR_ARGUMENT, "layer 0: there is neither attention nor ffn",
                [](ModelConfig* c) {
                  c->layers[0] = {};
                  c->layers[0].has_attention = c->layers[0].has_ffn = false;
                });
  expect_config(MOE_ERR_RANGE, "bos_token_id", [](ModelConfig* c) { c->bos_token_id = 64; });
  expect_config(MOE_ERR_RANGE, "eos_token_id:", [](ModelConfig* c) { c->eos_token_ids[0] = -2; });
}

TEST_F(BadConfig, UnknownNames) {
  const std::vector<uint8_t> good = put_together(raw_);
  const auto with = [&](const char* from, const char* to) {
    auto bytes = good;
    const std::string name(from, std::strlen(from) + 1);
    const auto at = std::search(bytes.begin() + static_cast<std::ptrdiff_t>(raw_.front.size()),
                                bytes.end(), name.begin(), name.end());
    EXPECT_NE(at, bytes.end()) << from;
    std::copy(to, to + std::strlen(to), at);
    seal(&bytes, raw_.front.size());
    return use(bytes);
  };
  EXPECT_STREQ(with("softmax", "softmix").text(), "layer 1: unknown router 'softmix'");
  EXPECT_STREQ(with("silu", "sila").text(), "layer 0: unknown activation 'sila'");
  EXPECT_STREQ(with("rms", "rmx").text(), "unknown norm 'rmx'");
  EXPECT_STREQ(with("half", "hulf").text(), "layer 0: unknown rope kind 'hulf'");
  EXPECT_STREQ(with("raw", "row").text(), "layer 1: unknown router weights 'row'");
  EXPECT_EQ(with("silu", "sila").code(), MOE_ERR_UNSUPPORTED);
}

TEST_F(BadValues, Scales) {
  const std::vector<uint8_t> good = raw_.front;
  for (const float bad :
       {0.0f, -1.0f, -0.0f, std::nanf(""), std::numeric_limits<float>::infinity()}) {
    raw_.front = good;
    RawSegment& s = raw_.segment("experts", 1, 4);
    std::memcpy(raw_.bytes(s) + raw_.matrix("down", "experts", 1, 4).scales_offset, &bad,
                sizeof bad);
    raw_.sign(&s);
    expect(MOE_ERR_RANGE,
           "tensor layers.1.experts.4.down: scale 0: expected a finite number above 0");
  }
}

TEST_F(BadValues, CodesThatNoPackerWrites) {
  const struct {
    FormatId format;
    uint8_t byte;
  } cases[] = {{FormatId::kTernary2, 0xC0},
               {FormatId::kTernary3, 243},
               {FormatId::kTernary3, 255},
               {FormatId::kInt8, 0x80}};
  for (const auto& c : cases) {
    options_.weights = c.format;
    rebuild();
    RawSegment& s = raw_.segment("attention", 1);
    raw_.bytes(s)[raw_.matrix("v", "attention", 1).offset + 5] = c.byte;
    raw_.sign(&s);
    expect(MOE_ERR_RANGE, "tensor layers.1.attention.v: ");
  }
}

TEST_F(BadValues, NotANumber) {
  RawSegment& s = raw_.segment("final_norm");
  const uint32_t nan = 0x7FC00000;
  std::memcpy(raw_.bytes(s), &nan, sizeof nan);
  raw_.sign(&s);
  expect(MOE_ERR_NON_FINITE, "tensor final_norm.weight: ");
}

TEST_F(BadValues, ATableThatPointsNowhere) {
  MoeConfig moe;
  moe.n_experts = 4;
  moe.router.kind = RouterKind::kHash;
  config_ = tiny_config(moe);
  rebuild();
  for (const int32_t bad : {-1, 4, std::numeric_limits<int32_t>::max()}) {
    RawSegment& s = raw_.segment("router", 1);
    std::memcpy(raw_.bytes(s) + 4 * 63, &bad, sizeof bad);
    raw_.sign(&s);
    expect(MOE_ERR_RANGE, "tensor layers.1.router.table: token 63: expected an expert in 0..3");
  }
}

TEST_F(BadValues, AChecksumAndAnotherExpert) {
  RawSegment& s = raw_.segment("experts", 1, 2);
  raw_.bytes(s)[7] ^= 1;
  const auto bytes = put_together(raw_);
  MemoryDevice device(system_allocator());
  auto model = open_model_bytes(bytes, device);
  ASSERT_TRUE(model.ok()) << "opening reads metadata only: " << model.status().text();
  ASSERT_TRUE((*model)->prepare().ok());
  ExpertSource& experts = *(*model)->layer(1).experts;
  Expert expert;
  for (int i = 0; i < 2; ++i) {
    const Status status = experts.acquire(2, {}, &expert);
    EXPECT_EQ(status.code(), MOE_ERR_CORRUPT);
    EXPECT_STREQ(status.text(), "segment layers.1.experts.2: its checksum does not match");
    EXPECT_TRUE(experts.acquire(3, {}, &expert).ok()) << "one bad expert must not spoil the others";
  }
  EXPECT_EQ(experts.acquire(8, {}, &expert).code(), MOE_ERR_RANGE);
  EXPECT_EQ(experts.acquire(-1, {}, &expert).code(), MOE_ERR_RANGE);
  EXPECT_EQ((*model)->verify().code(), MOE_ERR_CORRUPT);
}

}  // namespace
}  // namespace moe
