// SPDX-License-Identifier: MIT
// Vectors of texts in the shape of OpenAI's embeddings.

#include <cstring>
#include <fstream>

#include "tests/serve/fixture.h"

namespace moe_serve_test {
namespace {

const std::string kFolder = "tests/data/encoders/sentences";

class EmbeddingsTest : public ServiceTest {
 protected:
  void SetUp() override {
    ServiceTest::SetUp();
    open_checkpoint(kFolder);
    auto params = MOE_INIT(moe_service_params);
    params.name = "sentences";
    ASSERT_EQ(moe_service_create(model_, &params, &service_, &error_), MOE_OK) << error_.text;
  }
  Json ask(const Json& request, int status = 200) {
    return ServiceTest::ask(request, MOE_ENDPOINT_EMBEDDINGS, status);
  }
  std::vector<float> vector_of(const Json& request) { return ask(request)["data"][0]["embedding"]; }
  /// The library's own vector of a text.
  std::vector<float> alone(const std::string& text) {
    moe_session* session = nullptr;
    EXPECT_EQ(moe_session_create(model_, nullptr, &session, &error_), MOE_OK) << error_.text;
    const std::vector<int32_t> tokens = encode(text);
    std::vector<float> vector(24);
    auto params = MOE_INIT(moe_encode_params);
    params.pooled = vector.data();
    EXPECT_EQ(moe_session_encode(session, tokens.data(), tokens.size(), &params, &error_), MOE_OK)
        << error_.text;
    moe_session_free(session);
    return vector;
  }
  void refuses(const Json& request, const std::string& param, const std::string& words) {
    ServiceTest::refuses(request, MOE_ENDPOINT_EMBEDDINGS, param, words);
  }
};

TEST_F(EmbeddingsTest, AreThoseOfTheCheckpoint) {
  const Json golden = Json::parse(std::ifstream(kFolder + "/golden.json"))["cases"];
  for (size_t k = 0; k < 4; ++k) {  // the last two are too long, and the golden ones cut
    const Json& c = golden[k];
    const std::vector<float> found =
        vector_of({{"input", c["text"]}, {"prompt_name", c["prompt"]}});
    ASSERT_EQ(found.size(), 24);
    for (size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], c["vector"][i], 2e-5);
  }
}

TEST_F(EmbeddingsTest, HaveTheBitsOfTheLibrary) {
  EXPECT_EQ(vector_of({{"input", "the cat sat"}}), alone("the cat sat"));
  EXPECT_EQ(vector_of({{"input", "cat"}, {"prompt_name", "query"}}), alone("the dog: cat"));
  EXPECT_EQ(vector_of({{"input", encode("the cat sat")}}), alone("the cat sat"));
}

TEST_F(EmbeddingsTest, OfSeveralTexts) {
  const Json answer = ask({{"input", {"the cat", "a dog"}}, {"model", "sentences"}});
  EXPECT_EQ(answer["object"], "list");
  EXPECT_EQ(answer["model"], "sentences");
  const size_t n = encode("the cat").size() + encode("a dog").size();
  EXPECT_EQ(answer["usage"], Json({{"prompt_tokens", n}, {"total_tokens", n}}));
  ASSERT_EQ(answer["data"].size(), 2);
  EXPECT_EQ(answer["data"][1]["object"], "embedding");
  EXPECT_EQ(answer["data"][1]["index"], 1);
  EXPECT_EQ(answer["data"][1]["embedding"].get<std::vector<float>>(), alone("a dog"));
  const Json ids = Json::array({encode("the cat"), encode("a dog")});
  EXPECT_EQ(ask({{"input", ids}})["data"], answer["data"]);
}

TEST_F(EmbeddingsTest, InBase64) {
  const Json answer = ask({{"input", "the cat"}, {"encoding_format", "base64"}});
  const std::string text = answer["data"][0]["embedding"];
  ASSERT_EQ(text.size(), 128);  // of 96 bytes
  std::string bytes;
  const std::string digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  for (size_t i = 0; i < text.size(); i += 4) {
    size_t group = 0;
    for (size_t j = 0; j < 4; ++j) group = group << 6 | digits.find(text[i + j]);
    for (const int shift : {16, 8, 0}) bytes += static_cast<char>(group >> shift);
  }
  std::vector<float> found(24);
  std::memcpy(found.data(), bytes.data(), 96);
  EXPECT_EQ(found, alone("the cat"));
}

TEST_F(EmbeddingsTest, RefuseWhatTheyCannotDo) {
  refuses({{"model", "sentences"}}, "input", "missing");
  refuses({{"input", 5}}, "input", "expected a text");
  refuses({{"input", Json::array()}}, "input", "no tokens");
  refuses({{"input", {5, -1}}}, "input", "token ids in 0..");
  refuses({{"input", {"a", 5}}}, "input", "expected a text");
  refuses({{"input", {"a", "cat cat cat cat cat cat cat cat cat cat cat cat cat cat cat"}}},
          "input[1]", "at most 16 tokens, found 17");
  refuses({{"input", std::vector<std::string>(2049, "a")}}, "input", "at most 2048 texts");
  refuses({{"input", "a"}, {"encoding_format", "hex"}}, "encoding_format", "float or base64");
  refuses({{"input", "a"}, {"dimensions", 12}}, "dimensions", "have 24, and are not shortened");
  refuses({{"input", "a"}, {"prompt_name", "title"}}, "prompt_name", "none, document");
  refuses({{"input", "a"}, {"stream", true}}, "stream", "unknown field");
  EXPECT_EQ(ask({{"input", "a"}, {"model", "other"}}, 404)["error"]["code"], "model_not_found");
  EXPECT_EQ(ask({{"input", "a"}, {"dimensions", 24}, {"user", "u"}})["data"].size(), 1);
}

TEST_F(EmbeddingsTest, AnEncoderGeneratesNothing) {
  Answer answer;
  submit(answer, {{"prompt", "a"}});
  EXPECT_NE(std::string(answer.wait()["error"]["message"]).find("/v1/embeddings"),
            std::string::npos);
  EXPECT_EQ(answer.status(), 400);
  Answer tokens;
  submit(tokens, {{"prompt", "the cat"}}, MOE_ENDPOINT_TOKENIZE);
  EXPECT_EQ(tokens.wait()["tokens"], Json(encode("the cat")));
}

TEST_F(EmbeddingsTest, ManyAtOnceAreEachTheirOwn) {
  std::vector<std::unique_ptr<Answer>> answers;
  const std::vector<std::string> texts = {"the cat", "a dog ran", "house", "the mat sat on a cat"};
  for (int i = 0; i < 40; ++i) {
    answers.push_back(std::make_unique<Answer>());
    submit(*answers.back(), {{"input", {texts[i % 4], texts[i * 7 % 3]}}}, MOE_ENDPOINT_EMBEDDINGS);
  }
  for (int i = 0; i < 40; ++i) {
    const Json data = answers[static_cast<size_t>(i)]->wait()["data"];
    EXPECT_EQ(data[0]["embedding"].get<std::vector<float>>(), alone(texts[i % 4]));
    EXPECT_EQ(data[1]["embedding"].get<std::vector<float>>(), alone(texts[i * 7 % 3]));
  }
  wait_for_all();
  EXPECT_EQ(stats().n_answered, 40);
  EXPECT_EQ(stats().n_running + stats().n_waiting, 0);
}

TEST_F(EmbeddingsTest, TakeTurnsAndCanBeCancelled) {
  const std::vector<std::string> many(2000, "the cat sat on the mat");
  Answer first, second, cancelled;
  submit(first, {{"input", many}}, MOE_ENDPOINT_EMBEDDINGS);
  const uint64_t id = submit(cancelled, {{"input", many}}, MOE_ENDPOINT_EMBEDDINGS).id;
  submit(second, {{"input", "a dog"}}, MOE_ENDPOINT_EMBEDDINGS);
  second.wait();
  EXPECT_FALSE(first.ended());
  moe_service_cancel(service_, id);
  EXPECT_EQ(cancelled.wait()["error"]["code"], "cancelled");
  EXPECT_EQ(cancelled.status(), 499);
  EXPECT_EQ(first.wait()["data"].size(), 2000);
  wait_for_all();
  EXPECT_EQ(stats().n_cancelled, 1);
  Answer late;
  submit(late, {{"input", "a"}}, MOE_ENDPOINT_EMBEDDINGS);
  late.wait();
  EXPECT_EQ(late.status(), 503);
}

TEST_F(EmbeddingsTest, AreEndedWithTheService) {
  Answer answer;
  submit(answer, {{"input", std::vector<std::string>(2000, "the cat sat on the mat")}},
         MOE_ENDPOINT_EMBEDDINGS);
  moe_service_free(std::exchange(service_, nullptr));
  answer.wait();
  EXPECT_EQ(answer.status(), 503);
}

TEST_F(EmbeddingsTest, HaveReceipts) {
  const Json answer = ask({{"input", {"the cat", "a dog"}}, {"receipt", true}});
  const Json& receipt = answer["receipt"];
  EXPECT_EQ(receipt["endpoint"], "/v1/embeddings");
  EXPECT_EQ(receipt["prompts"], Json::array({encode("the cat"), encode("a dog")}));
  EXPECT_FALSE(receipt.contains("texts"));
  EXPECT_EQ(receipt["system_fingerprint"], answer["system_fingerprint"]);
  EXPECT_FALSE(receipt["settings"].contains("kv"));
  const Json again = ask({{"input", {"the cat", "a dog"}}, {"receipt", true}});
  EXPECT_EQ(again["receipt"], receipt);
  const Json query = ask({{"input", {"the cat", "a cat"}}, {"receipt", true}});
  EXPECT_NE(query["receipt"]["hash"], receipt["hash"]);
}

// A model that continues texts and says nothing of vectors.
TEST_F(EmbeddingsTest, NotOfEveryModel) {
  open(kStories);
  serve();
  EXPECT_EQ(ask({{"input", "a"}}, 400)["error"]["code"], "unsupported_model");
}

}  // namespace
}  // namespace moe_serve_test
