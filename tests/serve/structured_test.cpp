// SPDX-License-Identifier: MIT
// Answers that satisfy a schema.

#include "tests/serve/fixture.h"

namespace moe_serve_test {
namespace {

const Json kSchema = {
    {"type", "object"},
    {"properties",
     {{"name", {{"type", "string"}, {"maxLength", 12}}},
      {"age", {{"type", "integer"}, {"minimum", 0}, {"maximum", 120}}},
      {"pets", {{"type", "array"}, {"items", {{"enum", {"cat", "dog"}}}}, {"maxItems", 2}}}}},
    {"required", {"name", "age"}},
    {"additionalProperties", false}};

Json chat(uint64_t seed) {
  return {{"messages", says("Who?")},
          {"seed", seed},
          {"temperature", 1.5},
          {"max_tokens", 200},
          {"response_format",
           {{"type", "json_schema"},
            {"json_schema", {{"name", "p"}, {"strict", true}, {"schema", kSchema}}}}}};
}

void check_person(const std::string& text) {
  const Json made = Json::parse(text);
  ASSERT_TRUE(made.at("name").is_string()) << text;
  ASSERT_TRUE(made.at("age").is_number_integer()) << text;
  EXPECT_LE(made.at("age"), 120);
  EXPECT_LE(made.size(), 3u);
}

using StructuredTest = ServiceTest;

TEST_F(StructuredTest, ChatsSatisfyTheirSchemasWhateverElseIsGenerated) {
  serve(slots(3));
  std::vector<std::string> alone;
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    Answer answer;
    submit(answer, chat(seed), MOE_ENDPOINT_CHAT);
    answer.wait();
    ASSERT_EQ(answer.status(), 200) << answer.wait();
    EXPECT_EQ(answer.finish(), "stop");
    check_person(answer.text());
    alone.push_back(answer.text());
  }
  std::vector<Answer> together(3);
  for (uint64_t i = 0; i < 3; ++i) {
    Json request = chat(i + 1);
    request["stream"] = true;
    submit(together[i], request, MOE_ENDPOINT_CHAT);
  }
  for (size_t i = 0; i < 3; ++i) {
    together[i].wait();
    EXPECT_EQ(together[i].text(), alone[i]);
  }
}

TEST_F(StructuredTest, AnAnswerThatIsCutSaysSo) {
  serve(slots(1));
  Answer answer;
  Json request = chat(1);
  request["max_tokens"] = 3;
  submit(answer, request, MOE_ENDPOINT_CHAT);
  answer.wait();
  EXPECT_EQ(answer.finish(), "length");
}

TEST_F(StructuredTest, JsonObjects) {
  serve(slots(1));
  Answer answer;
  submit(answer,
         {{"messages", says("Who?")},
          {"seed", 2},
          {"max_tokens", 60},
          {"response_format", {{"type", "json_object"}}}},
         MOE_ENDPOINT_CHAT);
  answer.wait();
  ASSERT_EQ(answer.status(), 200) << answer.wait();
  EXPECT_EQ(answer.text().substr(answer.text().find_first_not_of(" \n\t"), 1), "{");
}

TEST_F(StructuredTest, Responses) {
  serve(slots(1));
  Answer answer;
  const Json format = {{"type", "json_schema"}, {"name", "p"}, {"schema", kSchema}};
  submit(answer,
         {{"input", "Who?"}, {"seed", 4}, {"temperature", 1.5}, {"text", {{"format", format}}}},
         MOE_ENDPOINT_RESPONSES);
  const Json made = answer.wait();
  ASSERT_EQ(answer.status(), 200) << made;
  EXPECT_EQ(made["status"], "completed");
  EXPECT_EQ(made["text"]["format"], format);
  check_person(made["output"].back()["content"][0]["text"]);
}

// The model thinks "ab", and would then answer "Yes.".
TEST_F(ScriptTest, TheSchemaHoldsBehindTheThinking) {
  serve(slots(1));
  Answer answer;
  const Json schema = {{"enum", {"No", "Yep"}}};
  submit(answer,
         {{"messages", says("Hello")},
          {"temperature", 0},
          {"response_format", {{"type", "json_schema"}, {"json_schema", {{"schema", schema}}}}}},
         MOE_ENDPOINT_CHAT);
  answer.wait();
  ASSERT_EQ(answer.status(), 200) << answer.wait();
  EXPECT_EQ(answer.text(0, "reasoning_content"), "ab");
  EXPECT_TRUE(schema["enum"][0] == Json::parse(answer.text()) ||
              schema["enum"][1] == Json::parse(answer.text()))
      << answer.text();
  EXPECT_EQ(answer.finish(), "stop");
}

}  // namespace
}  // namespace moe_serve_test
