// SPDX-License-Identifier: MIT
// Drafts of a request or of the whole service change no text, in any company.

#include <filesystem>

#include "tests/serve/fixture.h"

namespace moe_serve_test {
namespace {

const std::string kRepeating = "The dog ran to the tree. The dog ran to the tree. The dog ran";

std::vector<Json> repeating() {
  return {{{"prompt", kRepeating}, {"temperature", 0}, {"max_tokens", 60}},
          {{"prompt", kRepeating}, {"temperature", 0.5}, {"seed", 4}, {"max_tokens", 33}},
          {{"prompt", kRepeating}, {"temperature", 0}, {"stop", "he"}, {"max_tokens", 60}},
          {{"prompt", "Tom"}, {"temperature", 0}, {"max_tokens", 400}, {"ignore_eos", true}},
          {{"messages", says(kRepeating)}, {"temperature", 0}, {"max_tokens", 50}}};
}

moe_endpoint generating_endpoint(const Json& request) {
  return request.contains("messages") ? MOE_ENDPOINT_CHAT : MOE_ENDPOINT_COMPLETIONS;
}

class DraftsTest : public ServiceTest {};

TEST_F(DraftsTest, GiveTheSameTexts) {
  serve();
  for (const bool stream : {false, true}) {
    for (Json request : repeating()) {
      const Alone expected = alone(request);
      request["stream"] = stream;
      for (const int draft : {0, 1, 8, 16}) {
        request["draft"] = draft;
        Answer answer;
        submit(answer, request, generating_endpoint(request));
        answer.wait();
        EXPECT_EQ(answer.text(), expected.text) << request;
        EXPECT_EQ(answer.status(), 200);
      }
    }
  }
  wait_for_all();
  EXPECT_EQ(stats().n_failed, 0);
  const uint64_t steps = stats().n_steps, tokens = stats().generated_tokens;
  EXPECT_LT(steps, tokens);  // some were drafted
}

TEST_F(DraftsTest, GiveTheSameTextsInCompany) {
  auto params = slots(3);
  params.max_draft = 8;
  serve(params);
  std::vector<Json> all;
  std::vector<std::unique_ptr<Answer>> answers;
  for (int i = 0; i < 4; ++i) {
    for (Json request : repeating()) {
      if (i > 0) request["draft"] = 5 * i;
      all.push_back(request);
      answers.push_back(std::make_unique<Answer>());
      submit(*answers.back(), request, generating_endpoint(request));
      if (all.size() % 4 == 0) answers.back()->wait();  // the next begins in a slot of its own
    }
  }
  for (size_t i = 0; i < all.size(); ++i) {
    answers[i]->wait();
    EXPECT_EQ(answers[i]->text(), alone(all[i]).text) << all[i];
  }
}

// A text goes on where a drafted one ended, in its slot.
TEST_F(DraftsTest, AreReused) {
  serve(slots(1));
  Json request = {{"prompt", kRepeating}, {"temperature", 0}, {"max_tokens", 60}, {"draft", 16}};
  Answer first;
  submit(first, request);
  first.wait();
  request["prompt"] = kRepeating + first.text();
  const Alone expected = alone(request);
  Answer second;
  submit(second, request);
  second.wait();
  EXPECT_EQ(second.text(), expected.text);
  wait_for_all();
  EXPECT_GT(stats().reused_tokens, encode(kRepeating).size() + 20);
}

TEST_F(DraftsTest, LeaveReceiptsAsTheyWere) {
  serve();
  Json request = {
      {"prompt", kRepeating}, {"temperature", 0}, {"max_tokens", 60}, {"receipt", true}};
  Answer plain, drafted;
  submit(plain, request);
  request["draft"] = 16;
  const Json without = plain.wait()["receipt"];
  submit(drafted, request);
  Json with = drafted.wait()["receipt"];
  EXPECT_EQ(with["request"]["draft"], 16);
  with["request"].erase("draft");
  Json same = without;  // but for the seed, which each draws
  same["seed"] = with["seed"];
  EXPECT_EQ(with, same);
}

TEST_F(DraftsTest, AreInTheirRange) {
  serve();
  for (const Json& draft : {Json(17), Json(-1), Json(1.5), Json("8"), Json(true)}) {
    for (const moe_endpoint endpoint : {MOE_ENDPOINT_COMPLETIONS, MOE_ENDPOINT_CHAT}) {
      Answer answer;
      Json request = {{"draft", draft}, {"max_tokens", 4}};
      if (endpoint == MOE_ENDPOINT_CHAT)
        request["messages"] = says("a");
      else
        request["prompt"] = "a";
      submit(answer, request, endpoint);
      EXPECT_EQ(answer.wait()["error"]["param"], "draft");
      EXPECT_EQ(answer.status(), 400);
    }
  }
  auto params = MOE_INIT(moe_service_params);
  params.max_draft = 17;
  moe_service* service = nullptr;
  EXPECT_EQ(moe_service_create(model_, &params, &service, &error_), MOE_ERR_RANGE);
}

/// The model of tests/data/chat/script, whose token for a Z ends a text too, and is none of it.
class FailingTest : public ServiceTest {
 protected:
  void SetUp() override {
    ServiceTest::SetUp();
    const moe::test::TempFolder folder;
    std::filesystem::copy("tests/data/chat/script", folder.file("script"));
    Json config = Json::parse(folder.text("script/config.json"));
    config["eos_token_ids"].push_back(90);
    folder.write("script/config.json", config.dump());
    open_checkpoint(folder.file("script"));
  }
  /// A streamed chat whose grammar asks for a Z.
  std::string failing_text(int draft) {
    const Json schema = {{"const", "The dog ran to the tree. Zoo"}};
    Answer answer;
    submit(answer,
           {{"messages", says("a")},
            {"temperature", 0},
            {"stream", true},
            {"draft", draft},
            {"response_format",
             {{"type", "json_schema"}, {"json_schema", {{"name", "a"}, {"schema", schema}}}}}},
           MOE_ENDPOINT_CHAT);
    const Json error = answer.wait()["error"];
    EXPECT_NE(std::string(error["message"]).find("grammar: every token"), std::string::npos)
        << error;
    return answer.text();
  }
};

// A stream has what came before the failure, and only the request of that text ends.
TEST_F(FailingTest, EndsADraftedTextWhereItEndsOthers) {
  serve(slots(2));
  Json request = {{"messages", says("Hello")}, {"temperature", 0}, {"max_tokens", 1}};
  const Json system = {{"role", "system"}, {"content", "Be brief."}};
  request["messages"].insert(request["messages"].begin(), system);
  Answer kept;  // in the first slot, where the same prompt goes on
  submit(kept, request, MOE_ENDPOINT_CHAT);
  kept.wait();
  uint64_t n_made = 0;
  for (const int draft : {0, 1, 7, 16}) {  // in the second one
    const uint64_t n_before = stats().generated_tokens;
    EXPECT_EQ(failing_text(draft), "\"The dog ran to the tree. ") << draft;
    const uint64_t n = stats().generated_tokens - n_before;
    if (draft == 0) n_made = n;
    EXPECT_EQ(n, n_made) << draft;
  }
  request["stream"] = true;
  request["max_tokens"] = 100;
  Answer beside, next;
  beside.hook = [&](size_t n) {
    if (n == 2) submit(next, {{"prompt", "Tom"}, {"temperature", 0}, {"max_tokens", 9}});
  };
  submit(beside, request, MOE_ENDPOINT_CHAT);
  beside.wait();
  ASSERT_GT(beside.events().size(), 2u) << beside.wait();
  next.wait();
  EXPECT_EQ(next.status(), 200) << next.wait();
}

}  // namespace
}  // namespace moe_serve_test
