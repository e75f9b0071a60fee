// SPDX-License-Identifier: MIT
// The beginning that a prompt shares with another text is not evaluated again, and no answer
// changes.

#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>
#include <utility>

#include "tests/serve/fixture.h"

namespace moe_serve_test {
namespace {

class ReuseTest : public ServiceTest {
 protected:
  /// A text of at least n tokens.
  std::string long_text(size_t n) {
    std::string text;
    for (int i = 0; encode(text).size() < n; ++i) {
      text += "On day " + std::to_string(i) + " the dog went home. ";
    }
    return text;
  }
  static int64_t cached(const Json& answer) {
    return answer["usage"]["prompt_tokens_details"]["cached_tokens"];
  }
  /// Tokens that two texts begin with.
  int64_t common(const std::string& a, const std::string& b) {
    const std::vector<int32_t> x = encode(a), y = encode(b);
    return std::mismatch(x.begin(), x.end(), y.begin(), y.end()).first - x.begin();
  }
  /// The answer to a completion, which is the one that the model gives alone.
  Json ask(const std::string& prompt, int max_tokens = 8) {
    const Json request = {{"prompt", prompt}, {"max_tokens", max_tokens}, {"temperature", 0}};
    Answer answer;
    submit(answer, request);
    Json json = answer.wait();
    EXPECT_EQ(answer.status(), 200) << json;
    EXPECT_EQ(answer.text(), alone(request).text) << prompt;
    return json;
  }
};

TEST_F(ReuseTest, AConversationGoesOn) {
  serve(slots(2));
  std::string text = long_text(60);
  int64_t before = 0;
  for (int turn = 0; turn < 3; ++turn) {
    const Json answer = ask(text);
    EXPECT_GE(cached(answer), before) << turn;
    before = answer["usage"]["prompt_tokens"];
    text += answer["choices"][0]["text"].get<std::string>() + " The cat said hello.";
  }
  EXPECT_GT(stats().reused_tokens, 120u);
}

TEST_F(ReuseTest, ThePromptItselfAgain) {
  serve(slots(1));
  const std::string text = long_text(60);
  EXPECT_EQ(cached(ask(text)), 0);
  const Json again = ask(text);
  EXPECT_EQ(cached(again), again["usage"]["prompt_tokens"].get<int64_t>() - 1);
  const Json half = ask(text.substr(0, text.size() / 2));  // shorter than what the slot holds
  EXPECT_EQ(cached(half), half["usage"]["prompt_tokens"].get<int64_t>() - 1);
  EXPECT_EQ(cached(ask("The")), common("The", text));  // the token that begins every text
}

// A slot that would lose more than it gives is copied.
TEST_F(ReuseTest, ConversationsWithOneBeginningAreKeptApart) {
  serve(slots(3));
  const std::string begin = long_text(40);
  const std::string one = begin + "Anna had " + long_text(90), two = begin + "Ben lost one shoe.";
  ask(one);
  EXPECT_EQ(cached(ask(two)), common(one, two));
  const std::string longer = one + " The end.";
  EXPECT_EQ(cached(ask(longer)), common(one, longer));
}

// From a text that is being generated: its slot is not free.
TEST_F(ReuseTest, ARunningTextIsCopied) {
  serve(slots(2));
  const std::string text = long_text(60);
  Answer running, other;
  running.hook = [&](size_t n) {
    if (n != 3) return;
    submit(other, {{"prompt", text + " Then"}, {"max_tokens", 4}, {"temperature", 0}});
  };
  submit(running, {{"prompt", text},
                   {"max_tokens", 100},
                   {"stream", true},
                   {"ignore_eos", true},
                   {"temperature", 0}});
  running.wait();
  EXPECT_EQ(cached(other.wait()), common(text, text + " Then"));
  EXPECT_EQ(other.text(),
            alone({{"prompt", text + " Then"}, {"max_tokens", 4}, {"temperature", 0}}).text);
  EXPECT_EQ(running.text(),
            alone({{"prompt", text}, {"max_tokens", 100}, {"ignore_eos", true}, {"temperature", 0}})
                .text);
}

// Texts of one prompt wait until one of them has read it.
TEST_F(ReuseTest, APromptOfManyTextsIsReadOnce) {
  serve(slots(4));
  const std::string text = long_text(100);
  Answer answer;
  submit(answer, {{"prompt", text}, {"n", 4}, {"max_tokens", 3}, {"seed", 5}});
  const Json json = answer.wait();
  const uint64_t n = encode(text).size();
  EXPECT_EQ(stats().prompt_tokens, n + 3);
  EXPECT_EQ(stats().reused_tokens, 3 * (n - 1));
  EXPECT_EQ(cached(json), 0);  // of the prompt, which was evaluated
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(answer.text(i), alone({{"prompt", text}, {"max_tokens", 3}, {"seed", 5 + i}}).text);
  }
}

TEST_F(ReuseTest, ACancelledTextIsOfUse) {
  serve(slots(1));
  const std::string text = long_text(60);
  Answer first;
  first.hook = [&](size_t n) {
    if (n == 2) moe_service_cancel(service_, first.ticket.id);
  };
  submit(first, {{"prompt", text}, {"max_tokens", 200}, {"stream", true}, {"ignore_eos", true}});
  first.wait();
  EXPECT_EQ(first.status(), 499);
  const Json answer = ask(text);
  EXPECT_EQ(cached(answer), answer["usage"]["prompt_tokens"].get<int64_t>() - 1);
}

TEST_F(ReuseTest, CanBeSwitchedOff) {
  auto params = slots(1);
  params.no_reuse = 1;
  serve(params);
  const std::string text = long_text(60);
  ask(text);
  EXPECT_EQ(cached(ask(text)), 0);
  EXPECT_EQ(stats().reused_tokens, 0u);
  EXPECT_EQ(stats().prompt_tokens, 2 * encode(text).size());
  moe_service_free(std::exchange(service_, nullptr));
  params.no_reuse = 2;
  EXPECT_EQ(moe_service_create(model_, &params, &service_, &error_), MOE_ERR_RANGE);
}

class FolderTest : public ReuseTest {
 protected:
  moe_service_params kept(int32_t n_slots, uint64_t most_bytes = 0) {
    auto params = slots(n_slots);
    params.cache_folder = name_.c_str();
    params.cache_bytes = most_bytes;
    return params;
  }
  void end() {
    wait_for_all();
    moe_service_free(std::exchange(service_, nullptr));
  }
  /// Asks, and waits until the folder has the text: a busy service gives its slot to the next one.
  Json ask_and_keep(const std::string& prompt, int max_tokens = 8) {
    const uint64_t before = stats().cache_bytes;
    Json answer = ask(prompt, max_tokens);
    const auto late = std::chrono::steady_clock::now() + std::chrono::minutes(1);
    while (stats().cache_bytes <= before && std::chrono::steady_clock::now() < late) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    EXPECT_GT(stats().cache_bytes, before) << prompt;
    return answer;
  }
  std::vector<std::filesystem::path> files() {
    std::vector<std::filesystem::path> files;
    for (const auto& entry : std::filesystem::directory_iterator(name_)) {
      files.push_back(entry.path());
    }
    return files;
  }

  const moe::test::TempFolder folder_;
  const std::string name_ = folder_.file("below");
};

TEST_F(FolderTest, ANewServiceGoesOn) {
  const std::string text = long_text(80), other = "Anna saw " + long_text(70) + "Ben said no.";
  serve(kept(2));
  ask(text);
  ask(other);
  end();
  ASSERT_EQ(files().size(), 2u);
  const auto mode = std::filesystem::status(files()[0]).permissions();
  EXPECT_EQ(mode, std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
  serve(kept(2));
  EXPECT_EQ(stats().cache_bytes,
            std::filesystem::file_size(files()[0]) + std::filesystem::file_size(files()[1]));
  const std::string longer = other + " Then";
  EXPECT_EQ(cached(ask_and_keep(longer)), common(other, longer));
  ask_and_keep(other, 20);  // more of the same text, in place of it
  ask("The");               // too short to be kept
  end();
  EXPECT_EQ(files().size(), 3u);
  serve(kept(1));
  const std::string longest = longer + " they sat down.";
  EXPECT_EQ(cached(ask(longest)), common(longer, longest));
  EXPECT_EQ(stats().cache_errors, 0u);
}

TEST_F(FolderTest, HasAtMostSoManyBytes) {
  serve(kept(1));
  ask("Anna " + long_text(80));
  end();
  const uint64_t size = std::filesystem::file_size(files()[0]);
  serve(kept(3, 5 * size / 2));
  for (const char* begin : {"Ben ", "Clara ", "Dora "}) ask(begin + long_text(80));
  end();
  EXPECT_EQ(files().size(), 2u);
  serve(kept(3, 1000));  // less than one text
  EXPECT_TRUE(files().empty());
  ask(long_text(80));
  end();
  EXPECT_TRUE(files().empty());
}

// A file that is damaged, foreign or gone is a text that was not kept.
TEST_F(FolderTest, FilesThatAreOfNoUse) {
  const std::string text = long_text(80);
  const auto keep = [&] {
    std::filesystem::remove_all(name_);
    serve(kept(1));
    ask(text);
    end();
    ASSERT_EQ(files().size(), 1u);
  };
  const auto change = [&](std::streamoff at) {
    std::fstream file(files()[0], std::ios::binary | std::ios::in | std::ios::out);
    file.seekg(at);
    const auto byte = static_cast<char>(file.get() ^ 1);
    file.seekp(at);
    file.put(byte);
  };
  const auto expect_of_no_use = [&] {
    serve(kept(1));
    EXPECT_EQ(cached(ask(text)), 0);
    EXPECT_EQ(stats().cache_errors, 0u);
    end();
  };
  // The format, the model, the number of tokens, a token, keys and values.
  for (const std::streamoff at : {0, 20, 35, 64, 600, 3000}) {
    keep();
    change(at);
    expect_of_no_use();
  }
  keep();
  std::filesystem::resize_file(files()[0], 500);
  expect_of_no_use();
  keep();
  serve(kept(1));
  std::filesystem::remove(files()[0]);
  EXPECT_EQ(cached(ask(text)), 0);
}

TEST_F(FolderTest, FoldersThatAreRefused) {
  auto params = kept(1);
  params.no_reuse = 1;
  EXPECT_EQ(moe_service_create(model_, &params, &service_, &error_), MOE_ERR_ARGUMENT);
  params = kept(1);
  params.cache_folder = kStories;
  EXPECT_EQ(moe_service_create(model_, &params, &service_, &error_), MOE_ERR_IO);
  EXPECT_NE(std::string(error_.text).find(kStories), std::string::npos);
}

// Many texts with common beginnings, in slots that are too few: each as alone.
TEST_F(ReuseTest, NoAnswerDependsOnIt) {
  const std::string begins[] = {long_text(30), long_text(50) + "A bird ", "The little "};
  for (const int32_t n_slots : {2, 5}) {
    serve(slots(n_slots));
    std::vector<Json> requests;
    std::vector<Answer> answers(40);
    for (size_t i = 0; i < answers.size(); ++i) {
      const std::string& begin = begins[i * 7 % 3];
      requests.push_back({{"prompt", begin.substr(0, begin.size() - i % 5) + std::to_string(i % 4)},
                          {"max_tokens", 1 + i % 9},
                          {"seed", i}});
      submit(answers[i], requests.back());
    }
    for (size_t i = 0; i < answers.size(); ++i) {
      answers[i].wait();
      EXPECT_EQ(answers[i].text(), alone(requests[i]).text) << i;
    }
    EXPECT_GT(stats().reused_tokens, 300u);
    moe_service_free(std::exchange(service_, nullptr));
  }
}

}  // namespace
}  // namespace moe_serve_test
