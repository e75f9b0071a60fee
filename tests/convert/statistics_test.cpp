// SPDX-License-Identifier: MIT
// Statistics of a calibration in a file, and conversions with them.
#include <cmath>

#include "src/convert/calibration/calibrate.h"
#include "src/convert/candidates.h"
#include "tests/convert/statistics_case.h"
#include "tests/support/every_nth.h"

namespace moe {
namespace {

using test::kSphinx;
using test::StatisticsTest;

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

// A model in floats and a text for it.
struct SourceFile {
  explicit SourceFile(const std::string& folder) : checkpoint(folder) {
    check(pool.start(0));
    ConvertOptions in_floats;
    in_floats.weights = "f32";
    ConvertReport report;
    check(convert_to_sink(folder, model, in_floats, &report));
    for (int i = 0; i < 50; ++i) text.tokens.push_back(i * 37 % 256);
    for (const InputKey& input : inputs) all.insert(input.name);
  }
  // The statistics in at most `bytes` of memory, as a file. use_first: uses them before.
  std::string save(uint64_t bytes, CalibrationRun* run,
                   const std::function<void(Calibration&)>& use_first = nullptr) {
    MemorySink sink;
    StatisticsWriter writer(sink, inputs, 7);
    CalibrationOptions options;
    options.with_moments = all;
    options.moment_bytes = bytes;
    options.save = &writer;
    if (use_first) options.n_rounds = 2;
    const auto read = calibrate_on_text(model, model.size(), plan, text, pool, options);
    if (use_first) use_first(*read);
    for (size_t i = 0; i < plan.segments.size(); ++i) read->prepare(i);
    *run = read->run();
    return {reinterpret_cast<const char*>(sink.data()), sink.size()};
  }
  // The error that each format makes in each matrix.
  std::vector<double> errors(Calibration* calibration) {
    PrecisionPolicy open = PrecisionPolicy::open({}, {});
    const Plan to_choose = make_plan(imported, checkpoint, &open);
    const std::function<void()> tick = [] {};
    const CandidateSource source = {to_choose, checkpoint, pool, tick};
    std::vector<FormatGroup> groups;
    for (size_t s = 0; s < to_choose.segments.size(); ++s) {
      for (size_t i = 0; i < to_choose.segments[s].matrices.size(); ++i) {
        const Slot& slot = to_choose.segments[s].matrices[i].slot;
        if (slot.kind != SlotKind::kLinear) continue;
        groups.emplace_back().role = slot.role;
        groups.back().places = {{s, i}};
        list_candidates(source, &groups.back());
      }
    }
    std::vector<FormatGroup*> pointers;
    for (FormatGroup& group : groups) pointers.push_back(&group);
    measure_candidates(source, calibration, pointers);
    std::vector<double> out;
    for (const FormatGroup& group : groups) {
      for (const Candidate& candidate : group.candidates) out.push_back(candidate.weight_error);
    }
    return out;
  }

  ThreadPool pool{system_allocator()};
  const Checkpoint checkpoint;
  const Imported imported = import_checkpoint(checkpoint);
  PrecisionPolicy policy = PrecisionPolicy::as_source();
  const Plan plan = make_plan(imported, checkpoint, &policy);
  const std::vector<InputKey> inputs = list_inputs(plan, imported.config);
  std::set<std::string> all;
  MemorySink model;
  CalibrationText text;
};

// Inputs in more than one block of second moments.
class WideTest : public StatisticsTest {
 protected:
  WideTest() {
    const size_t at = config_.find("28");
    config_.replace(at, 2, "2056");
    tensors_ = test::random_tensors(config_);
    test::write_checkpoint(source_, config_, tensors_);
  }
  static void expect_same_squares(const StatisticsFile& file, const InputKey& input) {
    const std::vector<double> squares = file.sums(input)->squares;
    const std::unique_ptr<SecondMoments> moments = file.moments(input);
    for (int32_t i = 0; i < input.n_inputs; ++i) {
      ASSERT_EQ(moments->at(i, i), squares[static_cast<size_t>(i)]) << i;
      ASSERT_GT(squares[static_cast<size_t>(i)], 0) << i;
    }
  }
};

// Layers whose second moments found no room have none in the file, and the report says so again.
TEST_F(WideTest, HoldWhatThereWasRoomFor) {
  SourceFile source(source_.path());
  const uint64_t small = SecondMoments::bytes(2048);  // more than any layer but the first needs
  for (const uint64_t bytes : {2 * small, small, uint64_t{1}}) {
    CalibrationRun run;
    target_.write("s", source.save(bytes, &run));
    EXPECT_EQ(run.n_without_room, bytes == 1 ? 4u : bytes == small ? 1u : 0u);
    const StatisticsFile file(target_.file("s"), source.inputs, 7);
    file.check_values([](uint64_t) {});
    const auto saved =
        calibrate_as_saved(file, source.plan, source.imported.config, source.all, source.pool);
    EXPECT_EQ(saved->run().n_without_room, run.n_without_room);
    EXPECT_EQ(saved->run().n_unreached, run.n_unreached);
    EXPECT_EQ(saved->run().text.perplexity, run.text.perplexity);
    const InputKey wide{"layers.0.ffn.down", 2056};
    EXPECT_EQ(file.has_moments(wide.name), bytes == 2 * small);
    if (bytes == 2 * small) expect_same_squares(file, wide);
    EXPECT_EQ(file.has_moments("layers.2.attention.o"), bytes != 1);
  }
}

TEST_F(StatisticsTest, AreTheSameInSeveralPasses) {
  SourceFile source(source_.path());
  CalibrationRun once, often;
  const std::string file = source.save(uint64_t{1} << 30, &once);
  EXPECT_TRUE(source.save(32'000, &often) == file);  // the moments of one layer
  EXPECT_EQ(once.n_passes, 1u);
  EXPECT_GE(often.n_passes, 3u);
  EXPECT_EQ(often.n_without_room, 0u);
}

// A size is chosen with all second moments too, however often the text must be read for them.
TEST_F(StatisticsTest, ErrorsThatDecideAreTheSameInSeveralPasses) {
  SourceFile source(source_.path());
  CalibrationRun once, often, never;
  std::vector<double> at_once, in_passes, without;
  const std::string file = source.save(uint64_t{1} << 30, &once, [&](Calibration& calibration) {
    at_once = source.errors(&calibration);
  });
  EXPECT_TRUE(source.save(32'000, &often, [&](Calibration& calibration) {
    in_passes = source.errors(&calibration);
  }) == file);
  EXPECT_EQ(in_passes, at_once);
  // Also if whoever used them first did not need those of the last layers.
  EXPECT_TRUE(source.save(32'000, &often, [&](Calibration& calibration) {
    calibration.prepare(source.plan.segments.size() / 2);
  }) == file);
  (void)source.save(1, &never,
                    [&](Calibration& calibration) { without = source.errors(&calibration); });
  EXPECT_EQ(once.n_passes, 1u);
  EXPECT_GE(often.n_passes, 5u);
  ASSERT_EQ(without.size(), at_once.size());
  size_t n_smaller = 0;
  for (size_t i = 0; i < at_once.size(); ++i) n_smaller += at_once[i] < 0.9 * without[i] ? 1 : 0;
  EXPECT_GT(n_smaller, at_once.size() / 4);
  target_.write("s", file);
  const StatisticsFile saved(target_.file("s"), source.inputs, 7);
  const auto read =
      calibrate_as_saved(saved, source.plan, source.imported.config, source.all, source.pool);
  EXPECT_EQ(source.errors(read.get()), at_once);
  EXPECT_EQ(source.errors(read.get()), at_once);  // from the first segment again
}

TEST_F(StatisticsTest, GiveTheSizeThatTheirTextGives) {
  for (const double bits : {9.0, 12.0}) {
    options_.goal.most_bits = bits;
    Status status = run("auto", kSphinx, nullptr, "s");
    ASSERT_TRUE(status.ok()) << status.text();
    const std::string from_text = result();
    status = run("auto", nullptr, "s");
    ASSERT_TRUE(status.ok()) << status.text();
    EXPECT_TRUE(result() == from_text) << bits;
  }
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
  expect(run("f32", kSphinx), "leave the text out");
  expect(run("f32", nullptr, "s"), "leave the statistics out");
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
    test::EveryNth turn(5);
    for (size_t stop = 1; stop <= said.size(); ++stop) {
      if (!turn.take()) continue;
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
  tensors_["layers.0.ffn.up.weight"] =
      test::f32_tensor({28, 24}, std::vector<float>(28 * 24, 1e20f));
  tensors_["layers.0.ffn.down.weight"] =
      test::f32_tensor({24, 28}, std::vector<float>(24 * 28, 1e-21f));
  test::write_checkpoint(source_, config_, tensors_);
  Status status = run("int8", kSphinx);
  EXPECT_TRUE(status.ok()) << status.text();
  std::filesystem::remove(target_.file("m.moe"));
  status = run("int8", kSphinx, nullptr, "s");
  EXPECT_EQ(status.code(), MOE_ERR_NON_FINITE);
  EXPECT_NE(std::string(status.text()).find("layers.0.ffn.down"), std::string::npos)
      << status.text();
  EXPECT_TRUE(target_.names().empty());
}

// The text's perplexity overflows a double: it is unknown, in the report and in the file.
TEST_F(StatisticsTest, APerplexityThatIsNotFiniteIsSaved) {
  config_ = patched(R"({"logit_multiplier": 1e6})", config_.c_str());
  test::write_checkpoint(source_, config_, tensors_);
  ASSERT_TRUE(run("int4", kSphinx, nullptr, "s").ok());
  EXPECT_FALSE(std::isfinite(report_.calibration->perplexity));
  const std::string from_text = result();
  EXPECT_NE(from_text.find(R"("perplexity":null)"), std::string::npos);
  const Status status = run("int4", nullptr, "s");
  ASSERT_TRUE(status.ok()) << status.text();
  EXPECT_FALSE(std::isfinite(report_.calibration->perplexity));
  EXPECT_TRUE(result() == from_text);
}

TEST(StatisticsWriter, RefusesAHeaderThatNoReaderTakes) {
  std::vector<InputKey> inputs;
  for (int i = 0; i < 200'000; ++i)
    inputs.push_back({"layers.0.moe.experts." + std::to_string(i) + ".up", 64});
  MemorySink sink;
  const Status status = guarded([&] { StatisticsWriter(sink, std::move(inputs), 0); });
  EXPECT_EQ(status.code(), MOE_ERR_RANGE) << status.text();
}

}  // namespace
}  // namespace moe
