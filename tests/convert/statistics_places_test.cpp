// SPDX-License-Identifier: MIT
// Where statistics may be read and written: never over the model or the checkpoint.
#include "tests/convert/statistics_case.h"

namespace moe {
namespace {

namespace fs = std::filesystem;
using test::kSphinx;

class StatisticsPlaces : public test::StatisticsTest {
 protected:
  // Saves the statistics of a conversion to `model`, with paths as they are.
  Status save_to(const std::string& statistics, const std::string& model) {
    options_.weights = "int4";
    options_.calibration = kSphinx;
    options_.statistics.reset();
    options_.save_statistics = statistics;
    return convert(source_.path(), model, options_, &report_);
  }
  Status use(const std::string& statistics, const std::string& model) {
    options_.weights = "int4";
    options_.calibration.reset();
    options_.statistics = statistics;
    options_.save_statistics.reset();
    return convert(source_.path(), model, options_, &report_);
  }
  void expect_refused(const Status& status, const char* why) {
    EXPECT_EQ(status.code(), MOE_ERR_ARGUMENT) << status.text();
    EXPECT_NE(std::string(status.text()).find(why), std::string::npos) << status.text();
    EXPECT_TRUE(contents() == before_);
  }
  // Name and text of every file.
  std::map<std::string, std::string> contents() const {
    std::map<std::string, std::string> out;
    for (const std::string& name : target_.names()) out[name] = target_.text(name);
    return out;
  }

  std::map<std::string, std::string> before_;
};

TEST_F(StatisticsPlaces, OneFileUnderTwoNames) {
  save();
  fs::create_hard_link(target_.file("s"), target_.file("hard"));
  fs::create_symlink("s", target_.file("soft"));
  before_ = contents();
  const char* kWhy = "different files for statistics and the model";
  const std::string m = target_.file("m");
  expect_refused(save_to(m, m), kWhy);
  expect_refused(save_to(m, target_.path() + "/./m"), kWhy);
  for (const char* name : {"s", "hard", "soft"}) {
    expect_refused(use(target_.file("s"), target_.file(name)), kWhy);
  }
  const fs::path here = fs::current_path();  // nothing of a relative name exists
  fs::current_path(target_.path());
  expect_refused(save_to("./new", "new"), kWhy);
  fs::current_path(here);
}

// Only the two names matter: what is not finished yet has names of its own.
TEST_F(StatisticsPlaces, OtherNamesAreFree) {
  const std::string m = target_.file("m");
  EXPECT_TRUE(save_to(m + ".partial", m).ok());
  EXPECT_TRUE(use(m + ".partial", m).ok());
  std::vector<std::string> names = target_.names();
  std::sort(names.begin(), names.end());
  EXPECT_EQ(names, (std::vector<std::string>{"m", "m.partial"}));
}

TEST_F(StatisticsPlaces, NamesThatCannotBeResolvedAreNotTakenForOneFile) {
  for (const char* name : {"a", "b"}) fs::create_symlink(name, target_.file(name));
  const Status status = use(target_.file("a"), target_.file("b"));
  EXPECT_EQ(status.code(), MOE_ERR_IO) << status.text();
  EXPECT_NE(std::string(status.text()).find("symbolic links"), std::string::npos) << status.text();
}

TEST_F(StatisticsPlaces, OlderOnesBesideTheCheckpointAreReplaced) {
  const std::string s = source_.file("s"), m = source_.file("m");
  for (int i = 0; i < 2; ++i) {
    const Status status = save_to(s, m);
    ASSERT_TRUE(status.ok()) << status.text();
  }
  EXPECT_TRUE(use(s, m).ok());
  const std::string weights = source_.text("model.safetensors");
  expect_refused(save_to(source_.file("model.safetensors"), m), "of the checkpoint");
  EXPECT_TRUE(source_.text("model.safetensors") == weights);
}

TEST_F(StatisticsPlaces, OtherFilesAreNotReplaced) {
  save();
  ASSERT_TRUE(run("int8", nullptr).ok());
  target_.write("notes", "some notes");
  target_.write("empty", "");
  before_ = contents();
  const char* kWhy = "this file exists and is not a file of statistics";
  for (const char* name : {"m.moe", "notes"}) {
    expect_refused(save_to(target_.file(name), target_.file("new")), kWhy);
  }
  for (const char* name : {"s", "notes"}) {
    expect_refused(save_to(target_.file("new"), target_.file(name)), "exists and is not a model");
  }
  EXPECT_TRUE(save_to(target_.file("empty"), target_.file("new")).ok());
}

// A folder that takes the name while the conversion runs.
TEST_F(StatisticsPlaces, WhatRemainsIfANameCannotBeGiven) {
  const std::string s = target_.file("s"), m = target_.file("m.moe");
  save();
  const std::string older = target_.text("s");
  options_.on_end = [&](const ConvertReport&) { fs::create_directories(m + "/x"); };
  EXPECT_EQ(save_to(s, m).code(), MOE_ERR_IO);
  fs::remove_all(m);
  EXPECT_EQ(target_.names(), std::vector<std::string>{"s"});
  EXPECT_TRUE(target_.text("s") == older);
  options_.on_end = [&](const ConvertReport&) {
    fs::remove(s);
    fs::create_directories(s + "/x");
  };
  EXPECT_EQ(save_to(s, m).code(), MOE_ERR_IO);
  std::vector<std::string> names = target_.names();
  std::sort(names.begin(), names.end());
  EXPECT_EQ(names, (std::vector<std::string>{"m.moe", "s"}));
  const std::string complete = target_.text("m.moe");
  options_.on_end = nullptr;
  ASSERT_TRUE(save_to(target_.file("other"), m).ok());
  EXPECT_TRUE(target_.text("m.moe") == complete);
}

}  // namespace
}  // namespace moe
