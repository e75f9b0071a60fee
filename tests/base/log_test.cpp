// SPDX-License-Identifier: MIT
#include "src/base/log.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace moe {
namespace {

TEST(Logger, IsSilentWithoutASink) { Logger().log(LogLevel::kError, "%d", 1); }

TEST(Logger, GivesTheSinkLevelAndText) {
  std::vector<std::string> lines;
  Logger logger;
  logger.user = &lines;
  logger.sink = [](void* user, int level, const char* text) {
    static_cast<std::vector<std::string>*>(user)->push_back(std::to_string(level) + " " + text);
  };
  logger.log(LogLevel::kWarning, "%s is %d", "k", 3);
  logger.log(LogLevel::kInfo, "%s", std::string(2000, 'x').c_str());
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[0], "2 k is 3");
  EXPECT_LT(lines[1].size(), 600u);
}

}  // namespace
}  // namespace moe
