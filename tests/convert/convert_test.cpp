// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cmath>
#include <csignal>

#include "quant/formats.h"
#include "src/convert/plan.h"
#include "src/convert/verify.h"
#include "tests/convert/convert_fixture.h"

namespace moe {
namespace {

using test::ConvertTest;
using test::patched;

TEST_F(ConvertTest, FloatsAreKeptBitForBit) {
  tensors_ = test::random_tensors(config_, true);  // biases too
  options_.weights = "f32";
  options_.verify = true;
  auto model = converted();
  const auto expect_same = [&](const Matrix& m, const std::string& name) {
    EXPECT_EQ(model->values(m), floats(name)) << name;
    EXPECT_EQ(m.format, FormatId::kF32);
    EXPECT_EQ(m.act, ActPrecision::kF32);
  };
  expect_same(model->matrix(Part::kEmbedding, -1, -1, Role::kWeight), "embedding.weight");
  expect_same(model->matrix(Part::kHead, -1, -1, Role::kWeight), "head.weight");
  expect_same(model->matrix(Part::kHead, -1, -1, Role::kBias), "head.bias");
  expect_same(model->matrix(Part::kFinalNorm, -1, -1, Role::kWeight), "final_norm.weight");
  expect_same(model->matrix(Part::kAttention, 0, -1, Role::kNorm),
              "layers.0.attention_norm.weight");
  expect_same(model->matrix(Part::kAttention, 1, -1, Role::kO), "layers.1.attention.o.weight");
  expect_same(model->matrix(Part::kFfn, 0, -1, Role::kGate), "layers.0.ffn.gate.weight");
  expect_same(model->matrix(Part::kFfn, 0, -1, Role::kDownBias), "layers.0.ffn.down.bias");
  expect_same(model->matrix(Part::kFfn, 1, -1, Role::kNorm), "layers.1.ffn_norm.weight");
  expect_same(model->matrix(Part::kRouter, 1, -1, Role::kScores), "layers.1.moe.router.weight");
  expect_same(model->matrix(Part::kRouter, 1, -1, Role::kBias), "layers.1.moe.router.bias");
  expect_same(model->matrix(Part::kExperts, 1, 3, Role::kUp), "layers.1.moe.experts.3.up.weight");
  EXPECT_EQ(report_.n_lossless, report_.n_matrices);
  EXPECT_EQ(report_.n_matrices, 2u + 4 + 4 + 3 + 1 + 4 * 3);
  EXPECT_TRUE(report_.verified);
  EXPECT_EQ(model->config().layers[1].ffn.moe.router.k, 2);
  EXPECT_EQ(report_.file_bytes, std::filesystem::file_size(path()));
}

// parse_json refuses a key that is there twice.
TEST(ConvertReport, IsJson) {
  ConvertReport report;
  report.warnings = {"first", "second"};
  report.dropped_tokens = {"<x>"};
  report.n_skipped_layers = 1;
  const Json json = parse_json(to_json(report), "report");
  EXPECT_EQ(json.at("warnings").size(), 2u);
  EXPECT_EQ(json.at("dropped_tokens").size(), 1u);
}

TEST_F(ConvertTest, EveryKindOfLayerAndRouterConverts) {
  const char* const patches[] = {
      R"({"norm": {"kind": "layer"}, "positions": "learned", "embedding_norm": true})",
      R"({"layer_defaults": {"attention": {"qk_norm": "whole", "sub_norm": true, "sinks": true},
          "ffn": {"sub_norm": true}}})",
      R"({"layers": [{"index": 1, "ffn": {"kind": "moe", "act": "relu", "gated": false, "moe":
          {"n_experts": 3, "n_sublayers": 2, "router": {"kind": "cosine", "tau": 0.1, "d_e": 7}}}}]})",
      R"({"layers": [{"index": 1, "ffn": {"kind": "moe", "moe": {"n_experts": 5, "n_subheads": 3,
          "shared": {"d_ff": 8, "gated": true}, "router": {"kind": "threshold", "t": 0.8}}}}]})",
      R"({"layers": [{"index": 1, "ffn": {"kind": "moe", "moe": {"n_experts": 2, "mh": true,
          "router": {"kind": "sigmoid", "k": 1}}}}]})",
      R"({"layers": [{"index": 1, "ffn": {"kind": "moe", "moe": {"n_experts": 2,
          "router": {"kind": "hash"}}}}]})",
      R"({"layers": [{"index": 1, "ffn": {"kind": "moe", "moe": {"n_experts": 2,
          "router": {"kind": "base"}}}}]})"};
  for (const char* patch : patches) {
    for (const char* weights :
         {"auto", "ternary3", "f16", "int4_k", "int6_k", "int2_k", "int3_k"}) {
      config_ = patched(patch);
      tensors_ = test::random_tensors(config_, true);
      options_.weights = weights;
      options_.verify = true;
      options_.compress = std::string(weights) == "ternary3";
      const Status status = run();
      ASSERT_TRUE(status.ok()) << status.text() << patch;
      test::ConvertedModel model(path());  // checks every tensor against the configuration
    }
  }
}

TEST_F(ConvertTest, TernaryMatricesAreFoundAtEveryGranularity) {
  const auto fill = [](int rows, int cols, auto magnitude) {
    std::vector<float> w;
    for (int r = 0; r < rows; ++r) {
      for (int c = 0; c < cols; ++c) {
        const int sign = (r * 7 + c * 3 + r * c) % 3 - 1;
        w.push_back(sign == 0 ? (c % 2 == 0 ? -0.0f : 0.0f)
                              : static_cast<float>(sign) * magnitude(r, c));
      }
    }
    return w;
  };
  config_ = patched(R"({"d_model": 150, "layer_defaults": {"attention": {"head_dim": 24}}})");
  tensors_ = test::random_tensors(config_);
  replace("layers.0.attention.q.weight", fill(48, 150, [](int, int) { return 0.37f; }));
  replace("layers.0.attention.k.weight", fill(24, 150, [](int r, int) { return 0.01f * (r + 1); }));
  replace("layers.0.attention.v.weight",
          fill(24, 150, [](int r, int c) { return 0.01f * (r + 1) + 0.5f * (c / 64); }));
  replace("layers.0.attention.o.weight", std::vector<float>(48 * 150, -0.0f));
  options_.verify = true;
  auto model = converted();
  const auto expect = [&](const char* name, ScaleKind scale, int32_t group) {
    const MatrixReport& r = matrices_.at(name);
    EXPECT_EQ(r.format, FormatId::kTernary2) << name;
    EXPECT_EQ(r.scale, scale) << name;
    EXPECT_EQ(r.group, group) << name;
    EXPECT_TRUE(r.lossless) << name;
    EXPECT_EQ(r.act, ActPrecision::kA8Block);
  };
  expect("layers.0.attention.q", ScaleKind::kTensor, 0);
  expect("layers.0.attention.k", ScaleKind::kRow, 0);
  expect("layers.0.attention.v", ScaleKind::kGroup, 64);
  expect("layers.0.attention.o", ScaleKind::kTensor, 0);
  for (const Role role : {Role::kQ, Role::kK, Role::kV, Role::kO}) {
    const Matrix m = model->matrix(Part::kAttention, 0, -1, role);
    EXPECT_TRUE(validate_codes(m).ok());
    const std::string name = std::string("layers.0.attention.") + name_in(kRoles, role) + ".weight";
    EXPECT_EQ(model->values(m), floats(name));
  }
  EXPECT_EQ(matrices_.at("layers.0.ffn.up").format, FormatId::kInt8);
  EXPECT_FALSE(matrices_.at("layers.0.ffn.up").lossless);
  EXPECT_EQ(matrices_.at("embedding").format, FormatId::kInt8Group);
  EXPECT_EQ(matrices_.at("layers.1.moe.router").format, FormatId::kF32);
}

TEST_F(ConvertTest, LossyFormatsReportTheirError) {
  options_.weights = "ternary2";
  options_.overrides = {"layers.0.ffn.up=int8:f32", "*.down=bf16", "head=ternary3:a8"};
  auto model = converted();
  const std::vector<float> q = floats("layers.0.attention.q.weight");
  double mean = 0;
  for (float w : q) mean += std::fabs(static_cast<double>(w));
  mean /= static_cast<double>(q.size());
  const std::vector<float> stored = model->values(model->matrix(Part::kAttention, 0, -1, Role::kQ));
  double error = 0, norm = 0, largest = 0;
  for (size_t i = 0; i < q.size(); ++i) {
    const double code = std::clamp(std::nearbyint(q[i] / mean), -1.0, 1.0);
    EXPECT_NEAR(stored[i], code * mean, 1e-6);
    const double w = q[i];
    const double difference = std::fabs(w - static_cast<double>(stored[i]));
    error += difference * difference;
    norm += w * w;
    largest = std::max(largest, difference);
  }
  const MatrixReport& r = matrices_.at("layers.0.attention.q");
  EXPECT_FALSE(r.lossless);
  EXPECT_NEAR(r.relative_error, std::sqrt(error / norm), 1e-9);
  EXPECT_EQ(r.max_error, largest);
  EXPECT_EQ(matrices_.at("layers.0.ffn.up").format, FormatId::kInt8);
  EXPECT_EQ(matrices_.at("layers.0.ffn.up").act, ActPrecision::kF32);
  EXPECT_LT(matrices_.at("layers.0.ffn.up").relative_error, 0.01);
  EXPECT_EQ(matrices_.at("layers.1.moe.experts.0.down").format, FormatId::kBf16);
  EXPECT_EQ(matrices_.at("head").format, FormatId::kTernary3);
  EXPECT_EQ(matrices_.at("head").act, ActPrecision::kA8);
  EXPECT_EQ(report_.n_lossless, 1u);  // the router
  EXPECT_GT(report_.largest_relative_error, 0.3);
  EXPECT_NE(to_json(r).find("\"format\":\"ternary2\",\"scale\":\"tensor\""), std::string::npos);
  EXPECT_NE(to_json(report_).find("\"lossless_matrices\":1"), std::string::npos);
}

TEST_F(ConvertTest, Int8RowsAreWithinHalfAStep) {
  options_.weights = "int8";
  auto model = converted();
  const Matrix m = model->matrix(Part::kExperts, 1, 2, Role::kDown);
  const std::vector<float> wanted = floats("layers.1.moe.experts.2.down.weight");
  const std::vector<float> found = model->values(m);
  for (size_t r = 0; r < 24; ++r) {
    for (size_t c = 0; c < 20; ++c) {
      EXPECT_LE(std::fabs(wanted[r * 20 + c] - found[r * 20 + c]), m.scales[r] * 0.5001f);
    }
  }
}

TEST_F(ConvertTest, ShardsAndBf16GiveTheSameFile) {
  for (auto& [name, tensor] : tensors_) {
    std::vector<float> values(tensor.bytes.size() / 4);
    std::memcpy(values.data(), tensor.bytes.data(), tensor.bytes.size());
    const bool exact = name.find("router") == std::string::npos;  // a router keeps its type
    tensor = exact ? test::bf16_tensor(tensor.shape, values) : tensor;
  }
  converted();
  const std::string whole = target_.text("model.moe");
  test::RawTensors first, second;
  std::string map;
  for (const auto& [name, tensor] : tensors_) {
    const bool one = map.size() % 2 == 0;
    (one ? first : second)[name] = tensor;
    map += (map.empty() ? "\"" : ",\"") + name + "\":\"" + (one ? "one" : "two") + ".safetensors\"";
  }
  test::TempFolder shards;
  shards.write("config.json", config_);
  shards.write("one.safetensors", test::safetensors_text(first));
  shards.write("two.safetensors", test::safetensors_text(second));
  shards.write("model.safetensors.index.json", "{\"weight_map\":{" + map + "}}");
  ASSERT_TRUE(convert(shards.path(), path(), options_, &report_).ok());
  EXPECT_EQ(target_.text("model.moe"), whole);
}

TEST_F(ConvertTest, AWrongCheckpointIsRefusedBeforeAnythingIsWritten) {
  const std::string up = "layers.1.moe.experts.2.up.weight";
  const test::RawTensors good = tensors_;
  tensors_.erase(up);
  expect_nothing_written(MOE_ERR_NOT_FOUND, "tensor " + up + " is missing");
  tensors_ = good;
  options_.weights = "int3";
  expect_nothing_written(
      MOE_ERR_ARGUMENT,
      "weights \"int3\": expected auto, source, mixed4 or one of ternary2, "
      "ternary3, int8, f32, bf16, f16, "
      "int4, int4_min, int4_k, fp4, nl4, nf4, int6_k, int8_group, int2_k, int3_k, tcq2, tcq3");
  options_.weights = "auto";
  for (const int n : {-1, 1025}) {
    options_.n_threads = n;
    expect_nothing_written(MOE_ERR_RANGE, "threads: expected 0..1024, found " + std::to_string(n));
  }
  options_.n_threads = 0;
  options_.overrides = {"*.upp=int8"};
  expect_nothing_written(MOE_ERR_ARGUMENT,
                         "override for \"*.upp\": no tensor of this model matches");
  options_.overrides = {"layers.0.attention.q=int8:a8_group"};
  expect_nothing_written(
      MOE_ERR_UNSUPPORTED,
      "layers.0.attention.q: weight format int8 needs f32, a8 or a8_block activations");
  options_.overrides = {"head=int4:a9"};
  expect_nothing_written(
      MOE_ERR_ARGUMENT,
      "override \"head=int4:a9\": expected activations f32, a8, a8_block or a8_group");
  options_.overrides.clear();
  config_ = patched(R"({"tokenizer": "bytes"})");
  EXPECT_FALSE(run().ok());  // 40 ids are too few for 256 bytes
  EXPECT_TRUE(target_.names().empty());
  config_ = patched(R"({"tokenizer": "tokenizer.json"})");
  EXPECT_FALSE(run().ok());
  EXPECT_TRUE(target_.names().empty());
}

TEST_F(ConvertTest, NonFiniteWeightsAreNamed) {
  const std::string up = "layers.1.moe.experts.2.up.weight";
  std::vector<float> w(20 * 24, 0.5f);
  for (const float bad : {NAN, INFINITY, -INFINITY}) {
    for (const char* weights : {"auto", "f32", "int8", "ternary2", "bf16"}) {
      w[7 * 24 + 5] = bad;
      replace(up, w);
      options_.weights = weights;
      expect_nothing_written(MOE_ERR_NON_FINITE,
                             "tensor " + up + ": element (7, 5) of layers.1.moe.experts.2.up is " +
                                 (std::isnan(bad) ? "NaN" : "infinite"));
    }
  }
  w[7 * 24 + 5] = 1e6f;
  replace(up, w);
  options_.weights = "f16";
  expect_nothing_written(MOE_ERR_RANGE,
                         "tensor " + up + ": row 7 has a value that f16 cannot hold");
}

TEST_F(ConvertTest, TableIdsAreChecked) {
  config_ = patched(R"({"layers": [{"index": 1, "ffn": {"kind": "moe", "moe": {"n_experts": 4,
                        "router": {"kind": "hash"}}}}]})");
  tensors_ = test::random_tensors(config_);
  std::vector<int64_t> ids(40);
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int64_t>(i % 4);
  tensors_["layers.1.moe.router.table"] = {"I64", {40}, test::as_bytes(ids)};
  auto model = converted();
  const Matrix m = model->matrix(Part::kRouter, 1, -1, Role::kTable);
  EXPECT_EQ(model->values(m)[39], 3);
  model.reset();
  std::filesystem::remove(path());
  for (const int64_t bad : {INT64_C(4), INT64_C(-1), INT64_C(1) << 32}) {
    ids[9] = bad;
    tensors_["layers.1.moe.router.table"] = {"I64", {40}, test::as_bytes(ids)};
    expect_nothing_written(MOE_ERR_RANGE,
                           "tensor layers.1.moe.router.table: element 9: expected "
                           "0..3, found " +
                               std::to_string(bad));
  }
}

TEST_F(ConvertTest, CancelAtEveryCallLeavesTheOldFile) {
  options_.verify = true;
  int calls = 0;
  options_.progress = [&](uint64_t done, uint64_t total, const char*) {
    EXPECT_LE(done, total);
    ++calls;
    return true;
  };
  converted();
  const int n_calls = calls;
  ASSERT_GT(n_calls, 10);
  target_.write("model.moe", test::old_model());
  for (int stop = 1; stop <= n_calls; ++stop) {
    calls = 0;
    options_.progress = [&](uint64_t, uint64_t, const char*) { return ++calls < stop; };
    ASSERT_EQ(run().code(), MOE_ERR_CANCELLED) << stop;
    ASSERT_EQ(target_.text("model.moe"), test::old_model());
    ASSERT_EQ(target_.names().size(), 1u);
  }
}

TEST_F(ConvertTest, AFullDiskLeavesTheOldFile) {
  converted();
  const uint64_t bytes = std::filesystem::file_size(path());
  target_.write("model.moe", test::old_model());
  rlimit before;
  getrlimit(RLIMIT_FSIZE, &before);
  signal(SIGXFSZ, SIG_IGN);  // write() then fails as it does on a full disk
  for (const uint64_t limit : {uint64_t{0}, uint64_t{4096}, bytes / 2, bytes - 1}) {
    test::write_checkpoint(source_, config_, tensors_);
    const rlimit small = {limit, before.rlim_max};
    setrlimit(RLIMIT_FSIZE, &small);
    const Status status = convert(source_.path(), path(), options_, &report_);
    setrlimit(RLIMIT_FSIZE, &before);
    EXPECT_EQ(status.code(), MOE_ERR_IO) << limit;
    EXPECT_NE(std::string(status.text()).find("File too large"), std::string::npos)
        << status.text();
    EXPECT_EQ(target_.text("model.moe"), test::old_model());
    EXPECT_EQ(target_.names().size(), 1u);
  }
}

TEST_F(ConvertTest, LeftoversOfAKilledRunAreRemovedAndOtherFilesAreNot) {
  target_.write(".model.moe.moe-a1b2c3", std::string(1'000'000, 'x'));
  target_.write(".model.moe.moe-lock", "");
  target_.write("model.moe.partial", "notes");
  const Status status = run();
  ASSERT_TRUE(status.ok()) << status.text();
  std::vector<std::string> names = target_.names();
  std::sort(names.begin(), names.end());
  EXPECT_EQ(names, (std::vector<std::string>{"model.moe", "model.moe.partial"}));
  EXPECT_EQ(target_.text("model.moe.partial"), "notes");
}

// A tokenizer.json of n tokens t0, t1 ... and these added tokens.
std::string tokenizer_of(int n_tokens, const std::string& added = "") {
  std::string vocab;
  for (int i = 0; i < n_tokens; ++i) {
    vocab += (i == 0 ? "\"t" : ",\"t") + std::to_string(i) + "\":" + std::to_string(i);
  }
  return R"({"version": "1.0", "truncation": null, "padding": null, "added_tokens": [)" + added +
         R"(], "normalizer": null, "pre_tokenizer": null, "post_processor": null, "decoder": null,
        "model":
        {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
         "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "merges": [],
         "vocab": {)" +
         vocab + "}}}";
}

std::string added_token(const char* text, int id) {
  return R"({"id": )" + std::to_string(id) + R"(, "content": ")" + text +
         R"(", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false,
             "special": true})";
}

TEST_F(ConvertTest, ATokenizerThatDoesNotFitIsRefused) {
  config_ = patched(R"({"tokenizer": "tokenizer.json"})");
  source_.write("tokenizer.json", tokenizer_of(41));
  expect_nothing_written(MOE_ERR_FORMAT, source_.file("tokenizer.json") +
                                             ": token \"t40\" has id 40, but the model's "
                                             "vocabulary only 40 tokens");
  source_.write("tokenizer.json", tokenizer_of(40));
  EXPECT_NE(converted()->file().metadata().tokenizer(), nullptr);
  source_.write("tokenizer.json", "{");
  EXPECT_EQ(run().code(), MOE_ERR_FORMAT);
}

// Gemma 3's text models have a token for images, many fine-tunes one for padding.
TEST_F(ConvertTest, AddedTokensWithoutAnEmbeddingAreLeftOut) {
  config_ = patched(R"({"tokenizer": "tokenizer.json"})");
  const std::string added =
      added_token("<a>", 39) + "," + added_token("<image>", 40) + "," + added_token("[PAD]", 41);
  source_.write("tokenizer.json", tokenizer_of(39, added));
  source_.write("tokenizer_config.json", R"({"pad_token": "[PAD]", "bos_token": "<a>"})");
  auto model = converted();
  const fbs::Tokenizer* tokenizer = model->file().metadata().tokenizer();
  ASSERT_NE(tokenizer, nullptr);
  EXPECT_EQ(tokenizer->token_ends()->size(), 40u);
  ASSERT_EQ(tokenizer->added_ids()->size(), 1u);
  EXPECT_EQ(tokenizer->added_ids()->Get(0), 39u);
  EXPECT_EQ(tokenizer->bos_id(), 39);
  EXPECT_EQ(tokenizer->pad_id(), -1);
  EXPECT_EQ(report_.dropped_tokens, (std::vector<std::string>{"<image>", "[PAD]"}));
  EXPECT_NE(to_json(report_).find(R"("dropped_tokens":["<image>","[PAD]"])"), std::string::npos);
  source_.write("tokenizer_config.json", R"({"bos_token": "<image>"})");
  const Status status = run();
  EXPECT_EQ(status.code(), MOE_ERR_FORMAT);
  EXPECT_NE(std::string(status.text()).find("\"<image>\" has id 40"), std::string::npos)
      << status.text();
}

// Memory is allocated for every id up to the largest, with or without a token.
TEST_F(ConvertTest, AnIdFarBeyondTheVocabularyIsRefused) {
  config_ = patched(R"({"tokenizer": "tokenizer.json"})");
  source_.write("tokenizer.json", R"({"version": "1.0", "model": {"type": "BPE", "merges": [],
      "vocab": {"a": 0, "b": 16777215}}})");
  const Status status = run();
  EXPECT_EQ(status.code(), MOE_ERR_FORMAT);
  EXPECT_NE(std::string(status.text()).find("has id 16777215; in a vocabulary of this size"),
            std::string::npos)
      << status.text();
}

TEST_F(ConvertTest, VerifyNoticesWhatWasNotWritten) {
  converted();
  const Checkpoint checkpoint(source_.path());
  const Imported imported = import_checkpoint(checkpoint);
  PrecisionPolicy policy(imported.precision, {}, {});
  const Plan plan = make_plan(imported, checkpoint, &policy);
  std::vector<std::vector<double>> errors;
  for (const PlannedSegment& segment : plan.segments) {
    errors.emplace_back();
    for (const PlannedMatrix& m : segment.matrices) {
      const auto report = matrices_.find(m.slot.short_name());
      errors.back().push_back(report == matrices_.end() ? 0 : report->second.max_error);
    }
  }
  const auto verify = [&] {
    return guarded([&] { verify_file(path(), plan, errors, checkpoint, [](uint64_t) {}); });
  };
  EXPECT_TRUE(verify().ok()) << verify().text();
  const double right = errors[0][0];
  for (const double wrong : {right * 0.99, right * 1.01}) {
    errors[0][0] = wrong;
    EXPECT_EQ(verify().code(), MOE_ERR_CORRUPT);
  }
  errors[0][0] = right;
  std::string bytes = target_.text("model.moe");
  bytes[4096 + 100] = static_cast<char>(bytes[4096 + 100] ^ 1);
  target_.write("model.moe", bytes);
  EXPECT_EQ(verify().code(), MOE_ERR_CORRUPT);
}

TEST_F(ConvertTest, ATargetThatCannotBeWrittenIsAnError) {
  test::write_checkpoint(source_, config_, tensors_);
  EXPECT_EQ(convert(source_.path(), target_.file("no/such/folder/model.moe"), {}, &report_).code(),
            MOE_ERR_IO);
  EXPECT_EQ(convert(source_.path(), target_.path(), {}, &report_).code(), MOE_ERR_IO);
  EXPECT_EQ(convert("/nowhere", path(), {}, &report_).code(), MOE_ERR_NOT_FOUND);
  EXPECT_TRUE(target_.names().empty());
}

TEST_F(ConvertTest, ABadDestinationIsReportedBeforeTheSourceIsRead) {
  const auto text = [&](const std::string& destination) {
    return std::string(convert("/nowhere", destination, {}, &report_).text());
  };
  EXPECT_NE(text("").find("expected a name"), std::string::npos) << text("");
  EXPECT_NE(text(target_.path()).find("found a folder"), std::string::npos);
  const std::string inside = target_.file("no/such/model.moe");
  EXPECT_EQ(text(inside), inside + ": there is no folder " + target_.file("no/such/"));
}

TEST_F(ConvertTest, TheCheckpointIsNeverReplaced) {
  namespace fs = std::filesystem;
  test::write_checkpoint(source_, config_, tensors_);
  source_.write("README.md", "text");
  fs::create_symlink(source_.file("config.json"), target_.file("link"));
  fs::create_hard_link(source_.file("model.safetensors"), target_.file("hard"));
  std::map<std::string, std::string> before;
  for (const std::string& name : source_.names()) before[name] = source_.text(name);
  const auto expect_refused = [&](const std::string& destination) {
    const Status status = convert(source_.path(), destination, options_, &report_);
    EXPECT_EQ(status.code(), MOE_ERR_ARGUMENT) << destination;
    EXPECT_NE(std::string(status.text()).find("of the checkpoint"), std::string::npos);
    EXPECT_NE(std::string(status.text()).find(source_.path()), std::string::npos);
  };
  for (const auto& [name, text] : before) expect_refused(source_.file(name));
  expect_refused(source_.path() + "/../" + fs::path(source_.path()).filename().string() +
                 "/config.json");
  for (const char* name : {"link", "hard"}) expect_refused(target_.file(name));
  EXPECT_EQ(source_.names().size(), before.size());
  for (const auto& [name, text] : before) EXPECT_EQ(source_.text(name), text) << name;
  // A model file in the folder is not part of the checkpoint and may be replaced.
  for (int i = 0; i < 2; ++i) {
    EXPECT_TRUE(convert(source_.path(), source_.file("m.moe"), options_, &report_).ok());
  }
}

TEST_F(ConvertTest, TheReportComesBeforeTheFinalName) {
  target_.write("model.moe", test::old_model());
  options_.on_end = [](const ConvertReport& r) {
    EXPECT_GT(r.file_bytes, 0u);
    throw std::bad_alloc();
  };
  EXPECT_EQ(run().code(), MOE_ERR_MEMORY);
  EXPECT_EQ(target_.text("model.moe"), test::old_model());
  EXPECT_EQ(target_.names().size(), 1u);
  uint64_t said = 0;
  options_.on_end = [&](const ConvertReport& r) { said = r.file_bytes; };
  for (const bool compress : {false, true}) {
    options_.compress = compress;
    converted();
    EXPECT_EQ(said, std::filesystem::file_size(path()));
  }
}

#ifndef MOE_SANITIZED
TEST_F(ConvertTest, MemoryDoesNotGrowWithTheModel) {
  // An embedding of 200 MB of zeros in a sparse file.
  config_ = patched(R"({"vocab_size": 262144, "d_model": 192, "tie_embeddings": true,
                        "layer_defaults": {"attention": {"head_dim": 12}}})");
  const char* small = R"({"d_model": 192, "tie_embeddings": true})";
  tensors_ = test::random_tensors(patched(small));
  tensors_.erase("embedding.weight");
  source_.write("config.json", config_);
  source_.write("rest.safetensors", test::safetensors_text(tensors_));
  const uint64_t bytes = uint64_t{262144} * 192 * 4;
  const std::string head = test::safetensors_text(
      "{\"embedding.weight\":{\"dtype\":\"F32\",\"shape\":[262144,192],\"data_offsets\":[0," +
          std::to_string(bytes) + "]}}",
      "");
  source_.write("big.safetensors", head);
  std::filesystem::resize_file(source_.file("big.safetensors"), head.size() + bytes);
  std::string map = "\"embedding.weight\":\"big.safetensors\"";
  for (const auto& [name, tensor] : tensors_) map += ",\"" + name + "\":\"rest.safetensors\"";
  source_.write("model.safetensors.index.json", "{\"weight_map\":{" + map + "}}");
  const auto peak_kib = [] {
    rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_maxrss;
  };
  options_.allow_zeros = true;
  const long before = peak_kib();
  ASSERT_TRUE(convert(source_.path(), path(), options_, &report_).ok());
  EXPECT_GE(report_.source_bytes, bytes);
  EXPECT_LT(peak_kib() - before, 64 * 1024);
}
#endif

}  // namespace
}  // namespace moe
