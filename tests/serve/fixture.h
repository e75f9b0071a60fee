// SPDX-License-Identifier: MIT
#pragma once
// A service around the shipped model, its requests, and the texts that the model makes alone.

#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "include/moe_c.h"
#include "tests/support/temp_folder.h"

namespace moe_serve_test {

using Json = nlohmann::ordered_json;

inline constexpr moe_endpoint kMessages = MOE_ENDPOINT_MESSAGES;
inline constexpr moe_endpoint kResponses = MOE_ENDPOINT_RESPONSES;
inline constexpr const char* kStories = "examples/models/stories.moe";

/// The events of one request.
class Answer {
 public:
  static void take(void* user, const moe_service_event* event) {
    auto* answer = static_cast<Answer*>(user);
    answer->add(*event);
  }

  moe_service_ticket ticket = MOE_INIT(moe_service_ticket);
  std::function<void(size_t n)> hook;  // after event n, from 1, on the service's thread

  /// The last event.
  Json wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return ended_; });
    return events_.back();
  }
  void wait_for_events(size_t n) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this, n] { return ended_ || events_.size() >= n; });
  }
  bool ended() {
    const std::lock_guard lock(mutex_);
    return ended_;
  }
  int status() {
    const std::lock_guard lock(mutex_);
    return status_;
  }
  int retry_after() {
    const std::lock_guard lock(mutex_);
    return retry_after_;
  }
  std::vector<Json> events() {
    const std::lock_guard lock(mutex_);
    return events_;
  }
  /// The text of a choice, of a whole answer or of all chunks.
  std::string text(int index = 0, const char* member = "content") {
    std::string text;
    for (const Json& event : events()) {
      for (const Json& choice : event.value("choices", Json::array())) {
        if (choice["index"] != index) continue;
        const Json& holder = choice.contains("message") ? choice["message"]
                             : choice.contains("delta") ? choice["delta"]
                                                        : choice;
        text += holder.value(choice.contains("text") ? "text" : member, "");
      }
    }
    return text;
  }
  std::string finish(int index = 0) {
    std::string finish;
    for (const Json& event : events()) {
      for (const Json& choice : event.value("choices", Json::array())) {
        if (choice["index"] == index && choice["finish_reason"].is_string()) {
          finish = choice["finish_reason"];
        }
      }
    }
    return finish;
  }

  /// The names of the events; "": none.
  std::vector<std::string> names() {
    const std::lock_guard lock(mutex_);
    return names_;
  }
  /// Numbers in the order of all events of all requests.
  std::vector<int> order() {
    const std::lock_guard lock(mutex_);
    return order_;
  }

 private:
  void add(const moe_service_event& event) {
    static std::atomic<int> n_events{0};
    const bool last = event.last != 0;
    size_t n = 0;
    {
      const std::lock_guard lock(mutex_);
      EXPECT_FALSE(ended_) << "an event after the last one";
      EXPECT_EQ(event.n_bytes, std::string(event.json).size());
      events_.push_back(Json::parse(event.json));
      names_.emplace_back(event.name == nullptr ? "" : event.name);
      order_.push_back(++n_events);
      status_ = event.status;
      retry_after_ = event.retry_after;
      n = events_.size();
    }
    if (hook) hook(n);
    const std::lock_guard lock(mutex_);
    ended_ = last;
    changed_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<int> order_;
  std::vector<std::string> names_;
  std::vector<Json> events_;
  int status_ = 0;
  int retry_after_ = 0;
  bool ended_ = false;
};

/// A text of the model alone.
struct Alone {
  std::string text;
  std::string thinking;
  moe_finish finish{};
  std::vector<float> logprobs;
  int n = 0;

  static bool take(void* user, const moe_piece* piece) {
    auto* alone = static_cast<Alone*>(user);
    const bool thinking = (piece->flags & MOE_PIECE_THINKING) != 0;
    (thinking ? alone->thinking : alone->text).append(piece->text, piece->n_bytes);
    if (piece->token < 0) return true;
    alone->logprobs.push_back(piece->logprob);
    ++alone->n;
    return true;
  }
};

class ServiceTest : public testing::Test {
 protected:
  void SetUp() override {
    auto params = MOE_INIT(moe_env_params);
    params.threads = 2;
    ASSERT_EQ(moe_env_create(&params, &env_, &error_), MOE_OK) << error_.text;
    open(kStories);
  }
  void TearDown() override {
    moe_service_free(service_);
    moe_model_free(model_);
    moe_env_free(env_);
  }

  /// The model of a checkpoint.
  void open_checkpoint(const std::string& folder) {
    const std::string file = folder_.file("model.moe");
    auto params = MOE_INIT(moe_convert_params);
    params.weights = "f32";
    ASSERT_EQ(moe_convert(folder.c_str(), file.c_str(), &params, &error_), MOE_OK) << error_.text;
    open(file);
  }
  void open(const std::string& path, uint64_t memory = 0) {
    moe_service_free(std::exchange(service_, nullptr));
    moe_model_free(std::exchange(model_, nullptr));
    auto params = MOE_INIT(moe_model_params);
    params.memory_bytes = memory;
    ASSERT_EQ(moe_model_open(env_, path.c_str(), &params, &model_, &error_), MOE_OK) << error_.text;
  }

  void serve(moe_service_params params = MOE_INIT(moe_service_params)) {
    moe_service_free(std::exchange(service_, nullptr));
    if (params.chat_template == nullptr && moe_model_chat_template(model_) == nullptr) {
      params.chat_template = "plain";
    }
    ASSERT_EQ(moe_service_create(model_, &params, &service_, &error_), MOE_OK) << error_.text;
  }
  static moe_service_params slots(int32_t n) {
    auto params = MOE_INIT(moe_service_params);
    params.n_slots = n;
    return params;
  }

  moe_service_ticket submit(Answer& answer, const Json& request,
                            moe_endpoint endpoint = MOE_ENDPOINT_COMPLETIONS) {
    return submit_text(answer, request.dump(), endpoint);
  }
  moe_service_ticket submit_text(Answer& answer, const std::string& body,
                                 moe_endpoint endpoint = MOE_ENDPOINT_COMPLETIONS) {
    moe_error error;
    EXPECT_EQ(moe_service_submit(service_, endpoint, body.data(), body.size(), Answer::take,
                                 &answer, &answer.ticket, &error),
              MOE_OK)
        << error.text;
    return answer.ticket;
  }
  /// The answer to a request, as a whole.
  Json ask(const Json& request, moe_endpoint endpoint = MOE_ENDPOINT_COMPLETIONS,
           int status = 200) {
    Answer answer;
    submit(answer, request, endpoint);
    const Json json = answer.wait();
    EXPECT_EQ(answer.status(), status) << json;
    return json;
  }
  /// A request is answered by an error about a field, with these words.
  void refuses(const Json& request, moe_endpoint endpoint, const std::string& param,
               const std::string& words) {
    const Json error = ask(request, endpoint, 400)["error"];
    EXPECT_EQ(error["param"], param) << error;
    EXPECT_NE(std::string(error["message"]).find(words), std::string::npos) << error;
  }
  moe_service_stats stats() {
    auto stats = MOE_INIT(moe_service_stats);
    EXPECT_EQ(moe_service_get_stats(service_, &stats, &error_), MOE_OK) << error_.text;
    return stats;
  }
  void wait_for_all() {
    bool empty = false;
    ASSERT_EQ(moe_service_drain(service_, -1, &empty, &error_), MOE_OK);
    ASSERT_TRUE(empty);
  }

  std::vector<int32_t> encode(const std::string& text) {
    std::vector<int32_t> tokens(text.size() + 16);
    size_t n = 0;
    EXPECT_EQ(moe_tokenizer_encode(moe_model_tokenizer(model_), text.data(), text.size(), 0,
                                   tokens.data(), tokens.size(), &n, &error_),
              MOE_OK);
    tokens.resize(n);
    return tokens;
  }
  std::string decode(const std::vector<int32_t>& tokens) {
    std::string text(16 * tokens.size(), '\0');
    size_t n = 0;
    EXPECT_EQ(moe_tokenizer_decode(moe_model_tokenizer(model_), tokens.data(), tokens.size(), 0,
                                   text.data(), text.size(), &n, &error_),
              MOE_OK);
    text.resize(n);
    return text;
  }
  /// The parameters that a request says.
  struct AloneParams {
    moe_sampling sampling = MOE_INIT(moe_sampling);
    std::vector<const char*> stops;
    moe_generate_params params = MOE_INIT(moe_generate_params);
  };
  void read(const Json& request, AloneParams& p) {
    ASSERT_EQ(moe_model_get_sampling(model_, &p.sampling, nullptr, &error_), MOE_OK);
    p.sampling.temperature = request.value("temperature", p.sampling.temperature);
    p.sampling.top_k = request.value("top_k", p.sampling.top_k);
    p.sampling.top_p = request.value("top_p", p.sampling.top_p);
    p.sampling.min_p = request.value("min_p", p.sampling.min_p);
    p.sampling.repetition_penalty =
        request.value("repetition_penalty", p.sampling.repetition_penalty);
    p.sampling.seed = request.value("seed", uint64_t{0});
    if (request.contains("stop")) {
      p.stops.push_back(request["stop"].get_ref<const std::string&>().c_str());
    }
    p.params.sampling = &p.sampling;
    p.params.max_tokens = request.value("max_tokens", request.contains("messages") ? 0 : 16);
    p.params.stop = p.stops.data();
    p.params.n_stop = static_cast<int32_t>(p.stops.size());
    p.params.ignore_eos = request.value("ignore_eos", false) ? 1 : 0;
    p.params.n_top = 2;
    p.params.piece = Alone::take;
  }
  /// The model's text for a request in a session of its own.
  Alone alone(const Json& request, const char* chat_template = "plain") {
    Alone made;
    moe_session* session = nullptr;
    EXPECT_EQ(moe_session_create(model_, nullptr, &session, &error_), MOE_OK) << error_.text;
    AloneParams p;
    read(request, p);
    p.params.piece_user = &made;
    if (request.contains("messages")) {
      auto chat_params = MOE_INIT(moe_chat_params);
      chat_params.chat_template = chat_template;
      moe_chat* chat = nullptr;
      EXPECT_EQ(moe_chat_create(session, &chat_params, &chat, &error_), MOE_OK) << error_.text;
      for (const Json& message : request["messages"]) {
        const std::string content = message["content"];
        EXPECT_EQ(moe_chat_add(chat, message["role"].get<std::string>().c_str(), content.data(),
                               content.size(), &error_),
                  MOE_OK);
      }
      auto result = MOE_INIT(moe_chat_result);
      EXPECT_EQ(moe_chat_reply(chat, &p.params, &result, &error_), MOE_OK) << error_.text;
      made.finish = result.finish;
      moe_chat_free(chat);
    } else {
      const std::vector<int32_t> prompt = encode(request["prompt"]);
      auto result = MOE_INIT(moe_generate_result);
      EXPECT_EQ(
          moe_session_generate(session, prompt.data(), prompt.size(), &p.params, &result, &error_),
          MOE_OK)
          << error_.text;
      made.finish = result.finish;
    }
    moe_session_free(session);
    return made;
  }

  moe_env* env_ = nullptr;
  moe_model* model_ = nullptr;
  moe_service* service_ = nullptr;
  moe_error error_{};

 private:
  const moe::test::TempFolder folder_;
};

/// The model of tests/data/chat/script, which thinks "ab" and answers "Yes." to everything.
class ScriptTest : public ServiceTest {
 protected:
  explicit ScriptTest(const char* folder = "tests/data/chat/script") : checkpoint_(folder) {}
  void SetUp() override {
    ServiceTest::SetUp();
    open_checkpoint(checkpoint_);
  }

 private:
  const char* const checkpoint_;
};

inline Json says(const std::string& text) {
  return Json::array({Json{{"role", "user"}, {"content", text}}});
}

}  // namespace moe_serve_test
