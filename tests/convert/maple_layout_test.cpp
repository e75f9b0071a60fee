// SPDX-License-Identifier: MIT
// Maple's published layout at 1/32 of its width: 18,651 tensors in 9 shards.
// tests/parity/maple_size.py writes such a checkpoint of any size.

#include <gtest/gtest.h>

#include <random>

#include "formats/import/json.h"
#include "src/convert/convert.h"
#include "tests/convert/checkpoint_builder.h"

namespace moe {
namespace {

constexpr int kLayers = 24, kExperts = 256, kShards = 9;
constexpr int kWidth = 64, kInner = 16, kHeadDim = 4, kVocab = 512;

class Shards {
 public:
  explicit Shards(const test::TempFolder& folder) : folder_(folder) {}

  void add(const std::string& name, int rows, int cols, bool ternary) {
    std::vector<uint16_t> values;
    for (int r = 0; r < rows; ++r) {
      const auto scale = static_cast<uint16_t>(0x3D80u + random_() % 64);  // 1/16 and more
      for (int c = 0; c < cols; ++c) {
        const uint32_t bits = random_();
        // One third are zeros, of either sign.
        const uint32_t magnitude = !ternary ? 0x3C00u + bits % 512 : (bits % 3 == 0 ? 0u : scale);
        values.push_back(static_cast<uint16_t>(magnitude | (bits >> 31) << 15));
      }
    }
    std::vector<int64_t> shape = {rows};
    if (cols > 1) shape.push_back(cols);
    now_[name] = {"BF16", shape, test::as_bytes(values)};
    if (++n_ % (18651 / kShards + 1) == 0) flush();
  }
  void flush() {
    const std::string name = "model-" + std::to_string(++n_shards_) + ".safetensors";
    folder_.write(name, test::safetensors_text(now_));
    for (const auto& [tensor, unused] : now_) map_[tensor] = name;
    now_.clear();
  }
  void finish() {
    flush();
    folder_.write("model.safetensors.index.json", Json({{"weight_map", map_}}).dump());
  }
  int n_tensors() const { return n_; }
  int n_shards() const { return n_shards_; }

 private:
  const test::TempFolder& folder_;
  std::mt19937 random_{5};
  test::RawTensors now_;
  Json map_ = Json::object();
  int n_ = 0, n_shards_ = 0;
};

void write_tensors(Shards* out) {
  out->add("model.word_embeddings.weight", kVocab, kWidth, false);
  for (int l = 0; l < kLayers; ++l) {
    const std::string p = "model.layers." + std::to_string(l) + ".";
    out->add(p + "input_layernorm.weight", kWidth, 1, false);
    out->add(p + "post_attention_layernorm.weight", kWidth, 1, false);
    out->add(p + "self_attn.q_norm.weight", kHeadDim, 1, false);
    out->add(p + "self_attn.k_norm.weight", kHeadDim, 1, false);
    out->add(p + "self_attn.q_proj.weight", 16 * kHeadDim, kWidth, true);
    out->add(p + "self_attn.k_proj.weight", 4 * kHeadDim, kWidth, true);
    out->add(p + "self_attn.v_proj.weight", 4 * kHeadDim, kWidth, true);
    out->add(p + "self_attn.o_proj.weight", kWidth, 16 * kHeadDim, true);
    out->add(p + "mlp.gate.weight", kExperts, kWidth, false);
    for (int e = 0; e < kExperts; ++e) {
      const std::string expert = p + "mlp.experts." + std::to_string(e) + ".";
      out->add(expert + "gate_proj.weight", kInner, kWidth, true);
      out->add(expert + "up_proj.weight", kInner, kWidth, true);
      out->add(expert + "down_proj.weight", kWidth, kInner, true);
    }
  }
  out->add("model.norm.weight", kWidth, 1, false);
  out->add("lm_head.weight", kVocab, kWidth, false);
  out->finish();
}

Json config() {
  Json types = Json::array();
  for (int l = 0; l < kLayers; ++l) {
    types.push_back(l % 4 == 3 ? "full_attention" : "sliding_attention");
  }
  return {{"architectures", {"MapleForCausalLM"}},
          {"hidden_size", kWidth},
          {"head_dim", kHeadDim},
          {"moe_intermediate_size", kInner},
          {"vocab_size", kVocab},
          {"num_hidden_layers", kLayers},
          {"num_attention_heads", 16},
          {"num_key_value_heads", 4},
          {"num_experts", kExperts},
          {"num_experts_per_tok", 8},
          {"hidden_act", "silu"},
          {"max_position_embeddings", 131072},
          {"rms_norm_eps", 1e-6},
          {"rope_theta", 10000},
          {"partial_rotary_factor", 0.5},
          {"sliding_window", 512},
          {"layer_types", types},
          {"norm_topk_prob", true},
          {"tie_word_embeddings", false}};
}

TEST(MapleLayout, IsStoredWithoutLoss) {
  const test::TempFolder source, target;
  Shards shards(source);
  write_tensors(&shards);
  source.write("config.json", config().dump());
  ASSERT_EQ(shards.n_tensors(), 18651);
  ASSERT_EQ(shards.n_shards(), kShards);

  ConvertOptions options;
  options.verify = true;
  int n_ternary = 0;
  options.on_matrix = [&](const MatrixReport& m) {
    if (m.format != FormatId::kTernary2) return;
    ++n_ternary;
    EXPECT_TRUE(m.lossless) << m.name;
    EXPECT_EQ(m.scale, ScaleKind::kRow) << m.name;
    EXPECT_EQ(m.act, ActPrecision::kA8Block) << m.name;
  };
  ConvertReport report;
  const Status status = convert(source.path(), target.file("maple.moe"), options, &report);
  ASSERT_TRUE(status.ok()) << status.text();
  EXPECT_EQ(n_ternary, kLayers * (3 * kExperts + 4));
  EXPECT_EQ(report.n_matrices, static_cast<uint64_t>(n_ternary + kLayers + 2));
  EXPECT_EQ(report.n_lossless,
            static_cast<uint64_t>(n_ternary + kLayers));  // the ternary matrices and the routers
  EXPECT_TRUE(report.verified);
}

}  // namespace
}  // namespace moe
