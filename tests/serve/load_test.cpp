// SPDX-License-Identifier: MIT
// Many requests at once: each gets what it would get alone.

#include <thread>

#include "tests/serve/fixture.h"

namespace moe_serve_test {
namespace {

const char* const kBeginnings[] = {"Once upon a time", "The dog", "Lily and Tom went to the park",
                                   "One day, a little girl named", "A bird"};

std::vector<Json> mixed_requests(int n) {
  std::vector<Json> requests;
  for (int i = 0; i < n; ++i) {
    std::string text;
    for (int k = 0; k <= i % 4 * 6; ++k)
      text += std::string(k > 0 ? ". " : "") + kBeginnings[(i + k) % 5];
    Json request = {{"seed", 100 + i}, {"max_tokens", 4 + i * 7 % 40}};
    if (i % 3 == 0) {
      request["messages"] = says(text);
    } else {
      request["prompt"] = text;
    }
    if (i % 2 == 0) request["temperature"] = 0;
    if (i % 5 == 1) request["stop"] = " the";
    if (i % 4 == 3) request["top_k"] = 5;
    if (i % 7 == 2) request["repetition_penalty"] = 1.2;
    requests.push_back(request);
  }
  return requests;
}

moe_endpoint endpoint_of(const Json& request) {
  return request.contains("messages") ? MOE_ENDPOINT_CHAT : MOE_ENDPOINT_COMPLETIONS;
}

TEST_F(ServiceTest, TextsDoNotDependOnLoad) {
  const std::vector<Json> requests = mixed_requests(30);
  std::vector<Alone> expected;
  for (const Json& request : requests) expected.push_back(alone(request));
  for (const int32_t n_slots : {1, 3, 8}) {
    auto params = slots(n_slots);
    params.slice = n_slots == 3 ? 5 : 0;
    serve(params);
    std::vector<Answer> answers(requests.size());
    for (size_t i = 0; i < requests.size(); ++i) {
      Json request = requests[i];
      if (i % 2 == 1) request["stream"] = true;
      const auto ticket = submit(answers[i], request, endpoint_of(request));
      EXPECT_EQ(ticket.stream, static_cast<int32_t>(i % 2));
      EXPECT_NE(ticket.id, 0u);
    }
    for (size_t i = 0; i < requests.size(); ++i) {
      answers[i].wait();
      EXPECT_EQ(answers[i].status(), 200);
      EXPECT_EQ(answers[i].text(), expected[i].text) << n_slots << " " << requests[i];
      const bool ended =
          expected[i].finish == MOE_FINISH_EOS || expected[i].finish == MOE_FINISH_STOP;
      EXPECT_EQ(answers[i].finish(), ended ? "stop" : "length");
    }
    wait_for_all();
    const moe_service_stats s = stats();
    EXPECT_EQ(s.n_slots, n_slots);
    EXPECT_EQ(s.n_answered, requests.size());
    EXPECT_EQ(s.n_running + s.n_waiting, 0);
    EXPECT_EQ(s.n_first_tokens, requests.size());
    moe_service_free(std::exchange(service_, nullptr));
  }
}

// A long prompt is read in slices between the tokens of others: they go on meanwhile, and a short
// prompt behind it begins before it.
TEST_F(ServiceTest, AShortPromptPassesALongOne) {
  auto params = slots(3);
  params.slice = 8;
  serve(params);
  std::string text;
  while (encode(text).size() < 300) text += "Once upon a time there was a dog. ";
  Answer going, late, quick;
  going.hook = [&](size_t n) {
    if (n != 3) return;
    submit(late, {{"prompt", text}, {"max_tokens", 1}});
    submit(quick, {{"prompt", "The"}, {"max_tokens", 1}});
  };
  submit(going, {{"prompt", "Once"}, {"max_tokens", 200}, {"stream", true}, {"ignore_eos", true}});
  going.wait();
  late.wait();
  quick.wait();
  const int quick_at = quick.order().back();
  const int late_at = late.order().back();
  EXPECT_LT(quick_at, going.order()[6]);  // within 3 steps
  int n_between = 0;
  for (const int at : going.order()) n_between += at > quick_at && at < late_at ? 1 : 0;
  EXPECT_GE(n_between, 20);  // about 300 / 8 steps
}

TEST_F(ServiceTest, SeveralTextsOfARequest) {
  serve(slots(4));
  Answer whole, stream;
  const Json request = {{"prompt", Json::array({"The dog", "A bird"})},
                        {"n", 3},
                        {"seed", 11},
                        {"temperature", 1},
                        {"max_tokens", 12}};
  submit(whole, request);
  Json streamed = request;
  streamed["stream"] = true;
  streamed["stream_options"] = {{"include_usage", true}};
  submit(stream, streamed);
  const Json answer = whole.wait();
  const Json last = stream.wait();
  ASSERT_EQ(answer["choices"].size(), 6u);
  int n_made = 0;
  for (int i = 0; i < 6; ++i) {
    const Alone expected = alone({{"prompt", i < 3 ? "The dog" : "A bird"},
                                  {"seed", 11 + i},
                                  {"temperature", 1},
                                  {"max_tokens", 12}});
    EXPECT_EQ(whole.text(i), expected.text) << i;
    EXPECT_EQ(stream.text(i), expected.text) << i;
    n_made += expected.n;
  }
  EXPECT_EQ(answer["usage"]["completion_tokens"], n_made);
  EXPECT_EQ(answer["usage"]["prompt_tokens"], encode("The dog").size() + encode("A bird").size());
  EXPECT_TRUE(last["choices"].empty());
  Json usage = last["usage"];
  usage["prompt_tokens_details"]["cached_tokens"] = 0;  // its prompt was in a slot
  EXPECT_EQ(usage, answer["usage"]);
}

TEST_F(ServiceTest, CancelledRequestsMakeRoom) {
  serve(slots(1));
  Answer running, waiting, next;
  const Json forever = {
      {"prompt", "Once"}, {"max_tokens", 400}, {"stream", true}, {"ignore_eos", true}};
  const Json request = {{"prompt", "The dog"}, {"temperature", 0}, {"max_tokens", 8}};
  running.hook = [&](size_t n) {
    if (n == 2) {
      submit(waiting, forever);
      submit(next, request);
      moe_service_cancel(service_, waiting.ticket.id);
    } else if (n == 6) {
      moe_service_cancel(service_, running.ticket.id);
    }
  };
  submit(running, forever);
  waiting.wait();
  EXPECT_EQ(waiting.status(), 499);
  EXPECT_EQ(waiting.events().size(), 1u);
  running.wait();
  EXPECT_EQ(running.status(), 499);
  EXPECT_LE(running.events().size(), 8u);  // within a step
  EXPECT_LT(waiting.order().back(), running.order().back());
  next.wait();
  EXPECT_EQ(next.text(), alone(request).text);
  moe_service_cancel(service_, running.ticket.id);  // has ended
  moe_service_cancel(service_, 1234);
  wait_for_all();
  EXPECT_EQ(stats().n_cancelled, 2u);
  EXPECT_EQ(stats().kv_positions, 0u);
}

TEST_F(ServiceTest, DrainsAndEnds) {
  serve(slots(2));
  Answer answer, late;
  submit(answer, {{"prompt", "Once"}, {"max_tokens", 60}, {"n", 32}});
  bool empty = true;
  ASSERT_EQ(moe_service_drain(service_, 0, &empty, &error_), MOE_OK);
  EXPECT_FALSE(empty);
  EXPECT_EQ(stats().draining, 1);
  submit(late, {{"prompt", "Once"}});
  EXPECT_EQ(late.status(), 503);
  EXPECT_GT(late.retry_after(), 0);
  ASSERT_EQ(moe_service_drain(service_, 60, &empty, &error_), MOE_OK);
  EXPECT_TRUE(empty);
  EXPECT_TRUE(answer.ended());
  EXPECT_EQ(answer.status(), 200);
}

TEST_F(ServiceTest, FreeingEndsRequests) {
  serve(slots(1));
  Answer answers[3];
  for (Answer& answer : answers) {
    submit(answer, {{"prompt", "Once"},
                    {"max_tokens", 400},
                    {"n", 20},
                    {"ignore_eos", true},
                    {"stream", true}});
  }
  answers[0].wait_for_events(2);
  moe_service_free(std::exchange(service_, nullptr));
  for (Answer& answer : answers) {
    EXPECT_TRUE(answer.ended());
    EXPECT_EQ(answer.status(), 503);
  }
}

// For ThreadSanitizer: clients on many threads, some of which go away.
TEST_F(ServiceTest, ManyThreads) {
  auto params = slots(3);
  params.max_waiting = 4;
  serve(params);
  const Json request = {{"prompt", "The dog"}, {"temperature", 0}, {"max_tokens", 6}};
  const Json chat = {{"messages", says("The dog")}, {"temperature", 0}, {"max_tokens", 6}};
  const std::string texts[] = {alone(request).text, alone(chat).text};
  std::vector<std::thread> clients;
  for (int c = 0; c < 6; ++c) {
    clients.emplace_back([&, c] {
      for (int i = 0; i < 12; ++i) {
        Answer answer;
        const bool is_chat = (c + i) % 2 == 1;
        const auto ticket = submit(answer, is_chat ? chat : request,
                                   is_chat ? MOE_ENDPOINT_CHAT : MOE_ENDPOINT_COMPLETIONS);
        if ((c + i) % 5 == 0) moe_service_cancel(service_, ticket.id);
        answer.wait();
        const int status = answer.status();
        EXPECT_TRUE(status == 200 || status == 429 || status == 499) << status;
        if (status == 200) {
          EXPECT_EQ(answer.text(), texts[is_chat ? 1 : 0]);
        }
        auto s = MOE_INIT(moe_service_stats);
        moe_error error;
        EXPECT_EQ(moe_service_get_stats(service_, &s, &error), MOE_OK);
        EXPECT_LE(s.n_waiting, 7);
      }
    });
  }
  for (std::thread& client : clients) client.join();
  wait_for_all();
  const moe_service_stats s = stats();
  EXPECT_EQ(s.n_requests, s.n_answered + s.n_cancelled);
  EXPECT_EQ(s.n_failed, 0u);
}

}  // namespace
}  // namespace moe_serve_test
