// SPDX-License-Identifier: MIT
// Drafts of a request or of the whole service change no text, in any company.

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>

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

/// A model with a layer that guesses tokens, and no tokenizer. Its texts are short: they end before
/// wrong guesses, which a random layer makes, turn it off.
class GuessesTest : public ServiceTest {
 protected:
  void SetUp() override {
    ServiceTest::SetUp();
    open_checkpoint("tests/data/families/mimo_mtp");
  }
  static Json request(int first, int n, int draft) {
    Json ids = Json::array();
    for (int i = 0; i < n; ++i) ids.push_back(3 + (first + 7 * i * i) % 90);
    return {{"prompt", ids},
            {"max_tokens", 2},
            {"temperature", 0},
            {"ignore_eos", true},
            {"draft", draft}};
  }
  void serve_with_cache(int32_t n_slots) {
    auto params = slots(n_slots);
    cache_ = folder_.file("cache");
    params.cache_folder = cache_.c_str();
    serve(params);
  }
  /// Where in the texts that were kept the layer began to read, by the number of their tokens.
  std::map<uint64_t, int32_t> begins() {
    wait_for_all();
    std::map<uint64_t, int32_t> begins;
    for (const auto& entry : std::filesystem::directory_iterator(cache_)) {
      std::ifstream in(entry.path(), std::ios::binary);
      const std::string bytes{std::istreambuf_iterator<char>(in), {}};
      uint64_t n = 0;
      std::memcpy(&n, bytes.data() + 32, sizeof n);
      EXPECT_EQ(bytes[10], 1);
      // Two layers have two heads of keys and of values, each of 8 numbers of two bytes.
      int32_t begin = -1;
      std::memcpy(&begin, bytes.data() + 64 + n * (4 + 2 * 2 * 2 * 8 * 2) + 8, sizeof begin);
      begins[n] = begin;
    }
    return begins;
  }

 private:
  const moe::test::TempFolder folder_;
  std::string cache_;
};

// The layer reads the prompt of a text that is to be drafted, alone and in company, and goes on in
// what a later text takes over, also from a file.
TEST_F(GuessesTest, TheLayerReadsThePrompt) {
  serve_with_cache(3);
  Answer plain;
  submit(plain, request(1, 66, 0));
  plain.wait();
  const auto without = begins();
  ASSERT_EQ(without.size(), 1u);
  EXPECT_GT(without.begin()->second, 0);
  serve_with_cache(3);
  Answer answers[3];
  for (int i = 0; i < 3; ++i) submit(answers[i], request(2 + i, 70 + i, 4));
  for (Answer& answer : answers) {
    answer.wait();
    EXPECT_EQ(answer.status(), 200);
  }
  auto with = begins();
  EXPECT_EQ(with.size(), 4u);
  for (const auto& [n, begin] : with) {
    EXPECT_EQ(begin != 0, n == without.begin()->first) << n;
  }
  serve_with_cache(1);
  Json longer = request(2, 70, 4);
  for (int i = 0; i < 20; ++i) longer["prompt"].push_back(5 + i);
  Answer last;
  submit(last, longer);
  last.wait();
  EXPECT_GT(stats().reused_tokens, 60u);
  with = begins();
  EXPECT_EQ(with.rbegin()->second, 0) << with.rbegin()->first;
  EXPECT_GE(with.rbegin()->first, 90u);
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
