// SPDX-License-Identifier: MIT
// XMoE's checkpoints: the configurations that are accepted, and splitting a matrix that holds q, k
// and v.

#include <gtest/gtest.h>

#include <cmath>

#include "formats/import/failure.h"
#include "src/convert/weights/row_reader.h"
#include "tests/convert/tiny_checkpoint.h"

namespace moe {
namespace {

const char* const kMegatron = R"({
  "model_type": "xmoe_megatron", "padded_vocab_size": 40, "hidden_size": 24, "num_layers": 2,
  "num_attention_heads": 4, "ffn_hidden_size": 20, "moe_ffn_hidden_size": 8, "num_experts": [6],
  "max_position_embeddings": 64, "threshold": 0.5, "use_threshold": true, "topk": 2,
  "expert_interval": 2, "lr": 1e-4})";

const char* const kFairseq = R"({
  "model_type": "xmoe_fairseq", "decoder_embed_dim": 24, "decoder_attention_heads": 4,
  "decoder_ffn_embed_dim": 20, "decoder_layers": 2, "num_experts": 6, "expert_interval": 2,
  "ffn_split_ratio": 4, "threshold": 0.5, "max_target_positions": 64})";

class XmoeTest : public testing::Test {
 protected:
  XmoeTest() { tensors_["decoder.embed_tokens.weight"] = test::f32_tensor({40, 24}, Floats(960)); }
  using Floats = std::vector<float>;

  Imported read(const char* base, const char* patch = "{}") {
    test::write_checkpoint(folder_, test::patched(patch, base), tensors_);
    checkpoint_ = std::make_unique<Checkpoint>(folder_.path());
    return import_checkpoint(*checkpoint_);
  }
  std::string error(const char* base, const char* patch, moe_status code) {
    const Status status = guarded([&] { read(base, patch); });
    EXPECT_EQ(status.code(), code) << patch << ": " << status.text();
    return status.text();
  }
  test::TempFolder folder_;
  test::RawTensors tensors_;
  std::unique_ptr<Checkpoint> checkpoint_;
};

TEST_F(XmoeTest, ReadsMegatronsArguments) {
  const Imported in = read(kMegatron);
  const ModelConfig& c = in.config;
  EXPECT_EQ(c.norm, NormKind::kLayer);
  EXPECT_TRUE(c.tie_embeddings);
  EXPECT_EQ(c.positions, PositionKind::kLearned);
  EXPECT_EQ(c.layers[0].ffn.kind, FfnKind::kDense);
  EXPECT_EQ(c.layers[0].ffn.d_ff, 20);
  EXPECT_EQ(c.layers[1].ffn.kind, FfnKind::kMoe);
  EXPECT_EQ(c.layers[1].ffn.d_ff, 8);
  EXPECT_EQ(c.layers[1].ffn.act.kind, Activation::kGeluTanh);
  EXPECT_EQ(c.layers[1].ffn.moe.router.kind, RouterKind::kThreshold);
  EXPECT_EQ(c.layers[1].ffn.moe.router.threshold, 0.5f);
  EXPECT_EQ(read(kMegatron, R"({"bias_gelu_fusion": false})").config.layers[0].ffn.act.kind,
            Activation::kGelu);
  EXPECT_EQ(read(kMegatron, R"({"num_experts": 1})").config.layers[1].ffn.kind, FfnKind::kDense);
}

TEST_F(XmoeTest, RefusesUnsupportedMegatronArguments) {
  EXPECT_EQ(error(kMegatron, R"({"use_topk": true})", MOE_ERR_FORMAT),
            "config.json: expected one of use_base_layer, use_topk, use_threshold and "
            "use_hash_layer to be true, found 2");
  EXPECT_EQ(error(kMegatron, R"({"gate_view_num": 2})", MOE_ERR_UNSUPPORTED),
            "config.json: gate_view_num: 2 is not supported; only 1 is");
  error(kMegatron, R"({"swiglu": true})", MOE_ERR_UNSUPPORTED);
  error(kMegatron, R"({"kv_channels": 8})", MOE_ERR_UNSUPPORTED);
  error(kMegatron, R"({"num_experts": [4, 8]})", MOE_ERR_UNSUPPORTED);
  error(kMegatron, R"({"num_experts": []})", MOE_ERR_FORMAT);
  error(kMegatron, R"({"num_attention_heads": 5})", MOE_ERR_SHAPE);
  error(kMegatron, R"({"threshold": 1.5})", MOE_ERR_RANGE);
  error(kMegatron, R"({"use_rotary_position_embeddings": true})", MOE_ERR_UNSUPPORTED);
}

TEST_F(XmoeTest, CutsQueryKeyValueHeadByHead) {
  Floats values(72 * 24);
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<float>(i / 24);  // the number of the row
  const std::string name = "language_model.encoder.layers.0.self_attention.query_key_value.weight";
  tensors_[name] = test::f32_tensor({72, 24}, values);
  const Imported in = read(kMegatron);
  Slot slot;
  slot.rows = slot.cols = 24;
  const SlotGroup group{Part::kAttention, 0, -1, {}};
  const Role roles[] = {Role::kQ, Role::kK, Role::kV};
  const char* const names[] = {"q", "k", "v"};
  for (int i = 0; i < 3; ++i) {
    slot.role = roles[i];
    slot.name = std::string("layers.0.attention.") + names[i] + ".weight";
    const Source source = in.locate(group, slot);
    const SourceTensor& tensor = *checkpoint_->find(name);
    check_source(tensor, source, 24, 24);
    RowReader reader(*checkpoint_, tensor, source, 24, 24);
    for (int r = 0; r < 24; ++r) {
      EXPECT_EQ(reader.row(r)[23], static_cast<float>(r / 6 * 18 + i * 6 + r % 6));
    }
  }
}

TEST_F(XmoeTest, GroupsMustLieInTheTensor) {
  tensors_["t"] = test::f32_tensor({4, 6}, Floats(24, 1.0f));
  read(kFairseq);
  const SourceTensor& tensor = *checkpoint_->find("t");
  Source source;
  source.shape = {4, 6};
  source.row_stride = 6;
  const auto fits = [&](SourceGroups rows, SourceGroups cols, int32_t n_rows, int32_t n_cols) {
    source.row_groups = std::move(rows);
    source.col_groups = std::move(cols);
    return guarded([&] { check_source(tensor, source, n_rows, n_cols); }).ok();
  };
  EXPECT_TRUE(fits({{{2, 0}, {1, -1}}, 12}, {}, 6, 6));
  EXPECT_TRUE(fits({}, {{{2, 1}, {2, -1}}, 3}, 4, 8));
  EXPECT_FALSE(fits({{{2, 0}, {1, -1}}, 12}, {}, 7, 6));  // not whole groups
  EXPECT_FALSE(fits({{{2, 0}, {1, -1}}, 18}, {}, 6, 6));  // the second group leaves the tensor
  EXPECT_FALSE(fits({{{2, 18}}, 0}, {}, 2, 6));           // a piece leaves the tensor
  EXPECT_FALSE(fits({{{2, -2}}, 12}, {}, 4, 6));
  EXPECT_FALSE(fits({{{0, 0}}, 12}, {}, 4, 6));
  EXPECT_FALSE(fits({}, {{{2, 2}, {2, -1}}, 3}, 4, 8));  // a piece leaves its row
  EXPECT_FALSE(fits({}, {{{4, 0}}, int64_t{1} << 62}, 4, 8));
}

TEST_F(XmoeTest, ReadsFairseqsDecoders) {
  const Imported in = read(kFairseq);
  EXPECT_EQ(in.config.vocab_size, 40);
  EXPECT_FLOAT_EQ(in.config.embedding_multiplier, std::sqrt(24.0f));
  EXPECT_EQ(in.config.layers[1].ffn.d_ff, 5);
  EXPECT_EQ(in.config.layers[1].ffn.act.kind, Activation::kRelu);
  ASSERT_EQ(in.derived.size(), 1u);
  EXPECT_EQ(in.derived[0].shape, (std::vector<int64_t>{64, 24}));
  EXPECT_FLOAT_EQ(in.derived[0].values[0], std::sin(2.0f));
  EXPECT_FLOAT_EQ(in.derived[0].values[24 + 12], std::cos(3.0f));
  checkpoint_->put_tensor("a", {1}, {1});
  EXPECT_THROW(checkpoint_->put_tensor("a", {1}, {1}), Failure);
}

TEST_F(XmoeTest, NormsOfADecoderMayStandBehindTheSums) {
  const ModelConfig behind = read(kFairseq, R"({"decoder_normalize_before": false})").config;
  EXPECT_TRUE(behind.layers[1].ffn.norms.post);
  EXPECT_FALSE(behind.layers[1].attention.norms.pre);
  EXPECT_FALSE(behind.final_norm);
  EXPECT_TRUE(read(kFairseq).config.final_norm);
}

TEST_F(XmoeTest, RefusesUnsupportedFairseqArguments) {
  error(kFairseq, R"({"scale_heads": true})", MOE_ERR_UNSUPPORTED);
  error(kFairseq, R"({"moe_type": "hash"})", MOE_ERR_FORMAT);
  error(kFairseq, R"({"max_target_positions": 16777216})", MOE_ERR_FORMAT);
  EXPECT_EQ(error(kFairseq, R"({"decoder_learned_pos": true})", MOE_ERR_NOT_FOUND),
            "tensor decoder.embed_positions.weight is missing");
  tensors_.clear();
  error(kFairseq, "{}", MOE_ERR_NOT_FOUND);
}

// 3000 rows, which are compared in several parts.
TEST_F(XmoeTest, SharedTablesMustHoldTheSame) {
  const char* const both = R"({"encoder_embed_dim": 24, "encoder_attention_heads": 4,
    "encoder_ffn_embed_dim": 20, "encoder_layers": 2, "share_all_embeddings": true})";
  const char* const tied = R"({"share_decoder_input_output_embed": true})";
  const char* const source = "encoder.embed_tokens.weight";
  const char* const head = "decoder.output_projection.weight";
  Floats values(3000 * 24);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 7);
  Floats other = values;
  other.back() = 8;
  const test::RawTensor same = test::f32_tensor({3000, 24}, values);
  const test::RawTensor differs = test::f32_tensor({3000, 24}, other);
  const test::RawTensor fewer = test::f32_tensor({2999, 24}, Floats(2999 * 24));

  tensors_ = {{"decoder.embed_tokens.weight", same}, {head, same}};
  EXPECT_TRUE(read(kFairseq, tied).config.tie_embeddings);
  tensors_[source] = same;
  EXPECT_TRUE(read(kFairseq, both).config.tie_embeddings);
  tensors_[head] = differs;
  EXPECT_EQ(error(kFairseq, both, MOE_ERR_UNSUPPORTED),
            "tensor decoder.output_projection.weight: row 2999 is not that of "
            "decoder.embed_tokens.weight, though config.json says that they are one");
  tensors_[head] = same;
  tensors_[source] = differs;
  EXPECT_EQ(error(kFairseq, both, MOE_ERR_UNSUPPORTED),
            "tensor encoder.embed_tokens.weight: row 2999 is not that of "
            "decoder.embed_tokens.weight, though config.json says that they are one");
  tensors_[source] = fewer;
  EXPECT_EQ(error(kFairseq, both, MOE_ERR_SHAPE),
            "tensor encoder.embed_tokens.weight: expected (3000, 24), as of "
            "decoder.embed_tokens.weight, file has (2999, 24)");
  tensors_.erase(source);
  tensors_[head] = differs;
  error(kFairseq, tied, MOE_ERR_UNSUPPORTED);
  EXPECT_FALSE(read(kFairseq).config.tie_embeddings);
}

TEST_F(XmoeTest, TheEmbeddingsWidthIsCheckedBeforePositionsAreMade) {
  EXPECT_EQ(error(kFairseq, R"({"decoder_embed_dim": 1048576, "max_target_positions": 1048576})",
                  MOE_ERR_SHAPE),
            "tensor decoder.embed_tokens.weight: expected (n, 1048576), file has (40, 24)");
}

}  // namespace
}  // namespace moe
