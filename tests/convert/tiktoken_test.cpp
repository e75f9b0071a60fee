// SPDX-License-Identifier: MIT
// tiktoken.model and qwen.tiktoken, with ids of the package `tiktoken`
// (tests/parity/tiktoken_ids.py).

#include <gtest/gtest.h>

#include <optional>

#include "formats/import/failure.h"
#include "src/convert/gguf/gguf_source.h"
#include "src/convert/tokenizer/tokenizer_json.h"
#include "tests/convert/checkpoint_builder.h"
#include "tests/text/tokenizer_support.h"

namespace moe {
namespace {

class Tiktoken : public testing::Test {
 protected:
  // A folder with weights, this vocabulary and a configuration.
  Status open(const std::string& vocabulary, const Json& config,
              const char* file = "tiktoken.model") {
    folder_.write(file, vocabulary);
    folder_.write("tokenizer_config.json", config.dump());
    folder_.write("model.safetensors", test::safetensors_text(test::RawTensors{}));
    return guarded([&] { checkpoint_.emplace(open_checkpoint(folder_.path())); });
  }
  test::TempFolder folder_;
  std::optional<Checkpoint> checkpoint_;
};

TEST_F(Tiktoken, IdsAreThoseOfThePackage) {
  for (const auto& [cases, file] :
       {std::pair{"kimi.json", "tiktoken.model"}, {"qwen_tiktoken.json", "qwen.tiktoken"}}) {
    const Json golden = read_json_file(std::string("tests/data/text/") + cases);
    const Status status =
        open(golden.at("vocabulary").get<std::string>(), golden.at("tokenizer_config"), file);
    ASSERT_TRUE(status.ok()) << status.text();
    const TokenizerData read = read_tokenizer(*checkpoint_, "tokenizer.json");
    EXPECT_TRUE(read.warnings.empty()) << read.warnings[0];
    const auto loaded = load(read);
    ASSERT_TRUE(loaded->status.ok()) << loaded->status.text();
    for (const Json& c : golden.at("cases")) {
      const auto text = c.at("text").get<std::string>();
      IdList expected;
      for (const Json& id : c.at("ids")) expected.push_back(id.get<int32_t>());
      EXPECT_EQ(encode(*loaded->tokenizer, text), expected) << text;
      // Qwen's texts are composed first.
      if (cases[0] != 'k') continue;
      EXPECT_EQ(decode(*loaded->tokenizer, expected), text);
    }
    EXPECT_GE(golden.at("cases").size(), 13U);
  }
}

TEST_F(Tiktoken, AnUnknownClassIsNotRead) {
  ASSERT_TRUE(open("YQ== 0\n", {{"tokenizer_class", "OtherTokenizer"}}).ok());
  EXPECT_FALSE(checkpoint_->has_document("tokenizer.json"));
}

TEST_F(Tiktoken, ErrorsNameTheLine) {
  const Json kimi = {{"tokenizer_class", "TikTokenTokenizer"}};
  for (const auto& [text, what] :
       {std::pair{"YQ== 0\n!! 1\n", "line 2: expected a token in base64"},
        {"YQ== 0\nYg==\n", "line 2: expected a token"},
        {"YQ== x\n", "line 1: expected a rank"},
        {"YQ== 0\nYg== 0\n", "line 2: expected a rank of its own"},
        {"YQ== 0\nYg== 2\n", "no token has rank 1"},
        {"YQ== 0\nYQ== 1\n", "are the same"},
        {"", "no tokens"}}) {
    const Status status = open(text, kimi);
    EXPECT_EQ(status.code(), MOE_ERR_FORMAT) << text;
    EXPECT_NE(std::string(status.text()).find(what), std::string::npos) << status.text();
  }
}

TEST_F(Tiktoken, AddedTokensAreChecked) {
  const auto opened = [&](const Json& decoder) {
    return open("YQ== 0\nYg== 1\n",
                {{"tokenizer_class", "TikTokenTokenizer"}, {"added_tokens_decoder", decoder}});
  };
  const Json named = {{"content", "<s>"}};
  for (const auto& [decoder, what] :
       {std::pair{Json::array(), "added_tokens_decoder: expected an object"},
        {Json(5), "added_tokens_decoder: expected an object"},
        {Json{{"2x", named}}, "\"2x\" is not a token's id"},
        {Json{{"2", 5}}, "added_tokens_decoder[\"2\"]"}}) {
    const Status status = opened(decoder);
    EXPECT_EQ(status.code(), MOE_ERR_FORMAT) << decoder.dump() << ": " << status.text();
    EXPECT_NE(std::string(status.text()).find(what), std::string::npos) << status.text();
  }
  EXPECT_TRUE(opened(nullptr).ok());
  const Status status = opened(Json{{"3", named}});
  ASSERT_TRUE(status.ok()) << status.text();
  EXPECT_EQ(checkpoint_->document("tokenizer.json").at("added_tokens")[1].at("content"), "<s>");
}

}  // namespace
}  // namespace moe
