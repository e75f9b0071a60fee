// SPDX-License-Identifier: MIT
// Fingerprints and receipts of answers.

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <chrono>
#include <cstdio>
#include <thread>

#include "tests/serve/fixture.h"

namespace moe_serve_test {
namespace {

class ReceiptsTest : public ServiceTest {
 protected:
  static void take(void* user, const char* json, size_t n_bytes) {
    EXPECT_EQ(std::string(json).size(), n_bytes);
    static_cast<std::vector<Json>*>(user)->push_back(Json::parse(json));
  }
  /// Serves with these parameters, and says the fingerprint.
  std::string fingerprint(const moe_service_params& params) {
    moe_service_free(std::exchange(service_, nullptr));
    serve(params);
    return ask({{"prompt", "a"}, {"max_tokens", 1}})["system_fingerprint"];
  }
  static void add(std::string& bytes, uint32_t value) {
    for (int i = 0; i < 4; ++i) bytes += static_cast<char>(value >> (8 * i));
  }
  /// The hash that docs/serving.md describes.
  static std::string hash_of(const std::vector<std::vector<int32_t>>& lists) {
    std::string bytes;
    for (const auto& ids : lists) {
      add(bytes, static_cast<uint32_t>(ids.size()));
      for (const int32_t id : ids) add(bytes, static_cast<uint32_t>(id));
    }
    const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
    char digits[33];
    std::snprintf(digits, sizeof digits, "%016llx%016llx",
                  static_cast<unsigned long long>(hash.high64),
                  static_cast<unsigned long long>(hash.low64));
    return digits;
  }

  const Json request_ = {
      {"prompt", "Once upon a time"}, {"max_tokens", 6}, {"n", 2}, {"temperature", 3}, {"seed", 5}};
};

TEST_F(ReceiptsTest, SaysWhatAnAnswerWasMadeOf) {
  serve(slots(2));
  Json request = request_;
  EXPECT_FALSE(ask(request).contains("receipt"));
  request["receipt"] = true;
  const Json answer = ask(request);
  const Json& receipt = answer["receipt"];
  EXPECT_EQ(receipt["object"], "moe.receipt");
  EXPECT_EQ(receipt["endpoint"], "/v1/completions");
  EXPECT_EQ(receipt["model"], answer["model"]);
  EXPECT_EQ(receipt["system_fingerprint"], answer["system_fingerprint"]);
  EXPECT_EQ(receipt["request"], request_);
  EXPECT_EQ(receipt["seed"], 5);
  const std::vector<int32_t> prompt = encode("Once upon a time");
  EXPECT_EQ(receipt["prompts"], Json::array({prompt}));
  ASSERT_EQ(receipt["texts"].size(), 2);
  std::vector<std::vector<int32_t>> lists = {prompt};
  for (const Json& text : receipt["texts"]) {
    EXPECT_EQ(text["finish"], "length");
    lists.push_back(text["tokens"]);
    EXPECT_EQ(lists.back().size(), 6);
  }
  EXPECT_NE(lists[1], lists[2]);
  EXPECT_EQ(receipt["hash"], hash_of(lists));
}

TEST_F(ReceiptsTest, IsTheSameWithTheSeedThatItSays) {
  serve();
  Json request = request_;
  request.erase("seed");
  request["receipt"] = true;
  const Json first = ask(request)["receipt"];
  const Json other = ask(request)["receipt"];
  EXPECT_NE(first["seed"], other["seed"]);
  request["seed"] = first["seed"];
  const Json again = ask(request)["receipt"];
  EXPECT_EQ(again["texts"], first["texts"]);
  EXPECT_EQ(again["hash"], first["hash"]);
}

TEST_F(ReceiptsTest, IsInTheLastEventOfEveryStream) {
  serve();
  const auto last_of = [&](Json request, moe_endpoint endpoint) {
    request["receipt"] = true;
    request["seed"] = 1;
    const Json whole = ask(request, endpoint);
    request["stream"] = true;
    Answer answer;
    submit(answer, request, endpoint);
    const Json last = answer.wait();
    const Json& holder = last.contains("response") ? last["response"] : last;
    EXPECT_EQ(holder["receipt"]["hash"], whole["receipt"]["hash"]);
    EXPECT_EQ(holder["receipt"]["texts"], whole["receipt"]["texts"]);
    EXPECT_EQ(whole["system_fingerprint"], whole["receipt"]["system_fingerprint"]);
    size_t n = 0;
    for (const Json& event : answer.events())
      n += event.dump().find("moe.receipt") != std::string::npos;
    EXPECT_EQ(n, 1);
  };
  last_of({{"prompt", "a"}}, MOE_ENDPOINT_COMPLETIONS);
  last_of({{"messages", says("a")}, {"max_tokens", 4}}, MOE_ENDPOINT_CHAT);
  last_of({{"messages", says("a")}, {"max_tokens", 4}}, MOE_ENDPOINT_MESSAGES);
  last_of({{"input", "a"}, {"max_output_tokens", 4}}, MOE_ENDPOINT_RESPONSES);
}

TEST_F(ReceiptsTest, TheServiceGivesEveryReceiptAwayBeforeTheAnswer) {
  std::vector<Json> receipts;
  auto params = slots(1);
  params.receipt = take;
  params.receipt_user = &receipts;
  serve(params);
  Answer answer;
  size_t n_before = 0;
  answer.hook = [&](size_t) { n_before = receipts.size(); };
  submit(answer, request_);
  EXPECT_FALSE(answer.wait().contains("receipt"));
  EXPECT_EQ(n_before, 1);
  Answer refused;
  submit(refused, {{"prompt", 5}});
  refused.wait();
  wait_for_all();
  ASSERT_EQ(receipts.size(), 1);
  EXPECT_EQ(receipts[0]["request"], request_);
}

TEST_F(ReceiptsTest, TheFingerprintIsOfAllThatAnswersDependOn) {
  const std::string plain = fingerprint(slots(1));
  auto other = slots(3);
  other.slice = 3;
  other.no_reuse = 1;
  other.name = "another";
  EXPECT_EQ(fingerprint(other), plain);
  auto chat_template = slots(1);
  chat_template.chat_template = "chatml";
  EXPECT_NE(fingerprint(chat_template), plain);
  auto session = MOE_INIT(moe_session_params);
  auto kv = slots(1);
  kv.session = &session;
  EXPECT_EQ(fingerprint(kv), plain);
  session.kv = MOE_KV_INT8;
  EXPECT_NE(fingerprint(kv), plain);
  session.kv = MOE_KV_F16;  // the default by its name
  EXPECT_EQ(fingerprint(kv), plain);
  session.context = 64;
  EXPECT_NE(fingerprint(kv), plain);
  auto router = MOE_INIT(moe_router);
  ASSERT_EQ(moe_router_parse("topk:1", &router, &error_), MOE_OK);
  auto routed = slots(1);
  routed.router = &router;
  EXPECT_NE(fingerprint(routed), plain);
}

TEST_F(ReceiptsTest, TheFingerprintNamesTheModelFile) {
  auto info = MOE_INIT(moe_model_info);
  ASSERT_EQ(moe_model_get_info(model_, &info, &error_), MOE_OK);
  char hash[17];
  std::snprintf(hash, sizeof hash, "%016llx", static_cast<unsigned long long>(info.file_hash));
  EXPECT_STREQ(info.device, "cpu");
  const std::string found = fingerprint(slots(1));
  EXPECT_EQ(found.substr(0, 21), "moe-" + std::string(hash) + "-");
  EXPECT_EQ(found.size(), 37);
}

TEST_F(ReceiptsTest, StatisticsSayHowOftenExpertsWereUsed) {
  serve(slots(2));
  ask({{"prompt", "Once upon a time"}, {"max_tokens", 5}, {"n", 2}, {"ignore_eos", true}});
  const auto statistics = [&] {
    Answer answer;
    EXPECT_EQ(submit_text(answer, "", MOE_ENDPOINT_STATISTICS).id, 0);
    return answer.wait();
  };
  const auto sum = [](const Json& layer) {
    uint64_t n = 0;
    for (const Json& uses : layer["tokens_per_expert"]) n += uses.get<uint64_t>();
    return n;
  };
  EXPECT_EQ(statistics()["generated_tokens"], 10);
  // The prompt and four tokens of each text, as the last one is not evaluated; each is two
  // sub-tokens with two experts.
  const uint64_t expected = (statistics()["prompt_tokens"].get<uint64_t>() + 8) * 4;
  const auto late = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  while (sum(statistics()["layers"][0]) < expected && std::chrono::steady_clock::now() < late) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));  // until the thread is idle
  }
  const Json layers = statistics()["layers"];
  ASSERT_EQ(layers.size(), 4);
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(layers[static_cast<size_t>(i)]["layer"], i);
    EXPECT_EQ(sum(layers[static_cast<size_t>(i)]), expected);
  }
}

}  // namespace
}  // namespace moe_serve_test
