// SPDX-License-Identifier: MIT
// How the checkpoint's authors sample: from generation_config.json and GGUF keys to the model file.

#include "src/convert/sampling_advice.h"

#include "src/run/default_sampling.h"
#include "tests/convert/gguf_builder.h"
#include "tests/convert/transformers_fixture.h"

namespace moe {
namespace {

class SamplingAdviceTest : public TransformersTest {
 protected:
  Imported with(const std::string& generation) {
    folder_.write("generation_config.json", generation);
    return read(kLlama);
  }
  // The settings of a conversation; the checkpoint has 64 positions.
  static SamplingConfig settings(const Imported& in) {
    return default_sampling(in.config.sampling, in.config.context_length);
  }
  // The only warning.
  std::string warning(const std::string& generation) {
    const Imported in = with(generation);
    EXPECT_EQ(in.warnings.size(), 1u) << generation;
    return in.warnings.empty() ? "" : in.warnings[0];
  }
};

void expect_builtin(const SamplingConfig& s) {
  EXPECT_EQ(s.temperature, 0.8f);
  EXPECT_EQ(s.top_p, 0.95f);
  EXPECT_EQ(s.min_p, 0.05f);
  EXPECT_EQ(s.top_k, 0);
}

TEST_F(SamplingAdviceTest, AllSettings) {
  const Imported in = with(
      R"({"do_sample": true, "temperature": 0.6, "top_k": 20, "top_p": 0.9, "min_p": 0.01,
          "repetition_penalty": 1.05, "eos_token_id": 2, "transformers_version": "5.0"})");
  EXPECT_TRUE(in.warnings.empty());
  EXPECT_TRUE(in.config.sampling.given);
  const SamplingConfig s = settings(in);
  EXPECT_EQ(s.temperature, 0.6f);
  EXPECT_EQ(s.top_k, 20);
  EXPECT_EQ(s.top_p, 0.9f);
  EXPECT_EQ(s.min_p, 0.01f);
  EXPECT_EQ(s.repetition_penalty, 1.05f);
  EXPECT_EQ(s.repetition_window, 64);  // the whole text
}

TEST_F(SamplingAdviceTest, WhatIsLeftOutIsOff) {
  SamplingConfig s = settings(with(R"({"do_sample": true})"));
  EXPECT_EQ(s.temperature, 1);
  EXPECT_EQ(s.top_p, 1);
  EXPECT_EQ(s.min_p, 0);
  s = settings(with(R"({"top_k": 5, "temperature": null})"));
  EXPECT_EQ(s.temperature, 1);
  EXPECT_EQ(s.top_k, 5);
  s = settings(with(R"({"temperature": 0.7})"));  // without do_sample
  EXPECT_EQ(s.temperature, 0.7f);
  EXPECT_EQ(s.top_p, 1);
}

TEST_F(SamplingAdviceTest, NothingSaidAboutTheChoice) {
  Imported in = with(R"({"eos_token_id": 2, "top_p": 1.0, "top_k": 0, "repetition_penalty": 1})");
  EXPECT_FALSE(in.config.sampling.given);
  expect_builtin(settings(in));
  in = with(R"({"repetition_penalty": 1.3})");
  EXPECT_TRUE(in.config.sampling.given);
  expect_builtin(settings(in));
  EXPECT_EQ(settings(in).repetition_penalty, 1.3f);
  EXPECT_FALSE(read(kLlama).config.sampling.temperature >= 0);
}

TEST_F(SamplingAdviceTest, NoSampling) {
  const Imported in = with(R"({"do_sample": false, "temperature": 0.6, "top_p": 0.9})");
  EXPECT_TRUE(in.config.sampling.given);
  EXPECT_EQ(settings(in).temperature, 0);
  EXPECT_EQ(settings(in).top_p, 1);
}

TEST_F(SamplingAdviceTest, OthersAreNamed) {
  EXPECT_EQ(warning(R"({"typical_p": 0.9, "no_repeat_ngram_size": 3, "temperature": 0.5})"),
            "generation_config.json: not taken over, as sampling here has no such setting: "
            "no_repeat_ngram_size 3, typical_p 0.9");
  EXPECT_NE(warning(R"({"suppress_tokens": [1, 2]})").find("suppress_tokens [1,2]"),
            std::string::npos);
  EXPECT_NE(warning(R"({"a_new_filter": 0.5})").find("a_new_filter 0.5"), std::string::npos);
  EXPECT_TRUE(with(R"({"typical_p": 1.0, "num_beams": 1, "suppress_tokens": null, "min_length": 0,
                       "use_cache": true, "_from_model_config": true, "max_new_tokens": 9})")
                  .warnings.empty());
}

TEST_F(SamplingAdviceTest, ValuesThatNothingCanDo) {
  for (const auto& [json, text] :
       {std::pair{R"({"temperature": -1})", "temperature: expected at least 0, found -1"},
        {R"({"temperature": 1e30})", "temperature: expected 0..1e6"},
        {R"({"temperature": "hot"})", "temperature: expected a number, found \"hot\""},
        {R"({"top_p": 1.5})", "top_p: expected above 0, at most 1, found 1.5"},
        {R"({"top_p": 0})", "top_p: expected above 0, at most 1, found 0"},
        {R"({"top_k": 2.5})", "top_k: expected an integer, found 2.5"},
        {R"({"min_p": 1})", "min_p: expected at least 0, below 1, found 1"},
        {R"({"repetition_penalty": 0})", "repetition_penalty: expected 0.01..100, found 0"},
        {R"({"do_sample": 1})", "do_sample: expected true or false, found 1"}}) {
    const std::string found = warning(json);
    EXPECT_NE(found.find(text), std::string::npos) << found;
    EXPECT_NE(found.find("not taken over"), std::string::npos) << found;
    EXPECT_FALSE(read(kLlama).config.sampling.given) << json;
  }
  EXPECT_EQ(with(R"({"top_k": -1, "temperature": 0.5})").config.sampling.top_k, 0);  // off
  folder_.write("generation_config.json", "[1]");
  EXPECT_FALSE(guarded([&] { read(kLlama); }).ok());
}

TEST_F(SamplingAdviceTest, AGgufFile) {
  const auto read_keys = [&](const auto& add) {
    test::GgufBuilder b;
    b.string("general.architecture", "llama");
    add(b);
    folder_.write("m.gguf", b.file());
    Imported in = read(kLlama);
    read_sampling_advice(Checkpoint(folder_.file("m.gguf")), &in);
    return in;
  };
  Imported in = read_keys([](auto& b) {
    b.f32("general.sampling.temp", 0.5f);
    b.u32("general.sampling.top_k", 7);
    b.f32("general.sampling.top_p", 0.75f);
    b.f32("general.sampling.min_p", 0.25f);
    b.f32("general.sampling.penalty_repeat", 1.5f);
    b.u32("general.sampling.penalty_last_n", 12);
    b.u32("general.sampling.mirostat", 0);
    b.f32("general.sampling.mirostat_tau", 5);
  });
  EXPECT_TRUE(in.warnings.empty()) << in.warnings[0];
  const SamplingConfig s = settings(in);
  EXPECT_EQ(s.temperature, 0.5f);
  EXPECT_EQ(s.top_k, 7);
  EXPECT_EQ(s.top_p, 0.75f);
  EXPECT_EQ(s.min_p, 0.25f);
  EXPECT_EQ(s.repetition_penalty, 1.5f);
  EXPECT_EQ(s.repetition_window, 12);
  in = read_keys([](auto& b) {
    b.u32("general.sampling.mirostat", 2);
    b.f32("general.sampling.mirostat_tau", 5.5f);
    b.f32("general.sampling.xtc_probability", 0.5f);
  });
  EXPECT_FALSE(in.config.sampling.given);
  ASSERT_EQ(in.warnings.size(), 1u);
  EXPECT_NE(in.warnings[0].find("m.gguf: general.sampling"), std::string::npos);
  EXPECT_NE(in.warnings[0].find("mirostat 2, mirostat_tau 5.5, xtc_probability 0.5"),
            std::string::npos)
      << in.warnings[0];
  EXPECT_EQ(settings(read_keys([](auto& b) {
              b.f32("general.sampling.penalty_repeat", 1.5f);
            })).repetition_window,
            64);
  in = read_keys([](auto& b) {
    b.f32("general.sampling.penalty_repeat", 1.5f);
    b.u32("general.sampling.penalty_last_n", 0);
  });
  EXPECT_EQ(settings(in).repetition_penalty, 1);
}

}  // namespace
}  // namespace moe
