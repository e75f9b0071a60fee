// SPDX-License-Identifier: MIT
// Arguments of calls are parsed as others parse them, in time that grows with their size.

#include "src/serve/json.h"

#include <gtest/gtest.h>

#include <string>

#include "src/serve/tools.h"

namespace moe_serve_test {
namespace {

using moe_serve::Json;
using moe_serve::parse_arguments;

TEST(ArgumentsTest, AreWhatTheySay) {
  const Json found = parse_arguments(
      R"( {"b": [1, -2, 0.5, {"c": [[], {}]}, "\u00e9\n"], "a": {"x": {"y": null}, "z": true}} )");
  const Json expected = {
      {"b",
       Json::array({1, -2, 0.5, {{"c", Json::array({Json::array(), Json::object()})}}, "é\n"})},
      {"a", {{"x", {{"y", nullptr}}}, {"z", true}}}};
  EXPECT_EQ(found, expected);
  EXPECT_EQ(parse_arguments("{}"), Json::object());
}

// As in Python: in the place of the first.
TEST(ArgumentsTest, OfEqualKeysTheLastOneCounts) {
  const Json found = parse_arguments(
      R"({"a": {"deep": [1]}, "b": {"c": 1, "d": 2, "c": {"e": 3}}, "\u0061": 4, "f": 5, "b": {"c": 6}})");
  EXPECT_EQ(found.dump(), R"({"a":4,"b":{"c":6},"f":5})");
  EXPECT_EQ(parse_arguments(R"({"b": {"c": 1, "d": 2, "c": {"e": 3}}})").dump(),
            R"({"b":{"c":{"e":3},"d":2}})");
}

// As many as a call of 1 MiB can have, which once took the scheduler a minute.
TEST(ArgumentsTest, MayHaveManyKeys) {
  constexpr int kKeys = 100000;
  std::string text = "{";
  for (int i = 0; i < kKeys; ++i) text += '"' + std::to_string(i) + "\":" + std::to_string(i) + ',';
  text += R"("0":-1})";
  const Json found = parse_arguments(text);
  ASSERT_EQ(found.size(), static_cast<size_t>(kKeys));
  EXPECT_EQ(found.begin().key(), "0");
  EXPECT_EQ(found.begin().value(), -1);
  EXPECT_EQ(found.back(), kKeys - 1);
}

TEST(ArgumentsTest, StayInACallAsTheModelWroteThem) {
  const moe_serve::ToolCall call = moe_serve::read_call(
      R"({"id": "call_1", "name": "a\", \"arguments\": {", "arguments": {"x" : ", \"arguments\": ", "x":1.0}})");
  EXPECT_EQ(call.id, "call_1");
  EXPECT_EQ(call.name, R"(a", "arguments": {)");
  EXPECT_EQ(call.arguments, R"({"x" : ", \"arguments\": ", "x":1.0})");
  EXPECT_EQ(call.input(), Json({{"x", 1.0}}));
}

}  // namespace
}  // namespace moe_serve_test
