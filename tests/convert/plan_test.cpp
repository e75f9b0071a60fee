// SPDX-License-Identifier: MIT
#include "src/convert/plan.h"

#include <gtest/gtest.h>

#include "formats/import/failure.h"
#include "src/convert/weights/row_reader.h"
#include "tests/convert/tiny_checkpoint.h"

namespace moe {
namespace {

using test::patched;

class PlanTest : public testing::Test {
 protected:
  Plan plan(std::optional<FormatId> weights = {}, std::vector<PrecisionRule> overrides = {}) {
    test::write_checkpoint(folder_, config_, tensors_);
    checkpoint_ = std::make_unique<Checkpoint>(folder_.path());
    imported_ = import_checkpoint(*checkpoint_);
    PrecisionPolicy policy(imported_.precision, weights, std::move(overrides));
    return make_plan(imported_, *checkpoint_, &policy);
  }
  std::string error(moe_status code) {
    const Status status = guarded([&] { plan(); });
    EXPECT_EQ(status.code(), code) << status.text();
    return status.text();
  }
  static const PlannedMatrix& find(const Plan& plan, const std::string& name) {
    for (const PlannedSegment& segment : plan.segments) {
      for (const PlannedMatrix& m : segment.matrices) {
        if (m.slot.short_name() == name) return m;
      }
    }
    throw std::runtime_error("no " + name);
  }

  test::TempFolder folder_;
  std::string config_ = test::kTinyConfig;
  test::RawTensors tensors_ = test::random_tensors(test::kTinyConfig);
  std::unique_ptr<Checkpoint> checkpoint_;
  Imported imported_;
};

TEST_F(PlanTest, ATiedHeadMayHaveABias) {
  config_ = patched(R"({"tie_embeddings": true})");
  tensors_.erase("head.weight");
  EXPECT_FALSE((plan(), imported_.config.head.tied_bias));
  tensors_["head.bias"] = test::f32_tensor({40}, std::vector<float>(40, 2));
  const Plan p = plan();
  EXPECT_TRUE(imported_.config.head.tied_bias);
  EXPECT_EQ(find(p, "head.tied_bias").tensor->name, "head.bias");
  tensors_["head.bias"] = test::f32_tensor({39}, std::vector<float>(39, 2));
  EXPECT_NE(error(MOE_ERR_SHAPE).find("tensor head.bias: expected (40)"), std::string::npos);
}

TEST_F(PlanTest, FindsEveryTensor) {
  tensors_["layers.0.attention.q.bias"] = test::f32_tensor({24}, std::vector<float>(24));
  const Plan p = plan();
  EXPECT_EQ(find(p, "layers.0.attention.q.bias").slot.role, Role::kQBias);
  EXPECT_EQ(find(p, "layers.1.moe.experts.3.gate").slot.rows, 20);
  EXPECT_EQ(find(p, "layers.1.moe.router").slot.rows, 4);
  // embedding, two layers of attention and ffn, router, 4 experts, final norm, head
  EXPECT_EQ(p.segments.size(), 12u);
  uint64_t bytes = 0;
  for (const auto& [name, tensor] : checkpoint_->tensors()) bytes += 4 * tensor.n_elements;
  EXPECT_EQ(p.source_bytes, bytes);
}

TEST_F(PlanTest, NamesMissingExtraAndMisshapenTensors) {
  const test::RawTensors good = tensors_;
  tensors_.erase("layers.1.moe.experts.2.down.weight");
  EXPECT_EQ(error(MOE_ERR_NOT_FOUND), "tensor layers.1.moe.experts.2.down.weight is missing");
  tensors_ = good;
  tensors_["layers.1.moe.experts.4.up.weight"] = good.at("layers.1.moe.experts.3.up.weight");
  EXPECT_EQ(error(MOE_ERR_FORMAT),
            "tensor layers.1.moe.experts.4.up.weight: config.json describes no such tensor");
  tensors_ = good;
  tensors_["layers.1.moe.experts.3.up.weight"].shape = {24, 20};
  EXPECT_EQ(error(MOE_ERR_SHAPE),
            "tensor layers.1.moe.experts.3.up.weight: expected (20, 24), file has (24, 20)");
  tensors_ = good;
  tensors_["final_norm.weight"].shape = {2, 12};
  EXPECT_EQ(error(MOE_ERR_SHAPE), "tensor final_norm.weight: expected (24, 1), file has (2, 12)");
  tensors_ = good;
  tensors_["final_norm.weight"] = {"I32", {24}, std::string(96, '\0')};
  EXPECT_EQ(error(MOE_ERR_FORMAT),
            "tensor final_norm.weight: expected F32, BF16 or F16, file has I32");
  tensors_ = good;
  tensors_["head.weight"] = {"F32", {0, 24}, ""};
  error(MOE_ERR_SHAPE);
}

TEST_F(PlanTest, ATiedHeadIsOneTensorTooMany) {
  config_ = patched(R"({"tie_embeddings": true})");
  EXPECT_EQ(error(MOE_ERR_FORMAT), "tensor head.weight: config.json describes no such tensor");
  tensors_.erase("head.weight");
  EXPECT_EQ(plan().segments.size(), 11u);
}

TEST_F(PlanTest, HashTablesAreIntegers) {
  config_ = patched(R"({"layers": [{"index": 1, "ffn": {"kind": "moe", "moe": {"n_experts": 4,
                        "router": {"kind": "hash"}}}}]})");
  tensors_ = test::random_tensors(config_);
  EXPECT_EQ(find(plan(), "layers.1.moe.router.table").precision.weights, FormatId::kI32);
  tensors_["layers.1.moe.router.table"] = test::f32_tensor({40}, std::vector<float>(40));
  EXPECT_EQ(error(MOE_ERR_FORMAT),
            "tensor layers.1.moe.router.table: expected I32 or I64, file has F32");
}

TEST_F(PlanTest, CosineWidthComesFromTheTensor) {
  const char* router = R"({"layers": [{"index": 1, "ffn": {"kind": "moe", "moe": {"n_experts": 4,
      "router": {"kind": "cosine", "tau": 0.1, "d_e": 8}}}}]})";
  config_ = patched(router);
  tensors_ = test::random_tensors(config_);
  Json without = parse_json(config_, "test");
  without["layers"][0]["ffn"]["moe"]["router"].erase("d_e");
  config_ = without.dump();
  EXPECT_EQ(find(plan(), "layers.1.moe.router.embedding").slot.cols, 8);
  tensors_["layers.1.moe.router.embedding.weight"].shape = {8, 4};
  error(MOE_ERR_SHAPE);
}

TEST_F(PlanTest, PrecisionComesFromDefaultsRulesAndOptions) {
  const Plan automatic = plan();
  EXPECT_FALSE(find(automatic, "layers.0.attention.q").precision.weights);
  EXPECT_EQ(find(automatic, "layers.0.ffn_norm").precision.weights, FormatId::kF32);
  EXPECT_EQ(find(automatic, "head").precision.activations_for(FormatId::kInt8),
            ActPrecision::kA8Block);
  EXPECT_EQ(find(automatic, "head").precision.activations_for(FormatId::kInt8Group),
            ActPrecision::kA8Group);

  config_ = patched(R"({"precision": [{"match": "*", "weights": "f32", "activations": "f32"},
      {"match": "layers.*", "weights": "ternary2", "activations": "a8"},
      {"match": "layers.1.moe.experts.0.*", "weights": "auto"}]})");
  const Plan ruled = plan();
  EXPECT_EQ(find(ruled, "embedding").precision.weights, FormatId::kF32);
  EXPECT_EQ(find(ruled, "layers.0.attention.q").precision.weights, FormatId::kTernary2);
  EXPECT_EQ(find(ruled, "layers.0.attention.q").precision.activations_for(FormatId::kTernary2),
            ActPrecision::kA8);
  EXPECT_EQ(find(ruled, "layers.0.attention.q").precision.activations_for(FormatId::kBf16),
            ActPrecision::kF32);
  EXPECT_EQ(find(ruled, "layers.0.ffn_norm").precision.weights, FormatId::kF32);
  EXPECT_FALSE(
      find(ruled, "layers.1.moe.router").precision.weights);  // a router stays in floating point
  EXPECT_FALSE(find(ruled, "layers.1.moe.experts.0.up").precision.weights);

  const Plan asked =
      plan(FormatId::kInt8, {parse_override("*.q=bf16"), parse_override("head=:f32")});
  EXPECT_EQ(find(asked, "layers.0.attention.k").precision.weights, FormatId::kInt8);
  EXPECT_EQ(find(asked, "layers.0.attention.q").precision.weights, FormatId::kBf16);
  EXPECT_EQ(find(asked, "head").precision.weights, FormatId::kF32);  // int8 is for linear layers
  EXPECT_EQ(find(asked, "head").precision.activations, ActPrecision::kF32);
  const Plan floats = plan(FormatId::kBf16);
  EXPECT_EQ(find(floats, "embedding").precision.weights, FormatId::kBf16);
}

TEST_F(PlanTest, MisspeltOverridesAreErrors) {
  const auto status = [&](const char* text) {
    const Status s = guarded([&] { plan({}, {parse_override(text)}); });
    EXPECT_EQ(s.code(), MOE_ERR_ARGUMENT) << text;
    return std::string(s.text());
  };
  EXPECT_EQ(status("layer.*=int8"), "override for \"layer.*\": no tensor of this model matches");
  for (const char* text : {"", "head", "=int8", "head=", "head=int5", "head=int8:a4", "head=i32"}) {
    status(text);
  }
}

TEST(RowReader, ReadsSlicesAndTransposes) {
  // (2, 3, 8) holds for each of 2 experts a (4, 3) matrix, transposed, its rows at even places.
  std::vector<float> values(48);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  test::TempFolder folder;
  folder.write("model.safetensors",
               test::safetensors_text({{"x", test::f32_tensor({2, 3, 8}, values)}}));
  const Checkpoint checkpoint(folder.path());
  const SourceTensor& tensor = *checkpoint.find("x");
  Source source{.tensor = "x", .shape = {2, 3, 8}, .offset = 24, .row_stride = 2, .col_stride = 8};
  check_source(tensor, source, 4, 3);
  RowReader transposed(checkpoint, tensor, source, 4, 3);
  for (int32_t r : {0, 3, 1, 2}) {
    for (int32_t c = 0; c < 3; ++c) EXPECT_EQ(transposed.row(r)[c], 24.0f + 2.0f * r + 8.0f * c);
  }
  source = {.tensor = "x", .shape = {2, 3, 8}, .offset = 1, .row_stride = 8, .col_stride = 1};
  RowReader sliced(checkpoint, tensor, source, 6, 5);
  check_source(tensor, source, 6, 5);
  EXPECT_EQ(sliced.row(5)[4], 45);
  EXPECT_EQ(sliced.row(0)[0], 1);

  const auto refused = [&](Source s, int32_t rows, int32_t cols) {
    return guarded([&] { check_source(tensor, s, rows, cols); }).code() == MOE_ERR_SHAPE;
  };
  EXPECT_TRUE(refused({.tensor = "x", .shape = {2, 3, 8}, .offset = 4, .row_stride = 8}, 6, 5));
  EXPECT_TRUE(refused({.tensor = "x", .shape = {2, 3, 8}, .row_stride = INT64_MAX}, 3, 3));
  EXPECT_TRUE(refused({.tensor = "x", .shape = {6, 8}}, 6, 8));
  EXPECT_TRUE(refused({.tensor = "x", .shape = {2, 3, 8}, .offset = -1}, 1, 1));
}

TEST(RowReader, ReadsManyBlocks) {
  const int32_t rows = 700, cols = 3001;
  std::vector<float> values(static_cast<size_t>(rows) * cols);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 65521);
  test::TempFolder folder;
  folder.write("model.safetensors",
               test::safetensors_text({{"x", test::f32_tensor({rows, cols}, values)}}));
  const Checkpoint checkpoint(folder.path());
  RowReader reader(checkpoint, *checkpoint.find("x"), {.tensor = "x"}, rows, cols);
  for (int pass = 0; pass < 2; ++pass) {
    for (int32_t r = 0; r < rows; ++r) {
      const float* row = reader.row(r);
      for (size_t c = 0; c < cols; ++c)
        ASSERT_EQ(row[c], values[static_cast<size_t>(r) * cols + c]);
    }
  }
}

}  // namespace
}  // namespace moe
