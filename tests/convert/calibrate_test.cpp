// SPDX-License-Identifier: MIT
// Calibration: running a text through the source model, the inputs of its matrices, and their use
// in quantising.
#include "src/convert/calibration/calibrate.h"

#include <gtest/gtest.h>

#include <cmath>

#include "quant/formats.h"
#include "quant/quantise.h"
#include "src/convert/sensitivity.h"
#include "src/convert/weights/weighted.h"
#include "tests/convert/converted_model.h"
#include "tests/convert/tiny_checkpoint.h"

namespace moe {
namespace {

using test::patched;

const char* const kText = "Sphinx of black quartz, judge my vow. Sphinx of black quartz.";
// A model with one token per byte; expert 0 of the second layer gets every token.
const char* const kReader = R"({"tokenizer": "bytes", "vocab_size": 256, "add_bos": false,
  "context_length": 64, "layers": [{"index": 1, "ffn": {"kind": "moe", "moe": {"n_experts": 4,
  "router": {"kind": "hash"}}}}]})";

class CalibrateTest : public testing::Test {
 protected:
  CalibrateTest() {
    for (const char* name : {"layers.0.attention_norm.weight", "layers.1.ffn_norm.weight"}) {
      tensors_[name] = uneven_norm();
    }
  }
  // The embedding is the head too, and the blocks add nothing: so its inputs are embeddings.
  void use_embedding_as_head() {
    config_ = patched(R"({"tokenizer": "bytes", "vocab_size": 256, "context_length": 64,
        "add_bos": false, "tie_embeddings": true, "n_layers": 1, "layers": []})");
    tensors_ = test::random_tensors(config_);
    const std::vector<float> zeros(24 * 24);
    tensors_["layers.0.attention.o.weight"] = test::f32_tensor({24, 24}, zeros);
    tensors_["layers.0.ffn.down.weight"] =
        test::f32_tensor({24, 20}, {zeros.begin(), zeros.begin() + 24 * 20});
    tensors_["final_norm.weight"] = uneven_norm();
  }
  // Inputs of very different magnitudes, as in trained models.
  static test::RawTensor uneven_norm() {
    std::vector<float> norm(24);
    for (size_t i = 0; i < norm.size(); ++i) norm[i] = std::exp(0.3f * static_cast<float>(i) - 4);
    return test::f32_tensor({24}, norm);
  }
  Status run(const char* weights, const char* text, const char* embedding = nullptr) {
    test::write_checkpoint(source_, config_, tensors_);
    options_.weights = weights;
    options_.overrides.clear();
    if (embedding != nullptr) options_.overrides = {std::string("embedding=") + embedding};
    const WeightFormat* format = find_weight_format(weights);
    if (format != nullptr && format->integer) {
      options_.overrides = {std::string("layers.*.attention.*=") + weights};
    }
    options_.calibration.reset();
    if (text != nullptr) options_.calibration = text;
    matrices_.clear();
    options_.on_matrix = [this](const MatrixReport& r) { matrices_[r.name] = r; };
    return convert(source_.path(), target_.file("m.moe"), options_, &report_);
  }
  void expect_refused(const char* weights, const char* text, const char* why) {
    const Status status = run(weights, text);
    EXPECT_EQ(status.code(), MOE_ERR_ARGUMENT);
    EXPECT_NE(std::string(status.text()).find(why), std::string::npos) << status.text();
    EXPECT_TRUE(target_.names().empty());
  }
  std::vector<float> floats(const std::string& name) {
    const Checkpoint checkpoint(source_.path());
    const SourceTensor& tensor = *checkpoint.find(name);
    std::vector<float> out(tensor.n_elements);
    checkpoint.read(tensor, 0, out.size(), out.data());
    return out;
  }
  using Rows = std::vector<std::vector<double>>;

  // The inputs of layer 0's attention: rows of the embedding after the norm.
  Rows first_inputs(const std::string& text,
                    const std::string& norm_name = "layers.0.attention_norm.weight") {
    const std::vector<float> table = floats("embedding.weight");
    const std::vector<float> norm = floats(norm_name);
    Rows out;
    for (const char c : text) {
      const float* row = &table[static_cast<size_t>(static_cast<uint8_t>(c)) * 24];
      double square = 0;
      for (int i = 0; i < 24; ++i) square += double{row[i]} * double{row[i]};
      out.emplace_back();
      for (size_t i = 0; i < 24; ++i) {
        out.back().push_back(double{row[i]} * double{norm[i]} / std::sqrt(square / 24 + 1e-5));
      }
    }
    return out;
  }
  static double dot(const double* a, const std::vector<double>& b) {
    double sum = 0;
    for (size_t i = 0; i < b.size(); ++i) sum += a[i] * b[i];
    return sum;
  }
  struct Outputs {
    double error = 0;  // squares
    double norm = 0;
  };
  // Those for `inputs`; those for `others` are weighted by `share`.
  Outputs output_errors(const std::string& name, const Matrix& stored, const Rows& inputs,
                        const Rows& others = {}, double share = 0) {
    const std::vector<float> wanted = floats(name + ".weight");
    std::vector<float> row(static_cast<size_t>(stored.cols));
    Outputs out;
    for (int32_t r = 0; r < stored.rows; ++r) {
      read_row(stored, r, row.data());
      std::vector<double> w, e;
      for (size_t c = 0; c < row.size(); ++c) {
        w.push_back(wanted[static_cast<size_t>(r) * row.size() + c]);
        e.push_back(w.back() - double{row[c]});
      }
      const auto add = [&](const Rows& rows, double weight) {
        for (const std::vector<double>& x : rows) {
          out.error += weight * dot(e.data(), x) * dot(e.data(), x);
          out.norm += weight * dot(w.data(), x) * dot(w.data(), x);
        }
      };
      add(inputs, 1);
      add(others, share);
    }
    return out;
  }
  double output_error(const std::string& name, const Matrix& stored, const Rows& inputs,
                      const Rows& others = {}, double share = 0) {
    const Outputs found = output_errors(name, stored, inputs, others, share);
    return std::sqrt(found.error / found.norm);
  }

  test::TempFolder source_, target_;
  std::string config_ = patched(kReader);
  test::RawTensors tensors_ = test::random_tensors(config_);
  ConvertOptions options_;
  ConvertReport report_;
  std::map<std::string, MatrixReport> matrices_;
};

TEST_F(CalibrateTest, ErrorsCountByTheInputsOfTheText) {
  for (const char* weights :
       {"auto", "int4", "int4_min", "int4_k", "nl4", "fp4", "int6_k", "int8", "int8_group",
        "int2_k", "int3_k", "tcq2", "tcq3", "ternary2", "ternary3"}) {
    ASSERT_TRUE(run(weights, nullptr).ok());
    EXPECT_FALSE(report_.calibration);
    std::string read = kText;
    read.pop_back();  // the last token is only predicted
    const Rows inputs = first_inputs(read);
    const std::string name = "layers.0.attention.q";
    const auto stored_error = [&] {
      test::ConvertedModel model(target_.file("m.moe"));
      return output_error(name, model.matrix(Part::kAttention, 0, -1, Role::kQ), inputs);
    };
    const double plain = stored_error();
    const Status status = run(weights, kText);
    ASSERT_TRUE(status.ok()) << weights << ": " << status.text();
    EXPECT_EQ(target_.names(), std::vector<std::string>{"m.moe"});
    // The reported error is the one computed here.
    EXPECT_NEAR(matrices_[name].weighted_error, stored_error(), 1e-4 * plain) << weights;
    const bool powers_of_two =
        weights == std::string("fp4");  // its scales are powers of two and cannot adapt much
    EXPECT_LT(matrices_[name].weighted_error, (powers_of_two ? 0.97 : 0.8) * plain) << weights;
    EXPECT_TRUE(matrices_[name].weighted && matrices_[name].compensated);
    EXPECT_GE(report_.calibration->n_compensated, 6u);
    EXPECT_EQ(report_.calibration->n_passes, 1u);
    EXPECT_EQ(matrices_[name].n_tokens, read.size());
  }
}

// All rows of so small a matrix are in the sample that a size is chosen by.
TEST_F(CalibrateTest, ASizeExpectsTheErrorsThatItGets) {
  const std::string name = "layers.0.attention.q";
  std::string read = kText;
  read.pop_back();
  std::set<FormatId> seen;
  int n_least = 0, n_above = 0;
  for (const double bits : {8.3, 8.6, 9.0, 10.0, 11.0, 12.0}) {
    options_.goal.most_bits = bits;
    const Status status = run("auto", kText);
    ASSERT_TRUE(status.ok()) << status.text();
    const MatrixReport& m = matrices_.at(name);
    ASSERT_TRUE(m.compensated) << format_info(m.format).name;
    const Rows inputs = first_inputs(read);
    double input = 0, square = 0;
    for (const std::vector<double>& x : inputs) input += dot(x.data(), x) / 24;
    const std::vector<float> wanted = floats(name + ".weight");
    for (const float w : wanted) square += double{w} * double{w};
    test::ConvertedModel model(target_.file("m.moe"));
    const Matrix stored = model.matrix(Part::kAttention, 0, -1, Role::kQ);
    double of_weights = 0;
    std::vector<float> row(24);
    for (int32_t r = 0; r < stored.rows; ++r) {
      read_row(stored, r, row.data());
      for (size_t c = 0; c < 24; ++c) {
        const double e = double{wanted[static_cast<size_t>(r) * 24 + c]} - double{row[c]};
        of_weights += e * e / square;
      }
    }
    const double of_outputs = output_errors(name, stored, inputs).error / (input * square);
    const double least = 0.05 * of_weights;  // for moments that a few tokens dominate
    (of_outputs < least ? n_least : n_above) += 1;
    const double error = std::max(of_outputs, least);
    EXPECT_NEAR(*m.expected_error, std::sqrt(error + input_error(m.act)), 1e-4 * *m.expected_error)
        << format_info(m.format).name;
    seen.insert(m.format);
  }
  EXPECT_GE(seen.size(), 2u);
  EXPECT_GT(n_least, 0);
  EXPECT_GT(n_above, 0);
}

TEST_F(CalibrateTest, ExpertsAreWeightedByTheirOwnTokens) {
  ASSERT_TRUE(run("int4", kText).ok());
  ASSERT_TRUE(report_.calibration);
  EXPECT_EQ(report_.calibration->n_tokens, std::strlen(kText));
  EXPECT_EQ(report_.calibration->n_experts, 4u);
  EXPECT_EQ(report_.calibration->n_unreached, 3u);
  EXPECT_GT(report_.calibration->perplexity, 1);
  for (const char* name : {"gate", "up", "down"}) {
    const MatrixReport& reached = matrices_[std::string("layers.1.moe.experts.0.") + name];
    EXPECT_TRUE(reached.weighted) << name;
    EXPECT_EQ(reached.n_tokens, std::strlen(kText) - 1) << name;
    EXPECT_FALSE(matrices_[std::string("layers.1.moe.experts.1.") + name].weighted) << name;
  }
  EXPECT_TRUE(matrices_["head"].weighted);  // int8 matrices are calibrated too
  EXPECT_FALSE(matrices_["embedding"].weighted);
}

// Attention adds nothing, so the inputs of layer 0's experts are embeddings. Lower-case vowels go
// to expert 1, all other characters to expert 0.
TEST_F(CalibrateTest, EachExpertHasTheInputsThatWereRoutedToIt) {
  config_ = patched(R"({"tokenizer": "bytes", "vocab_size": 256, "context_length": 64,
      "add_bos": false, "layers": [{"index": 0, "ffn": {"kind": "moe", "moe": {"n_experts": 2,
      "router": {"kind": "hash"}}}}]})");
  tensors_ = test::random_tensors(config_);
  tensors_["layers.0.attention.o.weight"] = test::f32_tensor({24, 24}, std::vector<float>(24 * 24));
  std::vector<int32_t> table(256);
  std::string vowels, others;
  for (const char c : std::string("aeiou")) table[static_cast<size_t>(c)] = 1;
  tensors_["layers.0.moe.router.table"] = {"I32", {256}, test::as_bytes(table)};
  std::string read = kText;
  read.pop_back();
  for (const char c : read) (table[static_cast<size_t>(c)] == 1 ? vowels : others) += c;
  ASSERT_TRUE(run("int4", kText).ok());
  test::ConvertedModel model(target_.file("m.moe"));
  for (int32_t e = 0; e < 2; ++e) {
    const std::string name = "layers.0.moe.experts." + std::to_string(e) + ".up";
    const std::string& tokens = e == 1 ? vowels : others;
    const char* norm = "layers.0.ffn_norm.weight";
    const double error = output_error(name, model.matrix(Part::kExperts, 0, e, Role::kUp),
                                      first_inputs(tokens, norm), first_inputs(read, norm),
                                      Feedback::kPrior * 24 / static_cast<double>(read.size()));
    EXPECT_NEAR(matrices_[name].weighted_error, error, 1e-3 * error);
    EXPECT_EQ(matrices_[name].n_tokens, tokens.size());
  }
}

TEST_F(CalibrateTest, AnEmbeddingIsCompensatedAsTheHeadThatItIs) {
  use_embedding_as_head();
  for (const char* weights : {"int4_k", "tcq3", "int8_group"}) {
    double errors[2];
    for (const bool calibrated : {false, true}) {
      ASSERT_TRUE(run("auto", calibrated ? kText : nullptr, weights).ok());
      std::string read = kText;
      read.pop_back();
      test::ConvertedModel model(target_.file("m.moe"));
      errors[calibrated] =
          output_error("embedding", model.matrix(Part::kEmbedding, -1, -1, Role::kWeight),
                       first_inputs(read, "final_norm.weight"));
    }
    EXPECT_TRUE(matrices_["embedding"].compensated);
    EXPECT_NEAR(matrices_["embedding"].weighted_error, errors[1], 1e-4 * errors[0]) << weights;
    EXPECT_LT(errors[1], 0.8 * errors[0]) << weights;
  }
}

// Errors of outputs count as the head's, those of the weights as the embedding's.
TEST_F(CalibrateTest, AnEmbeddingThatIsTheHeadIsExpectedToDoTheDamageOfBoth) {
  use_embedding_as_head();
  options_.goal.most_bits = 64;  // the weights of all other matrices are exact
  for (const char* format : {"int4_k", "tcq2"}) {
    ASSERT_TRUE(run("auto", kText, format).ok());
    std::string read = kText;
    read.pop_back();
    const Rows inputs = first_inputs(read, "final_norm.weight");
    double input = 0;
    for (const std::vector<double>& x : inputs) input += dot(x.data(), x) / 24;
    const std::vector<float> wanted = floats("embedding.weight");
    test::ConvertedModel model(target_.file("m.moe"));
    const Matrix stored = model.matrix(Part::kEmbedding, -1, -1, Role::kWeight);
    double of_outputs = 0, of_weights = 0, norm = 0;
    std::vector<float> row(24);
    for (int32_t r = 0; r < stored.rows; ++r) {
      if (r / 16 % 4 != 2) continue;  // not in the sample of 4 tiles
      read_row(stored, r, row.data());
      std::vector<double> e;
      for (size_t c = 0; c < 24; ++c) {
        const double w = wanted[static_cast<size_t>(r) * 24 + c];
        e.push_back(w - double{row[c]});
        norm += w * w;
      }
      of_weights += dot(e.data(), e);
      for (const std::vector<double>& x : inputs) of_outputs += dot(e.data(), x) * dot(e.data(), x);
    }
    const ModelConfig& config = model.config();
    const double added = input_error(matrices_.at("embedding").act);
    double damage =
        sensitivity(Part::kHead, -1, Role::kWeight, config) *
            grown(of_outputs / (input * norm) + added) +
        sensitivity(Part::kEmbedding, -1, Role::kWeight, config) * grown(of_weights / norm);
    // The matrices of zeros are ternary, and have rounded inputs.
    for (const char* name : {"layers.0.attention.o", "layers.0.ffn.down"}) {
      const MatrixReport& m = matrices_.at(name);
      damage += m.sensitivity * grown(*m.expected_error * *m.expected_error);
    }
    EXPECT_NEAR(report_.size->damage, damage, 1e-4 * damage) << format;
  }
}

// The second moments of a matrix; empty if none were collected.
std::vector<double> moments(Calibration& calibration, const std::string& name) {
  std::vector<double> out;
  const InputSums* sums = calibration.inputs().find(name);
  if (sums == nullptr || sums->moments == nullptr) return out;
  for (int32_t i = 0; i < sums->n_inputs; ++i) {
    for (int32_t j = 0; j <= i; ++j) out.push_back(sums->moments->at(i, j));
  }
  return out;
}

TEST_F(CalibrateTest, OffloadedExpertsGiveTheSame) {
  config_ = patched(R"({"tokenizer": "bytes", "vocab_size": 256, "layers": [{"index": 1, "ffn":
      {"kind": "moe", "moe": {"n_experts": 40, "router": {"kind": "softmax", "k": 3}}}}]})");
  test::write_checkpoint(source_, config_, test::random_tensors(config_));
  const Checkpoint checkpoint(source_.path());
  const Imported imported = import_checkpoint(checkpoint);
  PrecisionPolicy policy = PrecisionPolicy::as_source();
  const Plan plan = make_plan(imported, checkpoint, &policy);
  options_.weights = "f32";
  MemorySink file;
  ASSERT_TRUE(convert_to_sink(source_.path(), file, options_, &report_).ok());
  CalibrationText text;
  text.prefix = {0};
  ThreadPool pool(system_allocator());
  ASSERT_TRUE(pool.start(0).ok());
  for (int i = 0; i < 100; ++i) text.tokens.push_back(i * 37 % 256);
  CalibrationOptions options;
  for (const PlannedSegment& segment : plan.segments) {
    for (const PlannedMatrix& m : segment.matrices) {
      options.with_moments.insert(m.slot.short_name());
    }
  }
  const std::unique_ptr<Calibration> all =
      calibrate_on_text(file, file.size(), plan, text, pool, options);
  EXPECT_EQ(all->run().text.n_tokens, 100u);
  EXPECT_EQ(all->run().n_experts, 40u);
  EXPECT_LT(all->run().n_unreached, 20u);
  EXPECT_EQ(all->run().n_passes, 1u);
  uint64_t n_pairs = 0;
  for (int e = 0; e < 40; ++e) {
    n_pairs += all->inputs().n_tokens("layers.1.moe.experts." + std::to_string(e) + ".down");
  }
  // In each window of 31 tokens the prefix is an input and the last token is not: 100 inputs in
  // all, with 3 experts each.
  EXPECT_EQ(n_pairs, 3u * 100);
  uint64_t cap = uint64_t{1} << 16;
  for (bool fits = false; !fits; cap += cap / 8) {
    fits = guarded([&] {
             options.model_bytes = cap;
             const std::unique_ptr<Calibration> few =
                 calibrate_on_text(file, file.size(), plan, text, pool, options);
             EXPECT_EQ(few->run().text.perplexity, all->run().text.perplexity);
             for (const PlannedSegment& segment : plan.segments) {
               for (const PlannedMatrix& m : segment.matrices) {
                 const std::string name = m.slot.short_name();
                 const InputSums *some = few->inputs().find(name), *same = all->inputs().find(name);
                 ASSERT_EQ(some == nullptr, same == nullptr) << name;
                 if (some == nullptr) continue;
                 ASSERT_EQ(some->n_tokens, same->n_tokens) << name;
                 ASSERT_EQ(some->importance, same->importance) << name;
                 ASSERT_EQ(moments(*few, name), moments(*all, name)) << name;
               }
             }
           }).ok();
  }
  EXPECT_LT(cap, uint64_t{64} << 20);
}

// With little memory for second moments, the text is read again for the layers that did not fit. A
// layer that never fits uses the mean squares of its inputs.
TEST_F(CalibrateTest, MomentsThatDoNotFitTakeMorePasses) {
  config_ = patched(R"({"tokenizer": "bytes", "vocab_size": 256})");
  test::write_checkpoint(source_, config_, test::random_tensors(config_));
  const Checkpoint checkpoint(source_.path());
  const Imported imported = import_checkpoint(checkpoint);
  PrecisionPolicy policy = PrecisionPolicy::as_source();
  const Plan plan = make_plan(imported, checkpoint, &policy);
  options_.weights = "f32";
  MemorySink file;
  ASSERT_TRUE(convert_to_sink(source_.path(), file, options_, &report_).ok());
  CalibrationText text;
  text.prefix = {0};
  ThreadPool pool(system_allocator());
  ASSERT_TRUE(pool.start(0).ok());
  for (int i = 0; i < 50; ++i) text.tokens.push_back(i * 37 % 256);
  CalibrationOptions options;
  const std::string names[] = {"layers.0.attention.q", "layers.0.attention.o",
                               "layers.1.attention.v", "head"};
  options.with_moments = {names, names + 4};
  const std::unique_ptr<Calibration> all =
      calibrate_on_text(file, file.size(), plan, text, pool, options);
  options.moment_bytes = 2 * SecondMoments::bytes(24);  // those of layer 0, or the two others
  const std::unique_ptr<Calibration> some =
      calibrate_on_text(file, file.size(), plan, text, pool, options);
  options.moment_bytes = 1;
  const std::unique_ptr<Calibration> none =
      calibrate_on_text(file, file.size(), plan, text, pool, options);
  std::set<std::string> seen;
  for (size_t s = 0; s < plan.segments.size(); ++s) {
    for (Calibration* c : {all.get(), some.get(), none.get()}) c->prepare(s);
    for (const PlannedMatrix& m : plan.segments[s].matrices) {
      const std::string name = m.slot.short_name();
      EXPECT_EQ(moments(*some, name), moments(*all, name)) << name;
      EXPECT_EQ(moments(*none, name), std::vector<double>()) << name;
      if (!moments(*some, name).empty()) seen.insert(name);
      ASSERT_EQ(some->inputs().n_tokens(name), all->inputs().n_tokens(name)) << name;
      ASSERT_EQ(none->inputs().n_tokens(name), all->inputs().n_tokens(name)) << name;
    }
  }
  for (const std::string& name : names) EXPECT_EQ(seen.count(name), 1u) << name;
  EXPECT_EQ(all->run().n_passes, 1u);
  EXPECT_EQ(some->run().n_passes, 2u);
  EXPECT_EQ(none->run().n_passes, 1u);
  EXPECT_EQ(all->run().n_without_room, 0u);
  EXPECT_EQ(none->run().n_without_room, 3u);  // two layers, and the matrices outside of layers
}

TEST_F(CalibrateTest, UselessCalibrationIsRefusedBeforeAnythingIsWritten) {
  expect_refused("int4", "", "expected a text of 2 tokens or more, found 0");
  expect_refused("int4", "a", "found 1");
  expect_refused("f32", kText, "changes nothing");
  expect_refused("bf16", kText, "changes nothing");
  config_ = patched(R"({"vocab_size": 256})", config_.c_str());
  config_ = patched(R"({"tokenizer": null})", config_.c_str());
  expect_refused("int4", kText, "no tokenizer");
}

TEST_F(CalibrateTest, CancelAtEveryCallLeavesTheOldFile) {
  std::vector<std::string> said;
  options_.progress = [&](uint64_t done, uint64_t total, const char* what) {
    EXPECT_LE(done, total);
    said.emplace_back(what);
    return true;
  };
  ASSERT_TRUE(run("int4", kText).ok());
  const size_t n_calls = said.size();
  EXPECT_NE(std::find(said.begin(), said.end(), "calibrate"), said.end());
  target_.write("m.moe", test::old_model());
  for (size_t stop = 1; stop <= n_calls; ++stop) {
    size_t calls = 0;
    options_.progress = [&](uint64_t, uint64_t, const char*) { return ++calls < stop; };
    ASSERT_EQ(run("int4", kText).code(), MOE_ERR_CANCELLED) << stop;
    ASSERT_EQ(target_.text("m.moe"), test::old_model());
    ASSERT_EQ(target_.names().size(), 1u);
  }
}

TEST_F(CalibrateTest, NonFiniteActivationsAreAnError) {
  std::vector<float> w(24 * 24, 1e30f);
  tensors_["layers.0.attention.o.weight"] = test::f32_tensor({24, 24}, w);
  tensors_["layers.0.attention.v.weight"] =
      test::f32_tensor({12, 24}, std::vector<float>(12 * 24, 1e30f));
  const Status status = run("int8", kText);
  EXPECT_EQ(status.code(), MOE_ERR_NON_FINITE) << status.text();
  EXPECT_TRUE(target_.names().empty());
}

TEST(RefineRow, NeverLosesMore) {
  std::mt19937 random(5);
  std::normal_distribution<float> normal(0, 1);
  for (const int32_t n : {1, 7, 200}) {
    std::vector<float> w(static_cast<size_t>(n)), importance(w.size());
    for (float& v : w) v = normal(random);
    for (float& v : importance) v = std::exp(2 * normal(random));
    std::vector<int8_t> codes(w.size());
    float scale = 0;
    ASSERT_TRUE(int8_row(w.data(), n, codes.data(), &scale).ok());
    const auto error = [&] {
      double sum = 0;
      for (size_t i = 0; i < w.size(); ++i) {
        const double d = double{w[i]} - double{scale * static_cast<float>(codes[i])};
        sum += double{importance[i]} * d * d;
      }
      return sum;
    };
    const double before = error();
    refine_row(w.data(), importance.data(), n, 127, codes.data(), &scale);
    EXPECT_LE(error(), before);
    if (n == 200) {
      EXPECT_LT(error(), 0.97 * before);
    }
  }
}

TEST(RefineRow, RowsWithoutLossStay) {
  const std::vector<float> w = {127, -3, 0, 64}, zeros(4), importance = {1, 0, 5, 2};
  for (const std::vector<float>& row : {w, zeros}) {
    std::vector<int8_t> codes(4);
    float scale = 0;
    ASSERT_TRUE(int8_row(row.data(), 4, codes.data(), &scale).ok());
    const std::vector<int8_t> before = codes;
    refine_row(row.data(), importance.data(), 4, 127, codes.data(), &scale);
    EXPECT_EQ(scale, 1.0f);
    EXPECT_EQ(codes, before);
  }
}

TEST(TernaryScale, IsThatOfTheImportantWeights) {
  // Half of the inputs have importance 0, and their weights are ten times as large.
  std::vector<float> w, importance;
  for (int i = 0; i < 64; ++i) {
    w.push_back(i % 2 == 0 ? 0.5f : 5.0f);
    importance.push_back(i % 2 == 0 ? 1.0f : 0.0f);
  }
  TernaryScale scale;
  scale.add(w.data(), importance.data(), 64);
  EXPECT_NEAR(scale.best(2.75), 0.5, 0.01);
  EXPECT_EQ(TernaryScale().best(0.25), 0.25);
}

}  // namespace
}  // namespace moe
