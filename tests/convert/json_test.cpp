// SPDX-License-Identifier: MIT
#include "formats/import/json.h"

#include <gtest/gtest.h>

#include <cstring>

#include "formats/import/failure.h"

namespace moe {
namespace {

std::string error_of(const std::function<void()>& f) {
  const Status status = guarded(f);
  EXPECT_EQ(status.code(), MOE_ERR_FORMAT) << status.text();
  return status.text();
}

std::string parse_error(const std::string& text, const JsonLimits& limits = {}) {
  return error_of([&] { parse_json(text, "a.json", limits); });
}

TEST(Json, RefusesWhatIsNotJson) {
  EXPECT_EQ(parse_error(""), "a.json: not valid JSON at byte 1");
  EXPECT_EQ(parse_error("{\"a\": }"), "a.json: not valid JSON at byte 7");
  parse_error("[1, 2");
  parse_error("[1] 2");
  parse_error("\"\xff\"");
  parse_error("[1e999]");
  parse_error("NaN");
}

TEST(Json, ReadsPythonsInfinity) {
  const Json list = parse_json(R"([0.0, Infinity, -Infinity, "Infinity", "\"Infinity"])", "a.json");
  EXPECT_EQ(list[1], "+inf");
  EXPECT_EQ(list[2], "-inf");
  EXPECT_EQ(list[3], "Infinity");
  EXPECT_EQ(list[4], "\"Infinity");
  EXPECT_EQ(parse_error("[Infinity, }"), "a.json: not valid JSON at byte 12");
  EXPECT_EQ(error_of([&] { JsonNode(list, "a").elements()[1].number(); }),
            "a[1]: expected a number, found \"+inf\"");
  parse_error("[Infinit]");
  parse_error("[3Infinity]");
}

TEST(Json, SaysWhereOnlyZerosAreLeft) {
  const auto then_zeros = [](const std::string& text) { return text + std::string(9, '\0'); };
  for (const char* text : {"{\"a\": [1, 2", "{\"a\": \"b", "{}", ""}) {
    EXPECT_EQ(parse_error(then_zeros(text)), "a.json: not valid JSON: only zeros from byte " +
                                                 std::to_string(std::strlen(text)) +
                                                 " on (an incomplete download?)");
  }
}

TEST(Json, RefusesAKeyGivenTwice) {
  EXPECT_EQ(parse_error("{\"a\": 1, \"b\": {\"c\": 1, \"c\": 2}}"),
            "a.json: key \"c\" is given twice");
}

TEST(Json, KeepsToItsLimits) {
  const std::string deep = std::string(65, '[') + std::string(65, ']');
  EXPECT_EQ(parse_error(deep), "a.json: JSON nested deeper than 64 levels");
  parse_error(std::string(1'000'000, '['));
  parse_error("[1,2,3,4]", {.max_values = 4});
  parse_error("[1,2,3,4]", {.max_bytes = 8});
  EXPECT_TRUE(guarded([&] { parse_json(std::string(64, '[') + std::string(64, ']'), "a"); }).ok());
}

class JsonNodeTest : public testing::Test {
 protected:
  Json document_ = parse_json(R"({"a": [{"n": 7, "x": 1.5, "yes": true, "s": "two", "none": null,
      "big": 1e300, "huge": 18446744073709551615, "comment": "why"}]})",
                              "c.json");
  JsonNode node_{document_["a"][0], "c.json: a[0]"};
};

TEST_F(JsonNodeTest, ReadsMembersAndDefaults) {
  EXPECT_EQ(node_.integer("n", 1, 0, 10), 7);
  EXPECT_EQ(node_.integer("missing", 1, 0, 10), 1);
  EXPECT_EQ(node_.integer("none", 3, 0, 10), 3);
  EXPECT_EQ(node_.number("x", 0), 1.5f);
  EXPECT_EQ(node_.number("n", 0), 7.0f);
  EXPECT_TRUE(node_.boolean("yes", false));
  EXPECT_EQ(node_.string("s", ""), "two");
  EXPECT_EQ(node_.choice("s", 9, {"one", "two"}), 1u);
  EXPECT_EQ(node_.choice("missing", 9, {"one", "two"}), 9u);
}

TEST_F(JsonNodeTest, ErrorsNameThePathTheExpectedAndTheFound) {
  EXPECT_EQ(error_of([&] { node_.integer("n", 0, 0, 6); }),
            "c.json: a[0]: n: expected an integer in 0..6, found 7");
  EXPECT_EQ(error_of([&] { node_.integer("x", 0, 0, 6); }),
            "c.json: a[0]: x: expected an integer in 0..6, found 1.5");
  EXPECT_EQ(error_of([&] {
              node_.choice("s", 0, {"one", "three"});
            }),
            "c.json: a[0]: s: expected one of one, three, found \"two\"");
  EXPECT_EQ(error_of([&] { node_.at("gone"); }), "c.json: a[0]: \"gone\" is missing");
  EXPECT_EQ(error_of([&] { node_.boolean("n", false); }),
            "c.json: a[0]: n: expected true or false, found 7");
  error_of([&] { node_.integer("huge", 0, 0, INT32_MAX); });
  error_of([&] { node_.number("big", 0); });
  error_of([&] { node_.elements(); });
}

TEST_F(JsonNodeTest, UnknownKeysAreNamed) {
  EXPECT_EQ(error_of([&] {
              node_.only({"n", "x", "yes", "s", "none", "big"});
            }),
            "c.json: a[0]: unknown key \"huge\"; known: n, x, yes, s, none, big");
  EXPECT_TRUE(guarded([&] { node_.only({"n", "x", "yes", "s", "none", "big", "huge"}); }).ok());
}

TEST_F(JsonNodeTest, KnownKeysAreListedAsFarAsTheyFit) {
  const std::string head =
      "c.json: a[0]: unknown keys \"big\", \"huge\", \"n\", \"none\", "
      "\"s\", \"x\", \"yes\"; known: ";
  for (size_t length = 1; length < 30; ++length) {
    const std::string key(length, 'k');
    const std::vector<const char*> keys(400, key.c_str());
    std::string expected = head;
    while (expected.size() + length + 5 < MOE_ERROR_TEXT_BYTES) expected += key + ", ";
    EXPECT_EQ(error_of([&] { node_.only(keys); }), expected + "...");
  }
}

}  // namespace
}  // namespace moe
