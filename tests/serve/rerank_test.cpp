// SPDX-License-Identifier: MIT
// Scores of documents for a query in the shape of Jina's, Cohere's and vLLM's rerank.

#include <cstring>
#include <fstream>
#include <iterator>
#include <limits>
#include <utility>

#include "tests/serve/fixture.h"

namespace moe_serve_test {
namespace {

const std::string kEncoders = "tests/data/encoders/";

class RerankTest : public ServiceTest {
 protected:
  void open_encoder(const std::string& name) {
    open_checkpoint(kEncoders + name);
    auto params = MOE_INIT(moe_service_params);
    params.name = "pairs";
    ASSERT_EQ(moe_service_create(model_, &params, &service_, &error_), MOE_OK) << error_.text;
  }
  Json ask(const Json& request, int status = 200) {
    return ServiceTest::ask(request, MOE_ENDPOINT_RERANK, status);
  }
  void refuses(const Json& change, const std::string& param, const std::string& words) {
    Json request = {{"query", "the cat"}, {"documents", {"birds"}}};
    for (const auto& [key, value] : change.items()) request[key] = value;
    ServiceTest::refuses(request, MOE_ENDPOINT_RERANK, param, words);
  }
  /// The library's own scores of a pair, without the service.
  std::vector<float> alone(const std::string& query, const std::string& document, size_t n = 1) {
    moe_session* session = nullptr;
    EXPECT_EQ(moe_session_create(model_, nullptr, &session, &error_), MOE_OK) << error_.text;
    std::vector<int32_t> tokens(static_cast<size_t>(moe_session_context(session)));
    auto pair = MOE_INIT(moe_token_pair);
    EXPECT_EQ(moe_tokenizer_encode_pair(moe_model_tokenizer(model_), query.data(), query.size(),
                                        document.data(), document.size(), 0, tokens.size(),
                                        tokens.data(), tokens.size(), &pair, &error_),
              MOE_OK);
    std::vector<float> scores(n);
    auto params = MOE_INIT(moe_encode_params);
    params.outputs = scores.data();
    params.n_rows = 1;
    params.second = pair.second;
    EXPECT_EQ(moe_session_encode(session, tokens.data(), pair.n_tokens, &params, &error_), MOE_OK)
        << error_.text;
    moe_session_free(session);
    return scores;
  }
};

/// The first output of each case, as transformers computed it.
std::vector<float> golden_scores(const std::string& folder, size_t n) {
  std::ifstream file(folder + "/golden.safetensors", std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  uint64_t n_header = 0;
  std::memcpy(&n_header, bytes.data(), sizeof n_header);
  const Json header = Json::parse(bytes.substr(8, static_cast<size_t>(n_header)));
  std::vector<float> scores(n);
  for (size_t i = 0; i < n; ++i) {
    const size_t at = header["outputs." + std::to_string(i)]["data_offsets"][0];
    std::memcpy(&scores[i], bytes.data() + 8 + n_header + at, sizeof(float));
  }
  return scores;
}

TEST_F(RerankTest, ScoresAreThoseOfTransformers) {
  for (const std::string name : {"bert_pairs", "xlmr_pairs", "modernbert_pairs"}) {
    open_encoder(name);
    const Json cases = Json::parse(std::ifstream(kEncoders + name + "/golden.json"))["cases"];
    const std::vector<float> expected = golden_scores(kEncoders + name, cases.size());
    size_t n = 0;
    for (size_t k = 0; k < cases.size(); ++k) {
      const Json& c = cases[k];
      if (c["max_tokens"] != 0) continue;
      ++n;
      const Json answer = ask({{"query", c["texts"][0]}, {"documents", {c["texts"][1]}}});
      ASSERT_EQ(answer["results"].size(), 1);
      EXPECT_NEAR(answer["results"][0]["relevance_score"], expected[k], 1e-4);
      EXPECT_FALSE(answer["results"][0].contains("cut_tokens"));
      EXPECT_EQ(answer["usage"]["total_tokens"], c["ids"].size());
    }
    EXPECT_EQ(n, 2);
  }
}

TEST_F(RerankTest, AnswersWithTheBestFirst) {
  open_encoder("bert_pairs");
  const std::vector<std::string> texts = {"birds", "the big cat", "a dog sat", ""};
  const Json documents = {"birds", {{"text", "the big cat"}}, "a dog sat", ""};
  const Json answer = ask({{"model", "pairs"}, {"query", "the cat"}, {"documents", documents}});
  EXPECT_EQ(answer["object"], "list");
  EXPECT_EQ(answer["model"], "pairs");
  const Json& results = answer["results"];
  ASSERT_EQ(results.size(), 4);
  float last = std::numeric_limits<float>::infinity();
  for (size_t i = 0; i < 4; ++i) {
    const float score = results[i]["relevance_score"];
    EXPECT_EQ(score, alone("the cat", texts[results[i]["index"]])[0]);
    EXPECT_FALSE(results[i].contains("document"));
    EXPECT_LE(score, std::exchange(last, score));
  }
  const Json two = ask({{"query", "the cat"},
                        {"documents", documents},
                        {"top_n", 2},
                        {"return_documents", true}})["results"];
  ASSERT_EQ(two.size(), 2);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(two[i]["index"], results[i]["index"]);
    EXPECT_EQ(two[i]["document"], Json({{"text", texts[two[i]["index"]]}}));
  }
  const Json same = ask({{"query", "a"}, {"documents", {"b", "b", "b"}}, {"top_n", 9}})["results"];
  ASSERT_EQ(same.size(), 3);
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(same[i]["index"], i);
}

TEST_F(RerankTest, SaysWhatWasLeftOut) {
  open_encoder("bert_pairs");
  std::string cats;
  for (int i = 0; i < 60; ++i) cats += "cat ";
  const Json results = ask({{"query", "the cat"}, {"documents", {cats, "birds"}}})["results"];
  for (const Json& result : results) {
    EXPECT_EQ(result.contains("cut_tokens"), result["index"] == 0);
    if (result["index"] != 0) continue;
    EXPECT_EQ(result["cut_tokens"], 25);  // as moe rerank says
    EXPECT_EQ(result["relevance_score"].get<float>(), alone("the cat", cats)[0]);
  }
}

TEST_F(RerankTest, ALabelSaysWhichScoreCounts) {
  open_encoder("bert_sequenceclassification");
  const Json request = {{"query", "the cat"}, {"documents", {"birds"}}};
  for (size_t label = 0; label < 3; ++label) {
    Json labelled = request;
    labelled["label"] = label;
    EXPECT_EQ(ask(labelled)["results"][0]["relevance_score"].get<float>(),
              alone("the cat", "birds", 3)[label]);
  }
  refuses({{"user", "u"}}, "label", "gives 3 scores");
  refuses({{"label", 3}}, "label", "0..2");
}

TEST_F(RerankTest, RefusesWhatItCannotRead) {
  open_encoder("bert_pairs");
  refuses({{"query", 5}}, "query", "expected a text");
  refuses({{"query", nullptr}}, "query", "missing");
  refuses({{"query", ""}}, "query", "empty");
  refuses({{"query", std::string(65537, 'a')}}, "query", "at most 65536 bytes, found 65537");
  refuses({{"documents", nullptr}}, "documents", "missing");
  refuses({{"documents", "birds"}}, "documents", "expected a list");
  refuses({{"documents", Json::array()}}, "documents", "1 to 2048 documents, found 0");
  refuses({{"documents", std::vector<std::string>(2049, "a")}}, "documents", "found 2049");
  refuses({{"documents", {"a", {5}}}}, "documents[1]", "expected a text");
  refuses({{"documents", {"a", {{"text", 5}}}}}, "documents[1].text", "expected a text");
  refuses({{"documents", {{{"image", "a"}, {"text", "a"}}}}}, "documents[0].image", "unknown");
  refuses({{"documents", {Json::object()}}}, "documents[0].text", "missing");
  refuses({{"documents", {std::string((1 << 20) + 1, 'a')}}}, "documents[0]", "at most 1048576");
  refuses({{"top_n", 0}}, "top_n", "1..");
  refuses({{"top_n", 1.5}}, "top_n", "whole number");
  refuses({{"return_documents", "yes"}}, "return_documents", "true or false");
  refuses({{"label", 1}}, "label", "0..0");
  refuses({{"stream", true}}, "stream", "unknown field");
  EXPECT_EQ(ask({{"query", "a"}, {"documents", {"a"}}, {"model", "other"}}, 404)["error"]["code"],
            "model_not_found");
  Answer body;
  submit_text(body, "{\"query\": \"a\", \"documents\": [\"\xff\"]}", MOE_ENDPOINT_RERANK);
  body.wait();
  EXPECT_EQ(body.status(), 400);
}

TEST_F(RerankTest, NotOfEveryModel) {
  open(kStories);
  serve();
  refuses(Json::object(), "model", "it is no encoder; serve an encoder with a head of classes");
  open_encoder("bert_model");
  refuses(Json::object(), "model", "it has no head");
  open_encoder("xlmr_tokenclassification");
  refuses(Json::object(), "model", "its head is for tags");
}

TEST_F(RerankTest, TakesTurnsAndCanBeCancelled) {
  open_encoder("bert_pairs");
  const std::vector<std::string> many(2048, "a dog sat on the mat and saw a small bird");
  Answer first, second, cancelled;
  submit(first, {{"query", "the cat"}, {"documents", many}}, MOE_ENDPOINT_RERANK);
  const uint64_t id =
      submit(cancelled, {{"query", "the cat"}, {"documents", many}}, MOE_ENDPOINT_RERANK).id;
  submit(second, {{"query", "the cat"}, {"documents", {"birds"}}}, MOE_ENDPOINT_RERANK);
  EXPECT_EQ(second.wait()["results"][0]["relevance_score"].get<float>(),
            alone("the cat", "birds")[0]);
  EXPECT_FALSE(first.ended());
  moe_service_cancel(service_, id);
  cancelled.wait();
  EXPECT_EQ(cancelled.status(), 499);
  EXPECT_EQ(first.wait()["results"].size(), 2048);
  wait_for_all();
  EXPECT_EQ(stats().n_cancelled, 1);
  EXPECT_EQ(stats().n_answered, 2);
  EXPECT_EQ(stats().n_requests, 3);
  EXPECT_GT(stats().prompt_tokens, 2048u * 10);
}

TEST_F(RerankTest, HasReceipts) {
  open_encoder("bert_pairs");
  Json request = {{"query", "the big cat"}, {"documents", {"birds", "a dog"}}, {"receipt", true}};
  const Json answer = ask(request);
  const Json& receipt = answer["receipt"];
  EXPECT_EQ(receipt["endpoint"], "/v1/rerank");
  EXPECT_EQ(receipt["system_fingerprint"], answer["system_fingerprint"]);
  EXPECT_EQ(receipt["prompts"][0], Json({2, 4, 21, 6, 3, 17, 65, 3}));  // as in golden.json
  EXPECT_EQ(receipt["prompts"].size(), 2);
  EXPECT_FALSE(receipt.contains("texts"));
  EXPECT_EQ(ask(request)["receipt"], receipt);
  request["documents"][1] = "a cat";
  EXPECT_NE(ask(request)["receipt"]["hash"], receipt["hash"]);
}

}  // namespace
}  // namespace moe_serve_test
