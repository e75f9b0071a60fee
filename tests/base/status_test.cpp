#include "src/base/status.h"

#include <gtest/gtest.h>

#include <string>

namespace moe {
namespace {

TEST(Status, DefaultIsOk) {
  const Status status;
  EXPECT_TRUE(status.ok());
  EXPECT_EQ(status.code(), MOE_OK);
  EXPECT_STREQ(status.text(), "");
}

TEST(Status, ErrorFormatsItsText) {
  const Status status = Status::error(MOE_ERR_SHAPE, "tensor %s: expected %d", "up", 3);
  EXPECT_FALSE(status.ok());
  EXPECT_EQ(status.code(), MOE_ERR_SHAPE);
  EXPECT_STREQ(status.text(), "tensor up: expected 3");
}

}  // namespace
}  // namespace moe
