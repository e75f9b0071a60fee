// Statistics of a calibration in a file: conversions with them, and files that are not right.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "src/convert/calibration/calibrate.h"
#include "src/convert/convert.h"
#include "tests/convert/tiny_checkpoint.h"

namespace moe {
namespace {

using test::patched;

const char* const kSphinx = "Sphinx of black quartz, judge my vow. Sphinx of black quartz.";
// A model with one token per byte. Expert 0 of the second layer gets every token, the third layer's
// router scores them. The first layer's width exceeds one block of second moments.
const char* const kThreeLayers = R"({"tokenizer": "bytes", "vocab_size": 256, "add_bos": false,
  "context_length": 64, "n_layers": 3, "layers": [
  {"index": 0, "ffn": {"kind": "dense", "d_ff": 2056, "gated": true, "act": "silu"}},
  {"index": 1, "ffn": {"kind": "moe", "moe": {"n_experts": 4, "router": {"kind": "hash"}}}},
  {"index": 2, "ffn": {"kind": "moe", "moe": {"n_experts": 4,
                                              "router": {"kind": "softmax", "k": 2}}}}]})";

class StatisticsTest : public testing::Test {
 protected:
  StatisticsTest() { test::write_checkpoint(source_, config_, tensors_); }

  Status run(const char* weights, const char* text, const char* statistics = nullptr,
             const char* save = nullptr) {
    options_.weights = weights;
    options_.calibration.reset();
    options_.statistics.reset();
    options_.save_statistics.reset();
    if (text != nullptr) options_.calibration = text;
    if (statistics != nullptr) options_.statistics = target_.file(statistics);
    if (save != nullptr) options_.save_statistics = target_.file(save);
    matrices_.clear();
    options_.on_matrix = [this](const MatrixReport& r) { matrices_.push_back(to_json(r)); };
    return convert(source_.path(), target_.file("m.moe"), options_, &report_);
  }
  // Everything a conversion gives, except for how often the text was read.
  std::string result() {
    std::string out = target_.text("m.moe");
    for (const std::string& matrix : matrices_) out += matrix;
    if (!report_.calibration) return out;
    report_.calibration->n_passes = 0;
    return out + to_json(report_);
  }
  void save() {
    ASSERT_TRUE(run("int4", kSphinx, nullptr, "s").ok());
    std::filesystem::remove(target_.file("m.moe"));
  }
  // Of "s", which is refused before anything is written.
  Status refusal() {
    const Status status = run("int4", nullptr, "s");
    EXPECT_EQ(target_.names(), std::vector<std::string>{"s"}) << status.text();
    return status;
  }
  void expect_refused(moe_status code, const char* why) {
    const Status status = refusal();
    EXPECT_EQ(status.code(), code) << status.text();
    EXPECT_NE(std::string(status.text()).find(why), std::string::npos) << status.text();
  }

  test::TempFolder source_, target_;
  std::string config_ = patched(kThreeLayers);
  test::RawTensors tensors_ = test::random_tensors(config_);
  ConvertOptions options_;
  ConvertReport report_;
  std::vector<std::string> matrices_;
};

TEST_F(StatisticsTest, GiveTheModelThatTheirTextGives) {
  // Saved by a conversion that does not need those of the head and of some experts.
  options_.overrides = {"head=f32", "layers.2.moe.experts.1.*=f32"};
  ASSERT_TRUE(run("int8", kSphinx).ok());
  const std::string alone = result();
  ASSERT_TRUE(run("int8", kSphinx, nullptr, "s").ok());
  EXPECT_TRUE(result() == alone);
  for (const char* weights : {"auto", "int4", "int4_k", "int8", "ternary2", "ternary3"}) {
    for (const bool some_in_floats : {false, true}) {
      options_.overrides.clear();
      if (some_in_floats) options_.overrides = {"layers.2.moe.experts.0.*=bf16"};
      ASSERT_TRUE(run(weights, kSphinx).ok());
      EXPECT_EQ(report_.calibration->n_passes, 1u);
      EXPECT_EQ(report_.calibration->n_unreached, 3u);
      EXPECT_GT(report_.calibration->n_compensated, 20u);
      const std::string from_text = result();
      const Status status = run(weights, nullptr, "s");
      ASSERT_TRUE(status.ok()) << status.text();
      EXPECT_EQ(report_.calibration->n_passes, 0u);
      EXPECT_TRUE(result() == from_text) << weights;
    }
  }
  EXPECT_EQ(target_.names().size(), 2u);
}

// Layers whose second moments found no room have none in the file, and the report says so again.
TEST_F(StatisticsTest, HoldWhatThereWasRoomFor) {
  const Checkpoint checkpoint(source_.path());
  const Imported imported = import_checkpoint(checkpoint);
  PrecisionPolicy policy = PrecisionPolicy::as_source();
  const Plan plan = make_plan(imported, checkpoint, &policy);
  options_.weights = "f32";
  MemorySink model;
  ASSERT_TRUE(convert_to_sink(source_.path(), model, options_, &report_).ok());
  CalibrationText text;
  for (int i = 0; i < 50; ++i) text.tokens.push_back(i * 37 % 256);
  const std::vector<InputKey> inputs = list_inputs(plan, imported.config);
  CalibrationOptions options;
  for (const InputKey& input : inputs) options.with_moments.insert(input.name);
  std::vector<std::string> files;
  const uint64_t small = SecondMoments::bytes(2048);  // more than any layer but the first needs
  for (const uint64_t bytes : {2 * small, small, uint64_t{1}}) {
    MemorySink sink;
    StatisticsWriter writer(sink, inputs, 7);
    options.moment_bytes = bytes;
    options.save = &writer;
    const auto read = calibrate_on_text(model, model.size(), plan, text, options);
    for (size_t i = 0; i < plan.segments.size(); ++i) read->prepare(i);
    EXPECT_EQ(read->run().n_without_room, bytes == 1 ? 4u : bytes == small ? 1u : 0u);
    files.emplace_back(reinterpret_cast<const char*>(sink.data()), sink.size());
    target_.write("s", files.back());
    const StatisticsFile file(target_.file("s"), inputs, 7);
    file.check_values([](uint64_t) {});
    const auto saved = calibrate_as_saved(file, plan, imported.config, options.with_moments);
    EXPECT_EQ(saved->run().n_without_room, read->run().n_without_room);
    EXPECT_EQ(saved->run().n_unreached, read->run().n_unreached);
    EXPECT_EQ(saved->run().text.perplexity, read->run().text.perplexity);
    EXPECT_EQ(file.has_moments("layers.0.ffn.down"), bytes == 2 * small);
    EXPECT_EQ(file.has_moments("layers.2.attention.o"), bytes != 1);
  }
  EXPECT_GT(files[0].size(), files[1].size() + small / 2);
}

// However many passes the text takes, the file is the same.
TEST_F(StatisticsTest, AreTheSameInSeveralPasses) {
  const Checkpoint checkpoint(source_.path());
  const Imported imported = import_checkpoint(checkpoint);
  PrecisionPolicy policy = PrecisionPolicy::as_source();
  const Plan plan = make_plan(imported, checkpoint, &policy);
  options_.weights = "f32";
  MemorySink model;
  ASSERT_TRUE(convert_to_sink(source_.path(), model, options_, &report_).ok());
  CalibrationText text;
  for (int i = 0; i < 50; ++i) text.tokens.push_back(i * 37 % 256);
  std::vector<std::string> files;
  for (const uint64_t bytes :
       {uint64_t{1} << 30, SecondMoments::bytes(2056) + (uint64_t{1} << 14)}) {
    MemorySink sink;
    StatisticsWriter writer(sink, list_inputs(plan, imported.config), 7);
    CalibrationOptions options;
    options.moment_bytes = bytes;
    options.save = &writer;
    const auto read = calibrate_on_text(model, model.size(), plan, text, options);
    for (size_t i = 0; i < plan.segments.size(); ++i) read->prepare(i);
    EXPECT_EQ(read->run().n_passes > 1, !files.empty());
    EXPECT_EQ(read->run().n_without_room, 0u);
    files.emplace_back(reinterpret_cast<const char*>(sink.data()), sink.size());
  }
  EXPECT_TRUE(files[0] == files[1]);
}

TEST_F(StatisticsTest, OfAnotherModelAreRefused) {
  save();
  test::RawTensors other = tensors_;
  other["layers.1.attention.q.weight"].bytes[2] ^= 1;
  test::write_checkpoint(source_, config_, other);
  expect_refused(MOE_ERR_ARGUMENT, "expected statistics of this checkpoint");
  const struct {
    const char* from;
    const char* to;
    const char* why;
  } kChanges[] = {
      {"2056", "2064",
       "layers.0.ffn.down.mean_squares: the model needs F32 (2064), the file has F32 (2056)"},
      {R"("n_experts":4)", R"("n_experts":5)", "layers.1.moe.experts.4.up.tokens is missing"},
      {R"("n_experts":4)", R"("n_experts":3)",
       "layers.1.moe.experts.3.down.tokens: the model has no such input"}};
  for (const auto& change : kChanges) {
    std::string config = config_;
    for (size_t at = 0; (at = config.find(change.from, at)) != std::string::npos; ++at) {
      config.replace(at, std::strlen(change.from), change.to);
    }
    test::write_checkpoint(source_, config, test::random_tensors(config));
    expect_refused(MOE_ERR_FORMAT, change.why);
  }
}

TEST_F(StatisticsTest, ThatAreNoneAreRefused) {
  target_.write("s", kSphinx);
  expect_refused(MOE_ERR_FORMAT, "not a safetensors file");
  target_.write("s", "");
  expect_refused(MOE_ERR_FORMAT, "not a safetensors file");
  target_.write("s", test::safetensors_text(tensors_));
  expect_refused(MOE_ERR_FORMAT, "expected statistics that a conversion saved");
  target_.write("s", test::safetensors_text("{}", ""));
  expect_refused(MOE_ERR_FORMAT, "expected statistics that a conversion saved");
  EXPECT_EQ(run("int4", nullptr, "none").code(), MOE_ERR_NOT_FOUND);
}

// A saved file in parts that a test changes.
struct Parts {
  explicit Parts(const std::string& file) {
    uint64_t n = 0;
    std::memcpy(&n, file.data(), sizeof n);
    const Json header = parse_json(file.substr(8, n), "test");
    for (const auto& [name, value] : header.items()) {
      if (name == "__metadata__") {
        metadata = value;
        continue;
      }
      const auto at = value.at("data_offsets").get<std::vector<size_t>>();
      tensors[name] = {value.at("dtype").text(), value.at("shape").get<std::vector<int64_t>>(),
                       file.substr(8 + n + at[0], at[1] - at[0])};
    }
  }
  std::string text() const {
    std::string out = test::safetensors_text(tensors);
    uint64_t n = 0;
    std::memcpy(&n, out.data(), sizeof n);
    const std::string old = R"({"__metadata__":{"format":"pt"})";
    return test::safetensors_text(
        R"({"__metadata__":)" + metadata.dump() + out.substr(8 + old.size(), n - old.size()),
        out.substr(8 + n));
  }
  void put(const std::string& name, size_t at, float value) {
    std::memcpy(tensors.at(name).bytes.data() + at * sizeof value, &value, sizeof value);
  }
  void put(const std::string& name, int64_t value) {
    std::memcpy(tensors.at(name).bytes.data(), &value, sizeof value);
  }

  Json metadata;
  test::RawTensors tensors;
};

TEST_F(StatisticsTest, DamagedOnesAreRefusedByName) {
  save();
  const Parts whole(target_.text("s"));
  const std::string up = "layers.2.moe.experts.0.up.";
  const auto expect = [&](moe_status code, const std::string& why, auto&& change) {
    Parts parts = whole;
    change(parts);
    target_.write("s", parts.text());
    expect_refused(code, why.c_str());
  };
  target_.write("s", whole.text());  // other tools may order tensors by name
  ASSERT_TRUE(run("int4", nullptr, "s").ok());
  std::filesystem::remove(target_.file("m.moe"));
  const float nan = std::nanf(""), infinite = HUGE_VALF;
  expect(MOE_ERR_NON_FINITE, up + "mean_squares: expected finite numbers, found nan at 3",
         [&](Parts& p) { p.put(up + "mean_squares", 3, nan); });
  expect(MOE_ERR_NON_FINITE, up + "second_moments: expected finite numbers, found inf at 40",
         [&](Parts& p) { p.put(up + "second_moments", 40, infinite); });
  expect(MOE_ERR_RANGE, up + "mean_squares: expected 0 or more, found -2 at 3",
         [&](Parts& p) { p.put(up + "mean_squares", 3, -2); });
  expect(MOE_ERR_RANGE, up + "second_moments: expected a mean square of 0 or more, input 2 has -2",
         [&](Parts& p) { p.put(up + "second_moments", 5, -2); });
  expect(MOE_ERR_CORRUPT, "checksum", [&](Parts& p) { p.put(up + "second_moments", 4, -2); });
  expect(MOE_ERR_CORRUPT, "checksum", [&](Parts& p) { p.put(up + "tokens", 1); });
  expect(MOE_ERR_RANGE, up + "tokens", [&](Parts& p) { p.put(up + "tokens", -1); });
  expect(MOE_ERR_FORMAT, "no token reached it", [&](Parts& p) { p.put(up + "tokens", 0); });
  expect(MOE_ERR_FORMAT, "layers.1.moe.experts.1.up.mean_squares is missing",
         [&](Parts& p) { p.put("layers.1.moe.experts.1.up.tokens", 1); });
  expect(MOE_ERR_FORMAT, up + "tokens is missing",
         [&](Parts& p) { p.tensors.erase(up + "tokens"); });
  expect(MOE_ERR_CORRUPT, "checksum", [&](Parts& p) { p.tensors.erase(up + "second_moments"); });
  expect(MOE_ERR_FORMAT, "x.tokens: the model has no such input",
         [&](Parts& p) { p.tensors["x.tokens"] = p.tensors[up + "tokens"]; });
  expect(MOE_ERR_FORMAT, "I64 (1), the file has I64 ()",
         [&](Parts& p) { p.tensors[up + "tokens"].shape.clear(); });
  expect(MOE_ERR_FORMAT, "the model needs F32 (24), the file has I32 (24)",
         [&](Parts& p) { p.tensors[up + "mean_squares"].dtype = "I32"; });
  expect(MOE_ERR_VERSION, "expected version 1, found 2",
         [](Parts& p) { p.metadata["version"] = "2"; });
  expect(MOE_ERR_CORRUPT, "checksum: expected 12", [](Parts& p) { p.metadata["xxh64"] = "12"; });
  for (const char* key : {"format", "version", "model", "tokens", "perplexity", "xxh64"}) {
    expect(MOE_ERR_FORMAT, key[0] == 'f' ? "other tensors" : key,
           [&](Parts& p) { p.metadata.erase(key); });
    expect(MOE_ERR_FORMAT, key[0] == 'f' ? "other tensors" : key,
           [&](Parts& p) { p.metadata[key] = 1; });
  }
  for (const char* tokens : {"", "0", "-1", "1.5", "9007199254740993", "1e999", "[1]"}) {
    expect(MOE_ERR_FORMAT, "__metadata__: tokens",
           [&](Parts& p) { p.metadata["tokens"] = tokens; });
  }
  for (const char* perplexity : {"", "-1", "nan", "1e999", "null"}) {
    expect(MOE_ERR_FORMAT, "__metadata__: perplexity",
           [&](Parts& p) { p.metadata["perplexity"] = perplexity; });
  }
  expect(MOE_ERR_CORRUPT, "checksum", [](Parts& p) { p.metadata["perplexity"] = "3"; });
}

TEST_F(StatisticsTest, EveryCutAndChangedByteIsNoticed) {
  config_ = patched(R"({"tokenizer": "bytes", "vocab_size": 256, "add_bos": false, "n_layers": 1,
      "layers": []})");
  test::write_checkpoint(source_, config_, test::random_tensors(config_));
  save();
  const std::string whole = target_.text("s");
  for (size_t n = 0; n < whole.size(); n += 101) {
    target_.write("s", whole.substr(0, n));
    const Status status = refusal();
    EXPECT_EQ(status.code(), MOE_ERR_FORMAT) << n << ": " << status.text();
    std::string changed = whole;
    changed[n] ^= 4;
    target_.write("s", changed);
    EXPECT_FALSE(refusal().ok()) << n;
    EXPECT_NE(refusal().code(), MOE_ERR_INTERNAL) << n;
  }
  target_.write("s", whole + "\n");
  expect_refused(MOE_ERR_FORMAT, "belong to no tensor");
}

TEST_F(StatisticsTest, OptionsThatDoNotFitTogetherAreRefused) {
  save();
  const auto expect = [&](const Status& status, const char* why) {
    EXPECT_EQ(status.code(), MOE_ERR_ARGUMENT);
    EXPECT_NE(std::string(status.text()).find(why), std::string::npos) << status.text();
    EXPECT_EQ(target_.names(), std::vector<std::string>{"s"});
  };
  const std::string before = target_.text("s");
  expect(run("int4", kSphinx, "s"), "found both");
  expect(run("int4", nullptr, nullptr, "new"), "none is given");
  expect(run("int4", nullptr, "s", "new"), "none is given");
  expect(run("f32", nullptr, "s"), "changes nothing");
  options_.weights = "int4";
  options_.statistics.reset();
  options_.calibration = before;
  expect(convert(source_.path(), target_.file("m.moe"), options_, &report_),
         "found a safetensors file");
  expect(run("int4", kSphinx, nullptr, "m.moe"), "different files");
  expect(run("int4", nullptr, "./m.moe"), "different files");
  options_.save_statistics = source_.file("model.safetensors");
  options_.statistics.reset();
  options_.calibration = kSphinx;
  expect(convert(source_.path(), target_.file("m.moe"), options_, &report_), "of the checkpoint");
  options_.split = {2, false};
  expect(run("int4", nullptr, "s"), "split");
  expect(run("int4", kSphinx, nullptr, "new"), "split");
  EXPECT_EQ(target_.text("s"), before);
}

TEST_F(StatisticsTest, CancelAtEveryCallLeavesNothing) {
  save();
  const std::string before = target_.text("s");
  for (const bool saves : {true, false}) {
    const auto convert_now = [&] {
      return saves ? run("int4", kSphinx, nullptr, "s") : run("int4", nullptr, "s");
    };
    std::vector<std::string> said;
    options_.progress = [&](uint64_t done, uint64_t total, const char* what) {
      EXPECT_LE(done, total);
      said.emplace_back(what);
      return true;
    };
    ASSERT_TRUE(convert_now().ok());
    EXPECT_EQ(std::count(said.begin(), said.end(), "statistics") > 3, !saves);
    std::filesystem::remove(target_.file("m.moe"));
    for (size_t stop = 1; stop <= said.size(); ++stop) {
      size_t calls = 0;
      options_.progress = [&](uint64_t, uint64_t, const char*) { return ++calls < stop; };
      ASSERT_EQ(convert_now().code(), MOE_ERR_CANCELLED) << stop;
      ASSERT_EQ(target_.names(), std::vector<std::string>{"s"}) << stop;
      ASSERT_TRUE(target_.text("s") == before) << stop;
    }
  }
}

// Values up to 1e20 are fine for a conversion, but not their squares for a file.
TEST_F(StatisticsTest, MeansBeyondF32AreNotSaved) {
  for (const auto& [name, rows, value] :
       {std::tuple{"v", 12, 1e20f}, std::tuple{"o", 24, 1e-21f}}) {
    std::vector<float> w(static_cast<size_t>(rows) * 24, value);
    tensors_[std::string("layers.0.attention.") + name + ".weight"] =
        test::f32_tensor({rows, 24}, w);
  }
  test::write_checkpoint(source_, config_, tensors_);
  Status status = run("int8", kSphinx);
  EXPECT_TRUE(status.ok()) << status.text();
  std::filesystem::remove(target_.file("m.moe"));
  status = run("int8", kSphinx, nullptr, "s");
  EXPECT_EQ(status.code(), MOE_ERR_NON_FINITE);
  EXPECT_NE(std::string(status.text()).find("layers.0.attention.o"), std::string::npos)
      << status.text();
  EXPECT_TRUE(target_.names().empty());
}

TEST(StatisticsWriter, RefusesAHeaderThatNoReaderTakes) {
  std::vector<InputKey> inputs;
  for (int i = 0; i < 150'000; ++i)
    inputs.push_back({"layers.0.moe.experts." + std::to_string(i) + ".up", 64});
  MemorySink sink;
  const Status status = guarded([&] { StatisticsWriter(sink, std::move(inputs), 0); });
  EXPECT_EQ(status.code(), MOE_ERR_RANGE) << status.text();
}

}  // namespace
}  // namespace moe
